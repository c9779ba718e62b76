//! `foretoken live`: runs an experiment on a device and writes a results folder like that of `run`.

use super::LiveArgs;
use crate::cli::format::Format;
use crate::commands::print;
use crate::shipped;
use crate::work;
use foretoken_live::serve::{Ran, run_live};
use foretoken_run::cells::{Folder, LIVE_JSON, Mode};
use foretoken_run::keep_runs::{RunsMade, keep};
use foretoken_run::plan::Measured;
use foretoken_run::spec::live::{required, with_device};
use foretoken_run::spec::problem::Result;
use foretoken_run::table;

/// Runs the experiment on a device, writes the results folder and prints the comparison of the policies.
pub fn run(args: &LiveArgs) -> Result<()> {
    let mut plan = shipped::load(&args.file, &args.sets)?;
    let live = with_device(
        required(plan.variants[0].experiment.live.as_ref(), &plan.name)?,
        args.device.as_deref(),
        args.instructions,
    );
    plan.baseline_first();
    plan.measured = Some(Measured::Live);
    let path = args.output.clone().unwrap_or_else(|| plan.usual_folder("live-"));
    let mode = if args.overwrite { Mode::Overwrite } else { Mode::Fresh };
    let (folder, _) = Folder::open(path, &plan, mode)?;
    let watch = work().interrupt.watch();
    let ran = run_live(&plan, &live, &folder, work().interrupt.flag()).inspect_err(|_| folder.abandon())?;
    work().interrupt.keeps("what was finished is kept", "foretoken report DIR makes a page of it");
    drop(watch);
    let json = serde_json::to_string_pretty(&ran.report).expect("plain data always serialises");
    folder.write(LIVE_JSON, (json + "\n").as_bytes())?;
    let count = plan.cells();
    let made = RunsMade {
        cells: ran.cells,
        whole: ran.cells == count,
        partial: part(&ran, count),
        speed: &ran.speed,
        figures: !args.no_figures,
    };
    let kept = keep(&mut plan, &folder, made)?;
    if let Some(results) = kept.results {
        results.comparison.warnings.iter().for_each(|w| eprintln!("warning: {w}"));
        match args.format {
            Format::Table => print(&table::render(&results.comparison, args.show_implied, table::Width::Narrow))?,
            Format::Json => print(&(serde_json::to_string_pretty(&results.comparison).expect("plain data") + "\n"))?,
        }
    }
    if let Some(page) = kept.page {
        eprintln!("report: {}", page.display());
    }
    for cell in &ran.report.cells {
        cell.host.words().iter().for_each(|words| eprintln!("{}, seed {}: {words}", cell.policy, cell.seed));
    }
    eprintln!("results: {} (live on {})", folder.path().display(), ran.report.device);
    ran.ended.map_or(Ok(()), Err)
}

/// A note with the number of runs that ended, the number of planned runs, and the runs that broke off; `None` if all
/// runs ended.
fn part(ran: &Ran, cells: usize) -> Option<String> {
    let begun = &ran.report.cells;
    let ended: Vec<String> = begun
        .iter()
        .filter(|c| c.ended != "done")
        .map(|c| format!("; {}, seed {}, {}", c.policy, c.seed, c.ended))
        .collect();
    let done = begun.len() - ended.len();
    (done < cells).then(|| format!("PART OF A RUN: {done} of {cells} runs ended{}", ended.concat()))
}
