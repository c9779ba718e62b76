//! Records a truth table, from which simulations take which draft tokens are right. The target writes texts greedily.
//! For each position, the table has the rank of the target's token among the draft model's guesses, and the draft
//! model's confidence in its first guess.

use crate::acceptance_prompts::{Prompts, PromptsRequest, digest};
use crate::gpu;
use crate::models::Model;
use crate::output_file;
use crate::processor;
use crate::profiling::describe;
use crate::tokens::{Tokens, end_of_text};
use foretoken_kernels::device::Device;
use foretoken_kernels::forward::Llama;
use foretoken_kernels::teacher::{judge, limits, write};
use foretoken_report::{Accepted, acceptance_figures};
use foretoken_run::bar::Bar;
use foretoken_run::spec::live::{self, Instructions};
use foretoken_run::spec::problem::{Problem, Result};
use foretoken_run::work::Work;
use foretoken_sim::Pair;
use foretoken_traces::truth::speculation_profile::{SPECULATION_PROFILE, SpeculationProfile};
use foretoken_traces::truth::{RecordedModel, RecordedOutput, TruthHeader, TruthSummary, TruthTable};
use std::path::Path;
use std::sync::atomic::Ordering;

/// Most tokens in one pass: of the target over a prompt, or of the draft model over a text whose tokens it predicts.
const CHUNK: usize = 64;

#[derive(Clone, Copy)]
pub struct AcceptanceRequest<'a> {
    /// The names of the target and the draft: each is a preset with weights or a Hugging Face folder.
    pub models: Pair<&'a str>,
    /// The device on which both models run.
    pub device: live::Device,
    /// Number of threads of the CPU; `None`: one per core.
    pub threads: Option<usize>,
    /// Vector instructions of the CPU; `None`: the best that the processor has.
    pub instructions: Option<Instructions>,
    /// The prompts, and the maximum number of output tokens after each prompt.
    pub prompts: PromptsRequest<'a>,
    /// Whether the target continues after a token that ends a text.
    pub ignore_eos: bool,
    /// Number of outputs that the target writes at the same time.
    pub batch: u16,
    /// Path of the truth table to write: the file with the recorded ranks and confidences of the draft model's guesses.
    pub output: &'a Path,
    /// Whether to replace an existing truth table at the output path.
    pub overwrite: bool,
    /// Folder for the figures of the recorded acceptance; `None`: no figures are drawn.
    pub plot: Option<&'a Path>,
    /// Handle through which the caller can stop the recording and read its progress.
    pub work: &'a Work,
}

/// A truth table that was recorded and written to a file.
pub struct Recorded {
    /// The truth table: for each output position, the rank of the target's token among the draft model's guesses, and
    /// the draft model's confidence in its first guess.
    pub table: TruthTable,
    /// Computed from the truth table: acceptance rates by depth, and the calibration of the draft model's confidence.
    pub summary: TruthSummary,
    /// Size of the truth table's file in bytes.
    pub bytes: usize,
}

/// Records the truth table of a target and a draft model: which tokens of the target's texts the draft model predicts.
/// Writes the table to a file. If the request gives a folder for figures, draws the figures there.
pub fn record(request: &AcceptanceRequest) -> Result<Recorded> {
    output_file::check(request.output, request.overwrite, "table")?;
    let keys = Pair { target: "--target", draft: "--draft" };
    let models = keys.zip(request.models).try_map(|(key, name)| Model::find(key, name, None))?;
    let tokens = Tokens::of("--target", &models.target)?;
    check_pair(&models, &tokens)?;
    let positions = models.target.shape.max_positions.min(models.draft.shape.max_positions);
    let prompts = Prompts::of(&request.prompts, &tokens, models.target.shape.vocab, positions)?;
    let stop = if request.ignore_eos { Vec::new() } else { end_of_text("--target", &models.target)? };
    let recording = Recording { request, models: &models, prompts: &prompts, stop };
    // A truth table that is recorded on a CPU does not state the number of threads or the vector instructions, because
    // the recorded outputs do not depend on them.
    let (kind, outputs) = match request.device {
        live::Device::Cpu => {
            let mut device = processor::open(request.threads, request.instructions)?;
            ("cpu".to_owned(), device.session(|device| recording.record(device))?)
        }
        live::Device::Cuda(index) => {
            (format!("cuda:{index}"), gpu::open(index)?.session(|device| recording.record(device))?)
        }
    };
    let header = TruthHeader {
        foretoken: env!("CARGO_PKG_VERSION").to_owned(),
        target: recorded(&models.target),
        draft: recorded(&models.draft),
        device: kind,
        prompts_digest: digest(&prompts),
        prompts: prompts.source,
        temperature: 0.0,
        families: prompts.families,
        observed: None,
    };
    write_files(request, TruthTable { header, outputs })
}

