use super::*;
use proptest::prelude::*;

type Contents = BTreeMap<u8, u8>;

fn contents(pairs: &[(u8, u8)]) -> Contents {
    pairs.iter().copied().collect()
}

#[test]
fn an_acknowledged_value_must_be_there_and_a_later_one_may() {
    let mut oracle = Oracle::new(DurableOrder::Prefix);
    let first = oracle.submit_one(1, Some(10));
    oracle.acknowledge(first);
    oracle.submit_one(1, Some(11));
    oracle.submit_one(1, None);
    for allowed in [Some(10), Some(11), None] {
        assert!(oracle.check(&1, allowed.as_ref()).is_ok(), "{allowed:?}");
    }
    assert!(oracle.check(&1, Some(&12)).is_err());
    assert!(oracle.check(&2, Some(&1)).is_err() && oracle.check(&2, None).is_ok());
}

#[test]
fn an_acknowledgement_rules_out_everything_older() {
    let mut oracle = Oracle::new(DurableOrder::Any);
    oracle.submit_one(1, Some(10));
    let second = oracle.submit_one(1, Some(11));
    oracle.acknowledge(second);
    assert!(oracle.check(&1, Some(&11)).is_ok());
    assert!(oracle.check(&1, Some(&10)).is_err() && oracle.check(&1, None).is_err());
}

#[test]
fn a_batch_is_there_whole_or_not_at_all() {
    for order in [DurableOrder::Prefix, DurableOrder::Any] {
        let mut oracle = Oracle::new(order);
        oracle.submit([(1, Some(10)), (2, Some(20))]);
        assert!(oracle.check_contents(&contents(&[])).is_ok());
        assert!(oracle.check_contents(&contents(&[(1, 10), (2, 20)])).is_ok());
        assert!(oracle.check_contents(&contents(&[(1, 10)])).is_err(), "{order:?}");
    }
}

#[test]
fn a_deleted_key_may_not_come_back() {
    let mut oracle = Oracle::new(DurableOrder::Prefix);
    let put = oracle.submit_one(1, Some(10));
    oracle.acknowledge(put);
    let delete = oracle.submit_one(1, None);
    assert!(oracle.check_contents(&contents(&[(1, 10)])).is_ok());
    oracle.acknowledge(delete);
    assert!(oracle.check_contents(&contents(&[(1, 10)])).is_err());
    assert!(oracle.check_contents(&contents(&[])).is_ok());
}

#[test]
fn one_log_keeps_a_prefix_and_several_keep_any_of_their_batches() {
    let later_only = contents(&[(2, 20)]);
    let history = |order| {
        let mut oracle = Oracle::new(order);
        oracle.submit_one(1, Some(10));
        oracle.submit_one(2, Some(20));
        oracle
    };
    assert!(history(DurableOrder::Any).check_contents(&later_only).is_ok());
    assert!(history(DurableOrder::Prefix).check_contents(&later_only).is_err());
}

#[test]
fn a_key_that_nobody_wrote_is_a_violation() {
    let oracle = Oracle::<u8, u8>::new(DurableOrder::Any);
    assert!(oracle.check_contents(&contents(&[(9, 9)])).is_err());
}

#[test]
fn what_recovery_served_is_the_history_from_then_on() {
    let mut oracle = Oracle::new(DurableOrder::Prefix);
    oracle.submit_one(1, Some(10));
    oracle.settle(contents(&[(1, 10)]));
    assert!(oracle.check_contents(&contents(&[])).is_err(), "it may not vanish in the next crash");
    assert!(oracle.check_contents(&contents(&[(1, 10)])).is_ok());
}

#[test]
fn a_refused_batch_leaves_no_trace() {
    let mut oracle = Oracle::new(DurableOrder::Prefix);
    let refused = oracle.submit_one(1, Some(10));
    oracle.refuse(refused);
    assert!(oracle.check_contents(&contents(&[(1, 10)])).is_err());
    assert!(oracle.check_contents(&contents(&[])).is_ok());
}

/// The changes of a batch, and whether it was acknowledged.
type BatchCase = (Vec<(u8, Option<u8>)>, bool);

/// Tries every allowed choice of batches: slow and plainly right.
fn allowed_by_definition(order: DurableOrder, batches: &[BatchCase], observed: &Contents) -> bool {
    (0u32..1 << batches.len()).any(|taken| {
        let is_taken = |at: usize| taken >> at & 1 == 1;
        let legal = (0..batches.len()).all(|at| is_taken(at) || !batches[at].1)
            && (order == DurableOrder::Any || (taken + 1).is_power_of_two());
        let mut made = Contents::new();
        for (_, (changes, _)) in batches.iter().enumerate().filter(|(at, _)| is_taken(*at)) {
            apply(&mut made, &changes.iter().copied().collect());
        }
        legal && made == *observed
    })
}

proptest! {
    #[test]
    fn the_oracle_agrees_with_trying_every_choice_of_batches(
        batches in prop::collection::vec(
            (prop::collection::vec((0u8..4, prop::option::of(0u8..3)), 1..4), prop::bool::weighted(0.3)), 0..7),
        taken: u32,
        noise in prop::option::weighted(0.3, (0u8..4, 0u8..3)),
        prefix: bool,
    ) {
        let order = if prefix { DurableOrder::Prefix } else { DurableOrder::Any };
        let mut oracle = Oracle::new(order);
        let ids: Vec<BatchId> = batches.iter().map(|(changes, _)| oracle.submit(changes.clone())).collect();
        for (id, _) in ids.iter().zip(&batches).filter(|(_, (_, acknowledged))| *acknowledged) {
            oracle.acknowledge(*id);
        }
        let mut observed = Contents::new();
        for (_, (changes, _)) in batches.iter().enumerate().filter(|(at, (_, sure))| *sure || taken >> at & 1 == 1) {
            apply(&mut observed, &changes.iter().copied().collect());
        }
        observed.extend(noise);
        prop_assert_eq!(
            oracle.check_contents(&observed).is_ok(),
            allowed_by_definition(order, &batches, &observed)
        );
    }
}
