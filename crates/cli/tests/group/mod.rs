//! A control group of a test's own, of version 1 or 2: a bound on memory, or on writes to a disk.
//!
//! A server enters it before it is one, by the shell that starts it. The group goes when it is dropped, which needs
//! its processes gone.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

static NEXT: AtomicU32 = AtomicU32::new(0);

/// Enters the group and becomes the program.
const ENTER: &str = "echo $$ > \"$0/cgroup.procs\" && exec \"$@\"";

/// The group; it is removed with this.
pub struct Group {
    path: PathBuf,
}

impl Group {
    /// A group of `controller` in which `file_1` (version 1) or `file_2` (version 2) holds `value`. `None`, after a
    /// line that says so, where the machine does not allow it; `what` names what is left out.
    pub fn new(what: &str, controller: &str, [file_1, file_2]: [&str; 2], value: [&str; 2]) -> Option<Group> {
        let root = Path::new("/sys/fs/cgroup");
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("tierstone-cli-{}-{controller}-{number}", std::process::id());
        let (first, second) = (root.join(controller), root.to_path_buf());
        let is_first = first.join("cgroup.procs").exists();
        let parent = if is_first { first } else { second };
        let (file, value) = if is_first { (file_1, value[0]) } else { (file_2, value[1]) };
        let path = parent.join(name);
        let made = std::fs::create_dir(&path).and_then(|()| {
            if !is_first {
                let short = if controller == "blkio" { "io" } else { controller };
                std::fs::write(parent.join("cgroup.subtree_control"), format!("+{short}"))?;
            }
            std::fs::write(path.join(file), value)
        });
        match made {
            Ok(()) => Some(Group { path }),
            Err(error) => {
                println!("SKIP: {what} (no control group: {error})");
                let _ = std::fs::remove_dir(&path);
                None
            }
        }
    }

    /// Whether the process is in it.
    pub fn holds(&self, process: u32) -> bool {
        let text = std::fs::read_to_string(self.path.join("cgroup.procs")).unwrap_or_default();
        text.lines().any(|line| line.parse() == Ok(process))
    }

    /// `command`, to be run inside.
    pub fn enter(&self, command: &Command) -> Command {
        let mut inside = Command::new("sh");
        inside.args(["-c", ENTER]).arg(&self.path).arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => inside.env(name, value),
                None => inside.env_remove(name),
            };
        }
        inside.stdin(std::process::Stdio::null());
        inside
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The kernel may need a moment to see that the processes are gone; what stays is empty.
        let _ = (0..10_000).any(|_| std::fs::remove_dir(&self.path).is_ok());
    }
}
