use super::*;
use tierstone_base::SeededRandom;

const SPACE: KeyspaceId = KeyspaceId(1);

fn expired(events: &mut KeyEvents, wall_ms: u64) -> Vec<(Vec<u8>, u64)> {
    let mut all = Vec::new();
    while let Some((_, key, expiry_ms)) = events.take_expired(wall_ms) {
        all.push((key.to_vec(), expiry_ms));
    }
    all
}

fn note(events: &mut KeyEvents, key: &[u8], expiry_ms: u64) {
    events.expiring_mut().expect("it is on").note(SPACE, key, expiry_ms);
}

#[test]
fn a_key_is_told_once_by_its_newest_expiry() {
    let mut events = KeyEvents::default();
    assert!(events.expiring_mut().is_none(), "nobody has asked");
    events.want_expired(true, 1 << 20);
    for (key, expiry_ms) in [(b"a", 50), (b"b", 20), (b"c", 10), (b"a", 30), (b"c", 0), (b"b", 20), (b"d", 0)]
    {
        note(&mut events, key, expiry_ms);
    }
    assert_eq!(events.next_expiry_ms(), Some(20));
    assert!(expired(&mut events, 19).is_empty());
    assert_eq!(expired(&mut events, 30), [(b"b".to_vec(), 20), (b"a".to_vec(), 30)]);
    assert!(expired(&mut events, u64::MAX).is_empty());
    assert_eq!((events.bytes(), events.next_expiry_ms()), (0, None));
}

#[test]
fn keys_beyond_the_allowed_bytes_are_counted() {
    let mut events = KeyEvents::default();
    events.want_expired(true, 2 * (1 + KEY_OVERHEAD_BYTES));
    for key in [b"a", b"b", b"c"] {
        note(&mut events, key, 5);
    }
    assert_eq!(events.left_out(), 1);
    note(&mut events, b"a", 0);
    note(&mut events, b"d", 5);
    let told: Vec<Vec<u8>> = expired(&mut events, 5).into_iter().map(|(key, _)| key).collect();
    assert_eq!(told, [b"b".to_vec(), b"d".to_vec()]);
}

#[test]
fn what_is_kept_is_what_a_simple_table_says() {
    for seed in 0..20 {
        let mut random = SeededRandom::new(seed);
        let mut events = KeyEvents::default();
        events.want_expired(true, 1 << 20);
        let mut model: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
        for now_ms in 1..2_000 {
            let key = vec![random.below(30) as u8];
            let expiry_ms = if random.chance(0.3) { 0 } else { now_ms + random.below(60) };
            note(&mut events, &key, expiry_ms);
            if expiry_ms == 0 {
                model.remove(&key)
            } else {
                model.insert(key, expiry_ms)
            };
            let mut due: Vec<(Vec<u8>, u64)> =
                model.iter().filter(|(_, at)| **at <= now_ms).map(|(key, at)| (key.clone(), *at)).collect();
            due.sort_by_key(|(key, at)| (*at, key.clone()));
            assert_eq!(expired(&mut events, now_ms), due, "seed {seed}, at {now_ms}");
            model.retain(|_, at| *at > now_ms);
            assert_eq!(events.bytes() as usize, model.len() * (1 + KEY_OVERHEAD_BYTES));
        }
        events.drop_keyspace(SPACE);
        assert_eq!((events.bytes(), events.next_expiry_ms()), (0, None));
    }
}

#[test]
fn evicted_keys_are_kept_while_somebody_wants_them() {
    let mut events = KeyEvents::default();
    events.note_evicted(SPACE, b"a".to_vec());
    assert!(events.take_evicted().is_empty());
    events.want_evicted(true);
    events.want_expired(true, 1 << 20);
    note(&mut events, b"a", 5);
    events.note_evicted(SPACE, b"a".to_vec());
    assert_eq!(events.take_evicted(), [(SPACE, b"a".to_vec())]);
    assert!(events.take_evicted().is_empty());
    assert!(expired(&mut events, 9).is_empty(), "what was evicted does not expire");
}
