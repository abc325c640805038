//! The end of a node, in good order and otherwise.

use super::*;
use crate::listen::ListenAddress;
use crate::redis::node::NodeSettings;
use crate::settings::TransportSettings;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use tierstone::DatabaseOptions;

/// No healthy run waits so long.
const PATIENCE: Duration = Duration::from_secs(60);

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("tierstone-node-{}-{name}", std::process::id()));
        Folder(folder)
    }

    /// Settings of a small node in it whose stop would take far longer than a test if it ran into its limit.
    fn settings(&self, shards: u16) -> NodeSettings {
        let database = DatabaseOptions {
            directories: vec![self.0.clone()],
            shards,
            segment_bytes: Some(1 << 20),
            capacity_bytes: Some(64 << 20),
            memory_bytes: (16 << 20) * u64::from(shards),
            ..DatabaseOptions::default()
        };
        NodeSettings {
            database,
            listen: vec![ListenAddress::Tcp(SocketAddr::from(([127, 0, 0, 1], 0)))],
            transport: TransportSettings { stop_timeout_ms: 3_600_000, ..TransportSettings::default() },
            ..NodeSettings::default()
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn what_a_client_asks_of_the_node_while_it_stops_is_carried_out_and_answered() {
    let folder = Folder::new("asked");
    let node = Node::start(&folder.settings(2)).unwrap();
    let mut client = TcpStream::connect(node.addresses()[0]).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.write_all(b"FLUSHALL\r\n").unwrap();
    // The stop comes first.
    let asked = node.messages.recv_timeout(PATIENCE).unwrap();
    assert!(matches!(asked, ToNode::ChangeMap { .. }), "{asked:?}");
    let stop = node.stopper();
    stop();
    node.stop_sender.send(asked).unwrap();
    stop();
    assert!(node.run().unwrap(), "in good order");
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "+OK\r\n");
}

#[test]
fn a_node_ends_with_an_error_when_a_shards_thread_ends_by_itself() {
    let folder = Folder::new("ended");
    let mut settings = folder.settings(2);
    // The shard waits so long for the other one, half of it.
    settings.transport.stop_timeout_ms = 200;
    let node = Node::start(&settings).unwrap();
    node.drivers[1].stop_handle().stop();
    let error = node.run().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Retry);
    assert_eq!(error.message(), "the thread of shard 1 has ended: nobody has asked it to stop");
}

#[test]
fn a_lost_shard_ends_a_server_in_a_way_after_which_it_is_started_again() {
    // Of this kind alone wrong settings would be thought of, which no restart mends.
    let failed = lost(7, Err(Error::new(ErrorKind::InvalidInput, "io_uring_enter: refused")));
    assert_eq!(failed.kind(), ErrorKind::Retry);
    assert_eq!(failed.message(), "the thread of shard 7 has ended: io_uring_enter: refused");
}

#[test]
fn a_start_that_fails_in_one_shard_waits_for_no_other() {
    let allowed = rustix::thread::sched_getaffinity(None).unwrap();
    let missing = (0..1_024).find(|cpu| !allowed.is_set(*cpu)).unwrap_or(1_024);
    if missing > 32 {
        println!("SKIP: a start that fails in one shard ({missing} processors)");
        return;
    }
    let folder = Folder::new("refused");
    // The last one cannot be pinned.
    let mut settings = folder.settings(missing as u16 + 1);
    settings.pin = true;
    let error = Node::start(&settings).unwrap_err();
    assert!(error.message().contains("cannot pin"), "{error}");
}
