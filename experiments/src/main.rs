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
mod look;
mod papers;
mod plan;
mod problem;
mod rejection;
mod report;
mod run;
mod setting;
mod state;
mod table;

use clap::Parser;
use std::io::IsTerminal;
use std::process::ExitCode;

fn main() -> ExitCode {
    let result = match cli::Cli::parse().command {
        cli::Command::Run(args) => commands::run::run(&args),
        cli::Command::Bench(args) => commands::bench::run(&args),
        cli::Command::Traces(cli::TracesCommand::Inspect(args)) => commands::traces::inspect(&args),
        cli::Command::Policies(cli::PoliciesCommand::List) => commands::policies::list(),
        cli::Command::Policies(cli::PoliciesCommand::Show { name }) => commands::policies::show(&name),
        cli::Command::Policies(cli::PoliciesCommand::Defaults { name }) => commands::policies::defaults(&name),
        cli::Command::Decide(args) => commands::decide::run(&args),
        cli::Command::Export(cli::ExportCommand::Sglang(args)) => commands::export::sglang(&args),
        cli::Command::Export(cli::ExportCommand::Vllm(args)) => commands::export::vllm(&args),
        cli::Command::Report(args) => commands::report::run(&args),
        cli::Command::Doctor => commands::doctor::run(),
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
    let fancy = std::io::stderr().is_terminal();
    let options = miette::MietteHandlerOpts::new().unicode(fancy).color(fancy).width(if fancy { 100 } else { 160 });
    // Fails only when a hook is set already, and this is the one place that sets it.
    let _ = miette::set_hook(Box::new(move |_| Box::new(options.clone().build())));
    eprintln!("{:?}", miette::Report::new(problem));
}
