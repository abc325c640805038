//! Users: what they may do, how they change over several shards, and who is disconnected then.
//!
//! What single requests answer is compared with Redis in `redis_comparison.rs`.

use crate::support::Server;
use tierstone_base::{Now, SeededRandom};
use tierstone_engine::map_engine::MapEngine;
use tierstone_redis::{
    Args, ConnectionId, ConnectionInfo, Executor, Message, Outcome, Output, Secret, ServerFacts,
};
use tierstone_wire::resp::Value;

const NO_COMMAND: &str = "-NOPERM User bob has no permissions to run the";

fn server(shards: u32) -> Server<MapEngine> {
    Server::new((0..shards).map(|_| MapEngine::new(0)))
}

/// The same with a file of users and a source of randomness.
fn furnished_server(shards: u32) -> Server<MapEngine> {
    let facts = ServerFacts {
        users_file: "users.acl".into(),
        secret: Some(Secret([7; 32])),
        ..ServerFacts::default()
    };
    Server::with_facts((0..shards).map(|_| MapEngine::new(0)), 1 << 20, facts)
}

/// A connection of each shard, in the order of the shards.
fn connect_everywhere(server: &mut Server<MapEngine>) -> Vec<ConnectionId> {
    let mut found: Vec<ConnectionId> = server.executors.iter().map(|_| 0).collect();
    while found.contains(&0) {
        let id = server.connect();
        let shard = server.shard_of(id);
        found[shard] = id;
    }
    found
}

#[test]
fn a_user_may_do_what_his_rules_say() {
    for shards in [1, 3] {
        let mut server = server(shards);
        let (admin, id) = (server.connect(), server.connect());
        server.check(
            admin,
            &[
                ("ACL SETUSER bob on >pw ~a* %R~r* %W~w* &news* +@read +@write +@transaction +subscribe +psubscribe +publish -mget +config|get", "+OK"),
                ("MSET a 1 b 2 r 3 w 4", "+OK"),
            ],
        );
        let denied = |name: &str| format!("{NO_COMMAND} '{name}' command");
        let (no_key, no_channel) =
            ("-NOPERM No permissions to access a key", "-NOPERM No permissions to access a channel");
        server.check(
            id,
            &[("AUTH bob wrong", "-WRONGPASS invalid username-password pair or user is disabled.")],
        );
        server.check(id, &[("AUTH bob pw", "+OK"), ("GET a", "$1 1"), ("SET a 2", "+OK")]);
        server
            .check(id, &[("GET b", no_key), ("SET b 1", no_key), ("EXISTS w b", no_key), ("EXISTS w", ":1")]);
        server.check(id, &[("GET r", "$1 3"), ("SET r 1", no_key), ("APPEND r 1", no_key)]);
        server.check(
            id,
            &[("GET w", no_key), ("SET w 5", "+OK"), ("SET w 6 GET", no_key), ("GETDEL w", no_key)],
        );
        server
            .check(id, &[("COPY r w REPLACE", ":1"), ("COPY w r REPLACE", no_key), ("BITOP NOT w r", ":1")]);
        server.check(id, &[("MGET a", &denied("mget")), ("CONFIG SET timeout 1", &denied("config|set"))]);
        server.check(id, &[("CONFIG GET databases", "*2 $9 databases $2 16"), ("PING", &denied("ping"))]);
        server.check(id, &[("SET", "-ERR wrong number of arguments for 'set' command")]);
        server.check(id, &[("PUBLISH news1 x", ":0"), ("PUBLISH other x", no_channel)]);
        server.check(id, &[("PSUBSCRIBE news1*", no_channel), ("SUBSCRIBE news1 other", no_channel)]);
        server.check(id, &[("PSUBSCRIBE news*", "*3 $10 psubscribe $5 news* :1")]);
        server
            .check(id, &[("PUNSUBSCRIBE", &denied("punsubscribe")), ("RESET", "+RESET"), ("GET b", "$1 2")]);
        // A key that a transaction may not touch breaks it, where it is queued.
        server.check(
            id,
            &[("AUTH bob pw", "+OK"), ("MULTI", "+OK"), ("SET a 9", "+QUEUED"), ("SET b 9", no_key)],
        );
        server.check(
            id,
            &[("EXEC", "-EXECABORT Transaction discarded because of previous errors."), ("GET a", "$1 2")],
        );
    }
}

