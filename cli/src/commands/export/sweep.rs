//! The best draft length for each batch size, found by a sweep, and what files to deploy need beside it.

use crate::shipped;
use crate::work;
use clap::Args;
use foretoken_policies::{BatchRange, to_vllm_speculative_config};
use foretoken_profiler::hardware::LatencySpec;
use foretoken_profiler::hardware::models::{ModelChoice, entry};
use foretoken_run::plan::Plan;
use foretoken_run::spec::experiment::Hardware;
use foretoken_run::spec::problem::{Problem, Result};
use foretoken_run::vllm_table::{Table, no_draft, stated_method};
use std::path::PathBuf;

#[derive(Debug, Args)]
pub struct SweepArgs {
    /// The experiment to simulate; its arrivals are replaced by closed loops
    pub file: PathBuf,
    /// Replace or add a value of the experiment
    #[arg(long = "set", value_name = "PATH=VALUE")]
    pub sets: Vec<String>,
    /// Batch sizes to measure: clients of a closed loop, each with one request at the server at any time
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1,2,4,8,16,32,64,128")]
    pub batch_sizes: Vec<u32>,
    /// How the server drafts, by vLLM's name [default: the experiment's engine.method, if it states one]
    #[arg(long)]
    pub method: Option<String>,
    /// The draft model, copied into the output
    #[arg(long)]
    pub model: Option<String>,
}

/// A sweep for a file that starts a whole server.
#[derive(Debug, Args)]
pub struct DeployArgs {
    #[command(flatten)]
    pub sweep: SweepArgs,
    /// The target model, copied into the output [default: the published name of the experiment's preset]
    #[arg(long)]
    pub target: Option<String>,
}

impl DeployArgs {
    /// The target model of a file that starts a whole server.
    pub fn target<'a>(&'a self, swept: &'a Swept) -> Result<&'a str> {
        self.target.as_deref().or(swept.target.as_deref()).ok_or_else(|| {
            Problem::bad_input("which model does the server run? The experiment names no preset")
                .help("--target NAME, as vLLM finds it")
        })
    }
}

/// What a sweep found, and the server that it is for.
#[derive(Debug)]
pub struct Swept {
    pub method: Option<String>,
    pub draft: Option<String>,
    /// The target's published name, if the experiment names a preset.
    pub target: Option<String>,
    pub tensor_parallel: u32,
    pub max_num_seqs: u32,
    /// Draft lengths by batch size, from 1 on without gaps. Larger batches have the last length.
    pub ranges: Vec<BatchRange>,
}

impl SweepArgs {
    /// The experiment with all lengths that the sweep tries.
    pub fn plan(&self) -> Result<Plan> {
        if self.batch_sizes.is_empty() || self.batch_sizes.contains(&0) {
            return Err(
                Problem::bad_input("--batch-sizes: a batch has at least one request").help("for example 1,4,16,64")
            );
        }
        let plan = shipped::load(&self.file, &self.sets)?;
        plan.warnings().iter().for_each(|w| eprintln!("warning: {w}"));
        plan.variants.iter().try_for_each(|v| v.filled.check_all_lengths())?;
        Ok(plan)
    }

    /// Simulates every length in closed loops, and prints the results to stderr.
    pub fn run(&self) -> Result<Swept> {
        let plan = self.plan()?;
        let experiment = &plan.variants[0].experiment;
        let stated = stated_method(experiment.engine.method);
        let method = self.method.as_deref().or(stated).map(str::to_owned);
        let (hardware, max_num_seqs) = (experiment.hardware.clone(), experiment.engine.max_num_seqs);
        let _watch = work().interrupt.watch();
        let table = Table::find(plan, &self.file, &self.batch_sizes, work().interrupt.flag())?;
        eprint!("{}", table.in_words());
        reached(table.ranges.is_empty())?;
        no_draft(&hardware, method.as_deref(), self.model.as_deref()).iter().for_each(|note| eprintln!("{note}"));
        let (target, tensor_parallel) = target(&hardware);
        Ok(Swept { method, draft: self.model.clone(), target, tensor_parallel, max_num_seqs, ranges: table.ranges })
    }
}

impl Swept {
    pub fn speculative_config(&self) -> Result<String> {
        to_vllm_speculative_config(self.method.as_deref(), self.draft.as_deref(), &self.ranges)
            .map_err(|e| Problem::bad_input(format!("no table to write: {}", e.why)))
    }

    pub fn longest(&self) -> u32 {
        self.ranges.iter().map(|r| r.2).max().unwrap_or(0)
    }

    /// The method. Formats other than vLLM's say nothing without it.
    pub fn method(&self) -> Result<&str> {
        self.method.as_deref().ok_or_else(|| {
            Problem::bad_input("how does the server draft?").help("--method eagle3, or engine.method in the experiment")
        })
    }

    pub fn draft(&self) -> Result<&str> {
        self.draft
            .as_deref()
            .ok_or_else(|| Problem::bad_input("which draft model?").help("--model NAME, as the engine finds it"))
    }
}

/// An error if a sweep reached no batch size.
pub fn reached(nothing: bool) -> Result<()> {
    match nothing {
        true => Err(Problem::bad_input("no batch size was reached: there is no table to write").help(
            "give smaller ones with --batch-sizes, or a larger engine (engine.max_num_seqs, engine.num_gpu_blocks)",
        )),
        false => Ok(()),
    }
}

/// The target's published name and the GPUs that it is split over, where the experiment says them.
fn target(hardware: &Hardware) -> (Option<String>, u32) {
    let (model, split) = match &hardware.target {
        LatencySpec::Roofline(spec) => (&spec.model, spec.tensor_parallel),
        LatencySpec::Kernels(spec) => (&spec.model, spec.tensor_parallel),
        _ => return (None, 1),
    };
    let name = match model {
        ModelChoice::Preset(name) => entry(&name.0).map(|e| e.model.clone()),
        ModelChoice::File(_) | ModelChoice::Shape(_) => None,
    };
    (name, split)
}

/// A text in YAML's single quotes.
pub fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}
