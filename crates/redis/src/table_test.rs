use super::*;

#[test]
fn every_command_is_found_in_either_case_and_nothing_else_is() {
    for (index, command) in commands().enumerate() {
        for name in [command.name.to_owned(), command.name.to_uppercase()] {
            let found = lookup(name.as_bytes()).unwrap();
            assert_eq!((found.index, found.command.name), (index, command.name));
        }
    }
    for name in ["", "gett", "ge", "lpush", "zadd", "object|encoding", &"x".repeat(5_000)] {
        assert!(lookup(name.as_bytes()).is_none(), "{name}");
    }
}

#[test]
fn subcommands_carry_the_name_of_their_container() {
    for container in commands() {
        let is_container = matches!(container.action, Action::Container);
        for command in container.subcommands {
            let prefix = format!("{}|", container.name);
            assert!(command.name.starts_with(&prefix), "{}", command.name);
            assert_eq!(subcommand(container, command.own_name().as_bytes()).unwrap().name, command.name);
        }
        assert!(!is_container || !container.subcommands.is_empty(), "{}", container.name);
    }
}

#[test]
fn key_ranges_stay_inside_hostile_requests() {
    let slices: Vec<&[u8]> = vec![b"x"; 9];
    for command in commands().flat_map(|command| std::iter::once(command).chain(command.subcommands)) {
        for len in 1..slices.len() {
            let args = Args::Slices(&slices[..len]);
            assert!(command.keys.indexes(args).all(|index| index < len), "{} of {len}", command.name);
        }
    }
}

#[test]
fn keys_of_requests_are_those_of_the_specification() {
    let words: Vec<&[u8]> = vec![b"MSET", b"a", b"1", b"b", b"2"];
    let keys: Vec<usize> = lookup(b"mset").unwrap().command.keys.indexes(Args::Slices(&words)).collect();
    assert_eq!(keys, [1, 3]);
    let words: Vec<&[u8]> = vec![b"BITOP", b"AND", b"d", b"a", b"b"];
    let keys: Vec<usize> = lookup(b"bitop").unwrap().command.keys.indexes(Args::Slices(&words)).collect();
    assert_eq!(keys, [2, 3, 4]);
}
