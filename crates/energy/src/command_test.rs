use super::*;
use crate::meter::{Covers, MeterKind};
use crate::tools::watts_or_joules;
use tierstone_base::{Clock, SystemClock};

fn meter(script: &str) -> CommandMeter {
    let info = MeterInfo {
        name: "command".into(),
        kind: MeterKind::Command,
        covers: Covers::System,
        step: 1,
        step_source: "test",
        refresh_us: 1,
        wraps_at_uj: None,
        power_max_uw: u64::MAX,
    };
    let arguments = ["-c", script].map(OsString::from).to_vec();
    let line = CommandLine { program: "sh".into(), arguments, timeout_us: 1_000_000 };
    CommandMeter::new(info, line, watts_or_joules)
}

/// Asks until there is an answer; the meter's own time stands still, so that only a stuck test comes to the bound.
fn answer(meter: &mut CommandMeter) -> Result<Reading, Fault> {
    let clock = SystemClock::new();
    loop {
        match meter.read(0) {
            Ok(None) => assert!(clock.now().monotonic_us < 60_000_000, "no answer came"),
            Ok(Some(reading)) => return Ok(reading),
            Err(fault) => return Err(fault),
        }
        std::thread::yield_now();
    }
}

#[test]
fn a_command_is_asked_again_and_again() {
    let mut meter = meter("echo 12.5 W");
    for _ in 0..3 {
        assert_eq!(answer(&mut meter), Ok(Reading::Power { uw: 12_500_000 }));
    }
}

#[test]
fn rubbish_failures_and_missing_programs_are_faults() {
    for (script, kind, said) in [
        ("echo nothing here", FaultKind::Rubbish, "has no number"),
        ("echo 12.5", FaultKind::Rubbish, "has no unit"),
        ("echo -3 W", FaultKind::Rubbish, "is no power"),
        ("true", FaultKind::Rubbish, "has no number"),
        ("echo 3 W; exit 7", FaultKind::Rubbish, "7"),
        ("head -c 100000 /dev/zero", FaultKind::Rubbish, "does not end"),
    ] {
        let fault = answer(&mut meter(script)).unwrap_err();
        assert_eq!(fault.kind, kind, "{script}: {fault:?}");
        assert!(fault.why.contains(said), "{script}: {fault:?}");
    }
    let mut missing = meter("");
    missing.line.program = "/no/such/program".into();
    assert_eq!(missing.read(0).unwrap_err().kind, FaultKind::Gone);
}

#[test]
fn a_command_that_hangs_is_killed_with_what_it_started() {
    let mut meter = meter("sleep 1000 & echo $!; wait");
    assert_eq!(meter.read(5), Ok(None));
    let State::Running { child, .. } = &meter.state else { panic!("it runs") };
    let group = child.id();
    assert_eq!(meter.read(1_000_004), Ok(None));
    let fault = meter.read(1_000_005).unwrap_err();
    assert_eq!(fault.kind, FaultKind::TimedOut);
    assert!(fault.why.contains("within 1 s"), "{fault:?}");
    // Signal 0 only asks. What was started has another parent now, which may take a moment to notice.
    let clock = SystemClock::new();
    let group = Pid::from_raw(group as i32).unwrap();
    while rustix::process::test_kill_process_group(group).is_ok() {
        assert!(clock.now().monotonic_us < 60_000_000, "something of the group is alive");
        if let State::Dying(child) = &mut meter.state {
            let _ = child.try_wait();
        }
        std::thread::yield_now();
    }
}

#[test]
fn an_answer_is_not_kept_waiting_by_what_the_command_left_behind() {
    // The sleeper holds the pipe open; the command itself has ended.
    let mut meter = meter("sleep 5 & echo 7 W");
    assert_eq!(answer(&mut meter), Ok(Reading::Power { uw: 7_000_000 }));
}
