//! Channels: what listeners must hear, may hear, and may not.
//!
//! Checked rules, by moments of the one counter of the run's [`History`](crate::history::History):
//! 1. A message was published on its channel, comes once to a listener, after the answer to its `SUBSCRIBE`
//!    and before that to its `UNSUBSCRIBE`, and was not answered before the listener asked for the channel.
//! 2. Messages of one publisher come in the order in which it sent them.
//! 3. When `UNSUBSCRIBE` is answered, everything has come that was published between the answer to
//!    `SUBSCRIBE` and the request to leave.
//! 4. `PUBLISH` counts every listener that was one all the while, and none that was not one at any time; one
//!    whose connection broke off may be counted for some time.

use std::collections::BTreeMap;

/// Names a message; its text is `m` and this number.
pub type MessageId = usize;

#[derive(Clone, Debug)]
struct Message {
    publisher: u64,
    channel: u32,
    asked: u64,
    answered: Option<u64>,
}

/// One listener's time on a channel.
#[derive(Clone, Debug)]
struct Listening {
    connection: u64,
    channel: u32,
    asked: u64,
    answered: Option<u64>,
    leaving: Option<u64>,
    /// Left, or the connection was gone.
    ended: Option<u64>,
    broke_off: bool,
    heard: Vec<MessageId>,
}

/// All messages and listeners of a run.
#[derive(Clone, Debug, Default)]
pub struct Channels {
    messages: Vec<Message>,
    listening: Vec<Listening>,
    /// Messages that listeners have heard.
    pub heard: usize,
}

/// The channel with this number.
pub fn name(channel: u32) -> Vec<u8> {
    format!("news:{channel}").into_bytes()
}

fn number(text: &[u8], prefix: &str) -> Option<usize> {
    std::str::from_utf8(text).ok()?.strip_prefix(prefix)?.parse().ok()
}

impl Channels {
    /// A message is about to be published.
    pub fn publish(&mut self, publisher: u64, channel: u32, asked: u64) -> MessageId {
        self.messages.push(Message { publisher, channel, asked, answered: None });
        self.messages.len() - 1
    }

    /// The answer has come: so many listeners.
    ///
    /// # Errors
    /// With what is wrong with the number.
    pub fn published(&mut self, id: MessageId, count: i64, moment: u64) -> Result<(), String> {
        let message = &mut self.messages[id];
        message.answered = Some(moment);
        let (asked, channel) = (message.asked, message.channel);
        let there = || self.listening.iter().filter(|listening| listening.channel == channel);
        let throughout = |listening: &&Listening| {
            listening.answered.is_some_and(|at| at < asked)
                && listening.leaving.is_none_or(|at| at > moment)
                && listening.ended.is_none_or(|at| at > moment)
        };
        let sometimes = |listening: &&Listening| {
            listening.asked < moment && (listening.broke_off || listening.ended.is_none_or(|at| at > asked))
        };
        let (least, most) = (there().filter(throughout).count(), there().filter(sometimes).count());
        match usize::try_from(count) {
            Ok(count) if (least..=most).contains(&count) => Ok(()),
            _ => Err(format!("m{id} is said to reach {count} listeners, not {least} to {most}")),
        }
    }

    /// A connection is about to ask for a channel.
    pub fn join(&mut self, connection: u64, channel: u32, asked: u64) {
        self.listening.push(Listening {
            connection,
            channel,
            asked,
            answered: None,
            leaving: None,
            ended: None,
            broke_off: false,
            heard: Vec::new(),
        });
    }

    /// A connection is about to leave a channel.
    pub fn leave(&mut self, connection: u64, channel: u32, moment: u64) {
        if let Some(listening) = self.current(connection, channel) {
            listening.leaving = Some(moment);
        }
    }

    fn current(&mut self, connection: u64, channel: u32) -> Option<&mut Listening> {
        let is_it = |listening: &&mut Listening| {
            listening.connection == connection && listening.channel == channel && listening.ended.is_none()
        };
        self.listening.iter_mut().find(is_it)
    }

    /// A `SUBSCRIBE` was answered.
    pub fn joined(&mut self, connection: u64, channel: u32, moment: u64) {
        if let Some(listening) = self.current(connection, channel) {
            listening.answered = Some(moment);
        }
    }

    /// An `UNSUBSCRIBE` was answered.
    ///
    /// # Errors
    /// With what has not come.
    pub fn left(&mut self, connection: u64, channel: u32, moment: u64) -> Result<(), String> {
        let Some(listening) = self.current(connection, channel) else { return Ok(()) };
        listening.ended = Some(moment);
        let (heard, answered, leaving) = (listening.heard.clone(), listening.answered, listening.leaving);
        let (Some(since), Some(until)) = (answered, leaving) else { return Ok(()) };
        let is_owed = |message: &Message| {
            message.channel == channel
                && message.asked > since
                && message.answered.is_some_and(|answered| answered < until)
        };
        let missed = (0..).zip(&self.messages).find(|(id, message)| is_owed(message) && !heard.contains(id));
        match missed {
            Some((id, _)) => Err(format!("m{id} has not come to connection {connection}")),
            None => Ok(()),
        }
    }

    /// A connection is gone.
    pub fn gone(&mut self, connection: u64, moment: u64) {
        let of_it = |listening: &&mut Listening| listening.connection == connection;
        let open = self.listening.iter_mut().filter(of_it).filter(|listening| listening.ended.is_none());
        for listening in open {
            listening.ended = Some(moment);
            listening.broke_off = true;
        }
    }

    /// The process has ended, and with it all that listened.
    pub fn end_life(&mut self, moment: u64) {
        for listening in &mut self.listening {
            listening.broke_off = false;
            listening.ended.get_or_insert(moment);
        }
    }

    /// A message has come.
    ///
    /// # Errors
    /// When it may not.
    pub fn hear(&mut self, connection: u64, channel: &[u8], payload: &[u8]) -> Result<(), String> {
        let shown = String::from_utf8_lossy(payload).into_owned();
        let (Some(channel), Some(id)) = (number(channel, "news:"), number(payload, "m")) else {
            return Err(format!("{shown} was never published"));
        };
        let channel = channel as u32;
        let messages = std::mem::take(&mut self.messages);
        let verdict = match (messages.get(id), self.current(connection, channel)) {
            (Some(message), Some(listening)) if message.channel == channel => listening.take(id, &messages),
            (_, None) => Err(format!("{shown} comes to who does not listen")),
            _ => Err(format!("{shown} was never published there")),
        };
        self.messages = messages;
        self.heard += 1;
        verdict
    }
}

impl Listening {
    fn take(&mut self, id: MessageId, messages: &[Message]) -> Result<(), String> {
        let message = &messages[id];
        if self.answered.is_none() {
            return Err(format!("m{id} comes before SUBSCRIBE is answered"));
        }
        if message.answered.is_some_and(|answered| answered < self.asked) {
            return Err(format!("m{id} was published before its listener came"));
        }
        let newest: BTreeMap<u64, MessageId> =
            self.heard.iter().map(|&heard| (messages[heard].publisher, heard)).collect();
        if newest.get(&message.publisher).is_some_and(|newest| *newest >= id) {
            return Err(format!("m{id} comes after m{}", newest[&message.publisher]));
        }
        self.heard.push(id);
        Ok(())
    }
}

#[cfg(test)]
#[path = "channels_test.rs"]
mod channels_test;
