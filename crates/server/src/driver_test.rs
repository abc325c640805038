//! Real sockets on loopback, on both reactors.

use super::*;
use crate::connections::Connections;
use crate::gate::{ReplyQueue, SlotId};
use crate::listen::ListenAddress;
use crate::mailbox::{MailReceiver, MailSender, mailbox};
use crate::service::{ConnectionId, Peer, Received, Want};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use tierstone_base::{Now, Seq};
use tierstone_media::file::{DurableMethod, FileStore, FileStoreSettings};
use tierstone_media::{BLOCK_BYTES, IoBuffer, IoCompletion, IoRequest};

/// A wait that no healthy run comes near.
const PATIENCE: Duration = Duration::from_secs(60);

/// What tests tell the service.
enum Order {
    Durable(Seq),
    /// Fill all reserved places.
    Answer,
    /// End all pauses.
    Resume,
    /// Fail for good.
    Fail,
}

/// What the service tells tests.
#[derive(Debug, PartialEq, Eq)]
enum News {
    Connected,
    Disconnected,
    InputEnded,
    Full,
    Paused,
    Reserved,
    Wrote(Seq),
    /// The most bytes that were ever held in buffers, told when a connection goes.
    HeldAtMost(u64),
}

/// Answers lines: `echo X`, `write`, `read`, `big N`, `ask`, `pause`, `quit`; nothing to `drop X`.
struct LineService {
    orders: MailReceiver<Order>,
    inbox: Vec<Order>,
    news: Sender<News>,
    applied: Seq,
    durable: Seq,
    /// With a device: writes go there, and nobody else raises `durable`.
    unwritten: Option<Vec<Seq>>,
    reserved: Vec<(ConnectionId, SlotId)>,
    paused: Vec<ConnectionId>,
    held_at_most: u64,
    is_stopped: bool,
    has_failed: bool,
}

impl LineService {
    fn tell(&self, news: News) {
        // A test that has seen enough listens no more.
        let _ = self.news.send(news);
    }

    fn line(&mut self, id: ConnectionId, line: &str, output: &mut ReplyQueue) -> Option<Want> {
        let (command, argument) = line.split_once(' ').unwrap_or((line, ""));
        match command {
            "echo" => output.push(0, format!("{argument}\n").as_bytes()),
            "write" => {
                self.applied += 1;
                if let Some(unwritten) = &mut self.unwritten {
                    unwritten.push(self.applied);
                }
                output.push(self.applied, format!("wrote {}\n", self.applied).as_bytes());
                self.tell(News::Wrote(self.applied));
            }
            "read" => output.push(self.applied, format!("read {}\n", self.applied).as_bytes()),
            "big" => {
                let size: usize = argument.parse().unwrap();
                output.push_with(0, |bytes| {
                    bytes.resize(bytes.len() + size - 1, b'.');
                    bytes.push(b'\n');
                });
            }
            "ask" => {
                self.reserved.push((id, output.reserve()));
                self.tell(News::Reserved);
            }
            "pause" => {
                self.paused.push(id);
                self.tell(News::Paused);
                return Some(Want::Pause);
            }
            "drop" => {}
            "quit" => {
                output.push(self.applied, b"bye\n");
                return Some(Want::Close);
            }
            other => panic!("unknown command {other}"),
        }
        None
    }

    fn answer_all(&mut self, connections: &mut Connections<()>) {
        for (id, slot) in self.reserved.drain(..) {
            if let Some(link) = connections.get(id) {
                assert!(link.output.fill(slot, 0, b"answered\n"));
            }
        }
    }
}

impl Service for LineService {
    type Connection = ();

    fn failure(&self) -> Option<tierstone_base::Error> {
        self.has_failed.then(|| tierstone_base::Error::new(ErrorKind::DeviceFailed, "it is gone"))
    }

    fn connect(&mut self, _: Now, _: ConnectionId, peer: &Peer) -> std::result::Result<(), Vec<u8>> {
        assert!(
            matches!(peer, Peer::Unix)
                || matches!(peer, Peer::Tcp { address, .. } if address.ip().is_loopback())
        );
        self.tell(News::Connected);
        Ok(())
    }

