//! System calls that the kernel answers with an error: what a container forbids, what a disk does not do.
//!
//! A filter holds for the thread that installs it, for ever, and for all threads and processes that this one
//! starts. So it gets a thread of its own, and what is to meet the errors runs or is started there.

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    apply_filter,
};

/// A system call that is refused.
#[derive(Clone, Copy)]
pub struct Refused {
    /// Its number.
    pub call: libc::c_long,
    /// Only when the argument of this number is so large or larger; `None`: always.
    pub from: Option<(u8, u64)>,
}

/// Does `work` where `refused` is answered with `errno`. `None`, after a line that says so, where filters are not
/// allowed; `what` names the tests that are left out.
pub fn refusing<T: Send>(
    what: &str,
    errno: i32,
    refused: Refused,
    work: impl FnOnce() -> T + Send,
) -> Option<T> {
    let program = program(errno, refused);
    let outcome = std::thread::scope(|scope| {
        let thread = scope.spawn(move || apply_filter(&program).map(|()| work()));
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    outcome.inspect_err(|error| println!("SKIP: {what} (filters of system calls are refused: {error})")).ok()
}

fn program(errno: i32, refused: Refused) -> BpfProgram {
    let rules = refused.from.map(|(argument, least)| {
        let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Qword, SeccompCmpOp::Ge, least)
            .expect("a condition");
        SeccompRule::new(vec![condition]).expect("a rule")
    });
    let filter = SeccompFilter::new(
        [(refused.call, rules.into_iter().collect())].into(),
        SeccompAction::Allow,
        SeccompAction::Errno(errno.unsigned_abs()),
        std::env::consts::ARCH.try_into().expect("a processor that filters are known for"),
    );
    filter.and_then(BpfProgram::try_from).expect("a filter")
}
