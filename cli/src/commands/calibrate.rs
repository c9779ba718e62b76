//! `foretoken calibrate`: fits to observed runs the times of passes (a profile) and which draft tokens are right (a
//! truth table). It also writes the observed requests as traces.

use super::print;
use crate::cli::format::Format;
use crate::shipped;
use crate::work;
use clap::Args;
use foretoken_run::cells::TAPES;
use foretoken_run::spec::problem::{Problem, Result};
use foretoken_servers::calibrate::calibration::Calibration;
use foretoken_servers::calibrate::foreign;
use foretoken_servers::calibrate::kept::{EXPERIMENT, FOUND, PAGE};
use foretoken_servers::calibrate::recommend::acting;
use foretoken_servers::calibrate::scheduling::Schedules;
use foretoken_servers::calibrate::source;
use foretoken_servers::calibrate::table::{Base, ResultFile, Results, TableCalibration};
use foretoken_servers::recordings::seat_log::is_seat_log;
use std::fmt::Write;
use std::path::{Path, PathBuf};

pub const EXAMPLES: &str = "Examples:
  foretoken calibrate results/k0 results/k3 -o calibrated
  foretoken calibrate results/k0 results/k3 sglang-request-metrics-2026112214.log -o calibrated
  foretoken calibrate seat.jsonl -o calibrated
  foretoken run calibrated/experiment.toml
  foretoken calibrate experiments/validation/gh200/grid.csv --experiment experiments/validation/gh200/server.toml -o gh200
  foretoken calibrate table.csv --fit-k 0,3 -o calibrated
  foretoken calibrate 0=plain.json 3=drafts.json --experiment server.toml -o calibrated
  foretoken calibrate results/live-cpu-1a2b3c4d -o calibrated
  foretoken validate results/live-cpu-5e6f7a8b --profile calibrated/profile.toml

Reads results folders of `observe`, recordings, logs of a policy in an engine's seat (FORETOKEN_LOG), vllm bench forward and vllm bench serve (--save-detailed), SGLang's request
metrics and bench_serving (--output-details). Observe plain decoding and one draft length at least, in closed loops of several
sizes: from one length alone drafting and verification cannot be told apart, and the calibration predicts that length alone.
Reads a table of measured cells, too, by itself: a CSV file with the columns clients (or rate), k, input, output, and of tok_s, ttft_ms, tpot_ms,
accepted, requests what was measured. One law of costs and host time is fitted to all its rows. --experiment says what is known of the server: its
[engine], the GPU and model whose context costs what [hardware] says, what a draft pass costs, and how lengths spread.
Reads results of load generators in the same way, each file with its draft length (K=FILE, several for a K): the JSON that
vllm bench serve (--save-result), SGLang's bench_serving, GuideLLM, AIPerf and GenAI-Perf write. Each run in a file is a row.
Folders of `live` and `validate` are read as well, by themselves: every pass of a live run was timed, and the profile is fitted to them.
Exit code 3: written, but not trusted: held-out steps or runs are off by more than 10 % in sum.";

#[derive(Debug, Args)]
pub struct CalibrateArgs {
    /// What to fit to: folders that `observe` wrote, their recordings, and files that vLLM or SGLang wrote (benchmark
    /// results, step metrics); or folders of live runs; or one CSV table; or results of load generators, each with its
    /// draft length
    #[arg(required = true, value_name = "FOLDER|FILE|K=FILE")]
    pub from: Vec<PathBuf>,
    /// Folder to write the calibration to
    #[arg(short, long, value_name = "DIR")]
    pub output: PathBuf,
    /// Replace the calibration in the output folder
    #[arg(long)]
    pub overwrite: bool,
    /// For a CSV table or results of load generators: the experiment that describes the measured server, as far as it
    /// is known
    #[arg(long, value_name = "FILE")]
    pub experiment: Option<PathBuf>,
    /// For a CSV table or results of load generators: draft lengths to fit to; other draft lengths test the fit
    /// [default: all]
    #[arg(long, value_name = "K,...", value_delimiter = ',')]
    pub fit_k: Option<Vec<u32>>,
    /// How to print the fitted costs and acceptance
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
}