    fn too_many_connections(&self) -> &[u8] {
        b"full\n"
    }

    fn receive(
        &mut self,
        _: Now,
        id: ConnectionId,
        (): &mut (),
        input: &[u8],
        output: &mut ReplyQueue,
    ) -> Received {
        let mut consumed = 0;
        loop {
            let rest = &input[consumed..];
            let Some(end) = rest.iter().position(|byte| *byte == b'\n') else {
                return Received { consumed, want: Want::More { missing: 0 } };
            };
            if output.is_full() {
                self.tell(News::Full);
                return Received { consumed, want: Want::Drain };
            }
            consumed += end + 1;
            if let Some(want) = self.line(id, std::str::from_utf8(&rest[..end]).unwrap(), output) {
                return Received { consumed, want };
            }
        }
    }

    fn end_of_input(&mut self, _: Now, (): &mut (), _: &mut ReplyQueue) {
        self.tell(News::InputEnded);
    }

    fn disconnect(&mut self, _: ConnectionId, (): ()) {
        self.tell(News::Disconnected);
        self.tell(News::HeldAtMost(self.held_at_most));
    }

    fn step(
        &mut self,
        _: Now,
        completions: &mut Vec<IoCompletion>,
        requests: &mut Vec<IoRequest>,
        connections: &mut Connections<()>,
    ) {
        if connections.len() < 10 {
            self.held_at_most = self.held_at_most.max(connections.buffer_bytes());
        }
        for completion in completions.drain(..) {
            completion.result.unwrap();
            self.durable = self.durable.max(completion.token);
        }
        if let Some(unwritten) = &mut self.unwritten
            && let Some(&newest) = unwritten.last()
        {
            // One write for all of the turn: a group.
            unwritten.clear();
            let offset = (newest % 16) * BLOCK_BYTES as u64;
            requests.push(IoRequest::write_durable(
                newest,
                offset,
                IoBuffer::from_slice(&newest.to_le_bytes()),
            ));
        }
        let mut inbox = std::mem::take(&mut self.inbox);
        self.orders.receive(&mut inbox);
        for order in inbox.drain(..) {
            match order {
                Order::Durable(seq) => self.durable = seq,
                Order::Answer => self.answer_all(connections),
                Order::Fail => self.has_failed = true,
                Order::Resume => self.paused.drain(..).for_each(|id| connections.resume(id)),
            }
        }
        self.inbox = inbox;
    }

    fn durable_seq(&self) -> Seq {
        self.durable
    }

    fn next_step_at_us(&self) -> Option<u64> {
        None
    }

    fn stop(&mut self, _: Now, connections: &mut Connections<()>) {
        self.is_stopped = true;
        self.answer_all(connections);
    }
}

struct Server {
    address: SocketAddr,
    driver: DriverHandle,
    orders: MailSender<Order>,
    news: Receiver<News>,
}

impl Server {
    fn start(settings: TransportSettings) -> Self {
        Self::start_with(settings, None, |builder| builder)
    }

    fn start_with(
        settings: TransportSettings,
        store: Option<FileStore>,
        adjust: impl FnOnce(DriverBuilder) -> DriverBuilder,
    ) -> Self {
        let any = ListenAddress::Tcp(SocketAddr::from(([127, 0, 0, 1], 0)));
        let listeners = Listener::bind(&[any], 1, &settings).unwrap().remove(0);
        let address = listeners[0].local_address().unwrap();
        let waker = Waker::new().unwrap();
        let (orders, order_receiver) = mailbox(&waker, usize::MAX);
        let (news_sender, news) = channel();
        let builder = DriverBuilder::new("test", settings, waker).listeners(listeners);
        let driver = adjust(builder).spawn(move || {
            let service = LineService {
                orders: order_receiver,
                inbox: Vec::new(),
                news: news_sender,
                applied: 0,
                durable: 0,
                unwritten: store.is_some().then(Vec::new),
                reserved: Vec::new(),
                paused: Vec::new(),
                held_at_most: 0,
                is_stopped: false,
                has_failed: false,
            };
            let device = store
                .map_or(Device::None, |store| Device::Files { store, method: DurableMethod::DurableWrite });
            Ok(Parts { service, device })
        });
        Server { address, driver: driver.unwrap(), orders, news }
    }