#[test]
fn what_may_not_be_done_any_more_is_refused_inside_exec_and_the_rest_is_done() {
    for shards in [1, 3] {
        let mut server = server(shards);
        let (admin, id) = (server.connect(), server.connect());
        server.check(admin, &[("ACL SETUSER bob on nopass ~* +@all", "+OK")]);
        server.check(
            id,
            &[("AUTH bob any", "+OK"), ("MULTI", "+OK"), ("SET a 1", "+QUEUED"), ("SET b 1", "+QUEUED")],
        );
        server.check(id, &[("GET a", "+QUEUED"), ("STRLEN c", "+QUEUED")]);
        server.check(admin, &[("ACL SETUSER bob resetkeys ~a -strlen", "+OK")]);
        let because = |why| {
            format!(
                "-NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. This command is no longer allowed for the following reason: {why}"
            )
        };
        let (no_key, no_command) = (
            because("no permission to touch the specified keys"),
            because("no permission to execute the command or subcommand"),
        );
        server.check(id, &[("EXEC", &format!("*4 +OK {no_key} $1 1 {no_command}"))]);
        server.check(admin, &[("MGET a b", "*2 $1 1 $-1")]);
        let log = server.line(admin, "ACL LOG");
        assert!(log.contains("multi") && log.contains("strlen"), "{log}");
        let wrong = "*1 -WRONGPASS invalid username-password pair or user is disabled.";
        server.check(id, &[("MULTI", "+OK"), ("AUTH eve x", "+QUEUED"), ("EXEC", wrong)]);
        let log = server.line(admin, "ACL LOG 1");
        assert!(log.contains("multi") && log.contains("auth"), "{log}");
    }
}

#[test]
fn a_change_is_seen_by_every_shard_before_it_is_answered() {
    let mut server = server(4);
    let clients = connect_everywhere(&mut server);
    let admins = connect_everywhere(&mut server);
    for admin in &admins {
        server.check(*admin, &[("ACL SETUSER bob reset on >pw ~* +@all", "+OK")]);
        for client in &clients {
            server.check(*client, &[("AUTH bob pw", "+OK"), ("ACL WHOAMI", "$3 bob"), ("GET k", "$-1")]);
        }
        // Offered in one turn with the answer: the others have the change already when it is sent.
        server.send(*admin, &[b"ACL", b"SETUSER", b"bob", b"-get"]);
        while server.take_received(*admin).is_empty() {
            server.offer_one(*admin);
            server.step();
        }
        for client in &clients {
            server.check(*client, &[("GET k", &format!("{NO_COMMAND} 'get' command"))]);
        }
        let lists: Vec<String> = admins.iter().map(|id| server.line(*id, "ACL LIST")).collect();
        assert!(lists.iter().all(|list| *list == lists[0]), "{lists:?}");
    }
}

/// Lets every shard step until nothing is said any more; messages to `deaf` are held back. Gives how many replies there
/// were, and what was held back.
fn step_all(
    executors: &mut [Executor<MapEngine>],
    now: Now,
    deaf: Option<usize>,
) -> (usize, Vec<(u16, Message)>) {
    let (mut replies, mut held) = (0, Vec::new());
    for _ in 0..20 {
        for from in 0..executors.len() {
            let mut outputs = Vec::new();
            executors[from].step(now, &mut Vec::new(), &mut outputs);
            for output in outputs {
                match output {
                    Output::Send { to, message } if deaf == Some(usize::from(to)) => {
                        held.push((from as u16, message));
                    }
                    Output::Send { to, message } => {
                        executors[usize::from(to)].message(now, from as u16, message);
                    }
                    Output::Reply { .. } => replies += 1,
                    _ => {}
                }
            }
        }
    }
    (replies, held)
}

#[test]
fn a_change_is_not_answered_while_a_shard_has_not_heard_of_it() {
    for asked in 0..3 {
        let mut executors = server(3).executors;
        let now = Now { monotonic_us: 1_000_000, wall_ms: 1_700_000_000_000 };
        executors[asked].connect(now, 7, ConnectionInfo::default());
        let words: [&[u8]; 5] = [b"ACL", b"SETUSER", b"bob", b"on", b"+get"];
        let outcome = executors[asked].request(now, 7, Args::Slices(&words), &mut Vec::new());
        assert!(matches!(outcome, Outcome::Suspended(_)), "{outcome:?}");
        let deaf = if asked == 2 { 1 } else { 2 };
        let (replies, held) = step_all(&mut executors, now, Some(deaf));
        assert_eq!((replies, held.len()), (0, 1), "asked at shard {asked}");
        for (from, message) in held {
            executors[deaf].message(now, from, message);
        }
        assert_eq!(step_all(&mut executors, now, None).0, 1, "asked at shard {asked}");
    }
}

