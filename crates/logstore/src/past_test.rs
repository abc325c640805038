use crate::open::{OpenSettings, open};
use crate::shard::LogShard;
use tierstone_base::Now;
use tierstone_crash::Choices;
use tierstone_engine::Engine;
use tierstone_media::Geometry;
use tierstone_media::sim::{SimMedium, SimSettings};

fn shard(past_ms: u64) -> LogShard {
    let meta_bytes = crate::format::superblock::META_BYTES;
    let geometry = Geometry { meta_bytes, segment_bytes: 64 << 10, segment_limit: 8 };
    let medium = SimMedium::new(SimSettings::new(geometry), &Choices::quiet());
    let mut device = medium.device();
    let settings = OpenSettings { past_ms, ..OpenSettings::default() };
    let mut opened = open(&mut device, &settings).unwrap();
    let (shard, _) = opened.plans.remove(0).build(&mut device).unwrap();
    shard
}

#[test]
fn only_a_higher_expiry_than_any_before_opens_a_group() {
    let mut shard = shard(0);
    assert!(!shard.is_past(0, 1_000) && !shard.is_past(1_001, 1_000));
    assert_eq!((shard.applied_seq(), shard.past_gate()), (0, 0));
    assert!(shard.is_past(500, 1_000));
    let gate = shard.past_gate();
    assert!(gate > shard.durable_seq() && gate == shard.applied_seq());
    // The open group will say these too.
    assert!(shard.is_past(500, 1_000) && shard.is_past(400, 1_000) && shard.is_past(900, 1_000));
    assert_eq!((shard.past_gate(), shard.past_ms()), (gate, 900));
    // The group is closed: another one has to say it.
    shard.flush(Now::default());
    assert!(shard.is_past(900, 1_000) && shard.past_gate() == gate);
    assert!(shard.is_past(901, 1_000) && shard.past_gate() > gate);
}

#[test]
fn what_was_shown_before_is_past_whatever_the_clock_shows() {
    let mut shard = shard(900);
    assert!(shard.is_past(900, 5) && !shard.is_past(901, 5));
    assert_eq!(shard.applied_seq(), 0, "nothing new was shown");
    shard.see(Now { monotonic_us: 7, wall_ms: 5 });
    assert_eq!(shard.now.wall_ms, 900);
}
