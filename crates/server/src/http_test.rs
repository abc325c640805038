use super::*;
use crate::manual::ManualDriver;
use proptest::prelude::*;
use std::io::{Read, Write};
use std::net::TcpStream;
use tierstone_media::sim::SimDevice;
use tierstone_media::{BLOCK_BYTES, Geometry};

fn start() -> HttpServer {
    let provider: Provider = Box::new(|page| match page {
        Page::Metrics => Answer::Fine("tierstone_up 1\n".to_owned()),
        Page::Live => Answer::Fine("alive\n".to_owned()),
        Page::Ready => Answer::Unavailable("recovering\n".to_owned()),
    });
    serve(&[ListenAddress::Tcp(SocketAddr::from(([127, 0, 0, 1], 0)))], provider).unwrap()
}

/// Sends `request`, which must make the server close, and gives everything that came.
fn ask(server: &HttpServer, request: &str) -> String {
    let mut stream = TcpStream::connect(server.addresses[0]).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn the_three_pages_are_served_and_others_refused() {
    let server = start();
    let metrics = ask(&server, "GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert!(metrics.starts_with("HTTP/1.1 200 OK\r\n") && metrics.contains("version=0.0.4"), "{metrics}");
    assert!(metrics.ends_with("\r\n\r\ntierstone_up 1\n"), "{metrics}");
    let ready = ask(&server, "GET /ready HTTP/1.0\r\n\r\n");
    assert!(ready.starts_with("HTTP/1.1 503 ") && ready.ends_with("recovering\n"), "{ready}");
    let head = ask(&server, "HEAD /live HTTP/1.0\r\n\r\n");
    assert!(head.contains("Content-Length: 6\r\n") && head.ends_with("\r\n\r\n"), "{head}");
    assert!(ask(&server, "GET / HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 404 "));
    assert!(ask(&server, "POST /live HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405 "));
    assert!(ask(&server, "GET /live HTTP/1.1\r\nContent-Length: 5\r\n\r\n").starts_with("HTTP/1.1 413 "));
    assert!(ask(&server, "nonsense\r\n\r\n").starts_with("HTTP/1.1 400 "));
    server.driver.stop_handle().stop();
    server.driver.join().unwrap();
}

#[test]
fn pipelined_requests_are_answered_in_order_on_one_connection() {
    let server = start();
    let pipeline = "GET /live HTTP/1.1\r\n\r\nGET /metrics HTTP/1.1\r\n\r\nGET /x HTTP/1.0\r\n\r\n";
    let answer = ask(&server, pipeline);
    let places: Vec<_> =
        ["alive", "tierstone_up", "404 Not Found"].iter().map(|text| answer.find(text).unwrap()).collect();
    assert!(places.is_sorted(), "{answer}");
    assert_eq!(answer.matches("HTTP/1.1 ").count(), 3, "{answer}");
}

#[test]
fn a_connection_is_closed_whose_options_say_so() {
    let says_keep = |options: &str| {
        let (answer, closes) = answers(&[format!("GET /live HTTP/1.1\r\n{options}\r\n").as_bytes()]);
        let answer = String::from_utf8(answer).unwrap();
        assert_eq!(answer.contains("\r\nConnection: close\r\n"), closes, "{options}: {answer}");
        !closes
    };
    for options in ["", "Connection: keep-alive\r\n", "Connection: closed, x-close\r\n"] {
        assert!(says_keep(options), "{options}");
    }
    for options in [
        "Connection: Close\r\n",
        "Connection: keep-alive, close\r\n",
        "Connection: close ,TE\r\n",
        "Connection: keep-alive\r\nconnection: close\r\n",
    ] {
        assert!(!says_keep(options), "{options}");
    }
}

/// What a connection is answered to `pieces`, one after the other, until it is to be closed; and whether it is.
fn answers(pieces: &[&[u8]]) -> (Vec<u8>, bool) {
    let provider: Provider = Box::new(|page| Answer::Fine(format!("{page:?}\n")));
    let mut service = HttpService::new(provider);
    let id = ConnectionId { index: 0, generation: 0 };
    let mut connection = service.connect(Now::default(), id, &Peer::Unix).unwrap();
    let (mut input, mut all, mut closes) = (Vec::new(), Vec::new(), false);
    for piece in pieces {
        input.extend_from_slice(piece);
        let mut output = ReplyQueue::new(usize::MAX);
        let received = service.receive(Now::default(), id, &mut connection, &input, &mut output);
        assert!(received.consumed <= input.len());
        input.drain(..received.consumed);
        output.take(&mut all);
        closes = matches!(received.want, Want::Close);
        if closes {
            break;
        }
    }
    (all, closes)
}

/// Pieces of which requests are made.
const WORDS: [&str; 14] = [
    "GET /metrics HTTP/1.1\r\n\r\n",
    "HEAD /live HTTP/1.0\r\n",
    "GET /ready",
    " HTTP/1.1\r\n",
    "Connection: close\r\n",
    "Connection: keep-alive\r\n",
    "Content-Length: 0\r\n",
    "Content-Length: 9\r\n",
    "Transfer-Encoding: chunked\r\n",
    "\r\n",
    "\n",
    "POST / HTTP/1.1\r\n",
    ": ",
    "\0\u{ff}",
];

proptest! {
    #[test]
    fn requests_are_answered_alike_however_they_come(
        words in prop::collection::vec(0..WORDS.len(), 0..24),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
    ) {
        let text: String = words.iter().map(|&word| WORDS[word]).collect();
        let bytes = text.as_bytes();
        let whole = answers(&[bytes]);
        let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        places.extend([0, bytes.len()]);
        places.sort_unstable();
        let pieces: Vec<&[u8]> = places.windows(2).map(|ends| &bytes[ends[0]..ends[1]]).collect();
        prop_assert_eq!(answers(&pieces), whole);
    }
}

#[test]
fn an_endless_head_is_cut_off() {
    let server = start();
    let request = format!("GET /live HTTP/1.1\r\nX: {}", "y".repeat(HEAD_BYTES));
    let mut stream = TcpStream::connect(server.addresses[0]).unwrap();
    stream.write_all(&request.as_bytes()[..HEAD_BYTES]).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
}

#[test]
fn who_holds_a_connection_with_half_a_request_is_closed_in_time() {
    let bytes = BLOCK_BYTES as u64;
    let device = SimDevice::plain(Geometry { meta_bytes: bytes, segment_bytes: bytes, segment_limit: 1 });
    let service = HttpService::new(Box::new(|_| Answer::Fine("alive\n".to_owned())));
    let at = |s: u64| Now { monotonic_us: s * 1_000_000, wall_ms: s * 1_000 };
    let mut driver = ManualDriver::new(service, device, settings(), at(1)).unwrap();
    let [silent, slow, kept, late] = [(); 4].map(|()| driver.connect(at(1), &Peer::Unix).unwrap());
    driver.receive(at(1), slow, b"GET /live HTTP/1.1\r\n");
    for whole in [kept, late] {
        driver.receive(at(1), whole, b"GET /live HTTP/1.1\r\n\r\n");
    }
    driver.turn(at(1));
    assert_eq!(driver.next_turn_at_us(), Some(2_000_000), "the sweep comes first");
    let is_open =
        |driver: &mut ManualDriver<HttpService, SimDevice>, index| driver.take_output(index, &mut Vec::new());
    for s in 2..6 {
        driver.receive(at(s), slow, b"X: y\r\n");
        driver.turn(at(s));
        assert!([silent, slow, kept, late].into_iter().all(|index| is_open(&mut driver, index)), "{s}");
    }
    driver.turn(at(6));
    assert!(!is_open(&mut driver, silent) && !is_open(&mut driver, slow));
    // Who has asked may wait, and has his time from the first byte of the next request on.
    driver.receive(at(20), late, b"GET /li");
    driver.turn(at(20));
    driver.receive(at(24), late, b"ve HTTP/1.1\r\n");
    driver.turn(at(24));
    assert!(is_open(&mut driver, late) && is_open(&mut driver, kept));
    driver.turn(at(25));
    assert!(!is_open(&mut driver, late) && is_open(&mut driver, kept));
    assert!(driver.service().awaited.is_empty());
}

#[test]
fn who_does_not_take_his_answers_is_closed_in_time() {
    let bytes = BLOCK_BYTES as u64;
    let device = SimDevice::plain(Geometry { meta_bytes: bytes, segment_bytes: bytes, segment_limit: 1 });
    let service = HttpService::new(Box::new(|_| Answer::Fine("alive\n".to_owned())));
    let at = |s: u64| Now { monotonic_us: s * 1_000_000, wall_ms: s * 1_000 };
    let mut driver = ManualDriver::new(service, device, settings(), at(1)).unwrap();
    let [stuck, leaving, kept] = [(); 3].map(|()| driver.connect(at(1), &Peer::Unix).unwrap());
    for index in [stuck, leaving] {
        driver.set_stalled(index, true);
    }
    driver.receive(at(1), stuck, b"GET /live HTTP/1.1\r\n\r\n");
    driver.receive(at(1), leaving, b"GET /live HTTP/1.0\r\n\r\n");
    for s in 1..=11 {
        driver.receive(at(s), kept, b"GET /live HTTP/1.1\r\n\r\n");
        driver.turn(at(s));
        let is_open = [stuck, leaving, kept].map(|index| driver.take_output(index, &mut Vec::new()));
        assert_eq!(is_open, [true; 3], "{s}");
    }
    driver.turn(at(12));
    let is_open = [stuck, leaving, kept].map(|index| driver.take_output(index, &mut Vec::new()));
    assert_eq!(is_open, [false, false, true]);
}