    fn client(&self) -> Client {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Client { reader: BufReader::new(stream.try_clone().unwrap()), stream }
    }

    fn order(&self, order: Order) {
        assert_eq!(self.orders.send(&mut vec![order]), 1);
    }

    fn await_news(&self, wanted: &News) {
        while self.news.recv_timeout(PATIENCE).unwrap() != *wanted {}
    }

    fn stop(self) -> DriverReport {
        self.driver.stop_handle().stop();
        self.driver.join().unwrap()
    }
}

struct Client {
    reader: BufReader<TcpStream>,
    stream: TcpStream,
}

impl Client {
    fn say(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).unwrap();
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.reader.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn rest(&mut self) -> String {
        let mut rest = String::new();
        self.reader.read_to_string(&mut rest).unwrap();
        rest
    }

    /// Whether something has come, without waiting.
    fn has_something(&mut self) -> bool {
        self.stream.set_nonblocking(true).unwrap();
        let got = self.stream.peek(&mut [0; 1]);
        self.stream.set_nonblocking(false).unwrap();
        got.is_ok()
    }
}

/// Runs `test` on each reactor that this machine has.
fn on_both(test: impl Fn(TransportSettings)) {
    for driver in [DriverKind::Epoll, DriverKind::Uring] {
        if driver == DriverKind::Uring && tierstone_media::file::uring_refusal().is_some() {
            continue;
        }
        test(TransportSettings { driver, ..TransportSettings::default() });
    }
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    on_both(|settings| {
        let server = Server::start(settings.clone());
        assert_eq!(server.driver.kind(), settings.driver);
        let mut client = server.client();
        let text: String = (0..5000).map(|number| format!("echo {number}\n")).collect();
        client.say(&text);
        for number in 0..5000 {
            assert_eq!(client.line(), number.to_string());
        }
        let report = server.stop();
        assert!(report.sends < 2500, "replies of a turn go out together: {} sends", report.sends);
    });
}

#[test]
fn a_request_that_comes_byte_by_byte_is_understood() {
    on_both(|settings| {
        let server = Server::start(settings);
        let mut client = server.client();
        client.stream.set_nodelay(true).unwrap();
        for byte in b"echo one\necho two\nquit\n" {
            client.stream.write_all(&[*byte]).unwrap();
        }
        assert_eq!(client.rest(), "one\ntwo\nbye\n");
    });
}

#[test]
fn replies_wait_at_the_gate_until_their_write_is_durable() {
    on_both(|settings| {
        let server = Server::start(settings);
        let mut client = server.client();
        client.say("write\nread\necho free\nwrite\nread\n");
        server.await_news(&News::Wrote(2));
        let mut other = server.client();
        other.say("echo free\nread\n");
        // The other's answer was sent after the first one's requests were executed.
        assert_eq!(other.line(), "free");
        assert!(!client.has_something());
        server.order(Order::Durable(1));
        assert_eq!(
            [client.line(), client.line(), client.line()],
            ["wrote 1", "read 1", "free"].map(str::to_owned)
        );
        assert!(!client.has_something() && !other.has_something());
        server.order(Order::Durable(2));
        assert_eq!([client.line(), client.line()], ["wrote 2", "read 2"].map(str::to_owned));
        assert_eq!(other.line(), "read 2");
    });
}

#[test]
fn without_the_gate_a_reply_leaves_before_it_is_durable() {
    on_both(|settings| {
        let server = Server::start_with(settings, None, DriverBuilder::ungated_replies);
        let mut client = server.client();
        client.say("write\n");
        assert_eq!(client.line(), "wrote 1", "the mutation is seen");
    });
}

