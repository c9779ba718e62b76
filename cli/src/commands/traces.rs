//! `foretoken traces`: prints statistics of a trace, and writes documents with which models are prompted.

use super::print;
use crate::cli::format::Format;
use clap::{Args, Subcommand, ValueEnum};
use foretoken_report::{Staged, plain_table, table_lines};
use foretoken_run::spec::problem::{Problem, Result, nearest};
use foretoken_traces::text::{Document, Family, document};
use foretoken_traces::{ArrivalStats, LengthStats, TraceFormat, TraceSpec, TraceStats};
use std::io::{ErrorKind, Write};
use std::path::PathBuf;

pub const EXAMPLES: &str = "Examples:
  foretoken traces inspect BurstGPT_1.csv";

const INSPECT_EXAMPLES: &str = "Examples:
  foretoken traces inspect BurstGPT_1.csv
  foretoken traces inspect conversation_trace.jsonl.zst --format json
  foretoken traces inspect qwen_trace.jsonl --set block_size=16 --set unit=s";

const TEXT_EXAMPLES: &str = "Examples:
  foretoken traces text
  foretoken traces text --family arithmetic --n 3 --format raw
  foretoken traces text --seed 1 --n 240000 -o corpus.jsonl";

#[derive(Debug, Args)]
pub struct TracesArgs {
    #[command(subcommand)]
    pub command: TracesCommand,
}

#[derive(Debug, Subcommand)]
pub enum TracesCommand {
    /// Print counts, rates, burstiness, lengths and prefix sharing of a trace
    #[command(after_help = INSPECT_EXAMPLES)]
    Inspect(InspectArgs),
    /// Write documents of the six kinds of text with which the shipped models are trained and tested
    #[command(after_help = TEXT_EXAMPLES)]
    Text(TextArgs),
}

#[derive(Debug, Args)]
pub struct InspectArgs {
    /// The trace: plain, gzip or zstd
    pub file: PathBuf,
    /// Format of the trace, if the header does not show it
    #[arg(long, value_name = "FORMAT")]
    pub format_of: Option<String>,
    /// A key of the trace, as an experiment has it: block_size=16, unit=s, 'columns={ arrival = "time", ... }'
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub sets: Vec<String>,
    /// How to print the statistics
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
}

#[derive(Debug, Args)]
pub struct TextArgs {
    /// Only this kind of text: cipher, copy, facts, arithmetic, retrieval or dialogue [default: all in turn]
    #[arg(long, value_name = "FAMILY")]
    pub family: Option<String>,
    /// Seed of the documents
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Number of documents
    #[arg(long, value_name = "N", default_value_t = 12)]
    pub n: u64,
    /// Format of the documents
    #[arg(long, value_enum, default_value_t)]
    pub format: TextFormat,
    /// The file to write [default: stdout]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// How documents are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum TextFormat {
    /// One JSON object per line: family, prompt, answer
    #[default]
    Jsonl,
    /// Plain text as a model reads it: prompt, answer, newline
    Raw,
}

/// Prints the statistics of a trace (`inspect`), or writes documents (`text`).
pub fn run(args: &TracesArgs) -> Result<()> {
    match &args.command {
        TracesCommand::Inspect(args) => inspect(args),
        TracesCommand::Text(args) => text(args),
    }
}

fn inspect(args: &InspectArgs) -> Result<()> {
    let format = args.format_of.as_deref().map(format_named).transpose()?;
    let mut spec = trace_keys(&args.sets)?;
    spec.path.clone_from(&args.file);
    spec.format = format.or(spec.format);
    let stats = foretoken_traces::inspect(&spec).map_err(|e| {
        let problem = Problem::bad_input(e.to_string());
        if e.hint().is_empty() { problem } else { problem.help(e.hint()) }
    })?;
    match args.format {
        Format::Json => print(&(serde_json::to_string_pretty(&stats).expect("plain data always serialises") + "\n")),
        Format::Table => print(&report(&stats)),
    }
}

/// A trace's description with the given keys. A value is TOML; a single word is a text.
fn trace_keys(sets: &[String]) -> Result<TraceSpec> {
    let mut text = "path = \"\"\n".to_owned();
    for set in sets {
        let Some((key, value)) = set.split_once('=') else {
            return Err(Problem::bad_input(format!("--set {set} has no value")).help("write KEY=VALUE"));
        };
        let word = !value.is_empty() && value.chars().all(|c| c.is_ascii_alphabetic() || c == '-');
        text += &if word { format!("{key} = \"{value}\"\n") } else { format!("{key} = {value}\n") };
    }
    toml::from_str(&text).map_err(|e| {
        Problem::bad_input(format!("--set {}: {}", sets.join(" --set "), e.message()))
            .help("docs/traces.md has the keys of a trace")
    })
}

