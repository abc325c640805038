//! Requests whose keys' positions were found before they are carried out.

use crate::support::Server;
use tierstone_base::KeyHasher;
use tierstone_engine::map_engine::MapEngine;
use tierstone_redis::{Args, Outcome};
use tierstone_wire::resp::{Arguments, Progress, RequestLimits, RequestParser, encode_command};

#[test]
fn a_request_with_the_position_of_its_key_does_what_it_does_without() {
    let mut server = Server::new([MapEngine::new(0)]);
    let connection = server.connect();
    let hasher = KeyHasher::new([7, 11]);
    let keys: [&[u8]; 4] = [b"a", b"a key of some length", b"{tag}of one", b""];
    let mut positions = [None; 4];
    server.executors[0].foresee(connection, keys.into_iter().zip(&mut positions));
    server.executors[0].prefetch();
    for (key, position) in keys.into_iter().zip(positions) {
        let position = position.unwrap();
        assert_eq!(position, hasher.position(key));
        let mut input = Vec::new();
        encode_command(&[b"SET", key, &[b"of ", key].concat()], &mut input);
        let mut arguments = Arguments::new();
        let parsed = RequestParser::new(RequestLimits::default()).parse(&input, &mut arguments);
        assert_eq!(parsed, Ok(Progress::Complete { consumed: input.len() }));
        let args = Args::Located(arguments.request(&input), position);
        assert_eq!((args.position(), args.len(), args.at(1)), (Some(position), 3, key));
        let mut reply = Vec::new();
        let outcome = server.executors[0].request(server.now, connection, args, &mut reply);
        assert!(matches!(outcome, Outcome::Ready { .. }) && reply == b"+OK\r\n", "{outcome:?}");
    }
    for key in keys {
        let value = [b"of ", key].concat();
        let expected = [format!("${}\r\n", value.len()).as_bytes(), &value, b"\r\n"].concat();
        assert_eq!(server.raw(connection, &[b"GET", key]), expected);
    }
}
