//! What to start an engine with, in its own words.

use super::candidates::{Candidate, doubling};
use super::question::{Engine, Question};
use foretoken_policies::{PolicySpec, to_sglang_json, to_vllm_speculative_config};
use foretoken_run::plan::Plan;
use foretoken_run::setting::Setting;
use foretoken_sim::PassShape;
use foretoken_spec::problem::{Problem, Result};
use serde::Serialize;
use serde_json::json;

/// A file for an engine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Start {
    /// Its name.
    pub file: String,
    /// How it is given to the engine.
    pub used: String,
    /// Its bytes.
    #[serde(skip)]
    pub text: String,
}

/// The files: for vLLM `speculative_config.json` of what is advised, unless that is not to draft; for SGLang `adaptive_spec.json` and the step times
/// that DSpark plans with. `method` and `model` are written where given.
pub fn starts(plan: &Plan, ask: &Question, advised: Option<&Candidate>, all: &[Candidate]) -> Result<Vec<Start>> {
    match ask.engine {
        Engine::Vllm => Ok(advised.map(|b| vllm(ask, b)).transpose()?.flatten().into_iter().collect()),
        Engine::Sglang => {
            let adaptive = all.iter().find_map(|c| to_sglang_json(&c.spec).ok());
            let adaptive = adaptive.map(|text| Start {
                file: "adaptive_spec.json".into(),
                used: "--speculative-adaptive-config adaptive_spec.json".into(),
                text: text + "\n",
            });
            let dspark = Start {
                file: "dspark-sps.json".into(),
                used: "--speculative-dspark-sps-table-path dspark-sps.json".into(),
                text: step_times(plan)?,
            };
            Ok(adaptive.into_iter().chain([dspark]).collect())
        }
    }
}

/// vLLM's `--speculative-config` of a candidate that drafts.
fn vllm(ask: &Question, advised: &Candidate) -> Result<Option<Start>> {
    let (method, model) = (ask.method.as_deref(), ask.model.as_deref());
    let text = match &advised.spec {
        PolicySpec::Fixed(p) => {
            let given =
                [("method", method), ("model", model)].into_iter().filter_map(|(key, v)| Some((key, json!(v?))));
            let all = given.chain([("num_speculative_tokens", json!(p.k))]).map(|(key, v)| (key.to_owned(), v));
            serde_json::Value::Object(all.collect()).to_string()
        }
        PolicySpec::VllmDynamic(p) => {
            to_vllm_speculative_config(method, model, &p.num_speculative_tokens_per_batch_size)
                .map_err(|e| Problem::failed(format!("no table to write: {}", e.why)))?
        }
        _ => return Ok(None),
    };
    let hint = if method.is_none() { ", with \"method\" and \"model\" as they are now" } else { "" };
    Ok(Some(Start {
        file: "speculative_config.json".into(),
        used: format!("--speculative-config \"$(cat speculative_config.json)\"{hint}"),
        text: text + "\n",
    }))
}

/// Steps a second by tokens verified, as SGLang 0.5.23 reads them (`speculative/dspark_components/dspark_sps.py`).
fn step_times(plan: &Plan) -> Result<String> {
    let setting = Setting::new(&plan.variants[0], plan.seeds[0])?;
    let (_, target) = setting.costs();
    let config = setting.engine(true);
    let most = config.max_num_seqs * (config.max_draft_len + 1);
    let sizes: Vec<u32> = doubling(most).collect();
    let rate = |&tokens: &u32| {
        let pass = target.pass(PassShape { batched: tokens.into(), ..PassShape::default() });
        1.0 / (pass.as_s() + config.step_overhead_s)
    };
    let rates: Vec<f64> = sizes.iter().map(rate).collect();
    let table = json!({ "sample_batch_tokens": sizes, "sample_steps_per_sec": rates, "max_batch_tokens": most });
    Ok(serde_json::to_string_pretty(&table).expect("plain data always serialises") + "\n")
}
