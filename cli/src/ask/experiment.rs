//! The experiment that answers a question, as TOML. All other commands take it.

use super::acceptance::Acceptance;
use super::drafter::{Cost, Drafter};
use super::line::Line;
use super::load::Asked;
use super::models::Model;
use super::server::{Server, Speculation};
use super::sglang_memory;
use foretoken_policies::PolicySpec;
use foretoken_profiler::hardware::RooflineSpec;
use foretoken_profiler::hardware::gpus::gpu;
use foretoken_profiler::hardware::models::Attention;
use foretoken_run::spec::problem::{Problem, Result};
use foretoken_run::vllm_table::stated_method;
use foretoken_servers::calibrate::recommend::Engine;
use foretoken_sim::DraftMethod;
use toml::{Table, Value};

/// Three seeds give an interval.
const SEEDS: [i64; 3] = [1, 2, 3];

/// GPUs that cannot multiply in bf16, nor unpack 8 and 4 bits in vLLM's Marlin kernels (compute capability below 8.0).
const OLD: [&str; 2] = ["v100-32g", "t4"];

pub struct Parts<'a> {
    pub line: &'a Line,
    pub server: &'a Server,
    pub speculation: &'a Speculation,
    pub target: &'a Model,
    pub drafter: &'a Drafter,
    pub gpu: &'static str,
    pub load: &'a Asked,
    /// Replicas that run in lock step.
    pub ranks: u32,
    pub acceptance: &'a Acceptance,
    /// The longest draft that is tried.
    pub longest: u32,
}

