//! `foretoken export perfetto`: a timeline of one cell of a results folder.

use super::print;
use clap::Args;
use flate2::Compression;
use flate2::write::GzEncoder;
use foretoken_report::{Key, ReportError, Staged, read_keys, read_kv_peaks, read_requests, read_steps};
use foretoken_run::cells::Manifest;
use foretoken_run::perfetto::{Recorded, Timeline, Wanted, Window, choose, write};
use foretoken_run::plan::{Plan, Variant};
use foretoken_sim::engine::{Order, Rules, SpeculativeConfig};
use foretoken_sim::{DeliverAt, Drafting, Time};
use foretoken_spec::problem::{Problem, Result};
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};

pub const EXAMPLES: &str = "The run must have kept its steps: --set output.steps=true

Examples:
  foretoken export perfetto results/small -o timeline.json
  foretoken export perfetto results/small --policy adaspec --seed 2 -o timeline.json.gz
  foretoken export perfetto results/small --from 10 --to 20 -o timeline.json";

#[derive(Debug, Args)]
pub struct ExportPerfettoArgs {
    /// The results folder
    pub dir: PathBuf,
    /// Label of the policy [default: the first]
    #[arg(long, value_name = "LABEL")]
    pub policy: Option<String>,
    /// The seed [default: the first]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// A value of a swept setting [default: the first]
    #[arg(long, value_name = "PATH=VALUE")]
    pub sweep: Vec<String>,
    /// Start of the window, seconds on the run's clock
    #[arg(long, value_name = "S")]
    pub from: Option<f64>,
    /// End of the window, seconds [default: after 20,000 steps]
    #[arg(long, value_name = "S")]
    pub to: Option<f64>,
    /// The file; compressed when its name ends in .gz [default: stdout]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

const STEPS: &str = "steps.parquet";

/// Writes the timeline and prints notes about steps outside the window.
pub fn perfetto(args: &ExportPerfettoArgs) -> Result<()> {
    let folder = args.dir.as_path();
    let window = window(args)?;
    let manifest = complete(folder)?;
    if !manifest.has(STEPS) {
        let problem = Problem::bad_input(format!("{} has no steps.parquet: its steps were not kept", folder.display()));
        return Err(problem.help("run the experiment again with --set output.steps=true"));
    }
    manifest.check(folder, [STEPS, "requests.parquet", "summary.parquet"])?;
    let keys = read_keys(folder).map_err(unreadable)?;
    let wanted = Wanted { policy: args.policy.as_deref(), seed: args.seed, sweep: &args.sweep };
    let (at, fitting) = choose(&keys, &wanted)?;
    let key = &keys[at];
    let steps = read_steps(folder, key).map_err(unreadable)?;
    let requests = read_requests(folder, key).map_err(unreadable)?;
    let most_used = steps.iter().map(|s| s.used_blocks).max().unwrap_or(0);
    let peak = read_kv_peaks(folder).map_err(unreadable)?[at];
    // The summary's peak is the share of used blocks.
    let blocks = (most_used > 0 && peak > 0.0).then(|| (f64::from(most_used) / peak).round() as u32);
    let behind = behind(folder, key)?;
    let recorded = Recorded { key, source: &manifest.source, steps: &steps, requests: &requests, blocks, behind };
    let Some(timeline) = Timeline::of(&recorded, window) else {
        let (first, last) =
            (steps.first().map_or(0.0, |s| s.start.as_s()), steps.last().map_or(0.0, |s| s.start.as_s()));
        let problem = Problem::bad_input(format!("no step of {key} starts in this window"));
        return Err(problem.help(format!("it has {} steps, which start from {first:.3} s to {last:.3} s", steps.len())));
    };
    if fitting > 1 {
        eprintln!("timeline of {key} (others: --policy, --seed, --sweep)");
    }
    if let Some(cut) = &timeline.cut {
        eprintln!("cut: {cut} (others: --from, --to)");
    }
    match &args.output {
        Some(path) => write_file(path, &timeline),
        None if std::io::stdout().is_terminal() => {
            Err(Problem::bad_input("a timeline is for a file, not for a terminal").help("add -o timeline.json"))
        }
        None => {
            let mut text = Vec::new();
            write(&mut text, &timeline.events, &timeline.about)
                .map_err(|e| Problem::failed(format!("cannot write the timeline: {e}")))?;
            print(&String::from_utf8_lossy(&text))
        }
    }
}

/// When tokens are delivered, if the run made drafts after steps; else `None`.
fn behind(folder: &Path, key: &Key) -> Result<Option<DeliverAt>> {
    let plan = Plan::of_results(folder)?;
    let same = |v: &&Variant| v.choices.iter().map(|c| &c.value).eq(key.sweep.iter().map(|s| &s.value));
    let Some(variant) = plan.variants.iter().find(same) else { return Ok(None) };
    let engine = variant.engine(true)?;
    let drafting = SpeculativeConfig {
        drafter: true,
        num_speculative_tokens: engine.max_draft_len,
        parallel_drafting: variant.experiment.hardware.drafting == Drafting::Parallel,
        ..SpeculativeConfig::default()
    };
    let rules = Rules::of(&engine, &drafting).ok();
    Ok(rules.filter(|rules| rules.order != Order::StepStart).map(|rules| rules.deliver_at))
}

/// The window that `--from` and `--to` select.
fn window(args: &ExportPerfettoArgs) -> Result<Window> {
    for (name, given) in [("--from", args.from), ("--to", args.to)] {
        if given.is_some_and(|s| !(s >= 0.0 && s.is_finite())) {
            let problem = Problem::bad_input(format!("{name}: {} is not an instant", given.unwrap_or_default()));
            return Err(problem.help("expected seconds on the run's clock, 0 or more"));
        }
    }
    let from = args.from.unwrap_or(0.0);
    if let Some(to) = args.to
        && to <= from
    {
        return Err(
            Problem::bad_input(format!("--to {to} is not after --from {from}")).help("seconds on the run's clock")
        );
    }
    Ok(Window { from: Time::from_s(from), to: args.to.map(Time::from_s) })
}

/// The manifest of a folder with complete results.
fn complete(folder: &Path) -> Result<Manifest> {
    let manifest = Manifest::read(folder)?;
    match manifest.complete {
        true => Ok(manifest),
        false => Err(Problem::bad_input(format!("the run in {} is not complete", folder.display()))
            .help("complete it with foretoken run --resume")),
    }
}

fn unreadable(error: ReportError) -> Box<Problem> {
    Problem::bad_input(error.to_string()).help("the folder is damaged, or another version of Foretoken wrote it")
}

/// Writes the file, compressed when its name ends in `.gz`.
fn write_file(path: &Path, timeline: &Timeline) -> Result<()> {
    let failed = |e: &dyn std::fmt::Display| Problem::failed(format!("cannot write {}: {e}", path.display()));
    if path.file_name().is_none() {
        return Err(
            Problem::bad_input(format!("{} cannot name a file", path.display())).help("for example -o timeline.json")
        );
    }
    let mut file = Staged::create(path).map_err(|e| Problem::failed(e.to_string()))?;
    if path.extension().is_some_and(|e| e == "gz") {
        let mut packed = GzEncoder::new(&mut file, Compression::default());
        write(&mut packed, &timeline.events, &timeline.about).map_err(|e| failed(&e))?;
        packed.finish().map_err(|e| failed(&e))?;
    } else {
        write(&mut file, &timeline.events, &timeline.about).map_err(|e| failed(&e))?;
    }
    file.flush().map_err(|e| failed(&e))?;
    file.commit().map_err(|e| Problem::failed(e.to_string()))?;
    eprintln!("{}: open it at https://ui.perfetto.dev or chrome://tracing", path.display());
    Ok(())
}
