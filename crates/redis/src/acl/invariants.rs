//! What holds of every file of users, whatever its bytes are. For fuzzing (`fuzz/`) and for tests.
//!
//! Invariants:
//! 1. Reading never panics, and says what is wrong or gives users.
//! 2. Users that were read come back when they are written and read again, as the same lines.
//! 3. A rule that is wrong changes nothing.

#![allow(clippy::panic, reason = "a body of fuzzing and of tests")]

use crate::acl::{Users, UsersChange};

/// Reads `data` as a file of users, and its words as rules of `ACL SETUSER`.
pub fn check_users_file(data: &[u8]) {
    let none = Users::with_password("");
    match none.of_file("users", data) {
        Ok(users) => {
            let file = users.file();
            match none.of_file("users", &file) {
                Ok(again) => {
                    assert!(again.file() == file, "a file of users is another when it is read again")
                }
                Err(error) => panic!("users that were read cannot be written and read: {error}"),
            }
        }
        Err(error) => assert!(!error.is_empty(), "refused without a reason"),
    }
    let mut words = data.split(|&byte| matches!(byte, b' ' | b'\n')).map(<[u8]>::to_vec);
    let name = words.next().unwrap_or_default();
    let before = none.file();
    if let Ok((users, _)) = none.changed(&UsersChange::Set { name, rules: words.collect() }, "") {
        let file = users.file();
        let again = none.of_file("users", &file);
        assert!(again.is_ok_and(|again| again.file() == file), "rules that were taken are not read again");
    }
    assert!(none.file() == before, "users were changed in place");
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Words of which files of users are made.
    const WORDS: [&str; 32] = [
        "+hget",
        "-script|kill",
        "user",
        "default",
        "alice",
        "on",
        "off",
        ">secret",
        "<secret",
        "nopass",
        "resetpass",
        "~*",
        "~a:*",
        "%R~b*",
        "%W~c",
        "%RW~d",
        "%R~*",
        "%W~*",
        "allkeys",
        "resetkeys",
        "&ch*",
        "allchannels",
        "+@all",
        "-@all",
        "+get",
        "-set",
        "+config|get",
        "+@read",
        "(+get",
        "~x)",
        "reset",
        "clearselectors",
    ];

    #[test]
    fn reading_and_writing_all_keys_leaves_room_for_patterns_that_follow() {
        check_users_file(b"user alice %R~* %W~* %R~x ~y");
        check_users_file(b"alice %R~* %W~* %R~x (%W~* %R~* ~z)");
    }

    #[test]
    fn users_that_no_file_would_hold_are_refused() {
        let mut users = Users::with_password("");
        let mut number = 0;
        let refused = loop {
            let name = format!("user{number}").into_bytes();
            let rules = (0..900).map(|password| format!("#{:064x}", number * 900 + password).into_bytes());
            match users.changed(&UsersChange::Set { name, rules: rules.collect() }, "") {
                Ok((changed, _)) => users = changed,
                Err(text) => break text,
            }
            number += 1;
        };
        assert!(refused.contains("the file of all users"), "{refused}");
        assert!(number > 100, "{number} users of 900 passwords");
        let again = Users::with_password("").of_file("users", &users.file());
        assert!(again.is_ok_and(|again| again.file() == users.file()));
    }

    proptest! {
        #[test]
        fn files_of_users_hold_for_any_bytes(data in proptest::collection::vec(any::<u8>(), 0..300)) {
            check_users_file(&data);
        }

        #[test]
        fn files_of_users_hold_for_bytes_that_are_nearly_right(
            lines in proptest::collection::vec(proptest::collection::vec(0..WORDS.len(), 0..12), 0..8),
            noise in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
        ) {
            let line = |words: &Vec<usize>| words.iter().map(|&word| WORDS[word]).collect::<Vec<_>>().join(" ");
            let mut data: Vec<u8> = lines.iter().map(line).map(|line| format!("user {line}\n")).collect::<String>().into_bytes();
            for (index, byte) in noise {
                if !data.is_empty() {
                    let at = index.index(data.len());
                    data[at] = byte;
                }
            }
            check_users_file(&data);
        }
    }
}
