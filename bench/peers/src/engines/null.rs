//! No store: a call keeps the processor for a while and answers. What is measured with it is the generator's and the
//! machine's own share, of any store whose calls take as long.

use super::{Engine, Handle};
use std::time::{Duration, Instant};
use tierstone_base::Result;
use tierstone_workload::Target;

pub fn open(call_ns: u64) -> Box<dyn Engine> {
    Box::new(Null(Duration::from_nanos(call_ns)))
}

#[derive(Clone, Copy)]
struct Null(Duration);

impl Null {
    fn call(self) {
        if !self.0.is_zero() {
            let began = Instant::now();
            while began.elapsed() < self.0 {
                std::hint::spin_loop();
            }
        }
    }
}

impl Engine for Null {
    fn handle(&self) -> Result<Handle> {
        Ok(Handle::new(*self))
    }
}

impl Target for Null {
    fn get(&mut self, _key: &[u8], _value: &mut Vec<u8>) -> Result<bool> {
        self.call();
        Ok(true)
    }

    fn put(&mut self, _key: &[u8], _value: &[u8]) -> Result<()> {
        self.call();
        Ok(())
    }
}
