use super::*;

const LISTENER: u64 = 1;
const PUBLISHER: u64 = 2;

/// A listener of channel 0 since moment 2.
fn joined() -> Channels {
    let mut channels = Channels::default();
    channels.join(LISTENER, 0, 1);
    channels.joined(LISTENER, 0, 2);
    channels
}

fn hear(channels: &mut Channels, text: &str) -> Result<(), String> {
    channels.hear(LISTENER, &name(0), text.as_bytes())
}

#[test]
fn messages_come_once_in_order_and_from_somewhere() {
    let mut channels = joined();
    for moment in 3..6 {
        channels.publish(PUBLISHER, 0, moment);
    }
    channels.publish(PUBLISHER, 1, 6);
    hear(&mut channels, "m1").unwrap();
    for wrong in ["m1", "m0", "m3", "m4", "x"] {
        assert!(hear(&mut channels, wrong).is_err(), "{wrong}");
    }
    hear(&mut channels, "m2").unwrap();
}

#[test]
fn who_has_left_hears_nothing_and_has_heard_everything() {
    let mut channels = joined();
    let id = channels.publish(PUBLISHER, 0, 3);
    channels.published(id, 1, 4).unwrap();
    channels.leave(LISTENER, 0, 5);
    let mut deaf = channels.clone();
    assert!(deaf.left(LISTENER, 0, 6).is_err());
    hear(&mut channels, "m0").unwrap();
    channels.left(LISTENER, 0, 6).unwrap();
    channels.publish(PUBLISHER, 0, 7);
    assert!(hear(&mut channels, "m1").is_err());
}

#[test]
fn listeners_are_counted() {
    for (count, is_right) in [(0, false), (1, true), (2, true), (3, false), (-1, false)] {
        let mut channels = joined();
        channels.join(3, 0, 3);
        let id = channels.publish(PUBLISHER, 0, 4);
        channels.joined(3, 0, 5);
        assert_eq!(channels.published(id, count, 6).is_ok(), is_right, "{count}");
    }
}
