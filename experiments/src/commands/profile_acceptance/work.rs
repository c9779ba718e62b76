//! `foretoken profile-acceptance`: records which drafts are right on a target's own greedy text, as a truth table.

use super::ProfileAcceptanceArgs;
use super::{prompts::Prompts, show};
use crate::cli::device::DeviceName;
use crate::cli::format::Format;
use crate::commands::print;
use crate::work;
use foretoken_kernels::device::Device;
use foretoken_kernels::forward::Llama;
use foretoken_kernels::teacher::{judge, limits, write};
use foretoken_live::gpu;
use foretoken_live::models::Model;
use foretoken_live::processor;
use foretoken_live::profiling::describe;
use foretoken_live::tokens::{Tokens, end_of_text};
use foretoken_report::{Staged, acceptance_figures};
use foretoken_spec::problem::{Problem, Result};
use foretoken_traces::truth::{RecordedModel, RecordedOutput, TruthHeader, TruthTable};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Tokens of a pass over a prompt, or over a text that the draft judges.
const CHUNK: usize = 64;

/// Runs the command with its arguments.
pub fn run(args: &ProfileAcceptanceArgs) -> Result<()> {
    check(args)?;
    work().interrupt.keeps("nothing was written", "the same command begins anew");
    let interrupt = work().interrupt.flag();
    let (target, draft) = (Model::find("--target", &args.target, None)?, Model::find("--draft", &args.draft, None)?);
    let tokens = Tokens::of("--target", &target)?;
    check_pair(&target, &draft, &tokens)?;
    let positions = target.shape.max_positions.min(draft.shape.max_positions);
    let prompts = Prompts::of(args, &tokens, target.shape.vocab, positions)?;
    let stop = if args.ignore_eos { Vec::new() } else { end_of_text("--target", &target)? };
    let job = Job { args, target: &target, draft: &draft, prompts: &prompts, stop, interrupt };
    // The processor's arithmetic does not depend on its threads, so the file must not either.
    let (kind, outputs) = match args.device {
        DeviceName::Cpu => (
            "cpu".to_owned(),
            processor::open(args.threads.map(usize::from), args.instructions)?.session(|device| job.record(device))?,
        ),
        DeviceName::Cuda(index) => (format!("cuda:{index}"), gpu::open(index)?.session(|device| job.record(device))?),
    };
    let header = TruthHeader {
        foretoken: env!("CARGO_PKG_VERSION").to_owned(),
        target: recorded(&target),
        draft: recorded(&draft),
        device: kind,
        prompts_digest: digest(&prompts),
        prompts: prompts.source,
        temperature: 0.0,
        families: prompts.families,
        observed: None,
    };
    finish(args, &TruthTable { header, outputs })
}

fn check(args: &ProfileAcceptanceArgs) -> Result<()> {
    if args.temperature != 0.0 {
        let message = format!("--temperature {}: only greedy outputs can be recorded", args.temperature);
        let help = "a position is right or wrong where the target has one choice: leave it out, or give 0";
        return Err(Problem::bad_input(message).help(help));
    }
    let folder = args.output.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !folder.is_dir() {
        let message = format!("there is no folder {} for the table", folder.display());
        return Err(Problem::bad_input(message).help("make it, or choose another place with -o"));
    }
    if args.output.exists() && !args.overwrite {
        let message = format!("{} is already there", args.output.display());
        return Err(Problem::bad_input(message).help("replace it with --overwrite, or choose another name with -o"));
    }
    Ok(())
}

fn check_pair(target: &Model, draft: &Model, tokens: &Tokens) -> Result<()> {
    let (t, d) = (target.shape.vocab, draft.shape.vocab);
    let why = if t != d {
        format!("{} has {t} tokens, {} has {d}", target.name, draft.name)
    } else if !tokens.same_vocabulary(&Tokens::of("--draft", draft)?) {
        format!("{} and {} have different vocabularies (tokenizer.json)", target.name, draft.name)
    } else {
        return Ok(());
    };
    let help = "give a pair that shares its vocabulary";
    Err(Problem::bad_input(format!("{why}: one cannot draft for the other")).help(help))
}

fn recorded(model: &Model) -> RecordedModel {
    let info = describe(model);
    RecordedModel { name: info.name, dtype: info.dtype, digest: info.weights }
}

/// Digest of every prompt's length and tokens.
fn digest(prompts: &Prompts) -> String {
    let mut hasher = blake3::Hasher::new();
    for (_, prompt) in &prompts.all {
        hasher.update(&(prompt.len() as u64).to_le_bytes());
        prompt.iter().for_each(|token| {
            hasher.update(&token.to_le_bytes());
        });
    }
    hasher.finalize().to_hex().to_string()
}