#[test]
fn changes_of_several_shards_at_once_end_in_the_same_users_everywhere() {
    let seed = SeededRandom::system_seed().unwrap();
    println!("seed {seed}");
    let mut random = SeededRandom::new(seed);
    let mut server = server(3);
    let admins = connect_everywhere(&mut server);
    for _ in 0..60 {
        for admin in &admins {
            let name = format!("user{}", random.below(3));
            let rule =
                ["+get", "-get", "~a", "resetkeys", ">x", "<x", "+@all", "on"][random.below(8) as usize];
            match random.below(6) {
                0 => server.send(*admin, &[b"ACL", b"DELUSER", name.as_bytes()]),
                _ => server.send(*admin, &[b"ACL", b"SETUSER", name.as_bytes(), rule.as_bytes()]),
            }
        }
        server.settle();
        let lists: Vec<String> = admins
            .iter()
            .map(|id| {
                server.take_received(*id);
                server.line(*id, "ACL LIST")
            })
            .collect();
        assert!(lists.iter().all(|list| *list == lists[0]), "seed {seed}: {lists:?}");
    }
}

#[test]
fn connections_of_a_removed_user_end_at_every_shard() {
    for shards in [1, 3] {
        let mut server = server(shards);
        let clients = connect_everywhere(&mut server);
        let others = connect_everywhere(&mut server);
        server.check(others[0], &[("ACL SETUSER bob on nopass +@all ~*", "+OK"), ("ACL SETUSER eve", "+OK")]);
        for client in &clients {
            server.check(*client, &[("AUTH bob x", "+OK")]);
        }
        let last = clients[clients.len() - 1];
        server.check(last, &[("ACL DELUSER bob eve nobody", ":2")]);
        for client in &clients {
            assert!(server.is_closed(*client), "a connection of nobody goes on");
        }
        for other in &others {
            server.check(*other, &[("ACL WHOAMI", "$7 default"), ("ACL USERS", "*1 $7 default")]);
        }
        server.check(others[0], &[("ACL DELUSER x default", "-ERR The 'default' user cannot be removed")]);
    }
}

#[test]
fn whoever_listens_to_what_his_user_may_not_hear_any_more_is_disconnected() {
    for shards in [1, 3] {
        let mut server = server(shards);
        let admin = server.connect();
        server.check(admin, &[("ACL SETUSER bob on nopass +@all &a* &b &c*", "+OK")]);
        let listen = |server: &mut Server<MapEngine>, line: &str| {
            let id = server.connect();
            server.check(id, &[("AUTH bob x", "+OK")]);
            assert!(!server.line(id, line).starts_with('-'), "{line}");
            id
        };
        let plain = listen(&mut server, "SUBSCRIBE a1");
        let stays = listen(&mut server, "SUBSCRIBE b");
        let pattern = listen(&mut server, "PSUBSCRIBE c*");
        let shard = listen(&mut server, "SSUBSCRIBE a2");
        // More rights, and others of the same user: nobody is harmed.
        server.check(admin, &[("ACL SETUSER bob &d -get", "+OK")]);
        assert!([plain, stays, pattern, shard].iter().all(|id| !server.is_closed(*id)));
        // A pattern that is listened to must itself be allowed; a channel only has to fit.
        server.check(admin, &[("ACL SETUSER bob resetchannels &a1 &b &c1", "+OK")]);
        let ended: Vec<bool> =
            [plain, stays, pattern, shard].iter().map(|id| server.is_closed(*id)).collect();
        assert_eq!(ended, [false, false, true, true]);
        server.check(admin, &[("PUBLISH c1 x", ":0"), ("PUBLISH a1 x", ":1")]);
        server.check(
            admin,
            &[("ACL SETUSER bob allchannels", "+OK"), ("ACL SETUSER bob resetchannels", "+OK")],
        );
        assert!(server.is_closed(plain) && server.is_closed(stays));
    }
}

