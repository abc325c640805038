use super::*;
use proptest::prelude::*;

const TABLE: &str = "\
21 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
22 21 0:5 / /proc rw - proc proc rw
31 21 0:44 /sub /data rw shared:2 master:3 - btrfs /dev/nvme0n1p2 rw
32 21 8:17 / /data/with\\040blank rw - xfs /dev/sdb1 rw
33 21 0:50 / /data/with\\040blank rw - tmpfs tmpfs rw
";

fn source(path: &str, number: (u32, u32)) -> Option<String> {
    find_mount(TABLE, Path::new(path), number).map(|mount| mount.source)
}

#[test]
fn the_deepest_mount_point_above_a_path_is_its_mount() {
    assert_eq!(source("/var/lib", (254, 0)).as_deref(), Some("/dev/vda"));
    assert_eq!(source("/data/x", (0, 99)).as_deref(), Some("/dev/nvme0n1p2"));
    assert_eq!(source("/database", (254, 0)).as_deref(), Some("/dev/vda"));
}

#[test]
fn of_two_mounts_on_one_point_the_number_tells() {
    assert_eq!(source("/data/with blank/y", (8, 17)).as_deref(), Some("/dev/sdb1"));
    assert_eq!(source("/data/with blank/y", (0, 50)).as_deref(), Some("tmpfs"));
}

#[test]
fn facts_about_the_working_directory_are_found() {
    let facts = DeviceFacts::of(Path::new(".")).expect("it can be looked at");
    assert!(facts.mount_point.is_some(), "{facts:?}");
    assert!(DeviceFacts::of(Path::new("/no/such/directory")).is_err());
}

proptest! {
    #[test]
    fn no_table_makes_the_parser_panic(table: String, path: String, prefix in "[0-9: /\\\\-]{0,40}") {
        let _ = find_mount(&table, Path::new(&path), (1, 2));
        let _ = parse_mount(&format!("1 2 {prefix}{table}"));
        let _ = unescape(&table);
    }
}
