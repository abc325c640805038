//! The devices of a volume: requests that come back later, and requests that are waited for.
//!
//! Invariants:
//! 1. Every request handed to a device comes back to whoever sent it, once: as the result of
//!    [`Members::perform`], or through [`Members::poll`] and [`Members::wait_one`].
//! 2. A device that answers no longer is told from one that is slow: it has nothing in flight and gives
//!    nothing back; what it owed comes back as failed.

use std::collections::VecDeque;
use tierstone_base::Token;
use tierstone_base::collections::Map;
use tierstone_media::{BlockDevice, DeviceError, DeviceErrorKind, IoCompletion, IoRequest, Wait};

/// The devices by index; `None` for one that is not there.
#[derive(Debug)]
pub(crate) struct Members<D> {
    devices: Vec<Option<D>>,
    next_token: Token,
    /// Came back while something else was waited for.
    inbox: VecDeque<(usize, IoCompletion)>,
    /// What each device owes, for the case that it never gives it back.
    owed: Map<Token, usize>,
}

impl<D: BlockDevice> Members<D> {
    pub(crate) fn new(devices: Vec<Option<D>>) -> Self {
        Members { devices, next_token: 1, inbox: VecDeque::new(), owed: Map::default() }
    }

    pub(crate) fn device(&self, index: usize) -> Option<&D> {
        self.devices.get(index).and_then(Option::as_ref)
    }

    /// Puts another device in a place; what the old one owed comes back as failed.
    pub(crate) fn exchange(&mut self, index: usize, device: Option<D>) -> Option<D> {
        self.give_up(index);
        self.devices.get_mut(index).and_then(|place| std::mem::replace(place, device))
    }

    /// A token for a request, unlike any other.
    pub(crate) fn token(&mut self) -> Token {
        self.next_token += 1;
        self.next_token
    }

    /// Sends requests that carry tokens of [`Members::token`]; they come back by poll or wait.
    pub(crate) fn send(&mut self, requests: Vec<(usize, IoRequest)>) {
        let mut batches: Vec<Vec<IoRequest>> = Vec::new();
        batches.resize_with(self.devices.len(), Vec::new);
        for (index, request) in requests {
            self.owed.insert(request.token, index);
            batches[index].push(request);
        }
        for (index, mut batch) in batches.into_iter().enumerate().filter(|(_, batch)| !batch.is_empty()) {
            match &mut self.devices[index] {
                Some(device) => device.submit(&mut batch),
                None => self.inbox.extend(batch.into_iter().map(|request| (index, absent(index, request)))),
            }
        }
    }

    /// Sends requests and waits for exactly these; results in their order. Others' stay for poll.
    pub(crate) fn perform(&mut self, mut requests: Vec<(usize, IoRequest)>) -> Vec<IoCompletion> {
        let mut waiting: Map<Token, usize> = Map::default();
        for (place, (_, request)) in requests.iter_mut().enumerate() {
            request.token = self.token();
            waiting.insert(request.token, place);
        }
        let mut results: Vec<Option<IoCompletion>> = Vec::new();
        results.resize_with(requests.len(), || None);
        let mut aside = std::mem::take(&mut self.inbox);
        self.send(requests);
        while !waiting.is_empty() {
            while let Some((index, done)) = self.inbox.pop_front() {
                match waiting.remove(&done.token) {
                    Some(place) => {
                        self.owed.remove(&done.token);
                        results[place] = Some(done);
                    }
                    None => aside.push_back((index, done)),
                }
            }
            let next = waiting.keys().filter_map(|token| self.owed.get(token)).min().copied();
            match next {
                Some(index) => self.collect(index, Wait::One),
                None => break,
            }
        }
        aside.append(&mut self.inbox);
        self.inbox = aside;
        results.into_iter().flatten().collect()
    }

    /// What has come back, without waiting.
    pub(crate) fn poll(&mut self, out: &mut Vec<(usize, IoCompletion)>) {
        for index in 0..self.devices.len() {
            if self.devices[index].as_ref().is_some_and(|device| device.in_flight() > 0) {
                self.collect(index, Wait::Poll);
            }
        }
        self.drain(out);
    }

    /// Waits until something comes back; nothing when nothing is owed.
    pub(crate) fn wait_one(&mut self, out: &mut Vec<(usize, IoCompletion)>) {
        if self.inbox.is_empty()
            && let Some(&index) = self.owed.iter().min().map(|(_, index)| index)
        {
            self.collect(index, Wait::One);
        }
        self.drain(out);
    }

    /// Whether anything is owed.
    pub(crate) fn is_idle(&self) -> bool {
        self.owed.is_empty() && self.inbox.is_empty()
    }

    fn drain(&mut self, out: &mut Vec<(usize, IoCompletion)>) {
        for (index, done) in self.inbox.drain(..) {
            self.owed.remove(&done.token);
            out.push((index, done));
        }
    }

    fn collect(&mut self, index: usize, wait: Wait) {
        let Some(device) = self.devices[index].as_mut() else {
            self.give_up(index);
            return;
        };
        let mut done = Vec::new();
        let count = device.complete(wait, &mut done);
        let is_lost = wait == Wait::One && count == 0 && device.in_flight() == 0;
        self.inbox.extend(done.into_iter().map(|done| (index, done)));
        if is_lost {
            self.give_up(index);
        }
    }

    /// Everything that device `index` owes comes back as failed. The requests' buffers are lost with it.
    fn give_up(&mut self, index: usize) {
        let back: Vec<Token> = self.inbox.iter().map(|(_, done)| done.token).collect();
        let mut lost: Vec<Token> =
            self.owed.iter().filter(|(_, at)| **at == index).map(|(&token, _)| token).collect();
        lost.retain(|token| !back.contains(token));
        lost.sort_unstable();
        for token in lost {
            self.inbox.push_back((index, absent(index, IoRequest::flush(token))));
        }
    }
}

fn absent(index: usize, request: IoRequest) -> IoCompletion {
    let IoRequest { token, kind, offset, buffer } = request;
    let error =
        DeviceError::new(DeviceErrorKind::Failed, format!("member {index} of the volume is not there"));
    IoCompletion { token, kind, offset, buffer, result: Err(error) }
}
