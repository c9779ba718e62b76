//! `foretoken`: which speculation policy should this server run?
//!
//! The binary reads experiments, runs their cells and prints comparisons. It must not hold policy or scheduling
//! logic, nor draw: that is `policies`, `sim` and `report`. stdout carries results and is deterministic; stderr
//! carries progress and diagnostics.

/// Progress and diagnostics name files, keys and labels: what the terminal gets of them, for every line of the crate.
macro_rules! eprintln {
    ($($words:tt)*) => { std::eprintln!("{}", crate::shown::escape(&format!($($words)*))) };
}

mod believed;
mod bound;
mod cli;
mod commands;
mod compare;
mod document;
mod experiment;
mod explorer;
mod gpu;
mod inert;
mod interrupt;
mod live;
mod look;
mod machine;
mod models;
mod papers;
mod perfetto;
mod plan;
mod problem;
mod profile_figures;
mod profiled;
mod recorded;
mod rejection;
mod report;
mod room;
mod run;
mod schema;
mod setting;
mod shown;
mod state;
mod table;
mod text;
mod tokens;
mod validate;
mod vllm_table;

use clap::Parser;
use std::io::IsTerminal;
use std::process::ExitCode;

fn main() -> ExitCode {
    match prepared().and_then(run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            let exit = problem.exit as u8;
            tell(*problem);
            ExitCode::from(exit)
        }
    }
}

/// What every command needs: its arguments, a limit of memory, somebody who listens for Ctrl-C.
fn prepared() -> problem::Result<cli::Command> {
    let cli = cli::Cli::try_parse().unwrap_or_else(|e| refuse(&e));
    let wrong =
        |what| problem::Problem::bad_input(what).help("leave it out for three quarters of the machine's memory");
    foretoken_traces::limits::given().map_err(wrong)?;
    interrupt::listen()?;
    Ok(cli.command)
}

/// Ends the program with clap's words, which repeat the arguments as they are.
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
        cli::Command::Live(args) => commands::live::run(&args),
        cli::Command::Validate(args) => commands::validate::run(&args),
        cli::Command::Bench(args) => commands::bench::run(&args),
        cli::Command::Traces(cli::TracesCommand::Inspect(args)) => commands::traces::inspect(&args),
        cli::Command::Traces(cli::TracesCommand::Text(args)) => commands::traces::text(&args),
        cli::Command::Policies(cli::PoliciesCommand::List { format }) => commands::policies::list(format),
        cli::Command::Policies(cli::PoliciesCommand::Show { name, format }) => commands::policies::show(&name, format),
        cli::Command::Policies(cli::PoliciesCommand::Defaults { name }) => commands::policies::defaults(&name),
        cli::Command::Decide(args) => commands::decide::run(&args),
        cli::Command::Export(cli::ExportCommand::Sglang(args)) => commands::export::sglang(&args),
        cli::Command::Export(cli::ExportCommand::Vllm(args)) => commands::export::vllm(&args),
        cli::Command::Export(cli::ExportCommand::Perfetto(args)) => commands::perfetto::perfetto(&args),
        cli::Command::Explore(args) => commands::explore::run(&args),
        cli::Command::Profile(args) => commands::profile::run(&args),
        cli::Command::Doctor(args) => commands::doctor::run(&args),
        cli::Command::ProfileAcceptance(args) => commands::profile_acceptance::run(&args),
        cli::Command::Settings { key } => commands::settings::run(key.as_deref()),
        cli::Command::Schema => commands::schema::run(),
        cli::Command::Completions(args) => commands::complete::run(&args),
        cli::Command::Man(args) => commands::man::run(&args),
        cli::Command::Report(args) => commands::report::run(&args),
    }
}

fn tell(problem: problem::Problem) {
    // https://no-color.org: set to anything but nothing.
    let colour = std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
    let fancy = std::io::stderr().is_terminal();
    let options =
        miette::MietteHandlerOpts::new().unicode(fancy).color(fancy && colour).width(if fancy { 100 } else { 160 });
    // Fails when a problem was told before: then the hook is this one.
    let _ = miette::set_hook(Box::new(move |_| Box::new(options.clone().build())));
    // Made for the terminal when it was made; the colours are ours.
    std::eprintln!("{:?}", miette::Report::new(problem));
}
