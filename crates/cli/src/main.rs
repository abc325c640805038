//! The `tierstone` program: a server for Redis clients, and the tools around its store.
//!
//! Exit codes: 0 done, 1 failed, 2 wrong usage or settings, 3 the store is damaged, 4 the device
//! failed.

mod bench;
mod check;
mod child;
mod complete;
mod demo;
mod doctor;
mod lab;
mod load;
mod log;
mod output;
mod serve;

use clap::{Parser, Subcommand};
use mimalloc::MiMalloc;
use std::process::ExitCode;
use tierstone_base::{Error, ErrorKind};

/// Requests that read the device allocate on one thread and free on another (docs/decisions/011-less-work-a-request.md).
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// A durable data store for flash that Redis clients speak to.
#[derive(Debug, Parser)]
#[command(name = "tierstone", version, about, propagate_version = true, arg_required_else_help = true)]
struct Program {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve Redis clients: every acknowledged write is durable
    Server(Box<serve::ServerArgs>),
    /// Import a tree of files, read it back, kill the server in mid-write, verify every record
    Demo(demo::DemoArgs),
    /// Examine directories: what their devices guarantee, how quick they are, what to change
    Doctor(doctor::DoctorArgs),
    /// Drive a Redis server with YCSB or a single mix, and measure it
    Bench(Box<bench::BenchArgs>),
    /// Load a directory, NDJSON or CSV into a Redis server
    Load(load::LoadArgs),
    /// Run published experiments here, and compare their numbers with the published ones
    Lab(lab::LabArgs),
    /// Verify every byte of a closed store, without changing it; save what is whole in a new one
    Check(check::CheckArgs),
    /// Print a completion script for a shell
    Completions(complete::CompletionArgs),
}

fn main() -> ExitCode {
    let program = Program::parse();
    let result = match program.command {
        Command::Server(args) => serve::run(*args),
        Command::Demo(args) => demo::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Bench(args) => bench::run(*args),
        Command::Load(args) => load::run(&args),
        Command::Lab(args) => lab::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Completions(args) => complete::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tierstone: {error}");
            ExitCode::from(exit_code(&error))
        }
    }
}

fn exit_code(error: &Error) -> u8 {
    match error.kind() {
        ErrorKind::InvalidInput | ErrorKind::Unsupported | ErrorKind::Busy => 2,
        ErrorKind::Corrupt | ErrorKind::Incompatible => 3,
        ErrorKind::DeviceFailed | ErrorKind::NoSpace => 4,
        ErrorKind::Retry | ErrorKind::NoMemory | ErrorKind::SnapshotLost => 1,
    }
}
