//! A server that runs, as the line that would start it: what it says of itself, in its engine's own flags. What follows
//! the address adds flags, or replaces those that the server says.

use super::line::{self, Line};
use super::paste::quoted;
use foretoken_run::spec::problem::{Problem, Result};
use foretoken_servers::recordings::metrics::{Metrics, label_of, total};
use foretoken_servers::recordings::recording::Sample;
use foretoken_servers::recordings::says::Says;
use serde_json::{Map, Value, json};

/// A running server as a question.
#[derive(Debug)]
pub struct Served {
    pub line: Line,
    /// The draft length that its counters show, if its flags do not say it.
    pub k: Option<u32>,
    /// Its acceptance as `--accept` takes it.
    pub accept: Counted<String>,
    pub clients: Counted<u32>,
    /// Mean tokens of prompts and answers.
    pub means: Counted<(f64, f64)>,
    /// What the server does not say.
    pub assumed: Vec<String>,
}

/// What a server's counters give, and the words that say so; `None` if they give nothing.
type Counted<T> = Option<(T, String)>;

/// vLLM's settings that are read: the table and the key. The flag is the key with dashes.
const VLLM: [(&str, &str); 15] = [
    ("model_config", "max_model_len"),
    ("model_config", "quantization"),
    ("parallel_config", "tensor_parallel_size"),
    ("parallel_config", "pipeline_parallel_size"),
    ("parallel_config", "data_parallel_size"),
    ("parallel_config", "enable_expert_parallel"),
    ("scheduler_config", "max_num_seqs"),
    ("scheduler_config", "max_num_batched_tokens"),
    ("scheduler_config", "enable_chunked_prefill"),
    ("scheduler_config", "async_scheduling"),
    ("scheduler_config", "disable_hybrid_kv_cache_manager"),
    ("cache_config", "block_size"),
    ("cache_config", "gpu_memory_utilization"),
    ("cache_config", "cache_dtype"),
    ("cache_config", "enable_prefix_caching"),
];

/// SGLang's arguments that are read. The flag is the name with dashes.
const SGLANG: [&str; 37] = [
    "tp_size", "pp_size", "dp_size", "ep_size", "enable_dp_attention", "max_running_requests", "chunked_prefill_size",
    "context_length", "mem_fraction_static", "max_total_tokens", "kv_cache_dtype", "page_size", "quantization",
    "disable_radix_cache", "schedule_policy", "schedule_conservativeness", "enable_mixed_chunk",
    "disable_overlap_schedule", "max_prefill_tokens", "prefill_max_requests", "prefill_decode_interval",
    "scheduler_recv_interval", "enable_priority_scheduling", "radix_eviction_policy", "retraction_policy",
    "enable_hierarchical_cache", "disaggregation_mode", "speculative_algorithm", "speculative_draft_model_path",
    "speculative_num_steps", "speculative_eagle_topk", "speculative_num_draft_tokens", "speculative_dflash_block_size",
    "speculative_dspark_block_size", "speculative_draft_model_quantization", "speculative_adaptive",
    "speculative_adaptive_config",
];

/// Fewer rounds of drafting, or ended requests, are not taken as an average.
const ENOUGH: u64 = 200;
const ENOUGH_REQUESTS: f64 = 20.0;

/// Is this the address of a server, rather than a line that starts one?
pub fn address(given: &str) -> Option<&str> {
    let first = given.split_whitespace().next()?;
    (first.starts_with("http://") || first.starts_with("https://")).then_some(first)
}

/// The question that a server's answers make. `given` is its address, and flags that may follow.
pub fn read(given: &str, says: &Says) -> Result<Served> {
    let url = address(given).unwrap_or(given);
    let more = given.trim_start().strip_prefix(url).unwrap_or_default().trim();
    let text = |key: &str| says.model.get(key).and_then(Value::as_str);
    let info = says.info.as_ref().and_then(Value::as_object);
    let sglang = info.is_some_and(|info| info.contains_key("model_path")) || text("owned_by") == Some("sglang");
    let Some(model) = text("root").or(text("id")) else {
        return Err(Problem::bad_input(format!("{url} names no model in /v1/models"))
            .help("give the line that starts the server instead"));
    };
    let mut words = Words(vec![]);
    let mut assumed = Vec::new();
    let mut k = None;
    let accept = match sglang {
        true => of_sglang(&mut words, info, model),
        false => of_vllm(&mut words, says, model, more, &mut k, &mut assumed),
    };
    if info.is_none() {
        let with = if sglang { "" } else { " (started with VLLM_SERVER_DEV_MODE=1, it says them)" };
        assumed.push(format!("flags that {url} does not say have their defaults{with}: add them behind the address"));
    }
    let (clients, means) = load(&says.samples, if sglang { "sglang" } else { "vllm" });
    let mut line = line::shell(&format!("the flags of {url}"), &[words.0.join(" ").as_str(), more].join(" "))?;
    line.only_changes = true;
    Ok(Served { line, k, accept, clients, means, assumed })
}

/// The words of a line, quoted for a shell.
struct Words(Vec<String>);

impl Words {
    fn word(&mut self, text: &str) {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@".contains(c);
        self.0.push(if text.chars().all(plain) { text.to_owned() } else { quoted(text) });
    }

    /// A flag with its value. A setting that is not set has no flag.
    fn flag(&mut self, key: &str, value: &Value) {
        let name = key.replace('_', "-");
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        match text.as_str() {
            "null" | "None" | "auto" | "" => {}
            "true" | "True" => self.word(&format!("--{name}")),
            // SGLang's switches are off unless they are given.
            "false" | "False" if key.starts_with("disable") || SGLANG.contains(&key) => {}
            "false" | "False" => self.word(&format!("--no-{name}")),
            text => {
                self.word(&format!("--{name}"));
                self.word(text);
            }
        }
    }
}