/// Calibrates (fits costs and acceptance) and prints what was found. The input is a CSV table, results of load
/// generators, live runs, or observed runs.
pub fn run(args: &CalibrateArgs) -> Result<()> {
    let results = args.from.iter().map(|path| ResultFile::of(path)).collect::<Result<Vec<_>>>()?;
    if results.iter().any(Option::is_some) {
        return of_results(args, &results);
    }
    if args.from.iter().any(|path| is_table(path)) {
        return table(args);
    }
    if args.experiment.is_some() || args.fit_k.is_some() {
        return Err(Problem::bad_input("--experiment and --fit-k are for tables (CSV) and for results (K=FILE)")
            .help("leave them out, or give each file of results with its draft length: 3=drafts.json"));
    }
    let live = args.from.iter().filter(|path| path.join(TAPES).is_dir()).count();
    if live > 0 && live < args.from.len() {
        return Err(Problem::bad_input("live runs and observed ones are not calibrated together").help(
            "a live run tells the time of each pass, an observed one of steps as a whole: make two calibrations",
        ));
    }
    if live > 0 {
        #[cfg(feature = "live")]
        return super::calibrate_live::run(&args.from, &args.output, args.overwrite, args.format);
        #[cfg(not(feature = "live"))]
        return Err(Problem::bad_input("this program was built without live mode, and cannot read live runs")
            .help("build it with it: cargo run --release --features live -- calibrate …"));
    }
    let (ours, others): (Vec<PathBuf>, Vec<PathBuf>) = args.from.iter().cloned().partition(|path| is_ours(path));
    let sources = source::open_all(&ours)?;
    let foreign = others.iter().enumerate().map(|(i, path)| foreign::read(path, sources.len() + i));
    let foreign = foreign.collect::<Result<Vec<_>>>()?;
    let calibration = Calibration::of(sources, foreign)?;
    calibration.write(&args.output, args.overwrite)?;
    match args.format {
        Format::Table => print(&(in_words(&calibration) + &acted(&calibration, &args.output)?))?,
        Format::Json => print(&(read(&args.output.join(FOUND))? + "\n"))?,
    }
    calibration.warnings.iter().for_each(|w| eprintln!("warning: {w}"));
    eprintln!("calibration: {}", args.output.join(PAGE).display());
    if calibration.cost.is_some() {
        eprintln!("to simulate it: foretoken run {}", args.output.join(EXPERIMENT).display());
        eprintln!("next: foretoken recommend {}", args.output.display());
    }
    calibration.verdict.as_ref().map_or(Ok(()), |verdict| verdict.judge(&args.output))
}

/// True if the path is a CSV file. Such a file is read as a table of measured throughputs and latencies.
fn is_table(path: &Path) -> bool {
    path.extension().is_some_and(|e| e.eq_ignore_ascii_case("csv")) && !path.is_dir()
}

/// Calibrates (fits costs and acceptance) on a CSV table of measured throughputs and latencies.
fn table(args: &CalibrateArgs) -> Result<()> {
    let [path] = args.from.as_slice() else {
        return Err(Problem::bad_input("a table is calibrated by itself").help("give one CSV file with all rows"));
    };
    let unread = |e| Problem::bad_input(format!("cannot read {}: {e}", path.display()));
    let text = foretoken_run::spec::text::read(path).map_err(unread)?;
    let base = base(args)?;
    let _watch = work().interrupt.watch();
    let name = path.display().to_string();
    let found = TableCalibration::of(&name, &text, base, args.fit_k.as_deref(), work().interrupt.flag())?;
    finish(args, &found)
}

/// Calibrates (fits costs and acceptance) on results of load generators, each given with its draft length.
fn of_results(args: &CalibrateArgs, files: &[Option<ResultFile>]) -> Result<()> {
    if let Some(at) = files.iter().position(Option::is_none) {
        let path = args.from[at].display();
        return Err(Problem::bad_input(format!("{path} is given without its draft length")).help(format!(
            "give every file of results as K=FILE: 0={path} without speculation, 3={path} with 3 drafts"
        )));
    }
    let files: Vec<ResultFile> = files.iter().flatten().cloned().collect();
    let results = Results::read(&files)?;
    let base = base(args)?;
    let _watch = work().interrupt.watch();
    finish(args, &TableCalibration::of_results(results, base, args.fit_k.as_deref(), work().interrupt.flag())?)
}

/// The experiment that describes the measured server, for measurements that are a table or results of load generators.
/// Without `--experiment`, nothing is known about the server.
fn base(args: &CalibrateArgs) -> Result<Base> {
    Ok(match &args.experiment {
        None => Base::unknown(),
        Some(file) => Base {
            name: file.display().to_string(),
            text: shipped::read(file)?,
            folder: file.parent().unwrap_or(Path::new("")).to_owned(),
            given: true,
        },
    })
}