#[test]
fn a_mailbox_wakes_a_sleeping_driver_and_reserved_places_keep_the_order() {
    on_both(|settings| {
        let server = Server::start(settings);
        let mut client = server.client();
        client.say("echo first\nask\necho last\n");
        assert_eq!(client.line(), "first");
        server.await_news(&News::Reserved);
        assert!(!client.has_something());
        server.order(Order::Answer);
        assert_eq!([client.line(), client.line()], ["answered", "last"].map(str::to_owned));
    });
}

#[test]
fn a_paused_connection_goes_on_where_it_stopped() {
    on_both(|settings| {
        let settings = TransportSettings { input_pause_bytes: 1000, ..settings };
        let server = Server::start(settings);
        let mut client = server.client();
        let many: String = (0..200_000).map(|number| format!("echo {number}\n")).collect();
        let mut writer = client.stream.try_clone().unwrap();
        let writing = std::thread::Builder::new()
            .spawn(move || {
                writer.write_all(b"pause\necho between\npause\n").unwrap();
                writer.write_all(many.as_bytes()).unwrap();
            })
            .unwrap();
        server.await_news(&News::Paused);
        server.order(Order::Resume);
        assert_eq!(client.line(), "between");
        server.await_news(&News::Paused);
        server.order(Order::Resume);
        for number in 0..200_000 {
            assert_eq!(client.line(), number.to_string());
        }
        writing.join().unwrap();
    });
}

#[test]
fn a_slow_reader_with_a_huge_pipeline_holds_little_memory() {
    on_both(|settings| {
        let output = crate::settings::OutputLimits { full_bytes: 64 << 10, ..settings.output };
        let server = Server::start(TransportSettings { output, ..settings });
        let mut client = server.client();
        let mut writer = client.stream.try_clone().unwrap();
        let writing = std::thread::Builder::new()
            .spawn(move || {
                let text = "big 4000\n".repeat(100);
                (0..250).for_each(|_| writer.write_all(text.as_bytes()).unwrap());
                writer.shutdown(Shutdown::Write).unwrap();
            })
            .unwrap();
        // 100 MB of replies do not fit the sockets: the output must have become full.
        server.await_news(&News::Full);
        let mut received = 0;
        let mut block = vec![0; 1 << 20];
        loop {
            match client.stream.read(&mut block) {
                Ok(0) => break,
                Ok(count) => received += count,
                // The probe for io_uring on this thread may interrupt one call.
                Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::Interrupted),
            }
        }
        assert_eq!(received, 25_000 * 4000);
        writing.join().unwrap();
        server.await_news(&News::InputEnded);
        server.await_news(&News::Disconnected);
        let News::HeldAtMost(held) = server.news.recv_timeout(PATIENCE).unwrap() else { panic!() };
        assert!(held < 1 << 20, "held {held} bytes");
    });
}

#[test]
fn one_huge_reply_arrives_whole() {
    on_both(|settings| {
        let server = Server::start(settings);
        let mut client = server.client();
        client.say("big 30000000\necho behind\nquit\n");
        let all = client.rest();
        assert_eq!(all.len(), 30_000_000 + 7 + 4);
        assert!(all.ends_with(".\nbehind\nbye\n"));
    });
}

#[test]
fn output_that_nobody_takes_is_cut_at_the_hard_limit() {
    on_both(|settings| {
        let output =
            crate::settings::OutputLimits { full_bytes: 1000, hard_bytes: 1 << 20, ..settings.output };
        let server = Server::start(TransportSettings { output, ..settings });
        let mut client = server.client();
        client.say("big 30000000\n");
        server.await_news(&News::Disconnected);
        assert_eq!(server.stop().connections_over_output_limit, 1);
        let mut rest = Vec::new();
        // Closed or reset, but before the end.
        let _ = client.reader.read_to_end(&mut rest);
        assert!(rest.len() < 30_000_000);
    });
}

#[test]
fn a_request_without_end_is_cut_at_the_input_limit() {
    on_both(|settings| {
        let settings = TransportSettings { input_limit_bytes: 100_000, ..settings };
        let server = Server::start(settings);
        let mut client = server.client();
        let endless = vec![b'x'; 50_000];
        while client.stream.write_all(&endless).is_ok() {}
        server.await_news(&News::Disconnected);
        assert_eq!(server.stop().connections_over_input_limit, 1);
    });
}

