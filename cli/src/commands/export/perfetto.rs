//! `foretoken export perfetto`: writes a timeline of one cell of a results folder.

use crate::commands::print;
use clap::Args;
use flate2::Compression;
use flate2::write::GzEncoder;
use foretoken_report::Staged;
use foretoken_run::perfetto::{Cell, Timeline, Wanted, Window, write};
use foretoken_run::spec::problem::{Problem, Result};
use foretoken_sim::Time;
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
    /// Value of a swept setting, to choose the run with this value [default: the first value]
    #[arg(long, value_name = "PATH=VALUE")]
    pub sweep: Vec<String>,
    /// Start of the time that is drawn, seconds since the start of the run
    #[arg(long, value_name = "S")]
    pub from: Option<f64>,
    /// End of the time that is drawn, seconds [default: after 20,000 steps]
    #[arg(long, value_name = "S")]
    pub to: Option<f64>,
    /// The file; compressed if its name ends in .gz [default: stdout]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Writes the timeline of one cell to a file or to stdout. If several cells fit the options, a note says which one was
/// taken. If the timeline was cut, a note says where.
pub fn perfetto(args: &ExportPerfettoArgs) -> Result<()> {
    let folder = args.dir.as_path();
    let window = window(args)?;
    let wanted = Wanted { policy: args.policy.as_deref(), seed: args.seed, sweep: &args.sweep };
    let cell = Cell::read(folder, &wanted)?;
    let Cell { key, steps, .. } = &cell;
    let Some(timeline) = Timeline::of(&cell.recorded(), cell.fleet(), window) else {
        let (first, last) =
            (steps.first().map_or(0.0, |s| s.start.as_s()), steps.last().map_or(0.0, |s| s.start.as_s()));
        let problem = Problem::bad_input(format!("no step of {key} starts in this window"));
        return Err(problem.help(format!("it has {} steps, which start from {first:.3} s to {last:.3} s", steps.len())));
    };
    if cell.fitting > 1 {
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

/// The part of the run's time that `--from` and `--to` select.
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

/// Writes the timeline to a file. The file is compressed if its name ends in `.gz`.
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
