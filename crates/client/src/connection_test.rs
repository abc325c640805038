use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::mpsc;
use std::thread::{Builder, JoinHandle};

use tierstone_wire::resp::{Skimmed, encode_command};

use super::*;

const PATIENCE: Duration = Duration::from_secs(20);

/// Runs `script` as the server of one connection; the connection, and the server to wait for.
fn with_peer(script: impl FnOnce(TcpStream) + Send + 'static) -> (Connection, JoinHandle<()>) {
    with_peer_and(&ConnectionSettings::with_timeout(PATIENCE), script)
}

fn with_peer_and(
    settings: &ConnectionSettings,
    script: impl FnOnce(TcpStream) + Send + 'static,
) -> (Connection, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let peer = Builder::new()
        .name("scripted peer".into())
        .spawn(move || {
            let (socket, _) = listener.accept().unwrap();
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            script(socket);
        })
        .unwrap();
    (Connection::connect_with(address, settings).unwrap(), peer)
}

/// Reads exactly the command `arguments`.
fn expect(socket: &mut TcpStream, arguments: &[&[u8]]) {
    let mut expected = Vec::new();
    encode_command(arguments, &mut expected);
    let mut got = vec![0; expected.len()];
    socket.read_exact(&mut got).unwrap();
    assert_eq!(got.escape_ascii().to_string(), expected.escape_ascii().to_string());
}

fn answer(socket: &mut TcpStream, bytes: &[u8]) {
    socket.write_all(bytes).unwrap();
}

fn bulk(bytes: &[u8]) -> Value {
    Value::Bulk(bytes.to_vec())
}

#[test]
fn a_command_gets_its_reply_and_a_server_error_is_a_value() {
    let (mut connection, peer) = with_peer(|mut socket| {
        expect(&mut socket, &[b"SET", b"k", b"v\r\n"]);
        answer(&mut socket, b"+OK\r\n");
        expect(&mut socket, &[b"INCR", b"k"]);
        answer(&mut socket, b"-ERR value is not an integer or out of range\r\n");
    });
    assert!(connection.socket().nodelay().unwrap());
    assert!(connection.command(&[b"SET", b"k", b"v\r\n"]).unwrap().is_ok());
    let error = connection.command(&[b"INCR", b"k"]).unwrap();
    assert_eq!(error.error().as_deref(), Some("ERR value is not an integer or out of range"));
    peer.join().unwrap();
}

#[test]
fn a_reply_may_come_byte_by_byte() {
    let reply = b"*3\r\n$5\r\nhello\r\n:-1\r\n*1\r\n$-1\r\n";
    let (mut connection, peer) = with_peer(move |mut socket| {
        expect(&mut socket, &[b"X"]);
        socket.set_nodelay(true).unwrap();
        for byte in reply {
            answer(&mut socket, &[*byte]);
        }
    });
    let expected = Value::Array(vec![bulk(b"hello"), Value::Integer(-1), Value::Array(vec![Value::Null])]);
    assert_eq!(connection.command(&[b"X"]).unwrap(), expected);
    peer.join().unwrap();
}

#[test]
fn a_reply_larger_than_any_buffer_arrives_whole() {
    let body: Vec<u8> = (0..3_000_000u32).map(|index| (index % 251) as u8).collect();
    let sent = body.clone();
    let (mut connection, peer) = with_peer(move |mut socket| {
        for _ in 0..2 {
            expect(&mut socket, &[b"GET", b"k"]);
            answer(&mut socket, format!("${}\r\n", sent.len()).as_bytes());
            answer(&mut socket, &sent);
            answer(&mut socket, b"\r\n");
        }
    });
    for _ in 0..2 {
        assert!(connection.command(&[b"GET", b"k"]).unwrap() == bulk(&body));
    }
    peer.join().unwrap();
}

#[test]
fn a_pipeline_gets_its_replies_in_order() {
    let (mut connection, peer) = with_peer(|mut socket| {
        // The whole pipeline comes before any answer.
        expect(&mut socket, &[b"SET", b"a", b"1"]);
        expect(&mut socket, &[b"BAD"]);
        expect(&mut socket, &[b"GET", b"a"]);
        answer(&mut socket, b"+OK\r\n-ERR unknown command\r\n$1\r\n1\r\n");
    });
    let mut pipeline = connection.pipeline();
    assert!(pipeline.is_empty());
    pipeline.command(&[b"SET", b"a", b"1"]).command(&[b"BAD"]).command(&[b"GET", b"a"]);
    assert_eq!(pipeline.len(), 3);
    let replies = pipeline.execute().unwrap();
    assert!(replies[0].is_ok() && replies[1].is_error());
    assert_eq!(replies[2], bulk(b"1"));
    assert_eq!(connection.outstanding(), 0);
    peer.join().unwrap();
    assert_eq!(connection.pipeline().execute().unwrap(), []);
}

