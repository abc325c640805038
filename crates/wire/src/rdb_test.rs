use super::*;
use tierstone_base::SeededRandom;

/// A payload with a right footer around `body`.
fn payload(version: u16, body: &[u8]) -> Vec<u8> {
    let mut bytes = body.to_vec();
    bytes.extend_from_slice(&version.to_le_bytes());
    let checksum = crc64(&bytes);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    bytes
}

#[test]
fn the_checksum_is_that_of_the_catalogue() {
    assert_eq!(crc64(b"123456789"), 0xe9c6_d914_c4b8_d9ca);
    let all: Vec<u8> = (0..=255).collect();
    let plain = |bytes: &[u8]| {
        bytes.iter().fold(0, |crc: u64, byte| TABLES[0][usize::from(crc as u8 ^ byte)] ^ crc >> 8)
    };
    for len in 0..all.len() {
        assert_eq!(crc64(&all[..len]), plain(&all[..len]), "{len} bytes");
    }
}

#[test]
fn payloads_of_redis_8_2_are_read() {
    let hello = b"\x00\x05hello\x0c\x00\xa8\x04\xeb\xb6\x9f\x1e\xbe\x43";
    assert_eq!(read_string(hello, 100).as_deref(), Ok(&b"hello"[..]));
    let number = b"\x00\xc1\x39\x30\x0c\x00\x56\xe2\xde\xe7\x69\xd6\x96\xf0";
    assert_eq!(read_string(number, 100).as_deref(), Ok(&b"12345"[..]));
}

#[test]
fn strings_of_every_form_of_length_come_back() {
    for len in [0, 1, 63, 64, 16_383, 16_384, 70_000] {
        let value: Vec<u8> = (0..len).map(|number: usize| number as u8).collect();
        let mut out = b"before".to_vec();
        write_string(&value, &mut out);
        assert_eq!(read_string(&out[6..], len).as_deref(), Ok(value.as_slice()), "{len} bytes");
        if len > 0 {
            assert_eq!(read_string(&out[6..], len - 1), Err(PayloadError::TooLong));
        }
    }
}

#[test]
fn packed_numbers_and_compressed_strings_are_expanded() {
    let read = |body: &[u8]| read_string(&payload(12, body), 1_000);
    assert_eq!(read(b"\x00\xc0\x80").as_deref(), Ok(&b"-128"[..]));
    assert_eq!(read(b"\x00\xc2\xff\xff\xff\x7f").as_deref(), Ok(&b"2147483647"[..]));
    // "ab", then 10 bytes from 2 back: "abababababab".
    assert_eq!(read(b"\x00\xc3\x06\x0c\x01ab\xe0\x01\x01").as_deref(), Ok(&b"abababababab"[..]));
    // Copies of what is being made, of every distance and length, are those made byte by byte.
    for back in 1..40usize {
        for count in [3usize, 8, 9, 10, 39, 40, 41, 264] {
            let start: Vec<u8> = (1..=40).collect();
            let mut packed = [&[31u8][..], &start[..32], &[7], &start[32..]].concat();
            match count - 2 {
                short @ 0..7 => packed.push((short as u8) << 5),
                long => packed.extend([0xe0, (long - 7) as u8]),
            }
            packed.push(back as u8 - 1);
            let mut expected = start;
            (0..count).for_each(|_| expected.push(expected[expected.len() - back]));
            assert_eq!(expand(&packed, expected.len()), Some(expected.clone()), "{count} from {back} back");
            assert_eq!(expand(&packed, expected.len() - 1), None, "{count} from {back} back");
            assert_eq!(expand(&packed, expected.len() + 1), None, "{count} from {back} back");
        }
    }
    // What three bytes cannot become is refused before any of it is made.
    assert_eq!(expand(b"\x00a\xe0\xff\x00", 265).map(|out| out.len()), Some(265));
    assert_eq!(expand(b"\x00a\xe0\xff\x00", usize::MAX), None);
    // One byte more than declared, one less, a copy from before the start.
    for wrong in [
        &b"\x00\xc3\x06\x0b\x01ab\xe0\x01\x01"[..],
        b"\x00\xc3\x06\x0d\x01ab\xe0\x01\x01",
        b"\x00\xc3\x06\x0c\x01ab\xe0\x01\x02",
        b"\x00\xc3\x03\x05\x05ab",
    ] {
        assert_eq!(read(wrong), Err(PayloadError::Format), "{wrong:x?}");
    }
    assert_eq!(
        read_string(&payload(12, b"\x00\xc3\x06\x0c\x01ab\xe0\x01\x01"), 11),
        Err(PayloadError::TooLong)
    );
}

#[test]
fn what_is_no_payload_of_a_string_is_refused() {
    use PayloadError::{Format, VersionOrChecksum};
    assert_eq!(read_string(b"", 10), Err(VersionOrChecksum));
    assert_eq!(read_string(&payload(13, b"\x00\x01a"), 10), Err(VersionOrChecksum));
    let mut broken = payload(12, b"\x00\x01a");
    broken[2] ^= 1;
    assert_eq!(read_string(&broken, 10), Err(VersionOrChecksum));
    // A list, nothing, too few bytes, too many, unknown forms, a length that no memory has.
    for body in [
        &b"\x01\x01\x01a"[..],
        b"",
        b"\x00",
        b"\x00\x02a",
        b"\x00\x01ab",
        b"\x00\xc4a",
        b"\x00\x82aaaaaaaa",
        b"\x00\x81\xff\xff\xff\xff\xff\xff\xff\xff",
    ] {
        assert_eq!(read_string(&payload(12, body), 10), Err(Format), "{body:x?}");
    }
}

#[test]
fn random_bodies_never_panic_and_keep_to_the_limit() {
    let seed = SeededRandom::system_seed().expect("a seed");
    println!("seed {seed}");
    let mut random = SeededRandom::new(seed);
    for _ in 0..20_000 {
        let mut body = vec![0; 1 + random.below(40) as usize];
        random.fill(&mut body[1..]);
        if let Some(form) = body.get_mut(1).filter(|_| random.below(2) == 0) {
            *form = 0xc3;
        }
        if let Ok(value) = read_string(&payload(9, &body), 500) {
            assert!(value.len() <= 500);
        }
    }
}
