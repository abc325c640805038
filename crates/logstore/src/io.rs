//! The shard's device requests: what each token in flight stands for.

use crate::location::Location;
use tierstone_base::Token;
use tierstone_base::collections::Map;
use tierstone_base::histogram::LatencyBuckets;
use tierstone_engine::Cost;
use tierstone_media::{IoBuffer, IoCompletion, IoKind, IoRequest};

/// Which of a shard's two logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamId {
    /// What users write.
    Hot,
    /// What the cleaner moves.
    Cold,
}

/// What a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoTag {
    /// A group of a log.
    Group {
        /// The log.
        stream: StreamId,
        /// The group's number.
        number: u64,
        /// Whether a flush makes it durable, later.
        is_lazy: bool,
    },
    /// What makes the lazy groups of a log durable.
    Flush {
        /// The log.
        stream: StreamId,
    },
    /// Summary and footer of a segment.
    Seal {
        /// The log.
        stream: StreamId,
        /// The segment.
        segment: u32,
    },
    /// A free header.
    Free {
        /// The segment.
        segment: u32,
    },
    /// A record.
    Record {
        /// Where it begins.
        location: Location,
    },
    /// Records that lie near each other.
    Run {
        /// Which run.
        number: u64,
    },
    /// The summary of a segment that is being cleaned.
    CleanSummary {
        /// The segment.
        segment: u32,
    },
    /// The summary of a segment whose entries get their tag bits back.
    RefreshSummary {
        /// The segment.
        segment: u32,
    },
    /// The summary of a segment that is walked for what has expired.
    SweepSummary {
        /// The segment.
        segment: u32,
    },
    /// The summary of a segment whose records may be evicted.
    EvictSummary {
        /// The segment.
        segment: u32,
    },
    /// Records of a segment that may be evicted.
    EvictPiece {
        /// The segment.
        segment: u32,
    },
    /// Summary or records of a segment that is being verified.
    Verify {
        /// The segment.
        segment: u32,
    },
    /// A part of a segment, or the superblock, that is scrubbed.
    Scrub,
    /// The summary of a segment that a split scans.
    SplitSummary {
        /// The segment.
        segment: u32,
        /// Which read of a split: one that was given up may have read the same segment.
        read: u64,
    },
    /// A piece of a segment that a split scans.
    SplitPiece {
        /// The segment.
        segment: u32,
        /// As above.
        read: u64,
    },
    /// Summary or records of a segment that a backup reads.
    Backup {
        /// The segment.
        segment: u32,
        /// Which read of a backup: one that was given up may have read the same segment.
        read: u64,
    },
    /// Space made ready ahead of its use.
    Prepare {
        /// The segment.
        segment: u32,
    },
    /// Space given back.
    Discard {
        /// The segment.
        segment: u32,
    },
    /// A piece of a checkpoint, or what commits it.
    Checkpoint {
        /// The segment.
        segment: u32,
    },
    /// A piece of a segment that is being cleaned.
    CleanPiece {
        /// The segment.
        segment: u32,
    },
}

/// Requests to be handed to the driver, and the meaning of those in flight.
#[derive(Debug, Default)]
pub struct Requests {
    next_token: Token,
    /// What each token in flight stands for, and since when.
    tags: Map<Token, (IoTag, u64)>,
    now_us: u64,
    waiting: Vec<IoRequest>,
    cost: Cost,
    /// Whether a flush follows each durable write.
    pub durable_writes_flush: bool,
    /// Reads of records, from request to answer.
    pub read_latency: LatencyBuckets,
    /// Durable writes of groups, from request to answer.
    pub commit_latency: LatencyBuckets,
}

impl Requests {
    /// Tells the time, from which latencies are counted.
    pub fn set_now_us(&mut self, now_us: u64) {
        self.now_us = now_us;
    }

    /// Adds a request.
    pub fn push(&mut self, tag: IoTag, kind: IoKind, offset: u64, buffer: IoBuffer) {
        self.next_token += 1;
        let bytes = buffer.len() as u64;
        match kind {
            IoKind::Read => {
                self.cost.reads += 1;
                self.cost.bytes_read += bytes;
            }
            _ => {
                self.cost.writes += 1;
                self.cost.bytes_written += bytes;
                self.cost.flushes += u64::from(kind == IoKind::WriteDurable && self.durable_writes_flush);
            }
        }
        self.tags.insert(self.next_token, (tag, self.now_us));
        self.waiting.push(IoRequest { token: self.next_token, kind, offset, buffer: Some(buffer) });
    }

    /// What a completed request was for.
    pub fn finish(&mut self, token: Token) -> Option<IoTag> {
        let (tag, since_us) = self.tags.remove(&token)?;
        let latency_us = self.now_us.saturating_sub(since_us);
        match tag {
            IoTag::Record { .. } | IoTag::Run { .. } => self.read_latency.record_us(latency_us),
            IoTag::Group { stream: StreamId::Hot, is_lazy: false, .. } => {
                self.commit_latency.record_us(latency_us)
            }
            _ => {}
        }
        Some(tag)
    }

    /// Adds a flush.
    pub fn push_flush(&mut self, tag: IoTag) {
        self.cost.flushes += 1;
        self.push_space(tag, IoKind::Flush, 0);
    }

    /// Adds a request about space, without bytes.
    pub fn push_space(&mut self, tag: IoTag, kind: IoKind, offset: u64) {
        self.next_token += 1;
        self.tags.insert(self.next_token, (tag, self.now_us));
        self.waiting.push(IoRequest { token: self.next_token, kind, offset, buffer: None });
    }

    /// The device had no space for this write; it keeps its meaning until it is submitted again.
    pub fn refuse(&mut self, token: Token, tag: IoTag) {
        self.tags.insert(token, (tag, self.now_us));
    }

    /// What a request is for that has not finished.
    pub fn tag(&self, token: Token) -> Option<IoTag> {
        self.tags.get(&token).map(|(tag, _)| *tag)
    }

    /// Submits a refused write again, as it was.
    pub fn resubmit(&mut self, completion: IoCompletion) {
        let IoCompletion { token, kind, offset, buffer, .. } = completion;
        self.waiting.push(IoRequest { token, kind, offset, buffer });
    }

    /// Moves the waiting requests to the driver's vector.
    pub fn drain_into(&mut self, requests: &mut Vec<IoRequest>) {
        requests.append(&mut self.waiting);
    }

    /// Requests waiting or in flight.
    pub fn outstanding(&self) -> usize {
        self.tags.len()
    }

    /// Everything asked of the device so far.
    pub fn cost(&self) -> Cost {
        self.cost
    }
}
