use super::*;
use tierstone_base::SeededRandom;

/// What a test has put into a bundle.
type Put = (u64, Option<u64>, u32, bool, u64, Vec<Vec<u8>>);

fn random_request(random: &mut SeededRandom, ticket: u64) -> Put {
    let bytes = |random: &mut SeededRandom| -> Vec<u8> {
        let len = if random.chance(0.1) { random.below(3_000) } else { random.below(30) };
        (0..len).map(|_| random.below(256) as u8).collect()
    };
    let connection = random.chance(0.6).then(|| 1 + random.below(1_000));
    let args = match connection {
        Some(_) if random.chance(0.5) => vec![b"GET".to_vec(), bytes(random)],
        Some(_) => vec![b"set".to_vec(), bytes(random), bytes(random)],
        None => (0..random.below(6)).map(|_| bytes(random)).collect(),
    };
    (ticket, connection, random.below(16) as u32, random.chance(0.5), random.next_u64(), args)
}

#[test]
fn requests_and_answers_come_out_as_they_went_in() {
    let other = crate::table::commands().find(|command| command.name == "incr").unwrap();
    for seed in 0..200 {
        let mut random = SeededRandom::new(seed);
        let mut bundles = Bundles::new(2);
        let mut bundle = bundles.spare();
        let puts: Vec<Put> =
            (0..random.below(60)).map(|ticket| random_request(&mut random, ticket)).collect();
        for (ticket, connection, db, is_third, position, args) in &puts {
            let forward = Forward {
                ticket: *ticket,
                connection: *connection,
                db: *db,
                version: if *is_third { Version::Resp3 } else { Version::Resp2 },
                position: Position(*position),
                command: other,
                tracker: None,
            };
            let slices: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
            bundle.forward(&forward, Args::Slices(&slices));
        }
        assert_eq!(bundle.forwards(), puts.len(), "seed {seed}");
        let mut cursor = Cursor::default();
        let (mut answers, mut late, mut expected) = (Bundle::default(), Bundle::default(), [vec![], vec![]]);
        for (ticket, connection, db, is_third, position, args) in &puts {
            let (forward, got) = bundle.request(&mut cursor).unwrap();
            assert_eq!((forward.ticket, forward.connection, forward.db), (*ticket, *connection, *db));
            assert_eq!((forward.version == Version::Resp3, forward.position.0), (*is_third, *position));
            let name = match connection {
                Some(_) if args.len() == 2 => "get",
                Some(_) => "set",
                None => "incr",
            };
            assert_eq!(forward.command.name, name, "seed {seed}");
            let read: Vec<&[u8]> = Args::Bundled(got).from(0).collect();
            assert_eq!(read, *args, "seed {seed}");
            assert_eq!(got.get(args.len()), None);
            let start = answers.begin_answer();
            let reply = vec![b'x'; random.below(300) as usize];
            answers.buffer().extend_from_slice(&reply);
            match random.below(4) {
                0 => answers.drop_answer(start),
                1 => {
                    answers.end_answer(start, &forward);
                    answers.move_answer(start, &mut late);
                    expected[1].push((*ticket, *connection, reply));
                }
                _ => {
                    answers.end_answer(start, &forward);
                    expected[0].push((*ticket, *connection, reply));
                }
            }
        }
        assert!(bundle.request(&mut cursor).is_none(), "seed {seed}");
        for (bundle, expected) in [&answers, &late].into_iter().zip(expected) {
            let got =
                bundle.answers().map(|(ticket, connection, bytes)| (ticket, connection, bytes.to_vec()));
            assert_eq!(got.collect::<Vec<_>>(), expected, "seed {seed}");
        }
        bundles.recycle(bundle);
        assert_eq!(bundles.spare().forwards(), 0, "what is kept is empty");
    }
}

#[test]
fn a_bundle_is_bounded_and_answers_wait_for_what_they_have_observed() {
    let command = crate::table::command(quick_index(true));
    let forward = |ticket| Forward {
        ticket,
        connection: Some(1),
        db: 0,
        version: Version::Resp2,
        position: Position(0),
        command,
        tracker: None,
    };
    let mut bundles = Bundles::new(3);
    for ticket in 0..FORWARDS_MAX as u64 + 1 {
        bundles.forward(1, forward(ticket), Args::Slices(&[b"get", b"key"]));
    }
    let long = vec![b'k'; BYTES_MAX];
    for ticket in 0..3 {
        bundles.forward(2, forward(ticket), Args::Slices(&[b"set", b"key", &long]));
    }
    let sent: Vec<(ShardId, usize)> = bundles.take().map(|(to, bundle)| (to, bundle.forwards())).collect();
    assert_eq!(sent, [(1, FORWARDS_MAX), (2, 1), (2, 1), (2, 1), (1, 1)]);
    assert!(!bundles.has_any_to_send());

    let answer = |bundles: &mut Bundles, gate| {
        let mut bundle = bundles.spare();
        let start = bundle.begin_answer();
        bundle.end_answer(start, &forward(7));
        bundles.send_answers(1, bundle, gate);
    };
    answer(&mut bundles, Some(10));
    answer(&mut bundles, Some(12));
    assert!(!bundles.has_any_to_send());
    bundles.release(9);
    assert!(!bundles.has_any_to_send());
    bundles.release(11);
    assert_eq!(bundles.take().count(), 1);
    answer(&mut bundles, None);
    assert_eq!(bundles.take().count(), 1);
    let empty = bundles.spare();
    bundles.send_answers(1, empty, None);
    let kept_bytes = bundles.kept_bytes();
    assert!(kept_bytes > 0);
    let mut long = bundles.spare();
    long.buffer().resize(KEPT_BYTES, 0);
    bundles.recycle(long);
    assert!(bundles.kept_bytes() < kept_bytes, "what has grown much is not kept");
    bundles.release(12);
    assert_eq!(bundles.take().count(), 1, "who has nothing to say sends nothing");
}
