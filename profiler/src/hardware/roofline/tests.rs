//! Tests of rooflines, with floors and without.

use super::RooflineSpec;
use super::pass::Form;
use crate::hardware::floors::{self, SMALL_KERNELS, floors};
use crate::hardware::gpus::GpuChoice;
use crate::hardware::models::Experts;
use foretoken_sim::{LatencyModel, PassShape};

fn spec(gpu: &str, model: &str) -> RooflineSpec {
    RooflineSpec::new(gpu, model)
}

/// A roofline whose kernels have no floors.
fn plain(gpu: &str, model: &str) -> RooflineSpec {
    RooflineSpec { floors: false, ..spec(gpu, model) }
}

const ONE: PassShape = PassShape { requests: 1, batched: 1, context: 0, pairs: 1 };

#[test]
fn a_decode_is_bound_by_weights_and_a_prefill_by_compute() {
    let m = plain("a100-80g", "vicuna-7b").build().unwrap();
    // A pass of this 7B model reads 13.2 GB of layers and output head (not the embedding) at 80 % of 2,039 GB/s.
    // The overheads are 0.62 ms.
    let moved = 2.0 * (6.738e9 - 32_000.0 * 4096.0) / (2039e9 * 0.8);
    assert!((m.pass_s(ONE) - (moved + 620e-6)).abs() < 1e-5, "{}", m.pass_s(ONE));
    let long = PassShape { requests: 1, batched: 2048, context: 0, pairs: 2048 * 2049 / 2 };
    let computed = 2.0 * 6.6e9 * 2048.0 / (312e12 * 0.6);
    assert!((m.pass_s(long) / computed - 1.0).abs() < 0.05, "{} against {computed}", m.pass_s(long));
}

#[test]
fn experts_are_read_as_they_are_visited() {
    let m = plain("a100-80g", "mixtral-8x7b").build().unwrap();
    let at = |n: u64| m.pass_s(PassShape { requests: 1, batched: n, context: 0, pairs: 0 });
    // A pass with one token reads 2 of a layer's 8 experts; a pass with many tokens reads all 8.
    let Form::Common(times) = &m.form else { panic!("the roofline has no floors") };
    let expert = times.blocks[0].bytes_s;
    assert!(((at(64) - at(1)) / expert - 6.0).abs() < 0.01);
}

#[test]
fn four_gpus_are_faster_but_not_four_times() {
    let alone = spec("a100-80g", "vicuna-33b").build().unwrap().pass_s(ONE);
    let four = RooflineSpec { tensor_parallel: 4, ..spec("a100-80g", "vicuna-33b") }.build().unwrap().pass_s(ONE);
    assert!(four < alone / 2.0 && four > alone / 4.0, "{four} against {alone}");
}

fn floored(gpu: &str, model: &str, tensor_parallel: u32) -> RooflineSpec {
    RooflineSpec { tensor_parallel, ..spec(gpu, model) }
}

/// A second way to compute: the kernels of a step of Llama-3.1-8B one by one, as a model of four products a layer.
#[test]
fn a_pass_with_floors_is_the_sum_of_its_kernels() {
    let fits = floors(&GpuChoice::preset("h100"), &crate::hardware::gpus::gpu("h100").unwrap().gpu);
    let (product, attention) = (&fits.products.bf16, &fits.attention);
    let bandwidth = 3.35e12;
    let (tokens, context) = (16.0, 1024.0);
    let time = |inputs: f64, outputs: f64| {
        let moved = inputs * outputs * 2.0 / (bandwidth * product.bandwidth);
        let computed = 2.0 * tokens * inputs * outputs / (989e12 * product.flops);
        product.floor_s + moved.hypot(computed)
    };
    let products = time(4096.0, 6144.0) + time(4096.0, 4096.0) + time(4096.0, 28672.0) + time(14336.0, 4096.0);
    let read = tokens * (context + 1.0) * 4096.0 / (bandwidth * attention.bandwidth);
    let pairs = 4.0 * 32.0 * 128.0 * tokens * (context + 1.0) / (989e12 * attention.flops);
    let numbers = tokens * 2.0 * 40.0 * 128.0 * 2.0 / (bandwidth * attention.token_bandwidth);
    let attended = attention.floor_s + attention.request_s * tokens + read.hypot(pairs) + numbers;
    let small = 2.0 * (8.0 * 4096.0 + 3.0 * 14336.0) * tokens / (bandwidth * fits.small.bandwidth);
    let layer = products + attended + small + SMALL_KERNELS * fits.small.floor_s;
    let whole = 32.0 * layer + time(4096.0, 128_256.0) + floors::PASS_S;
    let shape = PassShape { requests: 16, batched: 16, context: 16 * 1024, pairs: 16 * 1025 };
    let built = floored("h100", "llama-3.1-8b", 1).build().unwrap().pass_s(shape);
    assert!((built / whole - 1.0).abs() < 1e-9, "{built} against {whole}");
}