/// Writes what was fitted to a table or to results of load generators, and prints what was found.
fn finish(args: &CalibrateArgs, found: &TableCalibration) -> Result<()> {
    found.write(&args.output, args.overwrite)?;
    match args.format {
        Format::Table => print(&found.in_words())?,
        Format::Json => print(&(read(&args.output.join(FOUND))? + "\n"))?,
    }
    found.warnings.iter().for_each(|w| eprintln!("warning: {w}"));
    eprintln!("to simulate it: foretoken run {}", args.output.join(EXPERIMENT).display());
    eprintln!("next: foretoken recommend {}", args.output.display());
    found.verdict.judge(&args.output)
}

/// True if the path is a results folder or a recording (`.obs`) of Foretoken. False for a file of another program, such
/// as `vllm bench serve`. A path that does not exist counts as Foretoken's, because then the error of Foretoken's
/// reader names the path.
fn is_ours(path: &Path) -> bool {
    path.is_dir() || !path.exists() || path.extension().is_some_and(|e| e == "obs") || is_seat_log(path)
}

fn read(path: &Path) -> Result<String> {
    fs_err::read_to_string(path).map_err(|e| Problem::failed(e.to_string()))
}

/// What acting by the policy in the seat would bring, by simulations; empty if no run was logged by a seat.
fn acted(calibration: &Calibration, folder: &Path) -> Result<String> {
    if calibration.seat().is_none() {
        return Ok(String::new());
    }
    let _watch = work().interrupt.watch();
    Ok(acting(folder, work().interrupt.flag())?.in_words())
}

fn in_words(c: &Calibration) -> String {
    let mut text = String::new();
    let mut line = |words: String| writeln!(text, "{words}").expect("a string grows");
    let lengths: Vec<String> = c.lengths().iter().map(u32::to_string).collect();
    line(format!(
        "calibrated on {} observed runs and {} other files, draft lengths {}",
        c.sources.len(),
        c.foreign.len(),
        lengths.join(", ")
    ));
    if let Some(fit) = &c.cost {
        let ms = |s: f64| format!("{:.2} ms", 1e3 * s);
        let points: Vec<String> = fit.batched.iter().map(|(b, s)| format!("{b}: {}", ms(*s))).collect();
        line(format!("target pass by tokens   {}", points.join(", ")));
        let terms: Vec<String> = fit.terms.iter().map(|(term, seconds)| term.in_words(*seconds)).collect();
        if !terms.is_empty() {
            line(format!("  and beside this curve {}", terms.join(", ")));
        }
        line(match (c.separated, c.lengths().iter().all(|&k| k == 0)) {
            (true, _) => {
                format!("draft pass              {} + {:.1} us a token", ms(fit.draft.delta_s), 1e6 * fit.draft.gamma_s)
            }
            (false, true) => "draft pass              not known: nothing was drafted".to_owned(),
            (false, false) => {
                "draft pass              cannot be told apart: the target pass above has the time of the whole step"
                    .to_owned()
            }
        });
        let by_request = match fit.host_request_s {
            0.0 => String::new(),
            s => format!(" + {:.1} us a request", 1e6 * s),
        };
        line(format!("host between steps      {}{by_request}", ms(fit.host_s)));
        line(format!("client to scheduler     {}", ms(c.engine.frontend_s)));
        line(format!("error on later steps    {}", c.held_out.by_time.in_words()));
        for (run, e) in &c.held_out.by_run {
            let name = c.name_of(*run);
            line(format!("error on {name:<15}{}", e.in_words()));
        }
    }
    Schedules::summary(&c.schedules).into_iter().for_each(&mut line);
    c.verdict.iter().for_each(|v| line(v.in_words()));
    c.seat().iter().for_each(|seat| line(format!("in the seat             {}", seat.in_words())));
    if let Some(a) = &c.acceptance {
        let rates: Vec<String> =
            a.positions.iter().take_while(|p| !p.extrapolated).map(|p| format!("{:.3}", p.rate)).collect();
        let beyond: Vec<String> =
            a.positions.iter().filter(|p| p.extrapolated).take(3).map(|p| format!("{:.3}", p.rate)).collect();
        line(format!("accepted, if reached    {} (extrapolated: {})", rates.join(", "), beyond.join(", ")));
    }
    text
}
