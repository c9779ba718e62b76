//! The files with which a serving engine is started, in the engine's own format.

use super::candidates::{Candidate, doubling};
use super::question::{Engine, Question};
use foretoken_policies::{PolicySpec, to_sglang_json, to_vllm_speculative_config};
use foretoken_run::plan::Plan;
use foretoken_run::setting::Setting;
use foretoken_run::spec::problem::{Problem, Result};
use foretoken_sim::{Drafting, Pair, PassShape};
use serde::Serialize;
use serde_json::json;

/// A file with which a serving engine is started, so that it runs the recommended policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Start {
    pub file: String,
    /// The command-line argument with which the engine reads the file.
    pub used: String,
    /// The content of the file for the engine.
    #[serde(skip)]
    pub text: String,
}

/// The files with which the engine is started to follow the recommendation. For vLLM: `speculative_config.json`, with
/// `method` and `model` if the user gave them; no file if the advice is not to draft. For SGLang: `adaptive_spec.json`,
/// and the table of steps per second from which SGLang's scheduler DSpark decides how many draft tokens to verify.
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

/// vLLM's `--speculative-config` for a candidate policy; `None` if the candidate does not draft or vLLM has no such
/// policy.
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

/// A table of steps per second by number of verified tokens, in SGLang's format (0.5.23,
/// `speculative/dspark_components/dspark_sps.py`). With this table, SGLang's scheduler DSpark maximises expected tokens
/// times steps per second. An entry is valid up to the next entry. A step that verifies n tokens is taken to have n /
/// (largest draft length + 1) requests, rounded up, with contexts of the mean length. The time of a step includes the
/// draft passes and the host time.
fn step_times(plan: &Plan) -> Result<String> {
    let setting = Setting::new(&plan.variants[0], plan.seeds[0])?;
    let Pair { target, draft } = setting.costs();
    let (_, drafting, _) = setting.reads();
    let config = setting.engine(true);
    let block = config.max_draft_len + 1;
    let most = config.max_num_seqs.saturating_mul(block);
    let mean = |lengths: &[u32]| lengths.iter().map(|&n| f64::from(n)).sum::<f64>() / lengths.len().max(1) as f64;
    // Context of a request on average: its prompt and half of its output.
    let context = mean(&setting.workload.prompt_len) + mean(&setting.workload.output_len) / 2.0;
    let shape = |tokens: u32, requests: u32| PassShape {
        requests: requests.into(),
        batched: tokens.into(),
        context: (f64::from(requests) * context) as u64,
        pairs: (f64::from(tokens) * context) as u64,
    };
    let rate = |&tokens: &u32| {
        let requests = tokens.div_ceil(block);
        let passes = if drafting == Drafting::Parallel { 1 } else { config.max_draft_len };
        let draft_s = f64::from(passes) * draft.pass(shape(requests, requests)).as_s();
        let host_s = config.step_overhead_s + config.host.decode_step_s(requests, tokens);
        1.0 / (draft_s + target.pass(shape(tokens, requests)).as_s() + host_s)
    };
    let sizes: Vec<u32> = doubling(most).collect();
    let rates: Vec<f64> = sizes.iter().map(rate).collect();
    let table = json!({ "sample_batch_tokens": sizes, "sample_steps_per_sec": rates, "max_batch_tokens": most });
    Ok(serde_json::to_string_pretty(&table).expect("plain data always serialises") + "\n")
}