/// Measured on an H200 with this repository's kernels (`experiments/validation/h200`): 0.093 ms, where constant
/// overheads give 0.343 ms.
#[test]
fn the_pass_of_a_small_draft_is_nearly_all_floors() {
    let with = floored("h200", "vicuna-68m", 1).build().unwrap().pass_s(ONE);
    let without = plain("h200", "vicuna-68m").build().unwrap().pass_s(ONE);
    assert!((0.093e-3..0.15e-3).contains(&with), "{with}");
    assert!(without > 2.0 * with, "{without} against {with}");
}

/// The products of a group become smaller, but their floors do not: eight GPUs are far from eight times as fast.
#[test]
fn floors_slow_a_large_group() {
    let at = |gpus: u32| floored("h100", "llama-3.3-70b", gpus).build().unwrap().pass_s(ONE);
    let [one, eight] = [at(1), at(8)];
    assert!(eight > one / 6.0 && eight < one / 3.0, "{one} and {eight}");
}

#[test]
fn shares_that_are_given_take_the_place_of_measured_ones() {
    let at = |s: RooflineSpec| s.build().unwrap().pass_s(ONE);
    let own = floored("h100", "llama-3.1-8b", 2);
    let slower = RooflineSpec { bandwidth_efficiency: Some(0.4), ..own.clone() };
    assert!(at(slower) > 1.5 * at(own.clone()));
    let links = RooflineSpec { all_reduce_s: Some(1e-4), ..own.clone() };
    let floor = floors(&own.gpu, &own.gpu.gpu().unwrap()).all_reduce.floor_s;
    assert!((at(links) - at(own) - 64.0 * (1e-4 - floor)).abs() < 1e-9);
}

#[test]
fn memory_is_what_the_weights_leave() {
    let blocks = spec("a100-80g", "vicuna-7b").memory().unwrap().kv_blocks(16);
    // The expected number of KV blocks is (80 GiB · 0.9 − 2 GB of activations − 13.5 GB of weights) / 8 MiB.
    assert!((7300..7450).contains(&blocks), "{blocks}");
    assert_eq!(spec("l40", "llama-2-70b").memory().unwrap().kv_blocks(16), 0);
    let experts = Some(Experts { total: 8, active: 2 });
    let eight = RooflineSpec { experts, ..spec("a100-80g", "mistral-7b") };
    assert_eq!(eight.memory().unwrap().kv_blocks(16), 0, "eight experts' weights do not fit");
}

#[test]
fn bad_settings_name_their_key() {
    let fault = |s: RooflineSpec| s.check().unwrap_err().to_string();
    assert!(fault(spec("a100", "vicuna-7b")).contains("a100-40g"));
    assert!(fault(spec("h100", "vicuna7b")).contains("vicuna-7b"));
    let negative = RooflineSpec { pass_overhead_s: Some(-1.0), ..spec("h100", "vicuna-7b") };
    assert!(fault(negative).starts_with("pass_overhead_s"));
}

/// Four ranks of one GPU share the experts: a rank's pass takes the experts' times of all tokens on a quarter of the
/// weights. With no other rank's tokens it is faster than a GPU with all experts, and each token elsewhere slows it.
#[test]
fn ranks_share_experts_and_have_memory_of_their_own() {
    let alone = spec("h200", "qwen3-30b-a3b");
    let ranks = RooflineSpec { data_parallel: 4, expert_parallel: true, ..alone.clone() };
    let shape = PassShape { requests: 64, batched: 64, context: 64_000, pairs: 64_064 };
    let at = |all| ranks.build().unwrap().pass_beside(shape, all).as_s();
    assert!(at(64) < at(256) && at(256) < at(1024), "{} {} {}", at(64), at(256), at(1024));
    let equal = ranks.build().unwrap().pass(shape).as_s();
    assert!((equal - at(256)).abs() < 1e-12, "ranks of equal passes");
    // 64 tokens choose nearly all of 128 experts: a quarter of them is read on a rank, and all on one GPU.
    assert!(at(256) < 0.6 * alone.build().unwrap().pass_s(shape));
    let [own, shared] = [&alone, &ranks].map(|s| s.memory().unwrap().kv_bytes);
    let experts: f64 = alone.shape().unwrap().work().blocks.iter().map(|b| b.total * b.bytes).sum();
    assert!(((shared - own) / (0.75 * experts) - 1.0).abs() < 1e-9);
    let fault = |s: RooflineSpec| s.check().unwrap_err().to_string();
    assert!(fault(RooflineSpec { floors: false, ..ranks.clone() }).starts_with("floors"));
    assert!(fault(RooflineSpec { data_parallel: 2, ..spec("h100", "llama-3.1-8b") }).contains("no experts"));
}
