use super::*;
use crate::listen::ListenAddress;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use tierstone_base::{Clock, SystemClock};
use tierstone_engine::{OpeningPart, OpeningProgress};

/// A shard's doors, its lobby, and an opening that is a quarter done.
struct House {
    doors: Vec<Listener>,
    address: SocketAddr,
    lobby: Lobby,
    facts: LobbyFacts,
    part: OpeningPart,
}

fn house() -> House {
    let any_port = ListenAddress::Tcp(SocketAddr::from(([127, 0, 0, 1], 0)));
    let doors = Listener::bind(&[any_port], 1, &TransportSettings::default()).unwrap().remove(0);
    let progress = OpeningProgress::default();
    let part = progress.part(400);
    part.advance(100);
    let facts =
        ServerFacts { opening: progress, started: SystemClock::new().now(), ..ServerFacts::default() };
    let facts = LobbyFacts { facts, users: Arc::new(Users::with_password("")), databases: 16, shards: 1 };
    let address = doors[0].local_address().unwrap();
    House { lobby: Lobby::new(0, &doors).unwrap(), doors, address, facts, part }
}

impl House {
    fn open(&self) {
        self.lobby.open(&self.facts, &TransportSettings::default(), None).unwrap();
    }

    /// What comes for `request` on a connection of its own, to its end: the last request is QUIT.
    fn ask(&self, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.write_all(request).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }
}

const REFUSAL: &str = "-LOADING Redis is loading the dataset in memory\r\n";

#[test]
fn clients_are_told_that_the_store_is_being_opened_and_how_far_it_has_come() {
    let house = house();
    house.open();
    let told = house.ask(b"GET a\r\n*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\nb\r\nINFO\r\nQUIT\r\n");
    let rest = told.strip_prefix(REFUSAL).and_then(|rest| rest.strip_prefix(REFUSAL)).expect(&told);
    for line in
        ["loading:1", "loading_total_bytes:400", "loading_loaded_bytes:100", "loading_loaded_perc:25.00"]
    {
        assert!(rest.lines().any(|other| other == line), "{line} is not in {rest}");
    }
    assert!(rest.ends_with("+OK\r\n"), "{rest}");
    drop(house.part);
    house.lobby.close();
}

#[test]
fn whoever_has_to_say_who_he_is_learns_nothing_else_before() {
    const NO_AUTH: &str = "-NOAUTH Authentication required.\r\n";
    let mut house = house();
    house.facts.users = Arc::new(Users::with_password("secret"));
    house.open();
    assert_eq!(house.ask(b"INFO\r\nGET a\r\nQUIT\r\n"), format!("{NO_AUTH}{NO_AUTH}+OK\r\n"));
    let wrong = house.ask(b"AUTH wrong\r\nINFO\r\nQUIT\r\n");
    assert_eq!(
        wrong,
        format!("-WRONGPASS invalid username-password pair or user is disabled.\r\n{NO_AUTH}+OK\r\n")
    );
    let right = house.ask(b"AUTH default secret\r\nINFO\r\nGET a\r\nQUIT\r\n");
    assert!(right.starts_with("+OK\r\n$") && right.contains("\r\nloading:1\r\n"), "{right}");
    assert!(right.ends_with(&format!("\r\n{REFUSAL}+OK\r\n")), "{right}");
    house.lobby.close();
}

#[test]
fn what_libraries_say_at_first_is_answered_as_ever() {
    let house = house();
    house.open();
    let told = house.ask(
        b"HELLO 3 SETNAME me\r\nCLIENT SETINFO LIB-NAME lib\r\nCLIENT GETNAME\r\nSELECT 15\r\nSELECT 16\r\n\
          COMMAND COUNT\r\nCONFIG SET maxclients 7\r\nNO SUCH\r\nRESET\r\nCLIENT GETNAME\r\nQUIT\r\n",
    );
    let hello = "%7\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$5\r\n8.2.0\r\n$5\r\nproto\r\n:3\r\n$2\r\nid\r\n:1\r\n\
                 $4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n$6\r\nmaster\r\n$7\r\nmodules\r\n*0\r\n";
    let commands = tierstone_redis::table::count();
    let expected = format!(
        "{hello}+OK\r\n$2\r\nme\r\n+OK\r\n-ERR DB index is out of range\r\n:{commands}\r\n{REFUSAL}\
         -ERR unknown command 'NO', with args beginning with: 'SUCH' \r\n+RESET\r\n$-1\r\n+OK\r\n"
    );
    assert_eq!(told, expected);
    // The next has another name.
    assert!(house.ask(b"CLIENT ID\r\nQUIT\r\n").starts_with(":2\r\n"));
    house.lobby.close();
}

#[test]
fn a_request_that_is_too_long_or_none_is_answered_and_closed() {
    let house = house();
    house.open();
    let mut long = b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1000000\r\n".to_vec();
    assert_eq!(house.ask(&long), REFUSAL);
    long.clear();
    assert_eq!(house.ask(b"*1\r\n!3\r\n"), REFUSAL);
    house.lobby.close();
}

#[test]
fn who_is_inside_at_the_end_is_closed_and_who_comes_later_waits_for_the_shard() {
    let house = house();
    house.open();
    let mut inside = TcpStream::connect(house.address).unwrap();
    inside.write_all(b"PING\r\n").unwrap();
    let mut told = [0; REFUSAL.len()];
    inside.read_exact(&mut told).unwrap();
    assert_eq!(&told[..], REFUSAL.as_bytes());
    house.lobby.close();
    assert_eq!(inside.read(&mut told).unwrap(), 0, "closed");
    // The shard's own thread, by the ring or by epoll, takes whoever comes.
    let mut later = TcpStream::connect(house.address).unwrap();
    let shard = DriverBuilder::new("shard", TransportSettings::default(), Waker::new().unwrap())
        .listeners(house.doors)
        .spawn(|| Ok(Parts { service: crate::null::NullService::new(1), device: Device::None }))
        .unwrap();
    later.write_all(b"PING\r\n").unwrap();
    let mut answer = [0; 7];
    later.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"+PONG\r\n");
    // Once closed it stays closed.
    house.lobby.open(&house.facts, &TransportSettings::default(), None).unwrap();
    let mut again = TcpStream::connect(house.address).unwrap();
    again.write_all(b"PING\r\n").unwrap();
    again.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"+PONG\r\n");
    shard.stop_handle().stop();
    shard.join().unwrap();
}

#[test]
fn a_shard_that_is_ready_at_once_never_lets_its_lobby_open() {
    let house = house();
    house.lobby.close();
    house.open();
    assert!(matches!(*house.lobby.state.lock().unwrap(), State::Closed));
}
