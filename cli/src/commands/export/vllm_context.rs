//! `foretoken export vllm-context`: a table by batch size and context in the form of vLLM's open RFC #48627.

use super::sweep::{SweepArgs, reached};
use crate::commands::print;
use crate::work;
use clap::Args;
use foretoken_policies::to_rfc_48627;
use foretoken_run::spec::problem::{Problem, Result};
use foretoken_run::vllm_table::{ContextTable, stated_method};
use std::collections::BTreeSet;

pub const EXAMPLES: &str = "Examples:
  foretoken export vllm-context experiments/quickstart.toml --contexts 500,2000
  foretoken export vllm-context mine.toml --contexts 1000,8000,32000 --batch-sizes 1,8,32,128

No release of vLLM reads such a table: it has the form of the open RFC #48627, five numbers where the context matters and
vLLM's own three where it does not. `export vllm` writes the table that vLLM reads. For each context, closed loops as
those of `export vllm` give the lengths, with prompts that have this context in the middle of the experiment's mean
answer. The table by batch size to compare with is made where all contexts are mixed in equal parts. What a cell gains,
and where it is nothing, goes to stderr, the JSON to stdout.";

#[derive(Debug, Args)]
pub struct ContextArgs {
    #[command(flatten)]
    pub sweep: SweepArgs,
    /// Contexts to measure, two at least: tokens of prompt and answer in the middle of an answer
    #[arg(long, value_name = "TOKENS,…", value_delimiter = ',', required = true)]
    pub contexts: Vec<u32>,
}

/// Finds the best draft length for each batch size and context, as `export vllm` does for each batch size. Prints the
/// table that vLLM's RFC proposes to stdout, and what it gains to stderr.
pub fn run(args: &ContextArgs) -> Result<()> {
    let contexts: BTreeSet<u32> = args.contexts.iter().copied().collect();
    if contexts.len() < 2 || contexts.contains(&0) {
        let what = "--contexts: a table by context has two contexts at least, of one token or more";
        return Err(Problem::bad_input(what).help("for example --contexts 1000,8000; `export vllm` needs no context"));
    }
    let (sweep, plan) = (&args.sweep, args.sweep.plan()?);
    let engine = &plan.variants[0].experiment.engine;
    if let Some(long) = contexts.last().filter(|&&context| context >= engine.max_model_len) {
        let what = format!("--contexts: {long} tokens do not fit into engine.max_model_len = {}", engine.max_model_len);
        return Err(Problem::bad_input(what).help("give shorter ones, or --set engine.max_model_len=…"));
    }
    let method = sweep.method.as_deref().or(stated_method(engine.method));
    let _watch = work().interrupt.watch();
    let table = ContextTable::find(plan, &sweep.file, &sweep.batch_sizes, &contexts, work().interrupt.flag())?;
    eprint!("{}", table.in_words());
    reached(table.ranges.is_empty())?;
    let config = to_rfc_48627(method, sweep.model.as_deref(), &table.ranges)
        .map_err(|e| Problem::bad_input(format!("no table to write: {}", e.why)))?;
    eprintln!("note: no release of vLLM reads a context: this is the form of its open RFC #48627");
    print(&format!("{config}\n"))
}
