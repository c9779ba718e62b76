//! What prefill and decode replicas of a fleet have in common. Checks that they can exchange KV, and computes the bytes
//! of KV per token.

use crate::plan::Variant;
use crate::spec::document::Path;
use crate::spec::experiment::Experiment;
use crate::spec::fleet::FleetSpec;
use crate::spec::problem::{Problem, Result};
use foretoken_fleet::{Link, Role};
use foretoken_profiler::hardware::models::ModelChoice;
use foretoken_profiler::hardware::{LatencySpec, RooflineSpec};
use foretoken_sim::{DraftKv, DraftMethod};
use std::collections::BTreeSet;

/// What the prefill and decode replicas of a fleet have in common.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Common {
    /// Number of tokens in a KV block.
    pub block_size: u32,
    /// Bytes of KV that one token of context takes: (the target model's, the draft model's); 0 for a draft model whose
    /// KV is not transferred.
    pub token_bytes: [f64; 2],
    /// The smallest `max_num_batched_tokens` (token budget of a step) among the prefill replicas.
    pub token_budget: u32,
}

impl Common {
    /// What the prefill and decode replicas of a fleet have in common; `None` without prefill replicas or without a
    /// link.
    pub fn of(variant: &Variant, fleet: &FleetSpec) -> Result<Option<Common>> {
        let Some(link) = fleet.link.as_ref().filter(|_| fleet.is_split()) else { return Ok(None) };
        let wrong = |key: &str, message: String| variant.document().problem_at(&Path::of(key), message);
        let kinds = fleet.replicas.kinds();
        let of_kind = |i: usize| &variant.kinds.get(&i).unwrap_or(variant).experiment;
        for i in 0..kinds.len() {
            let (first, other) = (of_kind(0), of_kind(i));
            let key = format!("fleet.replicas[{i}]");
            if other.engine.release().prefills_apart || other.engine.release().sglang {
                let name = other.engine.version.name();
                let message = format!("replicas with roles share requests, which {name} (engine.version) cannot");
                return Err(wrong(&key, message).help("choose engine.version = \"vllm-0.33\" or \"vllm-0.32\""));
            }
            let (a, b) = (first.engine.block_size, other.engine.block_size);
            if a != b {
                let message =
                    format!("the replicas have KV blocks of {a} and {b} tokens, and blocks are transferred whole");
                return Err(wrong(&key, message).help("give all replicas one engine.block_size"));
            }
            if let Some((role, a, b)) = unlike_models(first, other) {
                let message = format!("the {role} is {a} on one replica and {b} on another, which cannot use its KV");
                return Err(wrong(&key, message).help(format!("give all replicas one hardware.{role}")));
            }
        }
        let prefill = (0..kinds.len()).filter(|&i| kinds[i].role == Role::Prefill);
        let budgets: BTreeSet<u32> = prefill.map(|i| of_kind(i).engine.max_num_batched_tokens).collect();
        Ok(Some(Common {
            block_size: of_kind(0).engine.block_size,
            token_bytes: token_bytes(variant, link, wrong)?,
            token_budget: budgets.first().copied().unwrap_or_default(),
        }))
    }
}

/// The first role (target, then draft) for which two experiments have different models or KV precisions, and the names
/// of the two models. `None` if there is no such role, or if the costs name no models.
fn unlike_models(a: &Experiment, b: &Experiment) -> Option<(&'static str, String, String)> {
    let pairs = [("target", &a.hardware.target, &b.hardware.target), ("draft", &a.hardware.draft, &b.hardware.draft)];
    pairs.into_iter().find_map(|(role, a, b)| {
        let (a, b) = (a.machine()?, b.machine()?);
        (a.model != b.model || a.kv_bits != b.kv_bits).then(|| (role, name(&a), name(&b)))
    })
}

/// The name of the model that costs name, with the number of bits of a KV value if it is stated.
fn name(roofline: &RooflineSpec) -> String {
    let model = match &roofline.model {
        ModelChoice::Preset(name) => name.0.clone(),
        ModelChoice::File(_) => "a model of a config.json".to_owned(),
        ModelChoice::Shape(_) => "a model of its own shape".to_owned(),
    };
    roofline.kv_bits.map_or_else(|| model.clone(), |bits| format!("{model} with KV of {bits} bits"))
}

/// Bytes of KV that one token of context takes, for the target model and the draft model.
fn token_bytes(variant: &Variant, link: &Link, wrong: impl Fn(&str, String) -> Box<Problem>) -> Result<[f64; 2]> {
    let e = &variant.experiment;
    let target = link.kv_bytes_token.or_else(|| of_shape(&e.hardware.target)).ok_or_else(|| {
        let message = "fleet.link.kv_bytes_token is missing: hardware.target names no model whose KV could be counted";
        wrong("fleet.link", message.to_owned())
            .help("write the bytes of KV of a token, such as kv_bytes_token = 131072.0")
    })?;
    let has_kv = e.engine.draft_prefill && !matches!(e.engine.method, DraftMethod::Ngram | DraftMethod::Suffix);
    let drafts = e.policies.iter().any(|policy| !crate::load::is_autoregressive(policy));
    if !link.draft_kv || !has_kv || !drafts {
        return Ok([target, 0.0]);
    }
    let by_ratio = || match e.engine.draft_kv {
        DraftKv::EqualSplit { ratio } => Some(ratio * target),
        DraftKv::None | DraftKv::Separate { .. } => None,
    };
    let draft = link.draft_kv_bytes_token.or_else(|| of_shape(&e.hardware.draft)).or_else(by_ratio);
    draft.map(|draft| [target, draft]).ok_or_else(|| {
        let message =
            "fleet.link.draft_kv_bytes_token is missing: hardware.draft names no model whose KV could be counted";
        wrong("fleet.link", message.to_owned())
            .help("write the bytes of the draft's KV of a token, or draft_kv = false if it is not transferred")
    })
}

/// Bytes of KV per token of the model whose costs are `costs`, without the copies that tensor parallelism makes; `None`
/// if the costs name no model.
fn of_shape(costs: &LatencySpec) -> Option<f64> {
    Some(costs.machine()?.shape().ok()?.work().kv_bytes_token(1.0))
}
