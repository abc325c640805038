use super::*;

fn file() -> Arc<SegmentFile> {
    let opened = File::open("/dev/null").expect("the null device opens");
    SegmentFile::new(Place::Segment(3), opened)
}

#[test]
fn a_write_during_a_flush_stays_dirty() {
    let (durability, file) = (Durability::default(), file());
    durability.written(&file);
    let tasks = durability.flush_tasks();
    durability.written(&file);
    durability.flushed(&tasks[0].file, tasks[0].covers);
    let tasks = durability.flush_tasks();
    assert_eq!((tasks.len(), tasks[0].covers), (1, 2));
    durability.flushed(&tasks[0].file, tasks[0].covers);
    assert!(durability.flush_tasks().is_empty());
    assert!(lock(&durability.dirty).is_empty());
}

#[test]
fn a_flush_that_begins_during_another_does_the_work_too() {
    let (durability, file) = (Durability::default(), file());
    durability.written(&file);
    let first = durability.flush_tasks();
    let second = durability.flush_tasks();
    assert_eq!((first.len(), second.len()), (1, 1));
}

#[test]
fn no_write_is_lost_between_writers_and_flushers() {
    let durability = Durability::default();
    let files = [file(), file()];
    std::thread::scope(|scope| {
        for file in &files {
            let durability = &durability;
            scope.spawn(move || (0..20_000).for_each(|_| durability.written(file)));
        }
        scope.spawn(|| {
            for _ in 0..2_000 {
                for task in durability.flush_tasks() {
                    durability.flushed(&task.file, task.covers);
                }
            }
        });
    });
    for task in durability.flush_tasks() {
        durability.flushed(&task.file, task.covers);
    }
    for file in &files {
        assert_eq!(file.flushed.load(SeqCst), 20_000);
    }
    assert!(lock(&durability.dirty).is_empty());
}

#[test]
fn a_file_counts_as_listed_only_when_it_is_in_the_list() {
    let (durability, file) = (Durability::default(), file());
    std::thread::scope(|scope| {
        let dirty = lock(&durability.dirty);
        let writer = scope.spawn(|| durability.written(&file));
        while file.written.load(SeqCst) == 0 {
            std::thread::yield_now();
        }
        // The writer waits for the list now, or will: until then nobody may think that the file is in it.
        for _ in 0..10_000 {
            assert!(!file.listed.load(SeqCst), "a flush of now would miss this file");
            std::thread::yield_now();
        }
        drop(dirty);
        writer.join().expect("it ends");
    });
    assert!(file.listed.load(SeqCst));
    assert_eq!(durability.flush_tasks().len(), 1);
}

#[test]
fn a_flush_that_ends_well_beside_one_that_fails_is_not_answered_so() {
    let (durability, file) = (Durability::default(), file());
    let (told, other_is_told) = std::sync::mpsc::channel();
    let (flushed, go_on) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let (failing, failing_file) = (&durability, &file);
        let failed = scope.spawn(move || {
            failing.report(failing_file, || {
                // The kernel has told this thread, which has not noted it yet.
                told.send(()).expect("the other listens");
                go_on.recv().expect("the other goes on");
                (0..1_000).for_each(|_| std::thread::yield_now());
                Err(failing_file.error(libc::EIO, "flush", 0))
            })
        });
        other_is_told.recv().expect("it was told");
        assert_eq!(durability.report(&file, || Ok(())), Ok(()), "of a failure the kernel tells once");
        flushed.send(()).expect("it listens");
        let answer = durability.confirm(&file).expect_err("what it was to flush is lost");
        assert!(answer.detail.contains("Input/output error"), "{answer}");
        assert!(failed.join().expect("it ends").is_err());
    });
}

#[test]
fn what_ended_well_beside_a_failure_is_not_handed_back_as_durable() {
    let durability = Durability::default();
    let kinds = [IoKind::Read, IoKind::Write, IoKind::WriteDurable, IoKind::Flush];
    let answer = |kind| IoCompletion { token: 1, kind, offset: 0, buffer: None, result: Ok(()) };
    let mut answers = kinds.map(answer);
    durability.void(&mut answers);
    assert!(answers.iter().all(|done| done.result.is_ok()));
    durability.note_failure(&file().error(libc::EIO, "flush", 0));
    durability.void(&mut answers);
    assert_eq!(answers.map(|done| done.result.is_ok()), [true, true, false, false]);
}

#[test]
fn only_failures_of_the_medium_end_all_durability() {
    let durability = Durability::default();
    durability.note_failure(&file().error(libc::ENOSPC, "write", 0));
    assert_eq!(durability.failure(), None);
    durability.note_failure(&file().error(libc::EIO, "flush", 0));
    durability.note_failure(&file().error(libc::EBADF, "flush", 0));
    let failure = durability.failure().expect("it is noted");
    assert!(failure.detail.contains("Input/output error"), "{failure}");
}

#[test]
fn want_of_room_of_every_kind_is_a_full_device_and_the_rest_has_failed() {
    for errno in [libc::ENOSPC, libc::EDQUOT, libc::EFBIG] {
        assert_eq!(kind_of(errno), DeviceErrorKind::Full, "{}", std::io::Error::from_raw_os_error(errno));
    }
    for errno in [libc::EIO, libc::EROFS, libc::ENXIO, libc::EBADF] {
        assert_eq!(kind_of(errno), DeviceErrorKind::Failed, "{}", std::io::Error::from_raw_os_error(errno));
    }
}