#[test]
fn the_password_of_the_server_is_that_of_the_user_default() {
    for shards in [1, 3] {
        let mut server = server(shards);
        let admin = server.connect();
        server.check(
            admin,
            &[
                ("AUTH x", "-ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?"),
                ("CONFIG SET requirepass secret", "+OK"),
                ("ACL LIST", "*1 $110 user default on sanitize-payload #2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b ~* &* +@all"),
            ],
        );
        for id in connect_everywhere(&mut server) {
            server.check(id, &[("GET a", "-NOAUTH Authentication required.")]);
            server.check(id, &[("AUTH secret", "+OK"), ("GET a", "$-1")]);
        }
        server.check(admin, &[("ACL SETUSER default >second", "+OK")]);
        let id = server.connect();
        server.check(id, &[("AUTH second", "+OK"), ("RESET", "+RESET"), ("AUTH default secret", "+OK")]);
        server.check(admin, &[("CONFIG SET requirepass new", "+OK")]);
        let wrong = "-WRONGPASS invalid username-password pair or user is disabled.";
        let id = server.connect();
        server.check(
            id,
            &[("AUTH second", wrong), ("AUTH new", "+OK"), ("CONFIG SET requirepass \"\"", "+OK")],
        );
        let id = server.connect();
        server
            .check(id, &[("GET a", "$-1"), ("AUTH default any", "+OK"), ("ACL SETUSER default off", "+OK")]);
        let id = server.connect();
        server.check(id, &[("GET a", "-NOAUTH Authentication required."), ("AUTH default any", wrong)]);
    }
}

#[test]
fn a_disabled_user_lets_nobody_in_and_who_is_in_stays() {
    let mut server = server(2);
    let (admin, id) = (server.connect(), server.connect());
    server.check(admin, &[("ACL SETUSER bob on >pw +@all ~*", "+OK")]);
    server.check(id, &[("HELLO 3 AUTH bob pw", "%7 $6 server $5 redis $7 version $5 8.2.0 $5 proto :3 $2 id :2 $4 mode $10 standalone $4 role $6 master $7 modules *0")]);
    server.check(admin, &[("ACL SETUSER bob off", "+OK")]);
    server.check(id, &[("GET k", "_"), ("ACL WHOAMI", "$3 bob")]);
    server.check(admin, &[("AUTH bob pw", "-WRONGPASS invalid username-password pair or user is disabled.")]);
    assert!(server.line(admin, "CLIENT LIST").contains("user=bob"), "who it is is shown");
    server.check(
        admin,
        &[("CLIENT KILL USER nobody", "-ERR No such user 'nobody'"), ("CLIENT KILL USER bob", ":1")],
    );
    assert!(server.is_closed(id));
}

#[test]
fn refusals_are_counted_at_one_place_for_all_shards() {
    let mut server = server(3);
    let clients = connect_everywhere(&mut server);
    let admins = connect_everywhere(&mut server);
    server.check(admins[0], &[("ACL SETUSER bob on nopass ~a +get", "+OK")]);
    for client in &clients {
        server.check(*client, &[("AUTH bob x", "+OK"), ("GET b", "-NOPERM No permissions to access a key")]);
        assert!(server.line(*client, "DEL b").starts_with(NO_COMMAND));
    }
    server.check(
        clients[0],
        &[("AUTH eve x", "-WRONGPASS invalid username-password pair or user is disabled.")],
    );
    for admin in &admins {
        let log = server.call(*admin, &[b"ACL", b"LOG"]);
        let entries = log.items().unwrap();
        let field = |entry: &Value, name: &str| {
            let fields = entry.items().unwrap();
            let place = fields.iter().step_by(2).position(|field| field.bytes() == Some(name.as_bytes()));
            fields[2 * place.unwrap() + 1].clone()
        };
        let text = |entry, name| String::from_utf8(field(entry, name).bytes().unwrap().to_vec()).unwrap();
        let shown: Vec<String> = entries
            .iter()
            .map(|entry| {
                let words = ["reason", "context", "object", "username"].map(|name| text(entry, name));
                format!("{} {}", words.join(" "), field(entry, "count").integer().unwrap())
            })
            .collect();
        assert_eq!(shown, ["auth toplevel AUTH eve 1", "command toplevel del bob 3", "key toplevel b bob 3"]);
        assert!(text(&entries[1], "client-info").contains("cmd=del"), "{log:?}");
        assert_eq!(field(&entries[2], "entry-id").integer(), Some(0));
        assert_eq!(server.call(*admin, &[b"ACL", b"LOG", b"1"]).items().map(<[Value]>::len), Some(1));
    }
    server.check(admins[2], &[("CONFIG SET acllog-max-len 1", "+OK")]);
    for (name, value) in std::mem::take(&mut server.settings_told) {
        server.executors.iter_mut().for_each(|executor| executor.apply_setting(&name, &value));
    }
    assert_eq!(server.call(admins[1], &[b"ACL", b"LOG"]).items().map(<[Value]>::len), Some(1));
    server.check(admins[1], &[("ACL LOG RESET", "+OK"), ("ACL LOG", "*0")]);
    server.check(
        admins[0],
        &[("ACL LOG", "*0"), ("ACL LOG x", "-ERR value is not an integer or out of range")],
    );
}

