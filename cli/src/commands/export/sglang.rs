//! `foretoken export sglang` and `sglang-flags`: what SGLang reads.
//!
//! A table by batch size is SGLang's adaptive speculation (0.5.23) with one candidate in each range of batch sizes. The
//! file has no initial length; it is `--speculative-num-steps`.

use super::sweep::{SweepArgs, Swept};
use crate::commands::print;
use crate::shipped;
use clap::Args;
use foretoken_policies::{PolicySpec, SglangGen3, Slot, to_sglang_json};
use foretoken_report::Staged;
use foretoken_run::load::with_defaults;
use foretoken_run::spec::problem::{Problem, Result, nearest};
use foretoken_run::spec::read::unknown_policy;
use std::path::{Path, PathBuf};

pub const EXAMPLES: &str = "Examples:
  foretoken export sglang sglang-gen3 > adaptive_spec.json
  foretoken export sglang experiment.toml --label 'sglang-gen1[ema_alpha=0.1]'";

pub const FLAGS_EXAMPLES: &str = "Examples:
  foretoken export sglang-flags experiments/quickstart.toml --method eagle3 --model HEAD --adaptive-config spec.json

The lengths are found as `export vllm` finds them. SGLang looks a batch up padded to a captured CUDA graph. Where one
length is best at all batch sizes, the flags alone say it. SGLang 0.5.23's own parser read such flags and such a file.";

#[derive(Debug, Args)]
pub struct ExportSglangArgs {
    /// The name of a preset, or an experiment (*.toml)
    pub policy: String,
    /// Label of the policy in the experiment [default: the first SGLang policy]
    #[arg(long)]
    pub label: Option<String>,
}

#[derive(Debug, Args)]
pub struct SglangFlagsArgs {
    #[command(flatten)]
    pub sweep: SweepArgs,
    /// Where the lengths by batch size are written; the flags name this file
    #[arg(long, value_name = "FILE")]
    pub adaptive_config: Option<PathBuf>,
}

/// Prints SGLang's `adaptive_spec.json` of a preset, or of a policy in an experiment.
pub fn policy(args: &ExportSglangArgs) -> Result<()> {
    let spec = if args.policy.ends_with(".toml") {
        let plan = shipped::load(Path::new(&args.policy), &[])?;
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

/// Prints SGLang's flags with the best draft lengths.
pub fn flags(args: &SglangFlagsArgs) -> Result<()> {
    let swept = args.sweep.run()?;
    let (flags, file) = text(&swept, args.adaptive_config.as_deref())?;
    if let Some((path, json)) = args.adaptive_config.as_deref().zip(file) {
        Staged::write_all_to(path, json.as_bytes())
            .map_err(|e| Problem::failed(format!("cannot write {}: {e}", path.display())))?;
    }
    print(&format!("{flags}\n"))
}

/// The flags, and the text of the file that they name.
pub fn text(swept: &Swept, path: Option<&Path>) -> Result<(String, Option<String>)> {
    let method = swept.method()?;
    // SGLang's other methods draft blocks or trees, whose flags count differently.
    let algorithm = match method {
        "eagle" => "EAGLE",
        "eagle3" => "EAGLE3",
        "mtp" => "NEXTN",
        "draft_model" => "STANDALONE",
        _ => {
            return Err(Problem::bad_input(format!("no flags of SGLang for the method {method}"))
                .help("there are flags for eagle, eagle3, mtp and draft_model"));
        }
    };
    let k = swept.longest();
    if k == 0 {
        return Err(Problem::bad_input("no length pays at any of these batch sizes: there are no flags to write")
            .help("start SGLang without --speculative-algorithm"));
    }
    let mut flags = format!("--speculative-algorithm {algorithm}");
    if method != "mtp" {
        flags += &format!(" --speculative-draft-model-path {}", swept.draft()?);
    }
    flags +=
        &format!(" --speculative-num-steps {k} --speculative-eagle-topk 1 --speculative-num-draft-tokens {}", k + 1);
    if swept.ranges.iter().all(|r| r.2 == k) {
        return Ok((flags, None));
    }
    let Some(path) = path else {
        return Err(Problem::bad_input("the best length differs by batch size, which SGLang reads from a file")
            .help("--adaptive-config FILE writes it; with one of the --batch-sizes there is one length"));
    };
    if algorithm == "STANDALONE" {
        return Err(Problem::bad_input("SGLang drafts by batch size with EAGLE, EAGLE3 and NEXTN only")
            .help("one of the --batch-sizes gives one length"));
    }
    let slot = |&(batch_size, _, k): &(u32, u32, u32)| Slot { batch_size, candidates: vec![k], ..Slot::default() };
    let policy = SglangGen3 { slots: swept.ranges.iter().map(slot).collect(), ..SglangGen3::default() };
    let json = to_sglang_json(&PolicySpec::SglangGen3(policy)).map_err(|e| Problem::bad_input(e.to_string()))?;
    flags += &format!(" --speculative-adaptive --speculative-adaptive-config {}", path.display());
    Ok((flags, Some(format!("{}\n", json.trim_end()))))
}
