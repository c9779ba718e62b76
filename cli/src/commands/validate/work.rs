//! `foretoken validate`: runs an experiment on a device and in the simulator, and compares the two.

use super::ValidateArgs;
use crate::cli::format::Format;
use crate::commands::print;
use foretoken_live::validate::{Comparing, Outcome, Request, compare_folder, run_and_compare};
use foretoken_run::spec::problem::{Exit, Problem, Result};
use foretoken_servers::compare::bounds::{Tally, Verdict};
use foretoken_servers::compare::live_runs::{Validation, render};
use std::path::Path;
use std::time::SystemTime;

/// Compares live runs with simulations. Takes the runs from a results folder, or runs the experiment on a device first.
pub fn run(args: &ValidateArgs) -> Result<()> {
    let path = args.path.as_deref().expect("clap asks for it where nothing was observed");
    match path.is_dir() {
        true => compare_only(args, path),
        false => live_and_compare(args, path),
    }
}

/// Compares the runs of an existing results folder with their simulations.
fn compare_only(args: &ValidateArgs, path: &Path) -> Result<()> {
    if !args.sets.is_empty() || args.device.is_some() {
        let message = format!("{} was run already: --set and --device change nothing of it", path.display());
        return Err(Problem::bad_input(message).help("leave them out, or give the experiment's file to run it anew"));
    }
    let validation = compare_folder(Comparing {
        folder: path,
        profile: args.profile.clone(),
        output: args.output.clone(),
        intact: args.intact,
    })?;
    show(args, &validation)?;
    verdict(&validation)?;
    next(args, path);
    Ok(())
}

/// Runs an experiment on a device, and compares the runs with their simulations.
fn live_and_compare(args: &ValidateArgs, path: &Path) -> Result<()> {
    if args.intact {
        let problem = Problem::bad_input("--intact is for existing recordings, but an experiment is run anew");
        return Err(problem.help("leave it out, or give the folder of the recordings"));
    }
    let Outcome { validation, folder, wall_s } = run_and_compare(Request {
        experiment: path,
        sets: &args.sets,
        device: args.device.as_deref(),
        instructions: args.instructions,
        profile: args.profile.as_deref(),
        output: args.output.clone(),
        overwrite: args.overwrite,
        work: crate::work(),
        now: || humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
    })?;
    show(args, &validation)?;
    eprintln!("results: {} ({wall_s:.0} s)", folder.display());
    verdict(&validation)?;
    next(args, &folder);
    Ok(())
}

/// What follows a validation that holds.
fn next(args: &ValidateArgs, folder: &Path) {
    match &args.profile {
        Some(profile) => eprintln!("next: foretoken explore --profile {}", profile.display()),
        None => eprintln!("next: foretoken open {}", folder.display()),
    }
}

fn show(args: &ValidateArgs, validation: &Validation) -> Result<()> {
    match args.format {
        Format::Table => print(&render(validation)),
        Format::Json => print(&validation.to_json()),
    }
}

/// An error with exit code 3 in two cases: the machine was not steady enough to decide any comparison, or an error of
/// the simulator breaks a bound. Else `Ok`.
fn verdict(validation: &Validation) -> Result<()> {
    if !validation.decided() {
        let message = format!(
            "nothing is decided: in none of the {} pieces the machine was steady, by the rule that was stated before",
            validation.counted.1
        );
        return Err(Problem::new(Exit::Negative, message).help(
            "leave the machine alone and run it again, in more pieces (validate.pieces) if it is shared; \
             validate.tolerance.steady says how much of a change counts as none, for those who know what they allow",
        ));
    }
    let Some(first) = validation.checks.iter().find(|c| c.verdict == Verdict::Broken) else { return Ok(()) };
    let limited = validation.caveats.first().map_or(String::new(), |caveat| format!("{caveat}. "));
    let tally = Tally::of(&validation.checks);
    let (n, decided) = (tally.broken, tally.decided());
    let message = format!("{limited}{n} of {decided} bounds are broken; the first: {}", first.what);
    Err(Problem::new(Exit::Negative, message)
        .help("validation.txt says by how much, in which kind of pass, and how far live runs are from each other"))
}