#[test]
fn users_are_written_to_their_file_and_read_from_it() {
    for shards in [1, 3] {
        let mut bare = server(shards);
        let admin = bare.connect();
        let none = "-ERR This Redis instance is not configured to use an ACL file.";
        assert!(bare.line(admin, "ACL SAVE").starts_with(none));
        assert!(bare.line(admin, "ACL LOAD").starts_with(none));
        let mut server = furnished_server(shards);
        let admin = server.connect();
        let client = server.connect();
        server.check(admin, &[("ACL SETUSER bob on >pw ~a* (+set ~s*) +get", "+OK"), ("ACL SAVE", "+OK")]);
        let saved = String::from_utf8(server.users_file.clone()).unwrap();
        assert_eq!(
            saved,
            "user bob on sanitize-payload #30c952fab122c3f9759f02a6d95c3758b246b4fee239957b2d4fee46e26170c4 ~a* resetchannels -@all +get (~s* resetchannels -@all +set)\nuser default on nopass sanitize-payload ~* &* +@all\n"
        );
        server.check(admin, &[("ACL DELUSER bob", ":1"), ("ACL LOAD", "+OK")]);
        server.check(client, &[("AUTH bob pw", "+OK"), ("SET s1 v", "+OK"), ("GET a", "$-1")]);
        server.check(admin, &[("ACL SETUSER eve", "+OK")]);
        // What is wrong is told by its line, and nothing of the file holds.
        server.users_file = b"user bob on +foo foo\n# no\nuser eve\nuser eve\nuser x (+get\n".to_vec();
        server.check(
            admin,
            &[("ACL LOAD", "-ERR users.acl:1: Error in applying operation '+foo': Unknown command or category name in ACL. users.acl:1: Syntax error. users.acl:2 should start with user keyword followed by the username. WARNING: Duplicate user 'eve' found on line 4. users.acl:5: Unmatched parenthesis in selector definition.WARNING: ACL errors detected, no change to the previously active ACL rules was performed")],
        );
        server.check(admin, &[("ACL USERS", "*3 $3 bob $7 default $3 eve")]);
        // Who is not in the file is gone, the user default alone stays as he was.
        server.check(admin, &[("ACL SETUSER default >secret", "+OK")]);
        server.users_file = b"user carl on\n".to_vec();
        server.check(admin, &[("ACL LOAD", "+OK"), ("ACL USERS", "*2 $4 carl $7 default")]);
        assert!(server.is_closed(client));
        let id = server.connect();
        server.check(id, &[("PING", "-NOAUTH Authentication required."), ("AUTH secret", "+OK")]);
        assert!(saved.lines().all(|line| !line.contains("pw")), "no password is written");
    }
}

#[test]
fn rules_and_users_have_bounds() {
    let mut server = server(1);
    let id = server.connect();
    let too_much = "ERR the rules of a user may take at most 65536 bytes, and be at most 1024";
    let long = vec![b'x'; 40_000];
    let key = [b"~", long.as_slice()].concat();
    let other = [b"~y", long.as_slice()].concat();
    assert!(server.call(id, &[b"ACL", b"SETUSER", b"bob", &key]).is_ok());
    let refused = server.call(id, &[b"ACL", b"SETUSER", b"bob", &other]);
    assert_eq!(refused.error().as_deref(), Some(too_much));
    let patterns: Vec<Vec<u8>> = (0..1_100).map(|number| format!("~{number}").into_bytes()).collect();
    let mut words: Vec<&[u8]> = vec![b"ACL", b"SETUSER", b"eve"];
    words.extend(patterns.iter().map(Vec::as_slice));
    assert_eq!(server.call(id, &words).error().as_deref(), Some(too_much));
    assert_eq!(
        server.call(id, &[b"ACL", b"GETUSER", b"eve"]),
        Value::Null,
        "nothing of a wrong change holds"
    );
    for number in 0..4_094 {
        assert!(server.call(id, &[b"ACL", b"SETUSER", number.to_string().as_bytes()]).is_ok());
    }
    let refused = server.call(id, &[b"ACL", b"SETUSER", b"last"]);
    assert_eq!(refused.error().as_deref(), Some("ERR there may be at most 4096 users"));
}

