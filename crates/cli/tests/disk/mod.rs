//! A small file system of a test's own: a tmpfs in a private mount namespace that a process of the test holds.
//!
//! Programs are started inside with `nsenter`; the test itself reaches the files through `/proc/PID/root`. The
//! namespace and its files go with the last process in it.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Mounts, says so, and stays until its input ends.
const HOLD: &str = "mount -t tmpfs -o size=\"$1\" tmpfs \"$2\" && echo mounted && exec cat";

/// The file system, and who holds it.
pub struct SmallDisk {
    holder: Child,
    /// Where it is mounted, as programs inside see it.
    path: PathBuf,
    /// How to come into the namespace.
    entry: Vec<String>,
}

impl SmallDisk {
    /// One of `bytes` at the empty directory `path`. `None`, after a line that says so, where the machine lets
    /// nobody mount anything.
    pub fn new(path: &Path, bytes: u64) -> Option<SmallDisk> {
        std::fs::create_dir_all(path).expect("a directory is made");
        let mut refusals = Vec::new();
        // As root; else as the root of a user namespace.
        for (namespaces, entry) in [
            (&["--mount"][..], &[][..]),
            (&["--mount", "--map-root-user"], &["--user", "--preserve-credentials"]),
        ] {
            let mut command = Command::new("unshare");
            command.args(namespaces).args(["sh", "-c", HOLD, "sh", &bytes.to_string()]).arg(path);
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
            let mut holder = match command.spawn() {
                Ok(holder) => holder,
                Err(error) => {
                    refusals.push(format!("unshare: {error}"));
                    break;
                }
            };
            let mut line = String::new();
            let output = holder.stdout.take().expect("it was piped");
            let _ = BufReader::new(output).read_line(&mut line);
            if line.trim() == "mounted" {
                let process = holder.id().to_string();
                let words = ["--target", &process, "--mount"];
                let entry = words.iter().chain(entry).map(|&word| word.to_owned()).collect();
                return Some(SmallDisk { holder, path: path.to_path_buf(), entry });
            }
            let mut said = String::new();
            let _ = holder.stderr.take().expect("it was piped").read_to_string(&mut said);
            refusals.push(said.trim().replace('\n', "; "));
            let _ = holder.wait();
        }
        println!("SKIP: tests of a full file system (nothing can be mounted: {})", refusals.join("; "));
        None
    }

    /// A path on it, as programs inside see it.
    pub fn inside(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The same path, as the test itself reaches it.
    pub fn outside(&self, name: &str) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.holder.id()));
        let path = self.inside(name);
        root.join(path.strip_prefix("/").expect("an absolute path"))
    }

    /// `command`, to be run inside.
    pub fn enter(&self, command: &Command) -> Command {
        let mut inside = Command::new("nsenter");
        inside.args(&self.entry).arg("--").arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => inside.env(name, value),
                None => inside.env_remove(name),
            };
        }
        inside.stdin(Stdio::null());
        inside
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}
