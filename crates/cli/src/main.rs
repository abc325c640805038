//! The `tierstone` program: a server for Redis clients, and the tools around its store.
//!
//! Exit codes: see [`EXIT_CODES`] and [`exit_code`].

// They panic where nothing can be written: `tell!` and `print_line` do not.
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

#[macro_use]
mod output;

mod backup;
mod bench;
mod check;
mod child;
mod complete;
mod connect;
mod demo;
mod doctor;
mod energy;
mod interrupt;
mod lab;
mod load;
mod log;
mod persist;
mod plan;
mod region;
mod serve;
mod settings;
mod settings_file;
mod values;
mod volume;
mod workload;

use clap::{Parser, Subcommand};
use mimalloc::MiMalloc;
use std::process::ExitCode;
use tierstone_base::{Error, ErrorKind};

/// Requests that read the device allocate on one thread and free on another (docs/decisions/011-less-work-a-request.md).
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

const EXIT_CODES: &str = "Exit codes: 0 done; 1 failed; 2 wrong usage or \
settings, or the store is in use; 3 the store is damaged, or of another version; 4 the device failed or is full.";

/// A durable data store for flash that Redis clients speak to.
#[derive(Debug, Parser)]
#[command(name = "tierstone", version, about, propagate_version = true, arg_required_else_help = true)]
#[command(after_help = EXIT_CODES)]
struct Program {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve Redis clients: every acknowledged write is durable
    Server(Box<settings::ServerArgs>),
    /// Import a tree of files, read it back, kill the server in mid-write, verify every record
    Demo(demo::DemoArgs),
    /// Examine directories: what their devices guarantee, how quick they are, what to change
    Doctor(doctor::DoctorArgs),
    /// Drive a Redis server with YCSB or a single mix, and measure it
    Bench(Box<bench::BenchArgs>),
    /// Load a directory, NDJSON or CSV into a Redis server, or into a closed store (--data)
    Load(load::LoadArgs),
    /// Run published experiments here, and compare their numbers with the published ones
    Lab(lab::LabArgs),
    /// Record what a server is asked, import and describe such traces, replay them on a new store
    Workload(workload::WorkloadArgs),
    /// Plan hardware from a description: which nodes are cheapest, what scans cost in joules
    Plan(plan::PlanArgs),
    /// Verify every byte of a closed store, or of a running one by its server (--server), without changing
    /// it; save what is whole in a new one (--repair)
    Check(check::CheckArgs),
    /// Take a backup of a running server's store (--server), or of a closed one (--data), or check one (--verify)
    Backup(backup::BackupArgs),
    /// Make a new store of a backup
    Restore(backup::RestoreArgs),
    /// List meters, record the joules of a command
    Energy(energy::EnergyArgs),
    /// Study the order of persists to persistent memory: litmus tests, traces of any program, what their order costs
    Persist(persist::PersistArgs),
    /// Make volumes (RAID, sleeping mirrors) of files or disks, examine and repair them
    Volume(volume::VolumeArgs),
    /// Print a completion script for a shell
    Completions(complete::CompletionArgs),
}

fn main() -> ExitCode {
    let program = match Program::try_parse() {
        Ok(program) => program,
        Err(words) => return show(&words),
    };
    let done = |result: tierstone_base::Result<()>| result.map(|()| ExitCode::SUCCESS);
    let result = match program.command {
        // It ends as the command did that it ran.
        Command::Energy(args) => energy::run(args),
        // It fails where a claim does not hold.
        Command::Persist(args) => persist::run(&args),
        Command::Server(args) => done(serve::run(*args)),
        Command::Demo(args) => done(demo::run(&args)),
        Command::Doctor(args) => done(doctor::run(&args)),
        Command::Bench(args) => done(bench::run(*args)),
        Command::Load(args) => done(load::run(&args)),
        Command::Lab(args) => done(lab::run(&args)),
        Command::Workload(args) => done(workload::run(&args)),
        Command::Plan(args) => done(plan::run(&args)),
        Command::Check(args) => done(check::run(&args)),
        Command::Backup(args) => done(backup::run(&args)),
        Command::Restore(args) => done(backup::restore(&args)),
        Command::Volume(args) => done(volume::run(&args)),
        Command::Completions(args) => done(complete::run(&args)),
    };
    result.unwrap_or_else(|error| failed(&error))
}

/// Shows what the arguments ask for, help or the version, or what is wrong with them.
fn show(words: &clap::Error) -> ExitCode {
    match words.print() {
        // As of all output: a closed pipe ends it, not the program.
        Err(error) if !words.use_stderr() && error.kind() != std::io::ErrorKind::BrokenPipe => {
            failed(&error.into())
        }
        _ => ExitCode::from(u8::try_from(words.exit_code()).unwrap_or(2)),
    }
}

fn failed(error: &Error) -> ExitCode {
    tell!("tierstone: {error}");
    ExitCode::from(exit_code(error))
}

fn exit_code(error: &Error) -> u8 {
    match error.kind() {
        ErrorKind::InvalidInput | ErrorKind::Unsupported | ErrorKind::Busy => 2,
        ErrorKind::Corrupt | ErrorKind::Incompatible => 3,
        ErrorKind::DeviceFailed | ErrorKind::NoSpace => 4,
        ErrorKind::Retry | ErrorKind::NoMemory | ErrorKind::SnapshotLost => 1,
    }
}
