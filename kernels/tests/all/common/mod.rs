//! A small Llama with random weights, and functions that run it directly, without the engine.

pub mod pair;
pub mod widened;

use foretoken_kernels::cpu::Cpu;
use foretoken_kernels::device::{Choice, Device};
use foretoken_kernels::forward::{Limits, Llama};
use foretoken_kernels::model::LlamaShape;
use foretoken_kernels::paged::{Batch, Logits};
use foretoken_kernels::weights::{Dtype, RandomWeights, TensorData, Weights};

pub const LIMITS: Limits = Limits { kv_blocks: 64, max_rows: 256, max_logit_rows: 128 };

/// The shape of a small Llama with two key-value heads. Its sizes are not multiples of the numbers that a kernel
/// handles at a time.
pub fn shape() -> LlamaShape {
    LlamaShape {
        layers: 3,
        hidden: 72,
        heads: 6,
        kv_heads: 2,
        head_dim: 20,
        intermediate: 101,
        vocab: 97,
        tied: false,
        qk_norm: false,
        rms_norm_eps: 1e-5,
        rope_theta: 1e4,
        rope_scaling: None,
        max_positions: 512,
    }
}

/// Random weights that are ten times as large as usual, so that attention weights and logits are far from uniform.
pub struct Strong(pub RandomWeights);

impl Weights for Strong {
    fn tensor(&self, name: &str) -> TensorData<'_> {
        match self.0.tensor(name) {
            TensorData::Random { luck, scale, dtype } => TensorData::Random { luck, scale: 10.0 * scale, dtype },
            other => other,
        }
    }

    fn dtype(&self) -> Dtype {
        self.0.dtype
    }
}

pub fn llama(cpu: &mut Cpu, seed: u64, dtype: Dtype) -> Llama<Cpu> {
    load(cpu, &shape(), seed, dtype)
}

pub fn load(cpu: &mut Cpu, shape: &LlamaShape, seed: u64, dtype: Dtype) -> Llama<Cpu> {
    Llama::load(cpu, shape, &Strong(RandomWeights { seed, dtype }), LIMITS).unwrap()
}

/// Returns a prompt of `length` tokens without a pattern. Another `salt` gives other tokens.
pub fn prompt(length: usize, salt: u32) -> Vec<u32> {
    (0..length as u32).map(|i| (i * i * 31 + i * 17 + salt * 53) % shape().vocab).collect()
}

/// Returns the bits of the last pass's logits: one list of numbers per row.
pub fn bits(llama: &Llama<Cpu>) -> Vec<Vec<u32>> {
    (0..llama.logits().rows()).map(|r| llama.logits().row(r).iter().map(|x| x.to_bits()).collect()).collect()
}

/// Runs the new tokens `tokens` of one request as a chain, after `computed` tokens whose KV is already stored. Returns
/// the bits of the logits of each new token.
pub fn run(llama: &mut Llama<Cpu>, cpu: &mut Cpu, tokens: &[u32], computed: usize, table: &[u32]) -> Vec<Vec<u32>> {
    let mut batch = Batch::default();
    batch.push_chain(tokens, computed, table, Logits::All);
    llama.forward(cpu, &batch).unwrap();
    bits(llama)
}

/// Returns the most likely token of row `row` of the last pass's logits.
pub fn chosen(llama: &Llama<Cpu>, cpu: &mut Cpu, row: usize) -> u32 {
    let mut out: Vec<Choice> = Vec::new();
    cpu.top_k(llama.logits(), 1, &mut out).unwrap();
    out[row].token
}