/// What had been received when the connection was held up is no long request.
#[test]
fn a_pipeline_longer_than_the_input_limit_is_answered() {
    on_both(|settings| {
        let settings = TransportSettings { input_limit_bytes: 40_000, input_pause_bytes: 1_000, ..settings };
        let server = Server::start(settings);
        for _ in 0..10 {
            let mut client = server.client();
            let many: String = (0..100_000).map(|number| format!("echo {number}\n")).collect();
            let mut writer = client.stream.try_clone().unwrap();
            let write = move || writer.write_all(format!("pause\n{many}").as_bytes()).unwrap();
            let writing = std::thread::Builder::new().spawn(write).unwrap();
            server.await_news(&News::Paused);
            server.order(Order::Resume);
            for number in 0..100_000 {
                assert_eq!(client.line(), number.to_string());
            }
            writing.join().unwrap();
        }
        assert_eq!(server.stop().connections_over_input_limit, 0);
    });
}

#[test]
fn a_client_that_goes_in_the_middle_of_a_request_leaves_nothing() {
    on_both(|settings| {
        let server = Server::start(settings);
        for _ in 0..50 {
            let mut client = server.client();
            client.say("echo hello\necho half a req");
            assert_eq!(client.line(), "hello");
        }
        for _ in 0..50 {
            server.await_news(&News::Disconnected);
        }
        let mut client = server.client();
        client.say("echo still here\n");
        assert_eq!(client.line(), "still here");
        assert_eq!(server.stop().connections_accepted, 51);
    });
}

#[test]
fn a_client_that_closes_its_sending_half_is_still_answered() {
    on_both(|settings| {
        let server = Server::start(settings);
        let mut client = server.client();
        client.say("write\nask\necho end\n");
        client.stream.shutdown(Shutdown::Write).unwrap();
        server.await_news(&News::InputEnded);
        server.order(Order::Durable(1));
        server.order(Order::Answer);
        assert_eq!(client.rest(), "wrote 1\nanswered\nend\n");
        server.await_news(&News::Disconnected);
    });
}

#[test]
fn a_thousand_connections_are_served() {
    on_both(|settings| {
        crate::listen::raise_descriptor_limit(6_000);
        // Fewer receive buffers than connections that talk at once.
        let server = Server::start(TransportSettings { receive_buffers: 16, ..settings });
        let mut clients: Vec<Client> = (0..1000).map(|_| server.client()).collect();
        for round in 0..3 {
            for (number, client) in clients.iter_mut().enumerate() {
                client.say(&format!("echo {number}-{round}\nwrite\n"));
            }
            for (number, client) in clients.iter_mut().enumerate() {
                assert_eq!(client.line(), format!("{number}-{round}"));
            }
            server.order(Order::Durable(1000 * (round + 1)));
            for client in &mut clients {
                assert!(client.line().starts_with("wrote "));
            }
        }
        drop(clients);
        for _ in 0..1000 {
            server.await_news(&News::Disconnected);
        }
    });
}

#[test]
fn too_many_clients_are_told_so() {
    on_both(|settings| {
        let server = Server::start(TransportSettings { connections_max: 2, ..settings });
        let mut inside = [server.client(), server.client()];
        for client in &mut inside {
            client.say("echo in\n");
            assert_eq!(client.line(), "in");
        }
        assert_eq!(server.client().rest(), "full\n");
        drop(inside);
        server.await_news(&News::Disconnected);
        let mut client = server.client();
        client.say("echo in again\n");
        assert_eq!(client.line(), "in again");
    });
}

#[test]
fn a_stop_answers_what_was_asked_and_reports() {
    on_both(|settings| {
        let server = Server::start(settings);
        let mut asking = server.client();
        asking.say("echo one\nask\n");
        assert_eq!(asking.line(), "one");
        server.await_news(&News::Reserved);
        let idle = server.client();
        server.await_news(&News::Connected);
        let address = server.address;
        let report = server.stop();
        assert_eq!(asking.rest(), "answered\n");
        assert!(!report.is_stop_timed_out);
        assert_eq!((report.connections_closed, report.connections_cut_off), (2, 0));
        assert!(TcpStream::connect(address).is_err(), "nobody listens any more");
        drop(idle);
    });
}

