//! Reads: from one member, and when that fails from the next, or from all others by parity.

use crate::core::{Core, Part};
use crate::layout::{Place, Redundancy};
use tierstone_media::{BlockDevice, DeviceError, DeviceErrorKind, IoBuffer, IoRequest};

impl<D: BlockDevice> Core<D> {
    pub(crate) fn start_read(
        &mut self,
        id: u64,
        offset: u64,
        len: u64,
        sending: &mut Vec<(usize, IoRequest)>,
    ) {
        let places = self.layout.places(offset, len);
        if let Some(open) = self.requests.get_mut(&id) {
            open.pending = places.len().max(1) as u32;
        }
        for place in places {
            let place = self.whereabouts(place);
            self.read_place(id, place, Vec::new(), sending);
        }
    }

    /// The members that can serve a read of `place`, best first.
    pub(crate) fn readers(&self, place: &Place, tried: &[usize]) -> Vec<usize> {
        let last_row = (self.layout.member_offset(place) + place.len - 1) / self.layout.chunk_bytes;
        let can = |index: &usize| self.is_usable(*index, last_row) && !tried.contains(index);
        let members = self.layout.members(place.group);
        if self.layout.redundancy == Redundancy::Parity {
            let member = members.start + self.layout.data_member(place.row, place.position) as usize;
            return Some(member).filter(can).into_iter().collect();
        }
        let mut readers: Vec<usize> = members.filter(can).collect();
        if !readers.is_empty() {
            let turn = (place.row % readers.len() as u64) as usize;
            readers.rotate_left(turn);
        }
        readers
    }

    pub(crate) fn read_place(
        &mut self,
        id: u64,
        place: Place,
        tried: Vec<usize>,
        sending: &mut Vec<(usize, IoRequest)>,
    ) {
        match self.readers(&place, &tried).first() {
            Some(&index) => {
                let token = self.members.token();
                let offset = self.data_start + self.layout.member_offset(&place);
                sending.push((index, IoRequest::read(token, offset, IoBuffer::zeroed(place.len as usize))));
                if let Some(sleep) = &mut self.sleep {
                    sleep.note_use(index, offset - self.data_start, place.len);
                }
                self.parts.insert(token, Part::Read { request: id, place, tried });
            }
            None if self.layout.redundancy == Redundancy::Parity => {
                let result = self.reconstruct(&place, &tried);
                self.deliver(id, &place, result);
            }
            None => {
                let detail = format!("volume: no member of group {} can read this", place.group);
                self.part_ends(id, Some(DeviceError::new(DeviceErrorKind::Failed, detail)));
            }
        }
    }

    pub(crate) fn deliver(&mut self, id: u64, place: &Place, result: Result<IoBuffer, DeviceError>) {
        let error = match result {
            Ok(bytes) => {
                if let Some(target) = self.requests.get_mut(&id).and_then(|open| open.buffer.as_mut()) {
                    let at = place.at as usize;
                    target[at..at + place.len as usize].copy_from_slice(&bytes[..place.len as usize]);
                }
                None
            }
            Err(error) => Some(error),
        };
        self.part_ends(id, error);
    }

    pub(crate) fn read_failed(
        &mut self,
        id: u64,
        index: usize,
        place: Place,
        mut tried: Vec<usize>,
        error: DeviceError,
    ) {
        self.note_read_error(index);
        tried.push(index);
        if self.behind(place.group).is_some() {
            // The other disk has to wake for this read.
            self.drain_parts();
            self.wake(place.group);
            let _ = self.finish_flush(place.group);
        }
        let can_go_on =
            self.layout.redundancy == Redundancy::Parity || !self.readers(&place, &tried).is_empty();
        if !can_go_on {
            self.part_ends(id, Some(error));
            return;
        }
        let mut sending = Vec::new();
        self.read_place(id, place, tried, &mut sending);
        self.members.send(sending);
    }

    /// Counts a read that failed; a member that fails often is given up, if the group can do without.
    pub(crate) fn note_read_error(&mut self, index: usize) {
        self.read_errors[index] += 1;
        if self.read_errors[index] > self.read_error_limit && self.has_other(index) {
            self.fail_member(index);
        }
    }
}
