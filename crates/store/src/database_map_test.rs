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
