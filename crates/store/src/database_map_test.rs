use super::*;

#[test]
fn flushing_gives_an_id_that_was_never_used() {
    let mut map = DatabaseMap::new(3);
    let before = map.keyspaces().to_vec();
    map.change(MapChange::Flush(1)).unwrap();
    assert!(!before.contains(&map.keyspace(1).unwrap()));
    assert_eq!(map.keyspace(0), Some(before[0]));
    let middle = map.keyspaces().to_vec();
    map.change(MapChange::FlushAll).unwrap();
    assert!(map.keyspaces().iter().all(|id| !before.contains(id) && !middle.contains(id)));
    assert_eq!(map.version, 2);
}

#[test]
fn swapping_twice_changes_nothing() {
    let mut map = DatabaseMap::new(4);
    let before = map.keyspaces().to_vec();
    map.change(MapChange::Swap(0, 3)).unwrap();
    assert_eq!(map.keyspace(0), Some(before[3]));
    map.change(MapChange::Swap(3, 0)).unwrap();
    assert_eq!(map.keyspaces(), before);
}

#[test]
fn a_database_that_does_not_exist_is_refused_and_nothing_changes() {
    let mut map = DatabaseMap::new(2);
    let before = map.clone();
    assert_eq!(map.change(MapChange::Flush(2)).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert!(map.change(MapChange::Swap(0, 9)).is_err());
    assert_eq!(map, before);
    assert_eq!(map.keyspace(2), None);
}

#[test]
fn names_get_ids_of_their_own_and_lose_them_for_ever() {
    let mut map = DatabaseMap::new(2);
    let first = map.create("users", IndexKind::Ordered).unwrap();
    assert!(!map.keyspaces().contains(&first.id) && map.holds(first.id));
    assert_eq!(map.named("users"), Some(first));
    let before = map.clone();
    assert_eq!(map.create("users", IndexKind::Hash).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(map, before);
    map.change(MapChange::FlushAll).unwrap();
    assert_eq!(map.named("users"), Some(first));
    assert_eq!(map.remove("users"), Some(first));
    assert_eq!((map.remove("users"), map.holds(first.id)), (None, false));
    let second = map.create("users", IndexKind::Hash).unwrap();
    assert!(second.id != first.id && !map.keyspaces().contains(&second.id));
    assert_eq!(map.names().collect::<Vec<_>>(), [("users", second)]);
    assert_eq!(map.version, before.version + 3);
}

#[test]
fn names_that_cannot_be_told_from_numbers_or_read_are_refused() {
    let mut map = DatabaseMap::new(2);
    let long = "x".repeat(256);
    for name in ["", "0", "12", "a\nb", "\u{7f}", long.as_str()] {
        assert_eq!(
            map.create(name, IndexKind::Hash).unwrap_err().kind(),
            ErrorKind::InvalidInput,
            "{name:?}"
        );
    }
    for name in ["a", "0x", "users/by name", "grün", &long[1..]] {
        map.create(name, IndexKind::Hash).unwrap();
    }
    assert_eq!(map.names().count(), 5);
}

#[test]
fn a_map_without_names_reads_and_writes_as_before() {
    let map = DatabaseMap::new(1);
    let text = serde_json::to_string(&map).unwrap();
    assert_eq!(text, r#"{"version":0,"next_keyspace":2,"keyspaces":[1]}"#);
    assert_eq!(serde_json::from_str::<DatabaseMap>(&text).unwrap(), map);
}