#[test]
fn a_pipeline_that_fills_every_buffer_does_not_block_for_ever() {
    // The peer reads nothing more while its answers are not taken. An encoded command is a reply too:
    // an array of bulks.
    let (mut connection, peer) = with_peer(|mut socket| {
        let mut buffer = vec![0; 64 << 10];
        loop {
            match socket.read(&mut buffer).unwrap() {
                0 => return,
                count => answer(&mut socket, &buffer[..count]),
            }
        }
    });
    let value = vec![7; 16 << 10];
    let mut pipeline = connection.pipeline();
    for index in 0..2048 {
        pipeline.command(&[index.to_string().as_bytes(), &value]);
    }
    let replies = pipeline.execute().unwrap();
    assert_eq!(replies.len(), 2048);
    for (index, reply) in replies.iter().enumerate() {
        let items = reply.items().unwrap();
        assert_eq!(items[0], bulk(index.to_string().as_bytes()));
        assert!(items[1].bytes() == Some(&value));
    }
    // The socket blocks again.
    assert_eq!(connection.command(&[b"x"]).unwrap(), Value::Array(vec![bulk(b"x")]));
    drop(connection);
    peer.join().unwrap();
}

#[test]
fn pushes_are_kept_apart_from_replies() {
    let (mut connection, peer) = with_peer(|mut socket| {
        expect(&mut socket, &[b"HELLO", b"3"]);
        answer(&mut socket, b">1\r\n+early\r\n%1\r\n$5\r\nproto\r\n:3\r\n");
        expect(&mut socket, &[b"SUBSCRIBE", b"c"]);
        answer(&mut socket, b">3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n>1\r\n+late\r\n+odd\r\n");
    });
    let push = |text: &[u8]| Value::Push(vec![Value::Simple(text.to_vec())]);
    assert_eq!(connection.hello(3).unwrap(), Value::Map(vec![(bulk(b"proto"), Value::Integer(3))]));
    assert_eq!(connection.take_push(), Some(push(b"early")));
    assert_eq!(connection.take_push(), None);
    connection.send_unanswered(&[b"SUBSCRIBE", b"c"]).unwrap();
    assert_eq!(connection.receive_push().unwrap().items().unwrap().len(), 3);
    assert_eq!(connection.receive_push().unwrap(), push(b"late"));
    assert_eq!(connection.receive_push().unwrap_err().kind(), ErrorKind::Incompatible);
    peer.join().unwrap();
}

#[test]
fn pushes_that_nobody_takes_are_bounded() {
    let settings = ConnectionSettings { push_queue_max: 2, ..ConnectionSettings::with_timeout(PATIENCE) };
    let (mut connection, peer) = with_peer_and(&settings, |mut socket| {
        expect(&mut socket, &[b"PING"]);
        answer(&mut socket, b">1\r\n:1\r\n>1\r\n:2\r\n>1\r\n:3\r\n+PONG\r\n");
    });
    assert_eq!(connection.command(&[b"PING"]).unwrap_err().kind(), ErrorKind::NoMemory);
    assert_eq!(connection.receive_one().unwrap(), Value::Simple(b"PONG".to_vec()));
    assert_eq!(connection.take_push(), Some(Value::Push(vec![Value::Integer(1)])));
    peer.join().unwrap();
}