/// Writes the file and the figures, and prints the summary.
fn finish(args: &ProfileAcceptanceArgs, table: &TruthTable) -> Result<()> {
    let failed = |e: String| Problem::failed(e).help("free some space or make the folder writable");
    let bytes = table.to_bytes().map_err(|e| failed(format!("the table cannot be packed: {e}")))?;
    Staged::write_all_to(&args.output, &bytes).map_err(|e| failed(e.to_string()))?;
    let summary = table.summary();
    if let Some(folder) = &args.plot {
        fs_err::create_dir_all(folder).map_err(|e| failed(e.to_string()))?;
        for figure in acceptance_figures(&show::figures(table, &summary)) {
            Staged::write_all_to(&folder.join(figure.file), figure.svg.as_bytes())
                .map_err(|e| failed(e.to_string()))?;
        }
    }
    eprintln!("truth table: {} ({} bytes)", args.output.display(), bytes.len());
    match args.format {
        Format::Table => print(&show::text(table, &summary)),
        Format::Json => print(&(serde_json::to_string_pretty(&summary).expect("plain data always serialises") + "\n")),
    }
}

/// One recording of a pair.
struct Job<'a> {
    args: &'a ProfileAcceptanceArgs,
    target: &'a Model,
    draft: &'a Model,
    prompts: &'a Prompts,
    /// Tokens that end an output.
    stop: Vec<u32>,
    interrupt: &'a AtomicBool,
}

impl Job<'_> {
    fn record<D: Device>(&self, device: &mut D) -> Result<Vec<RecordedOutput>> {
        let texts = self.write(device)?;
        self.judge(device, &texts)
    }

    fn longest(&self) -> usize {
        let prompt = self.prompts.all.iter().map(|(_, prompt)| prompt.len()).max().unwrap_or(0);
        prompt + self.args.output_len as usize
    }

    /// The target's outputs. Its memory is freed before the draft is loaded.
    fn write<D: Device>(&self, device: &mut D) -> Result<Vec<Vec<u32>>> {
        let (batch, output_len) = (usize::from(self.args.batch), self.args.output_len as usize);
        let batch = batch.min(self.prompts.all.len());
        let mut target = load(device, self.target, batch, self.longest())?;
        let bar = bar("tokens written", self.prompts.all.len() * output_len);
        let mut outputs = Vec::new();
        let _watch = work().interrupt.watch();
        for group in self.prompts.all.chunks(batch) {
            let prompts: Vec<&[u32]> = group.iter().map(|(_, prompt)| prompt.as_slice()).collect();
            let go_on = |written: usize| {
                bar.inc(written as u64);
                !self.interrupt.load(Ordering::Relaxed)
            };
            let written = write(device, &mut target, &prompts, output_len, &self.stop, go_on);
            outputs.extend(written.map_err(|e| failed(self.target, &e))?.ok_or_else(|| work().interrupt.problem())?);
        }
        bar.finish_and_clear();
        Ok(outputs)
    }

    /// The draft's ranks and confidences for the target's outputs.
    fn judge<D: Device>(&self, device: &mut D, texts: &[Vec<u32>]) -> Result<Vec<RecordedOutput>> {
        let mut draft = load(device, self.draft, 1, self.longest())?;
        let bar = bar("texts judged", texts.len());
        let mut outputs = Vec::new();
        let _watch = work().interrupt.watch();
        for ((family, prompt), text) in self.prompts.all.iter().zip(texts) {
            if self.interrupt.load(Ordering::Relaxed) {
                return Err(work().interrupt.problem());
            }
            let verdicts = judge(device, &mut draft, prompt, text).map_err(|e| failed(self.draft, &e))?;
            outputs.push(RecordedOutput::new(*family, prompt.len() as u32, verdicts.ranks, &verdicts.confidences));
            bar.inc(1);
        }
        bar.finish_and_clear();
        Ok(outputs)
    }
}

fn load<D: Device>(device: &mut D, model: &Model, requests: usize, context: usize) -> Result<Llama<D>> {
    Llama::load(device, &model.shape, &model.weights, limits(requests, context, CHUNK)).map_err(|e| {
        Problem::failed(format!("{} cannot be loaded: {e}", model.name))
            .help("a smaller --batch or --output-len takes less memory")
    })
}

fn failed(model: &Model, error: &dyn std::error::Error) -> Box<Problem> {
    Problem::failed(format!("a pass of {} failed: {error}", model.name))
}

fn bar(what: &str, length: usize) -> ProgressBar {
    let to = std::io::stderr();
    let target = if to.is_terminal() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}  {elapsed} (left: {eta})");
    let bar = ProgressBar::with_draw_target(Some(length as u64), target);
    bar.set_style(style.expect("the template is constant"));
    bar.with_message(what.to_owned())
}