/// A key and a value as a table.
fn table(pairs: impl IntoIterator<Item = (&'static str, Value)>) -> Table {
    pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

/// The experiment without its policies, and what was taken for granted.
pub fn experiment(parts: &Parts) -> Result<(Table, Vec<String>)> {
    let mut assumed = Vec::new();
    let target = roofline(parts, &parts.target.value, true, &mut assumed)?;
    let draft = match &parts.drafter.cost {
        Cost::Model(model) => roofline(parts, model, false, &mut assumed)?,
        Cost::Lookup(s) => {
            let line = [("alpha_s", 0.0.into()), ("gamma_s", 0.0.into()), ("delta_s", (*s).into())];
            Value::Table(table([("linear", table(line).into())]))
        }
    };
    let engine = engine(parts, &mut assumed);
    let mut experiment = table([
        ("name", "ask".into()),
        ("seeds", SEEDS.map(Value::from).to_vec().into()),
        ("hardware", table([("target", target), ("draft", draft)]).into()),
        ("engine", engine.into()),
        ("workload", parts.load.workload(parts.server.replicas / parts.ranks).into()),
        ("acceptance", table([("source", parts.acceptance.source.clone())]).into()),
    ]);
    if parts.ranks > 1 {
        let ranks = [("replicas", parts.ranks.into()), ("router", "vllm-dp".into()), ("lock_step", true.into())];
        experiment.insert("fleet".into(), table(ranks).into());
    }
    Ok((experiment, assumed))
}

/// A model on the GPUs of the line.
fn roofline(parts: &Parts, model: &Value, is_target: bool, assumed: &mut Vec<String>) -> Result<Value> {
    let Server { tensor_parallel, expert_parallel, kv_bits, memory_utilization, engine, .. } = *parts.server;
    let tensor_parallel = match is_target {
        true => tensor_parallel,
        false => parts.server.draft_tensor_parallel.unwrap_or(tensor_parallel),
    };
    let mut keys = table([("gpu", parts.gpu.into()), ("model", model.clone())]);
    let mut set = |key: &str, value: Value| drop(keys.insert(key.to_owned(), value));
    if tensor_parallel > 1 {
        set("tensor_parallel", tensor_parallel.into());
    }
    if parts.ranks > 1 && is_target {
        set("data_parallel", parts.ranks.into());
    }
    if expert_parallel && is_target {
        set("expert_parallel", true.into());
    }
    if let Some(bits) = kv_bits {
        set("kv_bits", bits.into());
    }
    let by_default = || {
        let gib = memory_gib(parts.gpu);
        let table = parts.server.settings.get("sglang").and_then(Value::as_table);
        let chunk = table.and_then(|table| table.get("chunked_prefill_size")).and_then(Value::as_integer);
        let chunk = chunk.and_then(|chunk| u32::try_from(chunk).ok()).unwrap_or_else(|| sglang_memory::chunk(gib));
        sglang_memory::share(gib, tensor_parallel, chunk)
    };
    let share = memory_utilization.or_else(|| (engine == Engine::Sglang).then(by_default));
    if let Some(share) = share.filter(|_| is_target) {
        set("memory_utilization", share.into());
        // SGLang's share is that of weights and KV; activations are beside it.
        if engine == Engine::Sglang {
            set("activation_bytes", 0.0.into());
        }
    }
    // A file is read when the experiment is loaded, so its shape is checked in its place.
    let shape = match is_target {
        true => Value::try_from(&parts.target.shape).expect("a shape is plain data"),
        false => model.clone(),
    };
    let checked = |weight_only: bool| {
        let mut keys = keys.clone();
        keys.insert("model".into(), shape.clone());
        keys.insert("weight_only".into(), weight_only.into());
        let spec: RooflineSpec = Value::Table(keys).try_into().ok()?;
        Some(spec.check())
    };
    let lacks = matches!(checked(false), Some(Err(ref e)) if e.key.starts_with("gpu"));
    if lacks {
        let (name, least) = (parts.gpu, least_bits(parts.target));
        if OLD.contains(&name) {
            let at = parts.server.quantization.as_ref().map_or(&parts.server.model.span, |w| &w.span);
            return Err(parts
                .line
                .wrong(at, format!("{name} cannot multiply in {least}"))
                .help("take a GPU of compute capability 8.0 or later, or a model with 16-bit weights"));
        }
        keys.insert("weight_only".into(), true.into());
        if is_target {
            assumed.push(format!("{least} weights are multiplied in bf16, as {name} lacks {least}"));
        }
    }
    Ok(Value::Table(table([("roofline", keys.into())])))
}

/// The memory of a GPU, GiB.
fn memory_gib(name: &str) -> f64 {
    gpu(name).map_or(80.0, |g| g.gpu.memory_bytes / f64::from(1u32 << 30))
}

/// The narrowest precision in which the model multiplies.
fn least_bits(model: &Model) -> &'static str {
    let bits = &model.shape.bits;
    let least = [Some(bits.activations), bits.dense_activations, Some(bits.expert_activations)];
    let least = least.into_iter().flatten().fold(16.0, f64::min);
    if least <= 4.0 { "FP4" } else { "FP8" }
}

fn engine(parts: &Parts, assumed: &mut Vec<String>) -> Table {
    let mut engine: Table =
        parts.server.settings.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect();
    let mut taken = Vec::new();
    let gib = memory_gib(parts.gpu);
    // vllm/engine/arg_utils.py and sglang/srt/server_args.py: what the API server takes by the GPU's memory.
    let large = gib >= 70.0 && !parts.gpu.contains("a100");
    let (seqs, tokens): (i64, i64) = match (parts.server.engine, large) {
        (Engine::Vllm, true) => (1024, 8192),
        (Engine::Vllm, false) => (256, 2048),
        (Engine::Sglang, _) => (2048, sglang_memory::chunk(gib).into()),
    };
    if parts.server.engine == Engine::Sglang {
        let sglang = engine.entry("sglang").or_insert_with(|| Table::new().into());
        let sglang = sglang.as_table_mut().expect("a table");
        if !sglang.contains_key("chunked_prefill_size") {
            sglang.insert("chunked_prefill_size".into(), tokens.into());
            taken.push(format!("chunked-prefill-size {tokens}"));
        }
        if !parts.server.settings.contains_key("max_num_seqs") {
            sglang.insert("speculative_max_running_requests".into(), 48.into());
            taken.push(format!("max-running-requests {seqs}, 48 with a drafter"));
            engine.insert("max_num_seqs".into(), seqs.into());
        }
        engine.insert("max_num_batched_tokens".into(), tokens.into());
    }
    for (key, value) in [("max_num_seqs", seqs), ("max_num_batched_tokens", tokens)] {
        if !engine.contains_key(key) {
            engine.insert(key.into(), Value::from(value));
            taken.push(format!("{key} {value}"));
        }
    }
    // Without chunks a step must hold a whole prompt: vLLM raises the budget to the longest one.
    if engine.get("chunked_prefill").and_then(Value::as_bool) == Some(false) {
        let longest = engine.get("max_model_len").and_then(Value::as_integer);
        let budget = engine["max_num_batched_tokens"].as_integer().unwrap_or(tokens).max(longest.unwrap_or(0));
        engine.insert("max_num_batched_tokens".into(), budget.into());
        if longest.is_none() {
            engine.insert("max_model_len".into(), budget.into());
            taken.push(format!("max_model_len {budget}"));
        }
    }
    if !taken.is_empty() {
        assumed.push(format!("{}, the engine's default on {}", taken.join(" and "), parts.gpu));
    }
    let method = stated_method(parts.speculation.method);
    engine.extend(method.map(|method| ("method".to_owned(), method.into())));
    if matches!(parts.drafter.cost, Cost::Lookup(_)) {
        engine.insert("draft_prefill".into(), false.into());
    }
    // vLLM does not schedule ahead with a drafter that looks text up on the host.
    if matches!(parts.speculation.method, DraftMethod::Ngram | DraftMethod::Suffix) {
        engine.remove("async_scheduling");
    }
    engine.insert("max_draft_len".into(), parts.longest.into());
    engine
}

/// The experiment as text, with its policies, below a comment.
pub fn text(head: &str, experiment: &Table, policies: &[PolicySpec]) -> Result<String> {
    let mut whole = experiment.clone();
    let policies = policies.iter().map(Value::try_from).collect::<std::result::Result<Vec<Value>, _>>();
    let failed = |e: toml::ser::Error| Problem::failed(format!("the experiment cannot be written: {e}"));
    whole.insert("policies".into(), policies.map_err(failed)?.into());
    let text = toml::to_string(&whole).map_err(failed)?;
    Ok(format!("# {head}\n{text}"))
}

/// Checks that the GPUs share the model evenly, and that it leaves room for KV.
pub fn fits(parts: &Parts, experiment: &Table) -> Result<()> {
    let shape = &parts.target.shape;
    let mut heads = shape.layers.iter().filter_map(|group| match group.attention {
        Attention::Grouped { heads, .. } | Attention::Latent { heads, .. } | Attention::Compressed { heads, .. } => {
            Some(heads)
        }
        Attention::Recurrent { .. } | Attention::None => None,
    });
    let gpus = parts.server.tensor_parallel;
    if let Some(heads) = heads.find(|heads| !heads.is_multiple_of(gpus)) {
        let why = format!("{} has {heads} attention heads, which {gpus} GPUs cannot share evenly", shape.name);
        let wrong = parts.line.wrong(&parts.server.model.span, why);
        return Err(wrong.help("neither engine starts so: --tensor-parallel-size must divide the number of heads"));
    }
    let target = &experiment["hardware"]["target"];
    let mut keys = target["roofline"].as_table().expect("a table").clone();
    keys.insert("model".into(), Value::try_from(&parts.target.shape).expect("a shape is plain data"));
    let spec: RooflineSpec =
        Value::Table(keys).try_into().map_err(|e: toml::de::Error| Problem::failed(e.to_string()))?;
    let gib = |bytes: f64| bytes / f64::from(1u32 << 30);
    let Ok(memory) = spec.memory() else { return Ok(()) };
    let n = f64::from(parts.server.tensor_parallel);
    let weights = parts.target.shape.work().weight_bytes;
    if memory.kv_bytes < 16.0 * memory.kv_bytes_token && !parts.server.settings.contains_key("num_gpu_blocks") {
        let has = gpu(parts.gpu).map_or(0.0, |g| gib(g.gpu.memory_bytes)) * spec.memory_utilization;
        let gpus = if n > 1.0 { format!("{n} x {}", parts.gpu) } else { parts.gpu.to_owned() };
        let least = (1..=64u32).find(|n| {
            let room = f64::from(*n) * (has * f64::from(1u32 << 30) - spec.activation_bytes);
            n.is_power_of_two() && room > 1.05 * weights
        });
        let help = least.map_or(String::new(), |n| format!("it needs --tensor-parallel-size {n} of these, "));
        return Err(parts
            .line
            .wrong(
                &parts.server.model.span,
                format!(
                    "{} does not fit: its weights are {:.1} GiB, and {gpus} may use {:.1} GiB",
                    parts.target.shape.name,
                    gib(weights),
                    n * has
                ),
            )
            .help(format!("{help}a larger GPU, or fewer bits (--quantization fp8)")));
    }
    Ok(())
}