#[test]
fn a_stop_does_not_wait_for_ever_for_a_gate() {
    on_both(|settings| {
        let server = Server::start(TransportSettings { stop_timeout_ms: 50, ..settings });
        let mut client = server.client();
        client.say("write\n");
        server.await_news(&News::Wrote(1));
        let report = server.stop();
        assert!(report.is_stop_timed_out && !report.is_service_unfinished);
        assert_eq!(report.connections_cut_off, 1);
        assert_eq!(client.rest(), "", "what is not durable was not told");
    });
}

#[test]
fn a_stop_tells_what_has_failed() {
    on_both(|settings| {
        let server = Server::start(settings);
        server.order(Order::Fail);
        server.driver.stop_handle().stop();
        let error = server.driver.join().unwrap_err();
        assert_eq!((error.kind(), error.message()), (ErrorKind::DeviceFailed, "it is gone"));
    });
}

#[test]
fn whoever_waits_is_told_that_a_thread_has_ended_also_by_a_panic() {
    on_both(|settings| {
        let (sender, ends) = channel();
        let tell = |name: &'static str| {
            let sender = sender.clone();
            move |builder: DriverBuilder| builder.on_end(move || sender.send(name).unwrap())
        };
        let stopped = Server::start_with(settings.clone(), None, tell("stopped"));
        let panicked = Server::start_with(settings.clone(), None, tell("panicked"));
        let mut client = panicked.client();
        client.say("nonsense\n");
        assert_eq!(ends.recv_timeout(PATIENCE), Ok("panicked"));
        let error = panicked.driver.outcome().unwrap_err();
        assert_eq!(error.message(), "it panicked: unknown command nonsense");
        stopped.stop();
        assert_eq!(ends.recv_timeout(PATIENCE), Ok("stopped"));
        let refused = tell("refused")(DriverBuilder::new("test", settings, Waker::new().unwrap()));
        let why = || Error::new(ErrorKind::NoSpace, "no room");
        assert!(refused.spawn(move || Err::<Parts<crate::null::NullService>, _>(why())).is_err());
        assert_eq!(ends.try_iter().collect::<Vec<_>>(), ["refused"]);
    });
}

#[test]
fn a_client_that_is_reset_while_it_is_paused_in_an_upload_is_noticed() {
    on_both(|settings| {
        let server = Server::start(TransportSettings { input_pause_bytes: 1_000, ..settings });
        let mut client = server.client();
        let line = format!("drop {}\n", "x".repeat(16_000));
        // The kernel holds more for who takes much.
        (0..2_000).for_each(|_| client.say(&line));
        client.say("pause\n");
        server.await_news(&News::Paused);
        // More than one receive takes, until no more goes.
        client.stream.set_nonblocking(true).unwrap();
        while client.stream.write(line.as_bytes()).is_ok() {}
        socket2::SockRef::from(&client.stream).set_linger(Some(Duration::ZERO)).unwrap();
        drop(client);
        server.order(Order::Resume);
        server.await_news(&News::Disconnected);
        let report = server.stop();
        assert!(!report.is_stop_timed_out);
    });
}

#[test]
fn replies_follow_durable_writes_of_the_files_on_the_same_loop() {
    on_both(|settings| {
        let directory = std::env::temp_dir().join(format!(
            "tierstone-driver-{}-{:?}",
            std::process::id(),
            settings.driver
        ));
        let mut files = FileStoreSettings::new(vec![directory.clone()]);
        files.segment_bytes = 64 << 10;
        files.segment_limit = 16;
        files.meta_bytes = 64 << 10;
        {
            let store = FileStore::open(&files).unwrap();
            let server = Server::start_with(settings, Some(store), |builder| builder);
            let mut clients: Vec<Client> = (0..8).map(|_| server.client()).collect();
            for _ in 0..20 {
                for client in &mut clients {
                    client.say("write\nwrite\n");
                }
                for client in &mut clients {
                    assert!(client.line().starts_with("wrote ") && client.line().starts_with("wrote "));
                }
            }
            drop(clients);
            assert!(!server.stop().is_stop_timed_out);
        }
        std::fs::remove_dir_all(directory).unwrap();
    });
}

