//! What a reactor does where the kernel refuses, or forgets.

use super::*;
use crate::null::NullService;
use crate::service::Peer;
use crate::turn::Admission;
use std::net::{TcpListener, TcpStream};
use std::time::Duration;
use tierstone_base::{Clock, SystemClock};

/// A reactor of this thread; `None` where the machine has no io_uring.
fn reactor() -> Option<UringReactor> {
    let waker = Waker::new().unwrap();
    UringReactor::new(&TransportSettings::default(), Vec::new(), waker, Device::None).ok()
}

#[test]
fn a_reactor_that_the_kernel_lets_in_no_more_says_so_and_is_dropped_without_a_panic() {
    for entries in [0, 5_000] {
        let Some(mut reactor) = reactor() else { return };
        reactor.wait(Some(0)).unwrap();
        reactor.is_entering_refused = true;
        for _ in 0..entries {
            // More than the queue takes.
            reactor.end_polls();
        }
        let error = reactor.wait(Some(0)).unwrap_err();
        assert!(error.message().contains("io_uring_enter"), "{error}");
        drop(reactor);
    }
}

/// Turns until `is_done`; whether that comes about.
fn turn_until(
    (reactor, turn): (&mut UringReactor, &mut Turn<NullService>),
    is_done: impl Fn(&UringReactor, &Turn<NullService>) -> bool,
) -> bool {
    (0..100).any(|_| {
        reactor.wait(Some(1_000)).unwrap();
        // Long enough for another look.
        turn.now.monotonic_us += 1_000_000;
        reactor.dispatch(turn);
        turn.finish(reactor);
        is_done(reactor, turn)
    })
}

#[test]
fn a_receive_that_the_kernel_has_forgotten_is_noticed_when_its_client_was_reset_and_not_before() {
    let Some(mut reactor) = reactor() else { return };
    let now = SystemClock::new().now();
    let mut turn = Turn::new(NullService::new(1), TransportSettings::default(), now);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (socket, address) = listener.accept().unwrap();
    let peer = Peer::Tcp { address, local: socket.local_addr().unwrap() };
    assert!(matches!(turn.accepted(0, &peer, false), Admission::Open));
    // In the place of its receive something that hears of nothing.
    let deaf = Waker::new().unwrap();
    let mut socket =
        UringSocket { socket: Some(socket.into()), is_receiving: true, ..UringSocket::default() };
    reactor.suspects.add(0, &mut socket);
    reactor.sockets.push(socket);
    reactor.under_way += 1;
    let entry = opcode::PollAdd::new(Fd(deaf.descriptor().as_raw_fd()), POLL_IN).build();
    reactor.push(entry.user_data(user_data(RECEIVE, 0)));
    // Whole and with nothing to read: it is no suspect any more.
    assert!(turn_until((&mut reactor, &mut turn), |reactor, _| reactor.suspects.is_empty()));
    assert!(reactor.sockets[0].is_receiving && !reactor.sockets[0].is_cancelled);
    reactor.suspects.add(0, &mut reactor.sockets[0]);
    socket2::SockRef::from(&client).set_linger(Some(Duration::ZERO)).unwrap();
    drop(client);
    assert!(
        turn_until((&mut reactor, &mut turn), |_, turn| turn.connections.is_empty()),
        "it is still there"
    );
    assert!(reactor.sockets[0].socket.is_none(), "its descriptor is closed");
}

#[test]
fn a_receive_that_goes_on_is_looked_after_and_a_quiet_one_is_not() {
    let Some(mut reactor) = reactor() else { return };
    let now = SystemClock::new().now();
    let mut turn = Turn::new(NullService::new(1), TransportSettings::default(), now);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    reactor.welcome(listener.accept().unwrap().0.into(), false, &mut turn);
    assert!(turn_until((&mut reactor, &mut turn), |reactor, _| reactor.suspects.is_empty()));
    std::io::Write::write_all(&mut client, b"PING\r\n").unwrap();
    assert!(turn_until((&mut reactor, &mut turn), |reactor, _| !reactor.suspects.is_empty()));
    assert!(turn_until((&mut reactor, &mut turn), |reactor, _| reactor.suspects.is_empty()));
}
