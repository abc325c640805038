use crate::blocks::Role;
use crate::verify::verify_test::Store;

/// The pages list the block, and an opening that takes it in does not see which of its records have copies.
#[test]
fn a_checkpoint_that_is_being_made_ends_with_a_block_that_has_moved_in_part() {
    let mut store = Store::filled();
    let settings = &mut store.shard.settings;
    (settings.checkpoint_bytes_min, settings.checkpoint_fill_max) = (0, 1.0);
    for _ in 0..100 {
        if store.shard.checkpoints.is_busy() {
            break;
        }
        store.now.monotonic_us += 1_000;
        store.step();
    }
    store.step();
    assert!(store.shard.checkpoints.is_busy());
    let full = store.shard.blocks.table.iter().find(|(_, block)| block.role == Role::Full);
    let number = full.map(|(number, _)| number).unwrap();
    store.shard.leave_half_moved(number);
    assert!(!store.shard.checkpoints.is_busy());
    assert!(store.shard.blocks.table.get(number).is_some_and(|block| block.is_half_moved));
}