#[test]
fn a_silent_client_is_closed_and_one_that_waits_for_a_reply_is_not() {
    on_both(|settings| {
        let server = Server::start(TransportSettings { idle_timeout_s: 1, ..settings });
        let mut waiting = server.client();
        waiting.say("ask\n");
        server.await_news(&News::Reserved);
        let mut silent = server.client();
        silent.say("echo something\n");
        assert_eq!(silent.rest(), "something\n");
        server.await_news(&News::Disconnected);
        server.order(Order::Answer);
        assert_eq!(waiting.rest(), "answered\n", "then it is silent too");
        assert_eq!(server.stop().connections_idle_closed, 2);
    });
}

#[test]
fn a_unix_socket_is_served_beside_tcp() {
    on_both(|settings| {
        let name = format!("tierstone-null-{}-{:?}.sock", std::process::id(), settings.driver);
        let path = std::env::temp_dir().join(name);
        let any = ListenAddress::Tcp(SocketAddr::from(([127, 0, 0, 1], 0)));
        let listen = [any, ListenAddress::Unix(path.clone())];
        let server = crate::null::run(&listen, &settings, 2, &crate::null::NullService::new(3)).unwrap();
        let mut unix = std::os::unix::net::UnixStream::connect(&path).unwrap();
        let mut tcp: Vec<_> = (0..8).map(|_| TcpStream::connect(server.addresses[0]).unwrap()).collect();
        unix.write_all(b"PING\r\n").unwrap();
        let mut answer = [0; 7];
        unix.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"+PONG\r\n");
        for stream in &mut tcp {
            stream.write_all(b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n").unwrap();
            let mut answer = [0; 9];
            stream.read_exact(&mut answer).unwrap();
            assert_eq!(&answer, b"$3\r\nxxx\r\n");
        }
        let mut wrong = TcpStream::connect(server.addresses[0]).unwrap();
        wrong.write_all(b"SET k v\r\n*1\r\n!\r\n").unwrap();
        let mut answer = String::new();
        wrong.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("+OK\r\n-") && answer.contains("Protocol error"), "{answer}");
        let accepted: u64 = server
            .drivers
            .into_iter()
            .map(|driver| {
                driver.stop_handle().stop();
                driver.join().unwrap().connections_accepted
            })
            .sum();
        assert_eq!(accepted, 10);
        assert!(!path.exists());
    });
}

#[test]
fn a_busy_null_server_keeps_its_processor_with_each_request() {
    let any = ListenAddress::Tcp(SocketAddr::from(([127, 0, 0, 1], 0)));
    let busy = Duration::from_millis(3);
    let service = crate::null::NullService::new(3).busy_for(busy);
    let server = crate::null::run(&[any], &TransportSettings::default(), 1, &service).unwrap();
    let clock = SystemClock::new();
    let mut client = TcpStream::connect(server.addresses[0]).unwrap();
    client.write_all(b"PING\r\nPING\r\n").unwrap();
    let mut answer = [0; 14];
    client.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"+PONG\r\n+PONG\r\n");
    assert!(clock.monotonic_ns() >= 2 * busy.as_nanos() as u64);
    for driver in server.drivers {
        driver.stop_handle().stop();
        driver.join().unwrap();
    }
}

#[test]
fn a_driver_is_pinned_or_says_why_not() {
    let allowed = rustix::thread::sched_getaffinity(None).unwrap();
    let cpu = (0..1024).find(|cpu| allowed.is_set(*cpu)).unwrap();
    let server = Server::start_with(TransportSettings::default(), None, |builder| builder.cpu(Some(cpu)));
    let mut client = server.client();
    client.say("echo pinned\n");
    assert_eq!(client.line(), "pinned");
    let nowhere = DriverBuilder::new("test", TransportSettings::default(), Waker::new().unwrap());
    let refused = nowhere
        .cpu(Some(100_000))
        .spawn(|| Ok(Parts { service: crate::null::NullService::new(1), device: Device::None }));
    assert!(refused.unwrap_err().message().contains("cannot pin"));
}

