//! Other structures on the same device, as targets of the load generators.
//!
//! What is the same for all: memory for data, size of batches, one durable commit a batch, data. Kernel
//! caches are kept out: they would be memory that one of them has and the others have not.

mod b_tree;
mod hash_file;
mod lsm_tree;

pub use b_tree::BTree;
pub use hash_file::{HashFile, HashFileSettings};
pub use lsm_tree::LsmTree;