#[test]
fn a_late_reply_is_never_taken_for_another_commands() {
    let (timed_out, has_timed_out) = mpsc::channel();
    let (mut connection, peer) = with_peer(move |mut socket| {
        expect(&mut socket, &[b"GET", b"slow"]);
        answer(&mut socket, b"$4\r\nla");
        has_timed_out.recv().unwrap();
        answer(&mut socket, b"te\r\n");
        expect(&mut socket, &[b"GET", b"next"]);
        answer(&mut socket, b"$4\r\nnext\r\n");
    });
    connection.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let error = connection.command(&[b"GET", b"slow"]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Retry, "{error}");
    timed_out.send(()).unwrap();
    assert_eq!(connection.command(&[b"GET", b"next"]).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(connection.pipeline().execute().unwrap_err().kind(), ErrorKind::InvalidInput);
    connection.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(connection.receive_one().unwrap(), bulk(b"late"));
    assert_eq!(connection.command(&[b"GET", b"next"]).unwrap(), bulk(b"next"));
    peer.join().unwrap();
}

#[test]
fn a_lost_connection_can_be_tried_again() {
    let (mut connection, peer) = with_peer(|mut socket| {
        expect(&mut socket, &[b"PING"]);
        answer(&mut socket, b"+PO");
    });
    let error = connection.command(&[b"PING"]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Retry, "{error}");
    peer.join().unwrap();

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    assert_eq!(Connection::connect(address, PATIENCE).unwrap_err().kind(), ErrorKind::Retry);
    assert_eq!(Connection::connect("no address", PATIENCE).unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[test]
fn a_server_of_another_protocol_is_recognised() {
    let (mut connection, peer) = with_peer(|mut socket| {
        expect(&mut socket, &[b"PING"]);
        answer(&mut socket, b"HTTP/1.1 400 Bad Request\r\n\r\n");
    });
    assert_eq!(connection.command(&[b"PING"]).unwrap_err().kind(), ErrorKind::Incompatible);
    assert_eq!(connection.receive_one().unwrap_err().kind(), ErrorKind::Incompatible);
    peer.join().unwrap();
}

#[test]
fn a_caller_may_pipeline_by_itself() {
    let (mut connection, peer) = with_peer(|mut socket| {
        for key in [b"a", b"b", b"c"] {
            expect(&mut socket, &[b"GET", key]);
        }
        answer(&mut socket, b"$1\r\nA\r\n$1\r\nB\r\n$1\r\nC\r\n");
    });
    for key in [b"a", b"b", b"c"] {
        connection.send_only(&[b"GET", key]).unwrap();
    }
    assert_eq!(connection.outstanding(), 3);
    for value in [b"A", b"B", b"C"] {
        assert_eq!(connection.receive_one().unwrap(), bulk(value));
    }
    assert_eq!(connection.outstanding(), 0);
    peer.join().unwrap();
}

#[test]
fn the_halves_work_on_two_threads() {
    const COMMANDS: usize = 5_000;
    let (connection, peer) = with_peer(|mut socket| {
        let mut buffer = vec![0; 64 << 10];
        loop {
            match socket.read(&mut buffer).unwrap() {
                0 => return,
                count => answer(&mut socket, &buffer[..count]),
            }
        }
    });
    let (mut sender, mut receiver) = connection.split().unwrap();
    let writer = Builder::new()
        .name("writer".into())
        .spawn(move || {
            for index in 0..COMMANDS {
                sender.send(&[b"ECHO", index.to_string().as_bytes()]).unwrap();
            }
            sender.finish().unwrap();
            assert_eq!(sender.send(&[b"PING"]).unwrap_err().kind(), ErrorKind::InvalidInput);
        })
        .unwrap();
    for index in 0..COMMANDS {
        if index % 2 == 0 {
            assert_eq!(receiver.skim().unwrap(), Skimmed::Value);
        } else {
            let value = receiver.receive().unwrap();
            assert_eq!(value.items().unwrap()[1], bulk(index.to_string().as_bytes()));
        }
    }
    assert_eq!(receiver.skim().unwrap_err().kind(), ErrorKind::Retry, "the end of the stream");
    writer.join().unwrap();
    peer.join().unwrap();
}

#[test]
fn a_half_read_reply_is_finished_the_way_it_was_begun() {
    let (timed_out, has_timed_out) = mpsc::channel();
    let (connection, peer) = with_peer(move |mut socket| {
        for _ in 0..2 {
            // One small write arrives as one: after the integer the rest is there too.
            answer(&mut socket, b":1\r\n$5\r\nhe");
            has_timed_out.recv().unwrap();
            answer(&mut socket, b"llo\r\n");
        }
    });
    let (_sender, mut receiver) = connection.split().unwrap();
    assert_eq!(receiver.receive().unwrap(), Value::Integer(1));
    receiver.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    assert_eq!(receiver.receive().unwrap_err().kind(), ErrorKind::Retry);
    assert_eq!(receiver.skim().unwrap_err().kind(), ErrorKind::InvalidInput);
    receiver.set_read_timeout(Some(PATIENCE)).unwrap();
    timed_out.send(()).unwrap();
    assert_eq!(receiver.receive().unwrap(), bulk(b"hello"));

    assert_eq!(receiver.skim().unwrap(), Skimmed::Value);
    receiver.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    assert_eq!(receiver.skim().unwrap_err().kind(), ErrorKind::Retry);
    assert_eq!(receiver.receive().unwrap_err().kind(), ErrorKind::InvalidInput);
    receiver.set_read_timeout(Some(PATIENCE)).unwrap();
    timed_out.send(()).unwrap();
    assert_eq!(receiver.skim().unwrap(), Skimmed::Value);
    peer.join().unwrap();
}

#[test]
fn settings_of_a_timeout_never_turn_it_into_none() {
    assert_eq!(ConnectionSettings::with_timeout(Duration::ZERO).read_timeout_ms, 0);
    assert_eq!(ConnectionSettings::with_timeout(Duration::from_micros(1)).read_timeout_ms, 1);
    assert_eq!(ConnectionSettings::with_timeout(Duration::MAX).read_timeout_ms, u64::MAX);
    assert_eq!(timeout(0), None);
}

/// A server that takes nothing and sends `reply` as long as somebody listens.
fn flood(mut socket: TcpStream, reply: &[u8]) {
    let replies = reply.repeat(1_000);
    while socket.write_all(&replies).is_ok() {}
}

fn long_pipeline(connection: &mut Connection) -> Error {
    let value = vec![7; 16 << 10];
    let mut pipeline = connection.pipeline();
    for _ in 0..2_048 {
        pipeline.command(&[b"SET", b"key", &value]);
    }
    pipeline.execute().unwrap_err()
}

#[test]
fn a_server_that_answers_more_than_was_asked_is_refused_while_a_pipeline_is_sent() {
    let (mut connection, peer) = with_peer(|socket| flood(socket, b"+OK\r\n"));
    let error = long_pipeline(&mut connection);
    assert_eq!(error.kind(), ErrorKind::Incompatible, "{error}");
    assert!(connection.receiver.held_bytes() <= 1 << 20, "{}", connection.receiver.held_bytes());
    // Nothing more is sent: the server has a part of a command.
    let error = connection.command(&[b"PING"]).unwrap_err();
    assert!(error.message().contains("failed before"), "{error}");
    drop(connection);
    peer.join().unwrap();
}

#[test]
fn pushes_and_long_replies_are_bounded_while_a_pipeline_is_sent() {
    let settings = ConnectionSettings {
        push_queue_max: 100,
        reply_limits: tierstone_wire::resp::ReplyLimits { bulk_size_max_bytes: 1_000, ..Default::default() },
        ..ConnectionSettings::with_timeout(PATIENCE)
    };
    for (reply, kind) in
        [(&b">1\r\n+message\r\n"[..], ErrorKind::NoMemory), (b"$1001\r\n", ErrorKind::Incompatible)]
    {
        let (mut connection, peer) = with_peer_and(&settings, move |socket| flood(socket, reply));
        let error = long_pipeline(&mut connection);
        assert_eq!(error.kind(), kind, "{error}");
        drop(connection);
        peer.join().unwrap();
    }
}

#[test]
fn a_server_that_sends_and_takes_nothing_does_not_hold_a_pipeline_up() {
    let settings = ConnectionSettings {
        write_timeout_ms: 200,
        push_queue_max: usize::MAX,
        ..ConnectionSettings::with_timeout(PATIENCE)
    };
    let (mut connection, peer) = with_peer_and(&settings, |mut socket| {
        socket.set_nodelay(true).unwrap();
        // A byte now and then.
        let (_never, pause) = mpsc::channel::<()>();
        for byte in b">1\r\n+message\r\n".iter().cycle() {
            if socket.write_all(&[*byte]).is_err() {
                return;
            }
            assert!(pause.recv_timeout(Duration::from_millis(5)).is_err());
        }
    });
    let error = long_pipeline(&mut connection);
    assert!(error.kind() == ErrorKind::Retry && error.message().contains("the time is up"), "{error}");
    assert_eq!(connection.outstanding(), 2_048, "counted before they were sent");
    drop(connection);
    peer.join().unwrap();
}

#[test]
fn a_name_that_cannot_be_looked_up_can_be_tried_again_and_what_is_no_address_cannot() {
    // No name may have so long a part.
    let kind = |address: &str| Connection::connect(address, PATIENCE).unwrap_err().kind();
    assert_eq!(kind(&format!("{}.invalid:6379", "a".repeat(70))), ErrorKind::Retry);
    assert_eq!(kind("localhost:port"), ErrorKind::InvalidInput);
}