#[test]
fn a_refused_ring_falls_back_to_epoll_unless_it_was_demanded() {
    let refuse = |builder: DriverBuilder| builder.refuse_uring();
    let server = Server::start_with(TransportSettings::default(), None, refuse);
    assert_eq!(server.driver.kind(), DriverKind::Epoll);
    let mut client = server.client();
    client.say("echo here\n");
    assert_eq!(client.line(), "here");
    let settings = TransportSettings { driver: DriverKind::Uring, ..TransportSettings::default() };
    let demanded = DriverBuilder::new("test", settings, Waker::new().unwrap()).refuse_uring();
    let refused =
        demanded.spawn(|| Ok(Parts { service: crate::null::NullService::new(1), device: Device::None }));
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Unsupported);
}

#[test]
fn clients_without_a_descriptor_are_turned_away_and_the_server_lives_on() {
    const CHILD: &str = "TIERSTONE_TEST_CHILD_DRIVER";
    if let Ok(kind) = std::env::var(CHILD) {
        return serve_with_few_descriptors(&kind);
    }
    on_both(|settings| {
        let kind = if settings.driver == DriverKind::Uring { "uring" } else { "epoll" };
        let name =
            "driver::driver_test::clients_without_a_descriptor_are_turned_away_and_the_server_lives_on";
        let mut child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(CHILD, kind)
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        // Kept until the child has ended, so that it can go on printing.
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = lines.by_ref().map_while(|line| line.ok()).find_map(|line| {
            line.split_once("listening ").map(|(_, address)| address.parse::<SocketAddr>().unwrap())
        });
        let address = address.unwrap();
        let ping = |stream: &mut TcpStream| {
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let mut answer = [0; 7];
            stream.write_all(b"PING\r\n").is_ok() && stream.read_exact(&mut answer).is_ok()
        };
        let mut clients: Vec<_> = (0..60).map(|_| TcpStream::connect(address).unwrap()).collect();
        let served = clients.iter_mut().filter_map(|client| ping(client).then_some(())).count();
        assert!((5..60).contains(&served), "{served} were served");
        // Nobody comes any more, and nobody asks.
        clients[0].set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        assert!(clients[0].read(&mut [0]).is_err());
        drop(clients);
        while !ping(&mut TcpStream::connect(address).unwrap()) {}
        // The end of its input ends the child.
        drop(child.stdin.take());
        let turns = lines
            .by_ref()
            .map_while(|line| line.ok())
            .find_map(|line| line.split_once("turns ").map(|(_, turns)| turns.parse::<u64>().unwrap()));
        assert!(child.wait().unwrap().success());
        assert!(turns.unwrap() < 5_000, "{kind}: {turns:?} turns for about a hundred clients");
    });
}

fn serve_with_few_descriptors(kind: &str) {
    use rustix::process::{Resource, Rlimit, setrlimit};
    // Before the start: a multishot accept keeps the limit that it began with.
    setrlimit(Resource::Nofile, Rlimit { current: Some(40), maximum: Some(40) }).unwrap();
    let driver = if kind == "uring" { DriverKind::Uring } else { DriverKind::Epoll };
    let settings = TransportSettings { driver, ..TransportSettings::default() };
    let any = ListenAddress::Tcp(SocketAddr::from(([127, 0, 0, 1], 0)));
    let server = crate::null::run(&[any], &settings, 1, &crate::null::NullService::new(8)).unwrap();
    println!("listening {}", server.addresses[0]);
    let mut nothing = String::new();
    std::io::stdin().read_to_string(&mut nothing).unwrap();
    for driver in server.drivers {
        driver.stop_handle().stop();
        println!("turns {}", driver.join().unwrap().turns);
    }
}
