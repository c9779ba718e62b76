//! `foretoken`: which speculation policy should this server run?
//!
//! The binary reads experiments, runs their cells and prints comparisons. It must not hold policy or scheduling
//! logic, nor draw: that is `policies`, `sim` and `report`. stdout carries results and is deterministic; stderr
//! carries progress and diagnostics.

mod believed;
mod cli;
mod commands;
mod compare;
mod document;
mod experiment;
mod explorer;
mod gpu;
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
mod run;
mod schema;
mod setting;
mod state;
mod table;
mod tokens;
mod validate;

use clap::Parser;
use std::io::IsTerminal;
use std::process::ExitCode;

fn main() -> ExitCode {
    let result = match cli::Cli::parse().command {
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
        cli::Command::Schema => commands::schema::run(),
        cli::Command::Completions(args) => commands::complete::run(&args),
        cli::Command::Man(args) => commands::man::run(&args),
        cli::Command::Report(args) => commands::report::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            let exit = problem.exit as u8;
            tell(*problem);
            ExitCode::from(exit)
        }
    }
}

fn tell(problem: problem::Problem) {
    // https://no-color.org: set to anything but nothing.
    let colour = std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
    let fancy = std::io::stderr().is_terminal();
    let options =
        miette::MietteHandlerOpts::new().unicode(fancy).color(fancy && colour).width(if fancy { 100 } else { 160 });
    // Fails only when a hook is set already, and this is the one place that sets it.
    let _ = miette::set_hook(Box::new(move |_| Box::new(options.clone().build())));
    eprintln!("{:?}", miette::Report::new(problem));
}