#[test]
fn hostile_rules_are_refused_or_come_back_as_they_are_shown() {
    let seed = SeededRandom::system_seed().unwrap();
    println!("seed {seed}");
    let mut random = SeededRandom::new(seed);
    let mut server = furnished_server(1);
    let id = server.connect();
    let pieces: [&[u8]; 22] = [
        b"+", b"-", b"@", b"|", b"~", b"%", b"R", b"W", b"&", b"(", b")", b"*", b"get", b"config", b"all",
        b"#", b">", b"<", b"!", b"\xff", b" ", b"select",
    ];
    // Shown as they are, they would end within a pattern or argument, and the file could not be read again.
    for rule in ["(~))", "(+get ~a) +set)", "(allkeys &))", "(%R~b) +get)", "+get|a b", "+get|a "] {
        let refused = server.call(id, &[b"ACL", b"SETUSER", b"bob", rule.as_bytes()]);
        assert!(refused.error().is_some_and(|error| error.ends_with("Syntax error")), "{rule}: {refused:?}");
    }
    for _ in 0..4_000 {
        let rules: Vec<Vec<u8>> = (0..1 + random.below(4))
            .map(|_| {
                let count = 1 + random.below(6);
                (0..count).flat_map(|_| pieces[random.below(22) as usize].to_vec()).collect()
            })
            .collect();
        let mut words: Vec<&[u8]> = vec![b"ACL", b"SETUSER", b"bob"];
        words.extend(rules.iter().map(Vec::as_slice));
        server.call(id, &words);
    }
    let shown = server.raw(id, &[b"ACL", b"LIST"]);
    assert!(shown.len() > 300, "some of the rules were right");
    assert!(server.call(id, &[b"ACL", b"SAVE"]).is_ok());
    let loaded = server.call(id, &[b"ACL", b"LOAD"]);
    assert!(loaded.is_ok(), "seed {seed}: {loaded:?}\n{}", String::from_utf8_lossy(&server.users_file));
    let again = server.raw(id, &[b"ACL", b"LIST"]);
    assert_eq!(String::from_utf8_lossy(&again), String::from_utf8_lossy(&shown), "seed {seed}");
}

#[test]
fn passwords_are_made_of_the_secret_and_never_twice() {
    let mut bare = server(1);
    let id = bare.connect();
    bare.check(id, &[("ACL GENPASS", "-ERR there is no source of randomness here")]);
    let mut server = furnished_server(2);
    let ids = connect_everywhere(&mut server);
    let mut made = std::collections::BTreeSet::new();
    for id in ids.iter().cycle().take(40) {
        let password = server.line(*id, "ACL GENPASS");
        assert_eq!(password.len(), "$64 ".len() + 64);
        assert!(made.insert(password));
    }
    assert_eq!(server.line(ids[0], "ACL GENPASS 5").len(), "$2 ff".len());
    assert_eq!(server.line(ids[0], "ACL GENPASS 4096").len(), "$1024 ".len() + 1_024);
    let wrong = "-ERR ACL GENPASS argument must be the number of bits for the output password, a positive number up to 4096";
    server.check(ids[0], &[("ACL GENPASS 0", wrong), ("ACL GENPASS 4097", wrong)]);
}

