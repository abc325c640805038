//! The text that `MONITOR` prints, of any server of the protocol: from `redis-cli MONITOR`, or from a server itself.
//!
//! Bytes come in pieces of any size. A line that is none of the format is counted and passed over.

use tierstone_base::Result;

use super::commands::{self, Heard};
use super::monitor_line::{Line, LineParser, parse_head};
use super::{DATABASE_MAX, ImportCounts, Sink, TraceRecord};

/// Milliseconds since 1970 of the first line of the format in the first bytes of a text; 0 if there is none.
pub fn first_ms(bytes: &[u8]) -> u64 {
    let mut import = MonitorImport::new();
    // A sink that takes everything has no errors.
    let _ = import.feed(bytes, &mut |_| Ok(()));
    import.began_ms()
}

/// Makes records of lines. Memory: some 8 MiB at most, whatever comes.
#[derive(Debug)]
pub struct MonitorImport {
    parser: LineParser,
    counts: ImportCounts,
    /// Microseconds since 1970 of the first line, once there was one.
    began_us: Option<u64>,
    time_us: u64,
}

impl Default for MonitorImport {
    fn default() -> Self {
        Self::new()
    }
}

impl MonitorImport {
    /// Before the first line.
    pub fn new() -> MonitorImport {
        MonitorImport {
            parser: LineParser::new(),
            counts: ImportCounts::default(),
            began_us: None,
            time_us: 0,
        }
    }

    /// Milliseconds since 1970 of the first line; 0 while there was none.
    pub fn began_ms(&self) -> u64 {
        self.began_us.unwrap_or(0) / 1_000
    }

    /// What became of the lines so far.
    pub fn counts(&self) -> &ImportCounts {
        &self.counts
    }

    /// Takes the bytes that follow; every record goes to `sink`.
    ///
    /// # Errors
    /// Those of `sink`.
    pub fn feed(&mut self, bytes: &[u8], sink: Sink<'_>) -> Result<()> {
        for &byte in bytes {
            match byte {
                b'\n' => self.end_line(sink)?,
                _ => self.parser.push(byte),
            }
        }
        Ok(())
    }

    /// Nothing more comes. A last line without its end counts as refused: nobody knows whether it is whole.
    pub fn finish(&mut self) {
        if !self.parser.is_empty() {
            self.counts.lines += 1;
            self.counts.refuse();
            self.parser.clear();
        }
    }

    fn end_line(&mut self, sink: Sink<'_>) -> Result<()> {
        self.counts.lines += 1;
        let result = match self.parser.end() {
            Line::Empty => Ok(()),
            Line::Refused => {
                self.counts.refuse();
                Ok(())
            }
            Line::Command => self.command(sink),
        };
        self.parser.clear();
        result
    }

    fn command(&mut self, sink: Sink<'_>) -> Result<()> {
        let head = parse_head(self.parser.head()).filter(|(_, database, _)| *database <= DATABASE_MAX);
        let Some((at_us, database, _)) = head else {
            self.counts.refuse();
            return Ok(());
        };
        let began_us = *self.began_us.get_or_insert(at_us);
        let time_us = at_us.saturating_sub(began_us);
        let is_late = time_us < self.time_us;
        self.time_us = self.time_us.max(time_us);
        let counts = &mut self.counts;
        let line = commands::Line {
            arguments: self.parser.arguments(),
            has_more: self.parser.has_more(),
            time_us: self.time_us,
            wall_ms: at_us / 1_000,
            database,
        };
        let heard = line.records(&mut |record: &TraceRecord| {
            counts.note(record);
            counts.out_of_order += u64::from(is_late);
            sink(record)
        })?;
        match heard {
            Heard::Records => {}
            Heard::PassedOver => self.counts.passed_over += 1,
            Heard::KeyTooLong => self.counts.keys_too_long += 1,
        }
        Ok(())
    }
}