fn check_pair(Pair { target, draft }: &Pair<Model>, tokens: &Tokens) -> Result<()> {
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

/// Writes the truth table. If the request gives a folder for figures, also draws the figures of the table there.
fn write_files(request: &AcceptanceRequest, table: TruthTable) -> Result<Recorded> {
    const HELP: &str = "free some space or make the folder writable";
    let failed = |e: String| Problem::failed(e).help(HELP);
    let bytes = table.to_bytes().map_err(|e| failed(format!("the table cannot be packed: {e}")))?;
    output_file::write(request.output, &bytes, HELP)?;
    let summary = table.summary();
    if let Some(profile) = speculation_profile(&table, &summary) {
        output_file::write(&request.output.with_extension(SPECULATION_PROFILE), profile.to_json().as_bytes(), HELP)?;
    }
    if let Some(folder) = request.plot {
        fs_err::create_dir_all(folder).map_err(|e| failed(e.to_string()))?;
        for figure in acceptance_figures(&figure_data(&table, &summary)) {
            output_file::write(&folder.join(figure.file), figure.svg.as_bytes(), HELP)?;
        }
    }
    Ok(Recorded { table, summary, bytes: bytes.len() })
}

/// The recorded acceptance in the form that NVIDIA's Model-Optimizer writes beside a draft checkpoint.
fn speculation_profile(table: &TruthTable, summary: &TruthSummary) -> Option<SpeculationProfile> {
    let header = &table.header;
    let counts: Vec<(u64, u64)> = summary.families[0].depths.iter().map(|d| (d.reached, d.accepted)).collect();
    let named = |name: &str| Some([("path".to_owned(), name.into())].into());
    Some(SpeculationProfile {
        target_model: named(&header.target.name),
        draft_checkpoint: named(&header.draft.name),
        measurement_conditions: Some(serde_json::json!({
            "measured_by": format!("Foretoken {}, profile-acceptance", header.foretoken),
            "dataset": header.prompts,
            "device": header.device,
            "temperature": header.temperature,
        })),
        ..SpeculationProfile::of_counts(&counts, Some("draft_model"))?
    })
}

/// The data of the figures of a truth table: acceptance by depth, and calibration of the draft model's confidence.
fn figure_data(table: &TruthTable, summary: &TruthSummary) -> Accepted {
    let header = &table.header;
    let all = &summary.families[0];
    Accepted {
        title: format!("{} with {}", header.target.name, header.draft.name),
        source: format!("recorded on {}: {}, {} output positions", header.device, header.prompts, all.positions),
        families: summary
            .families
            .iter()
            .map(|f| (f.family.clone(), f.depths.iter().map(|d| d.rate).collect()))
            .collect(),
        calibration: summary.calibration.iter().map(|b| (b.confidence, b.right, b.positions)).collect(),
        calibration_error: summary.expected_calibration_error,
    }
}

/// The inputs of recording a truth table.
struct Recording<'a> {
    request: &'a AcceptanceRequest<'a>,
    models: &'a Pair<Model>,
    prompts: &'a Prompts,
    /// Tokens that end an output. Empty if the target continues after them (`ignore_eos`).
    stop: Vec<u32>,
}

impl Recording<'_> {
    fn record<D: Device>(&self, device: &mut D) -> Result<Vec<RecordedOutput>> {
        let texts = self.write(device)?;
        self.judge(device, &texts)
    }

    fn longest(&self) -> usize {
        let prompt = self.prompts.all.iter().map(|(_, prompt)| prompt.len()).max().unwrap_or(0);
        prompt + self.request.prompts.output_len as usize
    }

    /// Generates the target's outputs. The target's memory is freed before the draft model is loaded.
    fn write<D: Device>(&self, device: &mut D) -> Result<Vec<Vec<u32>>> {
        let work = self.request.work;
        let (batch, output_len) = (usize::from(self.request.batch), self.request.prompts.output_len as usize);
        let batch = batch.min(self.prompts.all.len());
        let mut target = load(device, &self.models.target, batch, self.longest())?;
        let bar = Bar::new((self.prompts.all.len() * output_len) as u64, "tokens written", &work.counts);
        let mut outputs = Vec::new();
        let _watch = work.interrupt.watch();
        for group in self.prompts.all.chunks(batch) {
            let prompts: Vec<&[u32]> = group.iter().map(|(_, prompt)| prompt.as_slice()).collect();
            let go_on = |written: usize| {
                bar.inc(written as u64);
                !work.interrupt.flag().load(Ordering::Relaxed)
            };
            let written = write(device, &mut target, &prompts, output_len, &self.stop, go_on);
            outputs
                .extend(written.map_err(|e| failed(&self.models.target, &e))?.ok_or_else(|| work.interrupt.problem())?);
        }
        bar.finish();
        Ok(outputs)
    }

    /// For each token of the target's outputs `texts`: computes the token's rank among the draft model's guesses, and
    /// the draft model's confidence in its first guess.
    fn judge<D: Device>(&self, device: &mut D, texts: &[Vec<u32>]) -> Result<Vec<RecordedOutput>> {
        let work = self.request.work;
        let mut draft = load(device, &self.models.draft, 1, self.longest())?;
        let bar = Bar::new(texts.len() as u64, "texts judged", &work.counts);
        let mut outputs = Vec::new();
        let _watch = work.interrupt.watch();
        for ((family, prompt), text) in self.prompts.all.iter().zip(texts) {
            work.interrupt.check()?;
            let verdicts = judge(device, &mut draft, prompt, text).map_err(|e| failed(&self.models.draft, &e))?;
            outputs.push(RecordedOutput::new(*family, prompt.len() as u32, verdicts.ranks, &verdicts.confidences));
            bar.inc(1);
        }
        bar.finish();
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
