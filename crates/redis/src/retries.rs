//! Requests that wait until the engine has made room, and in which order they are tried again.
//!
//! At each step the oldest come first, for as long as there is room: whoever waits is not overtaken by those who came later.
//! What they need may be more than there is, while less is enough for others (a deletion, a short value): so some
//! others are tried, too, each step those behind the ones of the step before.

use std::collections::BTreeSet;
use tierstone_store::TaskId;

/// So many tries in a row that are refused end the tries of the oldest, and those of the others.
const REFUSED_MAX: usize = 8;

/// The tasks that wait. Ids grow with time.
#[derive(Debug, Default)]
pub(crate) struct Retries {
    waiting: BTreeSet<TaskId>,
    /// Where the others go on at the next step.
    others_from: TaskId,
}

/// The tries of one step.
#[derive(Debug, Default)]
pub(crate) struct Tries {
    from: TaskId,
    refused: usize,
    is_of_others: bool,
}

impl Retries {
    pub fn add(&mut self, task: TaskId) {
        self.waiting.insert(task);
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Takes out who is tried next in this step; who is refused is to be added again.
    pub fn next(&mut self, tries: &mut Tries) -> Option<TaskId> {
        if tries.refused >= REFUSED_MAX {
            if tries.is_of_others {
                return None;
            }
            *tries = Tries { from: tries.from.max(self.others_from), refused: 0, is_of_others: true };
        }
        let Some(task) = self.waiting.range(tries.from..).next().copied() else {
            self.others_from = 0;
            return None;
        };
        self.waiting.remove(&task);
        tries.from = task + 1;
        if tries.is_of_others {
            self.others_from = tries.from;
        }
        Some(task)
    }

    /// `task` has been tried.
    pub fn note_tried(&self, tries: &mut Tries, task: TaskId) {
        tries.refused = if self.waiting.contains(&task) { tries.refused + 1 } else { 0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One step with room for `room` of those that `fits` says; who was tried, and who got through.
    fn step(
        retries: &mut Retries,
        mut room: usize,
        fits: impl Fn(TaskId) -> bool,
    ) -> (Vec<TaskId>, Vec<TaskId>) {
        let (mut tries, mut tried, mut through) = (Tries::default(), Vec::new(), Vec::new());
        while let Some(task) = retries.next(&mut tries) {
            tried.push(task);
            match room > 0 && fits(task) {
                true => {
                    room -= 1;
                    through.push(task);
                }
                false => retries.add(task),
            }
            retries.note_tried(&mut tries, task);
        }
        (tried, through)
    }

    #[test]
    fn who_waits_longest_gets_what_room_there_is() {
        let mut retries = Retries::default();
        (1..=1_000).for_each(|task| retries.add(task));
        for round in 0..10 {
            // Others come meanwhile, and there is no room in every other step.
            retries.add(1_001 + round);
            assert!(step(&mut retries, 0, |_| true).1.is_empty());
            let expected: Vec<_> = (1 + 100 * round..=100 * (round + 1)).collect();
            assert_eq!(step(&mut retries, 100, |_| true).1, expected);
        }
        assert_eq!(step(&mut retries, 100, |_| true).1.len(), 10);
        assert!(retries.is_empty());
    }

    #[test]
    fn those_who_cannot_go_do_not_keep_the_others_back() {
        let mut retries = Retries::default();
        (1..=1_000).for_each(|task| retries.add(task));
        let is_small = |task: TaskId| task.is_multiple_of(97);
        let mut through = Vec::new();
        for _ in 0..1_000 / REFUSED_MAX + 2 {
            let (tried, passed) = step(&mut retries, 1_000, is_small);
            assert!(tried.len() <= 2 * REFUSED_MAX + passed.len() * REFUSED_MAX, "{} tries", tried.len());
            assert_eq!(tried[..REFUSED_MAX], (1..=REFUSED_MAX as u64).collect::<Vec<_>>());
            through.extend(passed);
        }
        through.sort_unstable();
        assert_eq!(through, (1..=1_000).filter(|&task| is_small(task)).collect::<Vec<_>>());
    }
}
