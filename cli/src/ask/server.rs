//! The server that a line starts, in words that both engines share.

use super::flags::Given;
use super::line::{Line, Word};
use foretoken_policies::{BatchRange, PolicySpec};
use foretoken_profiler::hardware::models::ModelShape;
use foretoken_run::spec::problem::Result;
use foretoken_servers::calibrate::recommend::Engine;
use foretoken_sim::DraftMethod;
use std::collections::BTreeMap;

/// The server that a line starts.
#[derive(Debug)]
pub struct Server {
    pub engine: Engine,
    /// The model's name or path, with its place.
    pub model: Word,
    pub tensor_parallel: u32,
    /// Replicas (data parallelism); the load is shared evenly.
    pub replicas: u32,
    pub expert_parallel: bool,
    pub kv_bits: Option<f64>,
    pub memory_utilization: Option<f64>,
    /// The drafter's own quantisation, and the GPUs over which it is split; `None` if as the target's.
    pub draft_quantization: Option<Word>,
    pub draft_tensor_parallel: Option<u32>,
    /// The policy by which the engine changes draft lengths while it runs.
    pub adaptive: Option<PolicySpec>,
    /// The flags of quantisation and of the data type.
    pub quantization: Option<Word>,
    pub dtype: Option<Word>,
    /// Settings of `[engine]`.
    pub settings: BTreeMap<&'static str, toml::Value>,
    /// The place of the longest request that the server allows.
    pub longest_at: Option<std::ops::Range<usize>>,
    pub speculation: Option<Speculation>,
    /// All flags that have to do with speculation.
    pub speculative: Vec<Given>,
    /// Flags that were used, as written.
    pub used: Vec<String>,
    pub no_matter: Vec<String>,
    pub unknown: Vec<String>,
    /// What the answer takes for granted.
    pub assumed: Vec<String>,
}

/// The drafter that a line gives its server.
#[derive(Clone, Debug)]
pub struct Speculation {
    pub method: DraftMethod,
    /// The draft model's name or path, with its place.
    pub drafter: Option<Word>,
    /// Tokens that are drafted.
    pub k: u32,
    /// vLLM's table by batch size; empty without one.
    pub table: Vec<BatchRange>,
    /// The word that the method stands in.
    pub at: Word,
}

impl Server {
    /// A server with nothing but a model.
    pub fn of(engine: Engine, model: Word) -> Server {
        Server {
            engine,
            model,
            tensor_parallel: 1,
            replicas: 1,
            expert_parallel: false,
            kv_bits: None,
            memory_utilization: None,
            draft_quantization: None,
            draft_tensor_parallel: None,
            adaptive: None,
            quantization: None,
            dtype: None,
            settings: BTreeMap::new(),
            longest_at: None,
            speculation: None,
            speculative: Vec::new(),
            used: Vec::new(),
            no_matter: Vec::new(),
            unknown: Vec::new(),
            assumed: Vec::new(),
        }
    }

    /// Number of replicas that run in lock step, because they share the experts of the model `shape`: vLLM's, of a
    /// mixture of experts (`v1/engine/core.py`, `DPEngineCoreProc`). 1 if replicas run apart.
    pub fn ranks(&self, shape: &ModelShape) -> u32 {
        let shared = self.engine == Engine::Vllm && shape.work().sparse_layers > 0.0;
        if shared { self.replicas } else { 1 }
    }

    /// Sets a key of `[engine.sglang]`.
    pub fn set_sglang(&mut self, key: &str, value: impl Into<toml::Value>) {
        let table = self.settings.entry("sglang").or_insert_with(|| toml::Table::new().into());
        table.as_table_mut().expect("a table").insert(key.into(), value.into());
    }

    /// Sets a key of `[engine]`.
    pub fn set(&mut self, key: &'static str, value: impl Into<toml::Value>) {
        self.settings.insert(key, value.into());
    }
}

/// The bits of a number in the KV cache.
pub fn kv_bits(line: &Line, flag: &Given) -> Result<Option<f64>> {
    match flag.text() {
        "auto" => Ok(None),
        t if t.starts_with("fp8") => Ok(Some(8.0)),
        "int8" => Ok(Some(8.0)),
        "nvfp4" | "fp4" | "fp4_e2m1" | "int4" => Ok(Some(4.5)),
        "bf16" | "bfloat16" | "fp16" | "float16" | "half" => Ok(Some(16.0)),
        other => Err(line
            .wrong(flag.place(), format!("{other} is no type of the KV cache that is known"))
            .help("known are auto, fp8 and its kinds, int8, fp4, bfloat16, float16")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use foretoken_profiler::hardware::models::entry;

    #[test]
    fn replicas_that_share_experts_run_in_lock_step() {
        let ranks = |engine, model: &str| {
            let word = Word { text: model.to_owned(), span: 0..0 };
            Server { replicas: 4, ..Server::of(engine, word) }.ranks(&entry(model).unwrap().shape)
        };
        assert_eq!(ranks(Engine::Vllm, "qwen3-30b-a3b"), 4);
        assert_eq!(ranks(Engine::Vllm, "llama-3.1-8b"), 1);
        assert_eq!(ranks(Engine::Sglang, "qwen3-30b-a3b"), 1);
    }
}
