//! `foretoken validate --observed`: compares observed runs of a server with predictions from a calibration (the costs
//! and the acceptance that `calibrate` fitted).

use super::print;
use super::validate::ValidateArgs;
use crate::cli::format::Format;
use foretoken_run::spec::problem::{Exit, Problem, Result};
use foretoken_servers::calibrate::compare_server::{compare, write};
use foretoken_servers::calibrate::kept::Kept;
use foretoken_servers::calibrate::one_server::check_whole;
use foretoken_servers::calibrate::source::{Source, open_all};
use std::path::Path;

/// Compares the observed runs of `--observed` with predictions from the calibration in `--calibrated`, and prints the
/// errors.
pub fn run(args: &ValidateArgs) -> Result<()> {
    let folder = args.calibrated.as_deref().expect("clap asks for it where something was observed");
    let kept = Kept::read(folder)?;
    let runs = open_all(&args.observed)?;
    kept.server.as_ref().map_or(Ok(()), |server| server.check(&runs))?;
    check_whole(&runs)?;
    let fitted = fitted(&kept);
    if fitted.is_empty() {
        eprintln!(
            "warning: the recordings that the calibration was made from do not exist any more, so nothing is \
             interpolated between them"
        );
    }
    let comparison = compare(&kept, &runs, &fitted)?;
    args.output.as_deref().map(|folder| write(&comparison, folder)).transpose()?;
    match args.format {
        Format::Table => print(&comparison.in_words())?,
        Format::Json => print(&comparison.to_json())?,
    }
    comparison.warnings.iter().for_each(|w| eprintln!("warning: {w}"));
    let negative = |message: &str| Problem::new(Exit::Negative, message.to_owned());
    match comparison.holds() {
        Some(true) => {
            eprintln!("next: foretoken recommend {}", folder.display());
            Ok(())
        }
        Some(false) => Err(negative("not every decided number of the held-out runs is predicted within its bound")
            .help("bounds: 5 % of throughput, TPOT and E2E, 10 % of TTFT, where repeats lie within 5 % of each other")),
        None => {
            Err(negative("nothing is decided: no number of the held-out runs has repeats within 5 % of each other")
                .help("observe the same loads again, on a machine on which nothing else runs, and name all repeats"))
        }
    }
}

/// The recordings from which the calibration was made. Recordings that are missing or have changed since then are left
/// out.
fn fitted(kept: &Kept) -> Vec<Source> {
    let there = kept.inputs.iter().filter_map(|input| Source::open(Path::new(&input.path)).ok());
    there.filter(|source| kept.is_made_from(&source.digest)).collect()
}
