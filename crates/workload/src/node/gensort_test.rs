use super::*;
use crate::node::valsort::Summary;

/// The first records of `gensort -a`, as they stand in public programs that sort them; each ends in `\r\n`.
const FIRST: [&str; 9] = [
    "AsfAGHM5om  00000000000000000000000000000000  0000222200002222000022220000222200002222000000001111",
    "~sHd0jDv6X  00000000000000000000000000000001  77779999444488885555CCCC777755555555BBBB666644446666",
    "uI^EYm8s=|  00000000000000000000000000000002  CCCCFFFF777799995555FFFF11112222999988884444DDDDFFFF",
    "Q)JN)R9z-L  00000000000000000000000000000003  FFFF111100000000000066668888BBBB33333333AAAA1111CCCC",
    "o4FoBkqERn  00000000000000000000000000000004  7777AAAABBBBBBBB22224444444499995555BBBB11118888DDDD",
    "*}-Wz1;TD-  00000000000000000000000000000005  AAAA88883333BBBB888888884444777722227777999900002222",
    "0fssx}~[oB  00000000000000000000000000000006  FFFF999977774444AAAA7777EEEEDDDDAAAAAAAA99998888BBBB",
    "mz4VCN@a#\"  00000000000000000000000000000007  DDDDBBBB1111FFFF2222DDDDFFFFBBBBFFFF6666444477778888",
    "my+=5r7(N|  00000000000000000000000000000008  22226666CCCC66662222FFFF0000EEEE11118888444455559999",
];

/// `count` records from `first` on.
fn made(format: Format, first: u64, count: usize) -> Vec<u8> {
    let mut records = vec![0; count * RECORD_BYTES];
    Generator::new(format, first).fill(&mut records);
    records
}

#[test]
fn the_first_lines_are_the_published_ones() {
    let lines: String = FIRST.iter().map(|line| format!("{line}\r\n")).collect();
    assert_eq!(String::from_utf8(made(Format::Ascii, 0, FIRST.len())).unwrap(), lines);
    // Of the same kind: the last key of a file of 3,000 records.
    assert_eq!(&made(Format::Ascii, 2_999, 1)[..KEY_BYTES], b"Ga]QGzP2q)");
}

#[test]
fn sums_are_those_that_others_have_published_of_gensorts_files() {
    for (format, count, sum) in SUMS {
        let mut generator = Generator::new(format, 0);
        let (mut summary, mut records) = (Summary::default(), vec![0; 10_000 * RECORD_BYTES]);
        for first in (0..count).step_by(10_000) {
            let part = &mut records[..(count - first).min(10_000) as usize * RECORD_BYTES];
            generator.fill(part);
            summary.take(part);
        }
        assert_eq!((summary.records, format!("{:x}", summary.checksum)), (count, sum.to_owned()));
    }
}

/// Printed by valsort in public reports of sorts.
const SUMS: [(Format, u64, &str); 2] =
    [(Format::Ascii, 163_840, "1400fed7bb2c2"), (Format::Binary, 1_000_000, "7a0e0d4868cd4")];

#[test]
fn parts_are_the_whole() {
    for format in [Format::Ascii, Format::Binary] {
        let whole = made(format, 0, 1_000);
        for first in [0, 1, 9, 10, 500, 999] {
            let part = made(format, first, 1_000 - first as usize);
            assert_eq!(part, whole[first as usize * RECORD_BYTES..], "{format:?} from {first}");
        }
    }
}

#[test]
fn binary_keys_are_the_generators_numbers() {
    // The first number is the addend, whose bytes greet Jim Gray.
    assert_eq!(&made(Format::Binary, 0, 1)[..KEY_BYTES], b"JimGrayRIP");
    let records = made(Format::Binary, 0, 2);
    // The second part of a record is the key of the next one behind a mask.
    let mask = &MASKS[1].to_be_bytes()[6..];
    let unmasked: Vec<u8> = records[10..20].iter().zip(mask).map(|(byte, mask)| byte ^ mask).collect();
    assert_eq!(unmasked, records[100..110]);
}
