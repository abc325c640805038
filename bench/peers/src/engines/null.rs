//! No store: every call answers at once. What is measured with it is the generator's and the machine's own share.

use super::{Engine, Handle};
use tierstone_base::Result;
use tierstone_workload::Target;

pub fn open() -> Box<dyn Engine> {
    Box::new(Null)
}

struct Null;

impl Engine for Null {
    fn handle(&self) -> Result<Handle> {
        Ok(Handle::new(Null))
    }
}

impl Target for Null {
    fn get(&mut self, _key: &[u8], _value: &mut Vec<u8>) -> Result<bool> {
        Ok(true)
    }

    fn put(&mut self, _key: &[u8], _value: &[u8]) -> Result<()> {
        Ok(())
    }
}