/// Writes `n` documents. They are of one family (kind of text), or of all families in turn.
fn text(args: &TextArgs) -> Result<()> {
    let families = match args.family.as_deref().map(str::parse::<Family>).transpose() {
        Ok(one) => one.map_or(Family::ALL.to_vec(), |family| vec![family]),
        Err(e) => {
            let problem = Problem::bad_input(format!("no text family is called `{}`", e.name));
            let all = Family::ALL.map(Family::name).join(", ");
            return Err(problem.help(format!("did you mean `{}`? All families: {all}", e.nearest)));
        }
    };
    let turns = families.len() as u64;
    let documents = (0..args.n).map(|i| document(families[(i % turns) as usize], args.seed, i / turns));
    match &args.output {
        Some(file) => {
            if file.file_name().is_none() {
                return Err(Problem::bad_input(format!("{} is not the name of a file", file.display())));
            }
            let failed = |e: foretoken_report::ReportError| Problem::failed(e.to_string());
            let mut staged = Staged::create(file).map_err(failed)?;
            write(&mut staged, documents, args.format)
                .map_err(|e| Problem::failed(format!("cannot write {}: {e}", file.display())))?;
            staged.commit().map_err(failed)
        }
        // The documents are written to stdout one by one, because a reader such as `head` may want only a few of many.
        None => match write(&mut std::io::stdout().lock(), documents, args.format) {
            Err(e) if e.kind() != ErrorKind::BrokenPipe => Err(Problem::failed(format!("cannot write to stdout: {e}"))),
            _ => Ok(()),
        },
    }
}

fn write(out: &mut impl Write, all: impl Iterator<Item = Document>, format: TextFormat) -> std::io::Result<()> {
    for one in all {
        match format {
            TextFormat::Raw => out.write_all(one.text().as_bytes())?,
            TextFormat::Jsonl => {
                let line = serde_json::to_string(&one).expect("plain data always serialises");
                out.write_all((line + "\n").as_bytes())?;
            }
        }
    }
    out.flush()
}

fn format_named(name: &str) -> Result<TraceFormat> {
    TraceFormat::from_name(name).ok_or_else(|| {
        let all = TraceFormat::names().collect::<Vec<_>>().join(", ");
        let problem = Problem::bad_input(format!("no trace format is called `{name}`"));
        match nearest(name, TraceFormat::names()) {
            Some(near) => problem.help(format!("did you mean `{near}`? All formats: {all}")),
            None => problem.help(format!("all formats: {all}")),
        }
    })
}

/// The statistics of a trace as text, with one block per topic. Topics that the trace has no data for are left out.
fn report(s: &TraceStats) -> String {
    let mut blocks = vec![facts(s)];
    blocks.extend(s.arrivals.as_ref().map(arrivals));
    let lengths = [("prompt", &s.prompt), ("output", &s.output)];
    let known: Vec<(&str, &LengthStats)> = lengths.into_iter().filter_map(|(n, l)| Some((n, l.as_ref()?))).collect();
    if !known.is_empty() {
        blocks.push(quantiles(&known));
    }
    blocks.join("\n")
}

fn facts(s: &TraceStats) -> String {
    let mut lines = vec![];
    lines.extend(s.format.map(|f| ("format", f.name().to_owned())));
    lines.extend(s.rows.map(|n| ("rows", n.to_string())));
    lines.push(("requests", s.requests.to_string()));
    if let Some(a) = &s.arrivals {
        lines.push(("duration", format!("{:.1} s", a.duration_s)));
        lines.extend(a.mean_rate.map(|r| ("mean rate", format!("{r:.3} requests/s"))));
        lines.extend(a.iat_cv.map(|cv| ("CV of gaps", format!("{cv:.3}"))));
    }
    lines.extend(s.prompt.as_ref().map(|l| ("prompt tokens", format!("{} (mean {:.1})", l.total, l.mean))));
    lines.extend(s.output.as_ref().map(|l| ("output tokens", format!("{} (mean {:.1})", l.total, l.mean))));
    lines.extend(s.prefix_shared.map(|p| ("prefix shared", format!("{:.1} % of prompt tokens", p * 100.0))));
    if s.categories.len() > 1 {
        let each: Vec<String> = s.categories.iter().map(|(name, n)| format!("{name} {n}")).collect();
        lines.push(("categories", each.join(", ")));
    }
    if let Some(r) = &s.recorded {
        let text = format!(
            "{} requests; known at {:.1} % of positions, right at {:.1} % of those",
            r.requests,
            r.known * 100.0,
            r.right * 100.0
        );
        lines.push(("recorded acceptance", text));
    }
    if s.with_slo > 0 {
        lines.push(("with own SLO", format!("{} requests", s.with_slo)));
    }
    lines.extend(s.notes.iter().map(|n| ("note", n.clone())));
    lines.iter().map(|(name, value)| format!("{name:<20} {value}\n")).collect()
}

fn arrivals(a: &ArrivalStats) -> String {
    let header = ["bin s", "bins", "min req/s", "mean req/s", "max req/s", "index of dispersion"];
    let rows = a.bins.iter().map(|b| {
        [
            format!("{}", b.width_s),
            b.bins.to_string(),
            format!("{:.3}", b.min_rate),
            format!("{:.3}", b.mean_rate),
            format!("{:.3}", b.max_rate),
            b.dispersion.map_or("-".into(), |d| format!("{d:.3}")),
        ]
    });
    table_lines(&plain_table(header, rows, ..))
}

fn quantiles(known: &[(&str, &LengthStats)]) -> String {
    let header = ["percent"].into_iter().chain(known.iter().map(|(name, _)| *name));
    let rows = known[0].1.quantiles.iter().enumerate().map(|(i, (percent, _))| {
        let values = known.iter().map(move |(_, l)| format!("{:.0}", l.quantiles[i].1));
        [format!("{percent}")].into_iter().chain(values)
    });
    table_lines(&plain_table(header, rows, ..))
}
