//! The measurements of `gpu-check`. Times are medians and come from the GPU's own clock. Inputs are random, because a
//! GPU multiplies zeros faster.

use foretoken_kernels::cuda::{Buffer, Cuda, CudaError};
use foretoken_kernels::device::Device;
use foretoken_kernels::forward::{Limits, Llama, LoadError};
use foretoken_kernels::model::{LlamaShape, preset};
use foretoken_kernels::paged::{Batch, Logits};
use foretoken_kernels::weights::{Dtype, RandomWeights, TensorData, Weights, tensors};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const WEIGHTS: RandomWeights = RandomWeights { seed: 1, dtype: Dtype::Bf16 };

/// Calls `run` three times to warm up, then `repeats` times with timing. Returns (median seconds, P90 / P10 − 1 of the
/// times).
fn median(
    cuda: &mut Cuda,
    repeats: usize,
    mut run: impl FnMut(&mut Cuda) -> Result<(), CudaError>,
) -> Result<(f64, f64), CudaError> {
    // The first pass loads the kernels, the second records a CUDA graph.
    for _ in 0..3 {
        run(cuda)?;
    }
    let mut times = Vec::new();
    for _ in 0..repeats {
        times.push(cuda.timed(&mut run)?.1.as_secs_f64());
    }
    times.sort_by(f64::total_cmp);
    let quantile = |share: f64| times[((times.len() - 1) as f64 * share).round() as usize];
    Ok((quantile(0.5), quantile(0.9) / quantile(0.1) - 1.0))
}

pub fn copy(cuda: &mut Cuda) -> Result<Value, CudaError> {
    let bytes = 4u64 << 30;
    let time: Duration = cuda.copy_time(bytes)?;
    Ok(json!({ "bytes_per_s": 2.0 * bytes as f64 / time.as_secs_f64(), "seconds": time.as_secs_f64() }))
}

/// Makes a buffer with `rows` rows of `width` random activations each.
fn activations(cuda: &mut Cuda, rows: usize, width: usize) -> Result<Buffer, CudaError> {
    let table = cuda.matrix(&[(WEIGHTS.tensor("activations"), rows)], width, Dtype::Bf16)?;
    let gains = cuda.vector(TensorData::Ones, width)?;
    let (mut wide, mut narrow) = (cuda.buffer(rows, width)?, cuda.narrow_buffer(rows, width)?);
    let mut batch = Batch::default();
    let tokens: Vec<u32> = (0..rows as u32).collect();
    batch.push_chain(&tokens, 0, &vec![0; rows.div_ceil(16)], Logits::Skip);
    cuda.embed(&table, &batch, &mut wide)?;
    cuda.norm(&mut wide, None, &gains, 1e-5, &mut narrow)?;
    cuda.synchronize()?;
    Ok(narrow)
}

pub fn matmul_peak(cuda: &mut Cuda) -> Result<Value, CudaError> {
    let mut best: f64 = 0.0;
    let mut all = Vec::new();
    for n in [4096, 8192, 16_384] {
        let x = activations(cuda, n, n)?;
        let weights = cuda.matrix(&[(WEIGHTS.tensor("weights"), n)], n, Dtype::Bf16)?;
        let mut out = cuda.narrow_buffer(n, n)?;
        let (time, spread) = median(cuda, 15, |cuda| cuda.matmul(&x, &weights, &mut out))?;
        let flops = 2.0 * (n as f64).powi(3) / time;
        best = best.max(flops);
        all.push(json!({ "n": n, "flops": flops, "seconds": time, "spread": spread }));
    }
    Ok(json!({ "flops": best, "sizes": all }))
}

fn vicuna() -> LlamaShape {
    preset("vicuna-7b").expect("a preset")
}

fn load(cuda: &mut Cuda, shape: &LlamaShape, limits: Limits) -> Result<Llama<Cuda>, CudaError> {
    Llama::load(cuda, shape, &WEIGHTS, limits).map_err(|e| match e {
        LoadError::Device(e) => e,
        LoadError::Memory(e) => CudaError::Unsupported(e.to_string()),
    })
}

/// Number of weights in the matrices that a pass reads completely: all weights of the model except the embedding and
/// the norms.
fn matrix_numbers(shape: &LlamaShape) -> f64 {
    let matrices = tensors(shape).into_iter().filter(|t| t.shape.len() == 2 && t.name != "model.embed_tokens.weight");
    matrices.map(|t| t.len() as f64).sum()
}

fn tokens(count: usize) -> Vec<u32> {
    (0..count as u32).map(|i| (i * 7919 + 13) % 32_000).collect()
}

/// The times of repeated passes over the same tokens.
struct Timed {
    /// Median time of a pass on the GPU, in seconds.
    seconds: f64,
    /// Spread of the times of the passes on the GPU: P90 / P10 − 1.
    spread: f64,
    /// Median time that the host needs to start the pass, in seconds. It does not include the time of the pass on the
    /// device.
    host_seconds: f64,
}

