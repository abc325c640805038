//! Kept images of stores and backups in earlier formats: unpacked, and what must be in them.

use std::collections::BTreeMap;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Database and key; value, and when it expires in seconds since 1970.
pub type Contents = BTreeMap<(u32, String), (Vec<u8>, Option<u64>)>;

/// The key with a value longer than a segment of the first version takes.
pub const LARGE: &str = "large";

/// Where the images lie.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tierstone/tests/images")
}

/// The names of all images, in order.
pub fn all() -> Vec<String> {
    let entries = std::fs::read_dir(folder()).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.filter_map(|name| Some(name.strip_suffix(".image")?.to_owned())).collect();
    names.sort();
    names
}

/// Makes the files of an image anew in `target`.
pub fn unpack(name: &str, target: &Path) {
    let text = std::fs::read_to_string(folder().join(format!("{name}.image"))).unwrap();
    let mut file = None;
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["file", path, len] => {
                let path = target.join(path);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                let new = std::fs::File::create(path).unwrap();
                new.set_len(len.parse().unwrap()).unwrap();
                file = Some(new);
            }
            [place, bytes] => {
                let file = file.as_mut().unwrap();
                file.seek(SeekFrom::Start(u64::from_str_radix(place, 16).unwrap())).unwrap();
                file.write_all(&of_base_64(bytes)).unwrap();
            }
            _ => panic!("{name}: {line}"),
        }
    }
}

fn of_base_64(text: &str) -> Vec<u8> {
    let digit = |byte: u8| match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => panic!("no digit of base 64: {byte}"),
    };
    let mut bytes = Vec::new();
    for chunk in text.trim_end_matches('=').as_bytes().chunks(4) {
        let bits = chunk.iter().fold(0u32, |bits, byte| bits << 6 | u32::from(digit(*byte)));
        let all = (bits << (6 * (4 - chunk.len()))).to_be_bytes();
        bytes.extend_from_slice(&all[1..chunk.len()]);
    }
    bytes
}

/// What the commands leave that every image was made with; the first version has no large value.
pub fn expected(name: &str) -> Contents {
    let text = std::fs::read_to_string(folder().join("commands.txt")).unwrap();
    let mut contents = Contents::new();
    let mut database = 0;
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let at = |key: &str| (database, key.to_owned());
        match words[..] {
            ["SELECT", number] => database = number.parse().unwrap(),
            ["SET", key, value] => drop(contents.insert(at(key), (value.into(), None))),
            ["MSET", ref pairs @ ..] => {
                for pair in pairs.chunks(2) {
                    contents.insert(at(pair[0]), (pair[1].into(), None));
                }
            }
            ["INCR", key] => {
                let value = &mut contents.get_mut(&at(key)).unwrap().0;
                let number: i64 = std::str::from_utf8(value).unwrap().parse().unwrap();
                *value = (number + 1).to_string().into();
            }
            ["APPEND", key, more] => contents.get_mut(&at(key)).unwrap().0.extend_from_slice(more.as_bytes()),
            ["SETRANGE", key, place, tail] => {
                let value = &mut contents.entry(at(key)).or_default().0;
                value.resize(place.parse().unwrap(), 0);
                value.extend_from_slice(tail.as_bytes());
            }
            ["DEL", ref keys @ ..] => keys.iter().for_each(|key| drop(contents.remove(&at(key)))),
            ["EXPIREAT", key, second] => {
                contents.get_mut(&at(key)).unwrap().1 = Some(second.parse().unwrap());
            }
            ["PERSIST", key] => contents.get_mut(&at(key)).unwrap().1 = None,
            _ => panic!("what does it leave? {line}"),
        }
    }
    if name.starts_with("superblock-1") {
        contents.remove(&(0, LARGE.to_owned()));
    }
    contents
}