/// vLLM's flags, from its configuration where it shows it, and from its metrics. Returns its acceptance.
fn of_vllm(
    words: &mut Words,
    says: &Says,
    model: &str,
    more: &str,
    k: &mut Option<u32>,
    assumed: &mut Vec<String>,
) -> Counted<String> {
    const CACHE: &str = "vllm:cache_config_info";
    let config = says.info.as_ref().and_then(|info| info.get("vllm_config"));
    let said = |table: &str, key: &str| -> Value {
        let shown = config.and_then(|c| c.get(table)?.get(key)).cloned();
        let label = || label_of(&says.samples, CACHE, key).filter(|_| table == "cache_config").map(Value::from);
        let card = || says.model.get(key).filter(|_| table == "model_config").cloned();
        shown.or_else(label).or_else(card).unwrap_or_default()
    };
    let named = said("model_config", "model");
    words.word("vllm");
    words.word("serve");
    words.word(named.as_str().unwrap_or(model));
    for (table, key) in VLLM {
        words.flag(if key == "cache_dtype" { "kv_cache_dtype" } else { key }, &said(table, key));
    }
    // A block is one of a group of layers, as in `engine.num_gpu_blocks`.
    let blocks = said("cache_config", "num_gpu_blocks");
    if let Some(blocks) = blocks.as_str().map_or_else(|| blocks.as_u64(), |text| text.parse().ok()).filter(|&n| n > 0) {
        words.flag("num_gpu_blocks_override", &json!(blocks));
    }
    let metrics = Metrics::since_start(&says.samples);
    let positions = metrics.accepted_per_pos.len() as u32;
    let speculative = config.and_then(|c| c.get("speculative_config")?.as_object());
    if let Some(speculative) = speculative {
        let keys = ["method", "model", "num_speculative_tokens", "num_speculative_tokens_per_batch_size"];
        // A module for multi-token prediction is a part of the model.
        let own = |key: &str, value: &Value| key == "model" && *value == named;
        let kept: Map<String, Value> = speculative
            .iter()
            .filter(|(key, value)| keys.contains(&key.as_str()) && !value.is_null() && !own(key, value))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        words.word("--speculative-config");
        words.word(&Value::Object(kept).to_string());
    } else if positions > 0 && !["-sc", "--spec"].iter().any(|flag| more.contains(flag)) {
        *k = Some(positions);
    }
    match (metrics.rounds_of_one_length(), metrics.drafts) {
        (Some(_), Some(rounds)) if rounds >= ENOUGH => {
            let share = |n: &u64| format!("{:.4}", *n as f64 / rounds as f64);
            let shares = metrics.accepted_per_pos.iter().map(share).collect::<Vec<_>>().join(",");
            Some((format!("marginal={shares}"), format!("drafts accepted as in {rounds} rounds that it counted")))
        }
        (None, Some(rounds)) if rounds >= ENOUGH => {
            assumed.push("the server drafts different lengths, so its counters give no acceptance by position".into());
            None
        }
        _ => None,
    }
}

/// SGLang's flags, from its arguments. Returns its acceptance.
fn of_sglang(words: &mut Words, info: Option<&Map<String, Value>>, model: &str) -> Counted<String> {
    let said = |key: &str| info.and_then(|info| info.get(key)).cloned().unwrap_or_default();
    let path = said("model_path");
    let path = path.as_str().unwrap_or(model);
    for word in ["sglang", "serve", "--model-path", path] {
        words.word(word);
    }
    for key in SGLANG {
        let value = match key {
            // The scheduler says how many tokens its KV has room for.
            "max_total_tokens" => info.and_then(|i| i.get("max_total_num_tokens")).cloned().unwrap_or(said(key)),
            "speculative_draft_model_path" if said(key).as_str() == Some(path) => Value::Null,
            _ => said(key),
        };
        words.flag(key, &value);
    }
    let steps = said("speculative_num_steps").as_u64()?;
    let length = info?.get("internal_states")?.get(0)?.get("avg_spec_accept_length")?.as_f64()?;
    let words = || format!("drafts accepted at one rate, which gives the {length:.2} tokens a round that it counted");
    (length > 1.0).then(|| (format!("mean-length={length:.4}@{steps}"), words()))
}

/// The server's clients now, and the means of the requests that it counted.
fn load(samples: &[Sample], engine: &str) -> (Counted<u32>, Counted<(f64, f64)>) {
    let of = |name: &str| total(samples, &format!("{engine}:{name}")).unwrap_or(0.0);
    let (running, waiting, ended) = match engine {
        "sglang" => ("num_running_reqs", "num_queue_reqs", "num_requests_total"),
        _ => ("num_requests_running", "num_requests_waiting", "request_success_total"),
    };
    let now = of(running) + of(waiting);
    let clients = (now >= 1.0).then(|| (now as u32, format!("{now} clients, as many as it has now")));
    // Tokens of requests that still run are counted too, so these must be few.
    let (ended, prompts, answers) = (of(ended), of("prompt_tokens_total"), of("generation_tokens_total"));
    let enough = ended >= ENOUGH_REQUESTS.max(20.0 * now) && prompts >= ended && answers >= ended;
    let means = enough.then(|| {
        let (input, output) = ((prompts / ended).round(), (answers / ended).round());
        (
            (input, output),
            format!("prompts of {input} and answers of {output} tokens, the means of {ended} that it counted"),
        )
    });
    (clients, means)
}
