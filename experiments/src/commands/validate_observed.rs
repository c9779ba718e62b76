//! `foretoken validate --observed`: compares observed runs with what a calibration predicts of them.

use super::print;
use crate::cli::{Format, ValidateArgs};
use foretoken_calibrate::against::compare;
use foretoken_calibrate::kept::Kept;
use foretoken_calibrate::one_server::check_whole;
use foretoken_calibrate::source::{Source, open_all};
use foretoken_spec::problem::{Exit, Problem, Result};
use std::path::Path;

/// Runs the command.
pub fn run(args: &ValidateArgs) -> Result<()> {
    let folder = args.calibrated.as_deref().expect("clap asks for it where something was observed");
    let kept = Kept::read(folder)?;
    let runs = open_all(&args.observed)?;
    kept.server.as_ref().map_or(Ok(()), |server| server.check(&runs))?;
    check_whole(&runs)?;
    let fitted = fitted(&kept);
    if fitted.is_empty() {
        eprintln!(
            "warning: the runs that the calibration was made from are not where they were: nothing can be interpolated between them"
        );
    }
    let against = compare(&kept, &runs, &fitted)?;
    args.output.as_deref().map(|folder| against.write(folder)).transpose()?;
    match args.format {
        Format::Table => print(&against.in_words())?,
        Format::Json => print(&against.to_json())?,
    }
    against.warnings.iter().for_each(|w| eprintln!("warning: {w}"));
    let negative = |message: &str| Problem::new(Exit::Negative, message.to_owned());
    match against.holds() {
        Some(true) => Ok(()),
        Some(false) => Err(negative("not every decided run that was held out is predicted within its bounds")
            .help("bounds: 5 % of throughput, TPOT and E2E, 10 % of TTFT, where repeats lie within 5 % of each other")),
        None => Err(negative("nothing is decided: no run that was held out has repeats within 5 % of each other")
            .help("observe the same loads again, on a machine on which nothing else runs, and name all repeats")),
    }
}

/// The runs that the calibration was made from, if their recordings still exist.
fn fitted(kept: &Kept) -> Vec<Source> {
    let there = kept.inputs.iter().filter_map(|input| Source::open(Path::new(&input.path)).ok());
    there.filter(|source| kept.is_made_from(&source.digest)).collect()
}