/// Times passes of vicuna-7b with one request: each pass runs `new` tokens after a context of `context` tokens.
fn one_request(cuda: &mut Cuda, context: usize, new: usize) -> Result<Timed, CudaError> {
    let blocks = (context + new).div_ceil(16) as u32;
    let limits = Limits { kv_blocks: blocks, max_rows: context.max(new), max_logit_rows: new };
    let mut llama = load(cuda, &vicuna(), limits)?;
    let table: Vec<u32> = (0..blocks).collect();
    let mut batch = Batch::default();
    batch.push_chain(&tokens(context), 0, &table, Logits::Skip);
    llama.forward(cuda, &batch)?;
    let mut host = Vec::new();
    let (seconds, spread) = median(cuda, 40, |cuda| {
        let begin = Instant::now();
        batch.clear();
        batch.push_chain(&tokens(new), context, &table, Logits::All);
        llama.forward(cuda, &batch)?;
        host.push(begin.elapsed().as_secs_f64());
        Ok(())
    })?;
    host.sort_by(f64::total_cmp);
    Ok(Timed { seconds, spread, host_seconds: host[host.len() / 2] })
}

pub fn decode(cuda: &mut Cuda) -> Result<Value, CudaError> {
    let Timed { seconds, spread, host_seconds } = one_request(cuda, 128, 1)?;
    let bytes = 2.0 * matrix_numbers(&vicuna());
    Ok(json!({
        "bytes_per_s": bytes / seconds,
        "seconds": seconds,
        "spread": spread,
        "host_seconds": host_seconds,
        "context": 128,
        "graphs": cuda.graphs(),
    }))
}

pub fn verify(cuda: &mut Cuda) -> Result<Value, CudaError> {
    let mut all = Vec::new();
    for new in [2, 4, 8, 16, 32, 64] {
        let Timed { seconds, spread, .. } = one_request(cuda, 512, new)?;
        all.push(json!({ "tokens": new, "seconds": seconds, "spread": spread }));
    }
    Ok(json!({ "context": 512, "passes": all }))
}

pub fn prefill(cuda: &mut Cuda) -> Result<Value, CudaError> {
    let (shape, new) = (vicuna(), 4096);
    let limits = Limits { kv_blocks: 256, max_rows: new, max_logit_rows: 1 };
    let mut llama = load(cuda, &shape, limits)?;
    let table: Vec<u32> = (0..256).collect();
    let mut batch = Batch::default();
    batch.push_chain(&tokens(new), 0, &table, Logits::Last);
    let (time, spread) = median(cuda, 10, |cuda| llama.forward(cuda, &batch))?;
    let head = f64::from(shape.vocab) * f64::from(shape.hidden);
    let products = 2.0 * ((matrix_numbers(&shape) - head) * new as f64 + head);
    // Floating-point operations of attention: the scores and the weighted values over the tokens that each new token
    // attends to. New token i attends to itself and to the new tokens before it, so the sum over all new tokens is n(n
    // + 1) / 2.
    let seen = new as f64 * (new as f64 + 1.0) / 2.0;
    let attention = 4.0 * seen * shape.q_width() as f64 * f64::from(shape.layers);
    Ok(json!({
        "flops": (products + attention) / time,
        "products_alone_flops": products / time,
        "seconds": time,
        "spread": spread,
    }))
}

pub fn attention(cuda: &mut Cuda) -> Result<Value, CudaError> {
    let mut all = Vec::new();
    for (model, requests) in [("vicuna-7b", 1), ("vicuna-7b", 8), ("llama-3.1-8b", 1), ("llama-3.1-8b", 8)] {
        all.push(attention_of(cuda, model, requests)?);
    }
    // Element 0 of `all` is the attention of one request of vicuna-7b. Only this one has a required bandwidth, so only
    // its bandwidth is returned as `bytes_per_s`, which `verdicts` reads.
    Ok(json!({ "bytes_per_s": all[0]["bytes_per_s"], "shapes": all }))
}

fn attention_of(cuda: &mut Cuda, model: &str, requests: usize) -> Result<Value, CudaError> {
    let (context, chunk) = (16_384, 4096);
    let shape = LlamaShape { layers: 1, max_positions: 1 << 17, ..preset(model).expect("a preset") };
    let width = shape.q_width() + 2 * shape.kv_width();
    let per_request = context / 16;
    let mut kv = cuda.kv(&shape, Dtype::Bf16, (requests * per_request) as u32)?;
    let table = |request: usize| -> Vec<u32> { (0..per_request).map(|b| (b * requests + request) as u32).collect() };
    let mut qkv = activations(cuda, chunk, width)?;
    let mut batch = Batch::default();
    for request in 0..requests {
        for first in (0..context).step_by(chunk) {
            batch.clear();
            batch.push_chain(&tokens(chunk), first, &table(request), Logits::Skip);
            cuda.rope_and_store(&mut qkv, &batch, &mut kv, 0)?;
        }
    }
    batch.clear();
    for request in 0..requests {
        batch.push_chain(&[1], context - 1, &table(request), Logits::Skip);
    }
    let queries = activations(cuda, requests, width)?;
    let mut out = cuda.narrow_buffer(requests, shape.q_width())?;
    // One timed pass calls the attention 20 times, so that the time to start the pass is negligible. The keys and
    // values are larger than any cache.
    let calls = 20;
    let (time, spread) = median(cuda, 15, |cuda| {
        cuda.pass(|cuda| (0..calls).try_for_each(|_| cuda.attention(&queries, &batch, &kv, 0, &mut out)))
    })?;
    let bytes = (requests * context * 2 * shape.kv_width() * 2) as f64;
    let time = time / f64::from(calls);
    Ok(json!({ "model": model, "requests": requests, "bytes_per_s": bytes / time, "seconds": time, "spread": spread }))
}
