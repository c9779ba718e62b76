//! `foretoken export`: settings in the words of the engines people run.

use super::print;
use crate::cli::{ExportSglangArgs, ExportVllmArgs};
use crate::experiment::unknown_policy;
use crate::plan::{Plan, Variant, with_defaults};
use crate::problem::{Problem, Result, nearest};
use crate::setting::Setting;
use foretoken_policies::{BatchRange, Fixed, PolicySpec, to_sglang_json, to_vllm_speculative_config};
use foretoken_traces::{ArrivalSpec, LengthSpec};
use rayon::prelude::*;
use std::path::Path;
use std::sync::atomic::AtomicBool;

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

/// The best length for each batch size, found by trying them in closed loops, as vLLM's `speculative_config`.
pub fn vllm(args: &ExportVllmArgs) -> Result<()> {
    let mut plan = Plan::load(&args.file, &args.sets)?;
    if plan.variants.len() > 1 {
        let problem = Problem::bad_input(format!("{} sweeps values: a table is for one setting", args.file.display()));
        return Err(problem.help("choose one value with --set"));
    }
    let mut sizes = args.batch_sizes.clone();
    sizes.sort_unstable();
    sizes.dedup();
    if sizes.first().is_none_or(|&s| s == 0) {
        return Err(Problem::bad_input("--batch-sizes: a batch has at least one request").help("for example 1,4,16,64"));
    }
    let variant = &mut plan.variants[0];
    let mut best = Vec::new();
    for &size in &sizes {
        let (k, goodput, plain) = best_length(variant, size, plan.seeds[0])?;
        eprintln!("batch {size}: best length {k}, {goodput:.0} tok/s ({plain:.0} without drafting), simulated");
        best.push((size, k));
    }
    let config = to_vllm_speculative_config(args.method.as_deref(), args.model.as_deref(), &ranges(&best))
        .map_err(|e| Problem::bad_input(format!("no table to write: {}", e.why)))?;
    print(&format!("{config}\n"))
}

/// The fixed length with the most goodput at `size` clients in a closed loop; its goodput and the plain engine's.
fn best_length(variant: &mut Variant, size: u32, seed: u64) -> Result<(u32, f64, f64)> {
    close_the_loop(variant, size);
    let setting = Setting::new(variant, seed)?;
    let goodput = |k: u32| {
        let (run, _) = setting.run(&PolicySpec::Fixed(Fixed { k }), f64::INFINITY, &AtomicBool::new(false));
        setting.summary(&run, Default::default()).token_goodput_tok_s
    };
    let all: Vec<f64> = (0..=variant.experiment.engine.max_draft_len).into_par_iter().map(goodput).collect();
    let first_best = all.iter().enumerate().fold(0, |best, (k, g)| if *g > all[best] { k } else { best });
    Ok((first_best as u32, all[first_best], all[0]))
}

/// Rounds a client makes: enough for lengths to average out.
const ROUNDS: u32 = 12;

/// The variant's requests in a closed loop of `size` clients. Arrivals with lengths of their own lend them.
fn close_the_loop(variant: &mut Variant, size: u32) {
    let workload = &mut variant.experiment.workload;
    let arrivals = std::mem::replace(&mut workload.arrivals, ArrivalSpec::ClosedLoop(size));
    if let (None, ArrivalSpec::Trace(trace)) = (&workload.lengths, arrivals) {
        workload.lengths = Some(LengthSpec::Trace(trace));
    }
    workload.transform.clear();
    workload.duration_s = None;
    workload.requests = Some((ROUNDS * size).max(64));
}

/// Each measured size starts a range that reaches to the next; equal neighbours are one. The first starts at 1.
fn ranges(best: &[(u32, u32)]) -> Vec<BatchRange> {
    let mut ranges: Vec<BatchRange> = Vec::new();
    for (i, &(size, k)) in best.iter().enumerate() {
        let last = best.get(i + 1).map_or(size, |next| next.0 - 1);
        match ranges.last_mut() {
            Some(range) if range.2 == k => range.1 = last,
            _ => ranges.push((if i == 0 { 1 } else { size }, last, k)),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_cover_every_size_from_one() {
        assert_eq!(ranges(&[(4, 5), (8, 5), (16, 2), (32, 0)]), [(1, 15, 5), (16, 31, 2), (32, 32, 0)]);
        assert_eq!(ranges(&[(1, 3)]), [(1, 1, 3)]);
    }
}
