//! `foretoken`: which speculation policy should this server run?
//!
//! This crate is the command line. Each command has one file, which reads arguments and prints results. The crate
//! `foretoken-run` does the work, and `foretoken-live` does the work on devices. Results go to stdout and are
//! deterministic. Progress and diagnostics go to stderr.
//!
//! Another program can register policies of its own and then call [`main`]. That program then has the same commands,
//! and its policies in addition to the built-in ones.

// A part of the program: CONTRIBUTING.md says which comments it has.
#![allow(missing_docs)]

// This `eprintln!` replaces the standard one. It escapes characters that could control a terminal, because messages
// quote names of files, keys and labels.
#[macro_use(eprintln)]
extern crate foretoken_run;

mod ask;
mod cli;
mod commands;
mod memory;
mod shipped;

use foretoken_report::Staged;
use foretoken_run::spec::{problem, shown};
use foretoken_run::work::Work;
use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::LazyLock;

pub use commands::policies::as_json as policies;
pub use foretoken_run::decide::decisions as decide;
pub use shipped::read_document;

/// The program: reads the arguments, runs the command, and prints its error. Returns one of the exit codes of
/// docs/experiments.md.
pub fn main() -> ExitCode {
    memory::with_one_arena();
    ExitCode::from(main_with(std::env::args_os()))
}

/// Does the work of [`main`] with the given arguments. The first argument is the program's name. Returns the exit code.
pub fn main_with(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    if arguments.len() < 2 {
        std::eprint!("{}", cli::INTRODUCTION);
        return problem::Exit::BadInput as u8;
    }
    match prepared(arguments).and_then(run) {
        Ok(()) => 0,
        Err(wrong) => {
            let wrong = work().interrupt.with_what_is_kept(wrong);
            let exit = wrong.exit as u8;
            problem::tell(*wrong);
            exit
        }
    }
}

/// Parses the arguments, checks the memory limit and starts to listen for Ctrl-C.
fn prepared(arguments: Vec<OsString>) -> problem::Result<cli::Command> {
    let cli = cli::parse(arguments).unwrap_or_else(|e| refuse(&e));
    let wrong =
        |what| problem::Problem::bad_input(what).help("leave it out for three quarters of the machine's memory");
    foretoken_traces::limits::given().map_err(wrong)?;
    listen()?;
    if let Some(note) = memory::short() {
        eprintln!("note: {note}");
    }
    Ok(cli.command)
}

/// The interrupt flag and the progress of the running command. They are static, because one process runs one command.
fn work() -> &'static Work {
    static WORK: LazyLock<Work> = LazyLock::new(Work::default);
    &WORK
}

/// Handles Ctrl-C and SIGTERM from now on. The first signal asks running work to end. If no work watches for signals,
/// or at a second signal, the program prints "interrupted", removes half-written files and exits with 130.
fn listen() -> problem::Result<()> {
    ctrlc::set_handler(|| {
        if work().interrupt.signalled() {
            Staged::abandon_all();
            problem::tell(*work().interrupt.problem());
            std::process::exit(problem::Exit::Interrupted as i32);
        }
    })
    .map_err(|e| problem::Problem::failed(format!("cannot listen for Ctrl-C: {e}")))
}

/// Prints clap's message and ends the program. The message is the help, the version, or an error that quotes the
/// arguments. Characters that could control a terminal are escaped.
fn refuse(error: &clap::Error) -> ! {
    let plain = error.render().to_string();
    if shown::escape(&plain) == plain {
        error.exit();
    }
    std::eprint!("{}", shown::escape(&plain));
    std::process::exit(problem::Exit::BadInput as i32)
}

fn run(command: cli::Command) -> problem::Result<()> {
    match command {
        // `validate --observed` compares recordings and needs no device, so it works without the feature `live`.
        cli::Command::Validate(args) if !args.observed.is_empty() => commands::validate_observed::run(&args),
        command => command.run(),
    }
}
