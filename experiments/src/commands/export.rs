//! `foretoken export`: settings in the formats of vLLM and SGLang.

use super::print;
use crate::cli::{ExportSglangArgs, ExportVllmArgs};
use foretoken_policies::{PolicySpec, to_sglang_json, to_vllm_speculative_config};
use foretoken_run::interrupt;
use foretoken_run::load::with_defaults;
use foretoken_run::plan::Plan;
use foretoken_run::vllm_table::{Table, no_draft};
use foretoken_spec::problem::{Problem, Result, nearest};
use foretoken_spec::read::unknown_policy;
use std::path::Path;

/// SGLang's `adaptive_spec.json` of a preset, or of a policy in an experiment.
pub fn sglang(args: &ExportSglangArgs) -> Result<()> {
    let spec = if args.policy.ends_with(".toml") {
        let plan = Plan::load(Path::new(&args.policy), &[])?;
        let mut all = plan.policies.iter().map(|e| &e.spec);
        let found = match &args.label {
            Some(label) => all.find(|p| p.label() == *label),
            None => all.find(|p| to_sglang_json(p).is_ok()),
        };
        found.cloned().ok_or_else(|| {
            let labels: Vec<String> = plan.policies.iter().map(|e| e.spec.label()).collect();
            let what = args.label.as_ref().map_or("no policy of SGLang".into(), |l| format!("no policy `{l}`"));
            let near = args.label.as_ref().and_then(|l| nearest(l, labels.iter().map(String::as_str)));
            let near = near.map_or(String::new(), |near| format!("did you mean `{near}`? "));
            Problem::bad_input(format!("{}: {what}", args.policy)).help(format!("{near}It has {}", labels.join(", ")))
        })?
    } else {
        with_defaults(&args.policy).ok_or_else(|| unknown_policy(&args.policy, PolicySpec::all_names()))?
    };
    let json = to_sglang_json(&spec).map_err(|e| Problem::bad_input(format!("{}: {e}", spec.label())))?;
    print(&format!("{}\n", json.trim_end()))
}

/// The best length for each batch size, found by trying every length in closed loops, as vLLM's `speculative_config`.
pub fn vllm(args: &ExportVllmArgs) -> Result<()> {
    if args.batch_sizes.is_empty() || args.batch_sizes.contains(&0) {
        return Err(Problem::bad_input("--batch-sizes: a batch has at least one request").help("for example 1,4,16,64"));
    }
    let plan = Plan::load(&args.file, &args.sets)?;
    plan.warnings().iter().for_each(|w| eprintln!("warning: {w}"));
    plan.variants.iter().try_for_each(|v| v.filled.check_all_lengths())?;
    let hardware = plan.variants[0].experiment.hardware.clone();
    let _watch = interrupt::watch();
    let table = Table::find(plan, &args.file, &args.batch_sizes, &interrupt::flag())?;
    eprint!("{}", table.in_words());
    if table.ranges.is_empty() {
        return Err(Problem::bad_input("no batch size was reached: there is no table to write").help(
            "give smaller ones with --batch-sizes, or a larger engine (engine.max_num_seqs, engine.num_gpu_blocks)",
        ));
    }
    let config = to_vllm_speculative_config(args.method.as_deref(), args.model.as_deref(), &table.ranges)
        .map_err(|e| Problem::bad_input(format!("no table to write: {}", e.why)))?;
    no_draft(&hardware, args.method.as_deref(), args.model.as_deref()).iter().for_each(|note| eprintln!("{note}"));
    print(&format!("{config}\n"))
}
