//! Values under small stable numbers, with a generation that tells one life of a number from the next.

/// Slots with stable numbers that are used again.
#[derive(Debug)]
pub(crate) struct Slots<T> {
    slots: Vec<(u16, Option<T>)>,
    free: Vec<u32>,
}

impl<T> Slots<T> {
    pub fn new() -> Self {
        Slots { slots: Vec::new(), free: Vec::new() }
    }

    pub fn insert(&mut self, value: T) -> u32 {
        match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize].1 = Some(value);
                slot
            }
            None => {
                self.slots.push((0, Some(value)));
                (self.slots.len() - 1) as u32
            }
        }
    }

    pub fn get(&mut self, slot: u32) -> &mut T {
        match &mut self.slots[slot as usize].1 {
            Some(value) => value,
            None => unreachable!("slot {slot} is in use until its last completion"),
        }
    }

    pub fn generation(&self, slot: u32) -> u16 {
        self.slots[slot as usize].0
    }

    /// Whether `slot` is in use in this generation.
    pub fn is_live(&self, slot: u32, generation: u16) -> bool {
        self.slots.get(slot as usize).is_some_and(|(now, value)| *now == generation && value.is_some())
    }

    pub fn remove(&mut self, slot: u32) -> T {
        let (generation, value) = &mut self.slots[slot as usize];
        *generation = generation.wrapping_add(1);
        self.free.push(slot);
        match value.take() {
            Some(value) => value,
            None => unreachable!("slot {slot} is freed once"),
        }
    }

    pub fn used(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_that_is_used_again_has_another_generation() {
        let mut slots = Slots::new();
        let (first, second) = (slots.insert('a'), slots.insert('b'));
        let generation = slots.generation(first);
        assert!(slots.is_live(first, generation) && slots.used() == 2);
        assert_eq!(slots.remove(first), 'a');
        assert!(!slots.is_live(first, generation) && !slots.is_live(first, generation + 1));
        assert_eq!(slots.insert('c'), first);
        assert!(!slots.is_live(first, generation) && slots.is_live(first, generation + 1));
        assert_eq!((*slots.get(first), *slots.get(second), slots.used()), ('c', 'b', 2));
        assert!(!slots.is_live(99, 0));
    }
}