#[test]
fn many_patterns_and_many_keys_are_looked_at_together_and_not_for_ever() {
    let mut server = server(1);
    let (admin, id) = (server.connect(), server.connect());
    let set = |server: &mut Server<MapEngine>, patterns: &mut dyn Iterator<Item = String>| {
        let rules: Vec<String> = patterns.collect();
        let mut words: Vec<&[u8]> =
            vec![b"ACL", b"SETUSER", b"bob", b"on", b"nopass", b"resetkeys", b"+@all"];
        words.extend(rules.iter().map(String::as_bytes));
        assert_eq!(server.raw(admin, &words), b"+OK\r\n");
    };
    let ask = |server: &mut Server<MapEngine>, command: &[u8], keys: &[String]| {
        let words: Vec<&[u8]> = std::iter::once(command).chain(keys.iter().map(String::as_bytes)).collect();
        let answer = server.raw(id, &words);
        String::from_utf8_lossy(&answer).lines().next().unwrap_or_default().to_owned()
    };
    // Ten thousand keys for a thousand patterns of all forms.
    let form = |number: u32| match number % 3 {
        0 => format!("~key:{number}"),
        1 => format!("%R~key:{number}:*"),
        _ => format!("~key:{number}[:;]*x"),
    };
    set(&mut server, &mut (0..1_000).map(form));
    server.check(id, &[("AUTH bob any", "+OK")]);
    let key = |number: u32| match number % 3 {
        0 => format!("key:{number}"),
        1 => format!("key:{number}:{number}"),
        _ => format!("key:{number};x"),
    };
    let mut keys: Vec<String> = (0..3_000).map(|number| key(number % 999)).collect();
    assert_eq!(ask(&mut server, b"MGET", &keys), "*3000");
    assert_eq!(
        ask(&mut server, b"DEL", &keys),
        "-NOPERM No permissions to access a key",
        "some are to be read"
    );
    for (good, bad) in [("key:0", "key:01"), ("key:1:1", "key:1"), ("key:2;x", "key:2;")] {
        let at = keys.iter().rposition(|key| key == good).unwrap();
        keys[at] = bad.into();
        assert_eq!(ask(&mut server, b"MGET", &keys), "-NOPERM No permissions to access a key", "{bad}");
        keys[at] = good.into();
    }
    // Commands of a transaction are looked at together, too.
    server.check(id, &[("MULTI", "+OK")]);
    (0..6_000).for_each(|_| server.send(id, &[b"GET", b"key:999"]));
    server.settle();
    server.take_received(id);
    assert!(server.raw(id, &[b"EXEC"]).starts_with(b"*6000\r\n$-1\r\n"));
    // What must be tried one by one, and takes long, is refused.
    set(&mut server, &mut (0..1_000).map(|number| format!("~*a*b*c*d{number}:*x")));
    let keys: Vec<String> = (0..20_000).map(|number| format!("{}{number}", "abcd".repeat(50))).collect();
    let too_many =
        "-NOPERM User bob has too many patterns for so many keys or channels: send fewer of them together";
    let fitting: Vec<String> = keys.iter().map(|key| format!("{key}abcd999:x")).collect();
    assert_eq!(ask(&mut server, b"MGET", &fitting), too_many);
    assert_eq!(ask(&mut server, b"MGET", &fitting[..10]), "*10");
}

/// Files of users and tools that were written for Redis name commands that are not here.
#[test]
fn rules_may_name_commands_of_redis_that_are_not_here() {
    let mut server = furnished_server(2);
    let admin = server.connect();
    server.check(
        admin,
        &[
            ("ACL SETUSER exporter on nopass ~* -@all +info +get +HLEN +eval -script|kill +lpush|list +debug|digest", "+OK"),
            ("ACL SETUSER none +hnothing", "-ERR Error in ACL SETUSER modifier '+hnothing': Unknown command or category name in ACL"),
            ("ACL SETUSER none +script|nothing", "-ERR Error in ACL SETUSER modifier '+script|nothing': Unknown command or category name in ACL"),
            ("ACL DRYRUN exporter get key", "+OK"),
            ("ACL DRYRUN exporter set key value", "$57 User exporter has no permissions to run the 'set' command"),
        ],
    );
    let listed = server.line(admin, "ACL LIST");
    let rules = "-@all +info +get +hlen +eval -script|kill +lpush|list +debug|digest";
    assert!(listed.contains(rules), "{listed}");
    // What is shown is taken again, and a later rule about the same takes the place of the first.
    server.check(
        admin,
        &[
            ("ACL SAVE", "+OK"),
            ("ACL LOAD", "+OK"),
            ("ACL SETUSER exporter -hlen +@all", "+OK"),
            ("ACL SETUSER exporter -hget", "+OK"),
        ],
    );
    let listed = server.line(admin, "ACL LIST");
    assert!(listed.contains("user exporter on nopass") && listed.contains("+@all -hget"), "{listed}");
}
