//! One connection: what is to be sent, what is awaited, and the replies as they come.
//!
//! Invariant: `input[reply_start..front]` is the part of the current reply that was skimmed already; it
//! is kept only when replies are looked into.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;

use tierstone_client::Stream;
use tierstone_wire::resp::{ReplyLimits, ReplySkimmer, SkimProgress, Skimmed};

/// Room that a read is offered at least.
const READ_SIZE_BYTES: usize = 16 << 10;
/// Storage that stays allocated between replies and commands.
const KEPT_BUFFER_BYTES: usize = 1 << 20;

/// Why a connection is of no use any more.
#[derive(Debug)]
pub(crate) struct Broken(pub(crate) String);

/// A connection of a generator, with what it keeps of each operation under way.
#[derive(Debug)]
pub(crate) struct Link<Pending> {
    pub(crate) stream: Stream,
    pub(crate) pending: VecDeque<Pending>,
    /// Commands to send; those before `sent` are gone.
    pub(crate) output: Vec<u8>,
    sent: usize,
    input: Vec<u8>,
    reply_start: usize,
    front: usize,
    back: usize,
    skimmer: ReplySkimmer,
    keeps_replies: bool,
    /// Whether the poll tells when the socket takes bytes again.
    pub(crate) is_watching_writes: bool,
    pub(crate) is_alive: bool,
}

impl<Pending> Link<Pending> {
    /// `keeps_replies`: whole replies are handed out, not only their kind.
    pub(crate) fn new(stream: Stream, pipeline: usize, keeps_replies: bool) -> Link<Pending> {
        Link {
            stream,
            pending: VecDeque::with_capacity(pipeline.min(1024)),
            output: Vec::new(),
            sent: 0,
            input: Vec::new(),
            reply_start: 0,
            front: 0,
            back: 0,
            skimmer: ReplySkimmer::new(ReplyLimits::default()),
            keeps_replies,
            is_watching_writes: false,
            is_alive: true,
        }
    }

    /// Whether commands wait to be sent.
    pub(crate) fn has_output(&self) -> bool {
        self.sent < self.output.len() || self.stream.has_unsent()
    }

    /// Sends what the socket takes; the number of bytes.
    pub(crate) fn flush(&mut self) -> Result<usize, Broken> {
        let before = self.sent;
        while self.sent < self.output.len() {
            match self.stream.write(&self.output[self.sent..]) {
                Ok(0) => return Err(Broken("the server takes no more bytes".into())),
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Broken(format!("send: {error}"))),
            }
        }
        match self.stream.flush() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(Broken(format!("send: {error}"))),
            Ok(()) => {}
        }
        let count = self.sent - before;
        if self.sent == self.output.len() {
            self.output.clear();
            if self.output.capacity() > KEPT_BUFFER_BYTES {
                self.output = Vec::new();
            }
            self.sent = 0;
        }
        Ok(count)
    }

    /// Takes in what has come, as far as the buffer has room: the number of bytes, and whether there may
    /// be more.
    pub(crate) fn fill(&mut self) -> Result<(usize, bool), Broken> {
        self.make_room();
        let room = self.input.len() - self.back;
        loop {
            match self.stream.read(&mut self.input[self.back..]) {
                Ok(0) => return Err(Broken("the server closed the connection".into())),
                Ok(count) => {
                    self.back += count;
                    return Ok((count, count == room));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok((0, false)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Broken(format!("receive: {error}"))),
            }
        }
    }

    /// The next whole reply that has come: its kind and where in the input it lies. If replies are not
    /// kept, only what of it came last is there.
    #[inline]
    pub(crate) fn next_reply(&mut self) -> Result<Option<(Skimmed, Range<usize>)>, Broken> {
        match self.skimmer.skim(&self.input[self.front..self.back]) {
            Ok(SkimProgress::Complete { consumed, kind }) => {
                let start = if self.keeps_replies { self.reply_start } else { self.front };
                self.front += consumed;
                self.reply_start = self.front;
                Ok(Some((kind, start..self.front)))
            }
            Ok(SkimProgress::Incomplete { consumed }) => {
                self.front += consumed;
                if !self.keeps_replies {
                    self.reply_start = self.front;
                }
                Ok(None)
            }
            Err(error) => Err(Broken(format!("the server's bytes are not of this protocol: {error:?}"))),
        }
    }

    /// The bytes of a reply that [`Link::next_reply`] found, until the next [`Link::fill`].
    pub(crate) fn reply(&self, place: Range<usize>) -> &[u8] {
        &self.input[place]
    }

    fn make_room(&mut self) {
        if self.reply_start == self.back {
            (self.reply_start, self.front, self.back) = (0, 0, 0);
            if self.input.len() > KEPT_BUFFER_BYTES {
                self.input = Vec::new();
            }
        }
        if self.input.len() - self.back >= READ_SIZE_BYTES {
            return;
        }
        if self.reply_start >= self.input.len() / 2 {
            self.input.copy_within(self.reply_start..self.back, 0);
            self.back -= self.reply_start;
            self.front -= self.reply_start;
            self.reply_start = 0;
        }
        if self.input.len() - self.back < READ_SIZE_BYTES {
            let size = (self.input.len() * 2).max(self.back + READ_SIZE_BYTES);
            self.input.resize(size, 0);
        }
    }
}
