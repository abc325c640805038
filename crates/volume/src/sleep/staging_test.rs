use super::*;
use tierstone_media::{Geometry, SimDevice};

const OWN: Signature = Signature { buffer: 7 << 70, epoch: 4, volumes: 2, unit_blocks: 3 };

fn device(blocks: u32) -> SimDevice {
    SimDevice::plain(Geometry { meta_bytes: BLOCK, segment_bytes: BLOCK, segment_limit: blocks - 1 })
}

fn write(device: &SimDevice, offset: u64, bytes: &[u8]) {
    perform(&mut device.clone(), IoRequest::write_durable(0, offset, IoBuffer::from_slice(bytes))).unwrap();
}

fn opened(device: &SimDevice, expected: Signature) -> String {
    Staging::open(device.clone(), expected).map_or_else(|error| error.to_string(), |_| String::new())
}

#[test]
fn a_signature_comes_back_and_damage_is_seen() {
    let bytes = OWN.encode();
    assert_eq!(Signature::decode(&bytes), Some(OWN));
    for byte in 0..SIGNED_BYTES + 8 {
        let mut damaged = bytes.clone();
        damaged[byte] ^= 1;
        assert_eq!(Signature::decode(&damaged), None, "byte {byte}");
    }
}

#[test]
fn a_memory_that_is_lost_foreign_older_or_small_is_told_from_the_right_one() {
    let memory = device(14);
    assert!(opened(&memory, OWN).contains("no staging log"), "{}", opened(&memory, OWN));
    let mut staging = Staging::fresh(memory.clone(), OWN, &[OWN.buffer]).unwrap();
    assert_eq!(opened(&memory, OWN), "");
    assert_eq!(opened(&memory, Signature { epoch: 3, ..OWN }), "", "a crash came before the map");
    for (expected, why) in [
        (Signature { epoch: 5, ..OWN }, "is older than the flash"),
        (Signature { epoch: 2, ..OWN }, "is newer than the flash"),
        (Signature { buffer: 9, ..OWN }, "belongs to flash buffer"),
        (Signature { unit_blocks: 2, ..OWN }, "another shape"),
        (Signature { volumes: 3, ..OWN }, "81920 are needed"),
    ] {
        let error = opened(&memory, expected);
        assert!(error.contains(why), "{error}");
    }
    staging.sign(Signature { epoch: 5, ..OWN }).unwrap();
    assert_eq!(opened(&memory, Signature { epoch: 5, ..OWN }), "");
    // The newer slot is torn: what counts is the epoch before, which the map may name.
    write(&memory, staging.slot.0 as u64 * BLOCK, &[1; 100]);
    assert_eq!(opened(&memory, OWN), "");
}

#[test]
fn a_memory_that_holds_anything_else_is_not_written_to() {
    let fresh = |memory: &SimDevice, own: &[u128]| Staging::fresh(memory.clone(), OWN, own).map(|_| ());
    let memory = device(14);
    write(&memory, BLOCK, b"somebody's");
    assert!(fresh(&memory, &[OWN.buffer]).unwrap_err().message().contains("something else"));
    // The crash mark staging-signed-once: any words of the signature, and no more.
    let memory = device(14);
    let mut torn = OWN.encode();
    torn[8..24].fill(0);
    torn[48..56].fill(0);
    write(&memory, BLOCK, &torn);
    fresh(&memory, &[OWN.buffer]).unwrap();
    let memory = device(14);
    torn[32] ^= 1;
    write(&memory, BLOCK, &torn);
    assert!(fresh(&memory, &[OWN.buffer]).unwrap_err().message().contains("something else"));
    let memory = device(14);
    fresh(&memory, &[OWN.buffer]).unwrap();
    assert!(fresh(&memory, &[1, 2]).unwrap_err().message().contains("belongs to flash buffer"));
    fresh(&memory, &[1, OWN.buffer]).unwrap();
    assert!(fresh(&device(13), &[OWN.buffer]).unwrap_err().message().contains("give a larger one"));
}

proptest::proptest! {
    #[test]
    fn hostile_signatures_never_panic(tail in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..80)) {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&tail);
        let _ = (Signature::decode(&bytes), newest(&bytes));
    }
}
