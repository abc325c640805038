use super::*;

/// A folder with such files; it goes with this.
struct Root(PathBuf);

impl Root {
    fn new(name: &str, files: &[(&str, &str)]) -> Root {
        let path = std::env::temp_dir().join(format!("tierstone-memory-{name}-{}", std::process::id()));
        for (file, text) in files {
            let file = path.join(file);
            std::fs::create_dir_all(file.parent().expect("it lies in a folder")).expect("a folder is made");
            std::fs::write(file, text).expect("it is written");
        }
        Root(path)
    }

    /// The bound, and where it comes from.
    fn bound(&self) -> (u64, Option<String>) {
        let bound = MemoryBound::below(&self.0);
        let inside =
            |file: PathBuf| file.strip_prefix(&self.0).expect("below the root").display().to_string();
        (bound.bytes, bound.group.map(inside))
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const MACHINE: (&str, &str) = ("proc/meminfo", "MemTotal:        4194304 kB\nMemFree:  1 kB\n");
const MIB: u64 = 1 << 20;

#[test]
fn without_a_group_that_bounds_it_the_machine_does() {
    let alone = Root::new("alone", &[MACHINE]);
    assert_eq!(alone.bound(), (4096 * MIB, None));
    let free = [
        MACHINE,
        ("proc/self/cgroup", "4:memory:/a\n0::/b\n"),
        ("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "9223372036854771712\n"),
        ("sys/fs/cgroup/b/memory.max", "max\n"),
    ];
    assert_eq!(Root::new("free", &free).bound(), (4096 * MIB, None));
    assert_eq!(Root::new("nothing", &[]).bound(), (UNKNOWN_BYTES, None));
    let odd =
        [MACHINE, ("proc/self/cgroup", "\n0\n0:\n0::/\u{0}\n:::\n"), ("sys/fs/cgroup/memory.max", "-5")];
    assert_eq!(Root::new("odd", &odd).bound(), (4096 * MIB, None));
}

#[test]
fn the_narrowest_of_a_group_and_those_above_it_counts() {
    let own = [
        MACHINE,
        ("proc/self/cgroup", "0::/system.slice/tierstone.service\n"),
        ("sys/fs/cgroup/system.slice/tierstone.service/memory.max", "268435456\n"),
        ("sys/fs/cgroup/system.slice/memory.max", "max\n"),
    ];
    let file = "sys/fs/cgroup/system.slice/tierstone.service/memory.max".to_owned();
    assert_eq!(Root::new("own", &own).bound(), (256 * MIB, Some(file)));
    let above = [
        MACHINE,
        ("proc/self/cgroup", "0::/a/b\n"),
        ("sys/fs/cgroup/a/b/memory.max", "268435456\n"),
        ("sys/fs/cgroup/a/memory.max", "134217728\n"),
    ];
    let file = "sys/fs/cgroup/a/memory.max".to_owned();
    assert_eq!(Root::new("above", &above).bound(), (128 * MIB, Some(file)));
}

#[test]
fn a_container_sees_its_bound_at_the_top_of_the_mount() {
    // With a namespace of its own, and without one.
    for (name, groups) in [("inside", "0::/\n"), ("outside", "0::/../docker/1234\n")] {
        let files = [MACHINE, ("proc/self/cgroup", groups), ("sys/fs/cgroup/memory.max", "536870912\n")];
        let expected = (512 * MIB, Some("sys/fs/cgroup/memory.max".to_owned()));
        assert_eq!(Root::new(name, &files).bound(), expected, "{name}");
    }
    let first = [
        MACHINE,
        ("proc/self/cgroup", "5:cpu:/docker/12\n4:hugetlb,memory:/docker/12\n0::/\n"),
        ("sys/fs/cgroup/memory/memory.limit_in_bytes", "536870912\n"),
    ];
    let file = "sys/fs/cgroup/memory/memory.limit_in_bytes".to_owned();
    assert_eq!(Root::new("first", &first).bound(), (512 * MIB, Some(file)));
}

#[test]
fn more_memory_than_there_is_is_told() {
    let group = Some(PathBuf::from("/sys/fs/cgroup/memory.max"));
    let bound = MemoryBound { bytes: 256 * MIB, group };
    assert_eq!(bound.default_memory_bytes(), 64 * MIB);
    assert_eq!(bound.told_of(bound.default_memory_bytes()), None);
    assert_eq!(bound.told_of(192 * MIB), None);
    let told = bound.told_of(193 * MIB).expect("it is too much");
    assert!(told.contains("193 MiB") && told.contains("256 MiB (/sys/fs/cgroup/memory.max)"), "{told}");
    let machine = MemoryBound { bytes: 256 * MIB, group: None };
    let told = machine.told_of(u64::MAX).expect("it is too much");
    assert!(told.contains("the machine has 256 MiB"), "{told}");
}
