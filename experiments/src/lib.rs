//! `foretoken`: which speculation policy should this server run?
//!
//! The command line. Each command has one file, which reads arguments and prints results. `foretoken-run` does the
//! work, and `foretoken-live` the work on devices. stdout carries results and is deterministic; stderr carries
//! progress and diagnostics.
//!
//! Your own program can register policies and call [`main`]: it is then this program with those policies.

#[macro_use]
mod told;
mod cli;
mod commands;
mod memory;
mod state;

use clap::Parser;
use foretoken_run::interrupt;
use foretoken_spec::{problem, shown};
use std::ffi::OsString;
use std::process::ExitCode;

pub use commands::decide::decisions as decide;
pub use commands::policies::as_json as policies;

/// The program: reads the arguments, runs the command, prints its error. Returns an exit code of docs/experiments.md.
pub fn main() -> ExitCode {
    memory::with_one_arena();
    ExitCode::from(main_with(std::env::args_os()))
}

/// [`main`] with these arguments; the first is the program's name. Returns the exit code as a number.
pub fn main_with(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    match prepared(arguments).and_then(run) {
        Ok(()) => 0,
        Err(wrong) => {
            let exit = wrong.exit as u8;
            problem::tell(*wrong);
            exit
        }
    }
}

/// Parses the arguments, sets the memory limit and listens for Ctrl-C.
fn prepared(arguments: impl IntoIterator<Item = OsString>) -> problem::Result<cli::Command> {
    let cli = cli::Cli::try_parse_from(arguments).unwrap_or_else(|e| refuse(&e));
    let wrong =
        |what| problem::Problem::bad_input(what).help("leave it out for three quarters of the machine's memory");
    foretoken_traces::limits::given().map_err(wrong)?;
    interrupt::listen()?;
    if let Some(note) = memory::short() {
        eprintln!("note: {note}");
    }
    Ok(cli.command)
}

/// Ends the program with clap's message, which quotes the arguments.
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
        cli::Command::Run(args) => commands::run::run(&args),
        #[cfg(feature = "live")]
        cli::Command::Live(args) => commands::live::run(&args),
        cli::Command::Validate(args) if !args.observed.is_empty() => commands::validate_observed::run(&args),
        #[cfg(feature = "live")]
        cli::Command::Validate(args) => commands::validate::run(&args),
        #[cfg(feature = "observe")]
        cli::Command::Observe(args) => commands::observe::run(&args),
        #[cfg(not(feature = "observe"))]
        cli::Command::Observe(_) => Err(problem::Problem::bad_input("this program was built without a network")
            .help("build it with one: cargo run --release --features observe -- observe …")),
        cli::Command::Merge(args) => commands::merge::run(&args),
        cli::Command::Capacity(args) => commands::capacity::run(&args),
        cli::Command::Calibrate(args) => commands::calibrate::run(&args),
        cli::Command::Recommend(args) => commands::recommend::run(&args),
        cli::Command::Bench(args) => commands::bench::run(&args),
        cli::Command::Traces(cli::TracesCommand::Inspect(args)) => commands::traces::inspect(&args),
        cli::Command::Traces(cli::TracesCommand::Text(args)) => commands::traces::text(&args),
        cli::Command::Policies(cli::PoliciesCommand::List { format }) => commands::policies::list(format),
        cli::Command::Policies(cli::PoliciesCommand::Show { name, format }) => commands::policies::show(&name, format),
        cli::Command::Policies(cli::PoliciesCommand::Defaults { name }) => commands::policies::defaults(&name),
        cli::Command::Policies(cli::PoliciesCommand::New { name, family, source }) => {
            commands::policies::new(&name, &family, &source)
        }
        cli::Command::Decide(args) => commands::decide::run(&args),
        cli::Command::Export(cli::ExportCommand::Sglang(args)) => commands::export::sglang(&args),
        cli::Command::Export(cli::ExportCommand::Vllm(args)) => commands::export::vllm(&args),
        cli::Command::Export(cli::ExportCommand::Perfetto(args)) => commands::perfetto::perfetto(&args),
        cli::Command::Explore(args) => commands::explore::run(&args),
        #[cfg(feature = "live")]
        cli::Command::Profile(args) => commands::profile::run(&args),
        #[cfg(feature = "live")]
        cli::Command::Doctor(args) => commands::doctor::run(&args),
        #[cfg(feature = "live")]
        cli::Command::ProfileAcceptance(args) => commands::profile_acceptance::run(&args),
        cli::Command::Settings { markdown: true, .. } => commands::settings::page(),
        cli::Command::Settings { key, .. } => commands::settings::run(key.as_deref()),
        cli::Command::Schema => commands::schema::run(),
        cli::Command::Completions(args) => commands::complete::run(&args),
        cli::Command::Man(args) => commands::man::run(&args),
        cli::Command::Report(args) => commands::report::run(&args),
        #[cfg(not(feature = "live"))]
        cli::Command::Live(_)
        | cli::Command::Validate(_)
        | cli::Command::Profile(_)
        | cli::Command::ProfileAcceptance(_)
        | cli::Command::Doctor(_) => Err(problem::Problem::bad_input("this program was built without devices")
            .help("build it with them: cargo run --release --features live -- …")),
    }
}
