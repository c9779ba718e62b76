//! Compares each operation of the CUDA device with the same operation of the CPU, on random inputs.

use crate::support::{Scale, both, close, downloaded, empty, gains, luck, matrices, numbers, same};
use foretoken_kernels::cpu::Cpu;
use foretoken_kernels::cuda::Cuda;
use foretoken_kernels::device::Device;
use foretoken_kernels::model::{LlamaShape, preset};
use foretoken_kernels::paged::{Batch, Logits};
use foretoken_kernels::weights::{Dtype, RandomWeights, TensorData, Weights};
use foretoken_sim::tree::ROOT;
use half::{bf16, f16};

/// Tolerance of [`close`] for results that differ in two ways: the CPU and the GPU compute the sums in different
/// orders, and the GPU rounds each sum to bf16 once.
const ONE_ROUNDING: f32 = 0.006;

fn cpu() -> Cpu {
    Cpu::new(std::thread::available_parallelism().map_or(1, usize::from)).unwrap()
}

pub fn rows_are_normed_gated_and_gathered(cuda: &mut Cuda, scale: Scale) {
    let cpu = &mut cpu();
    for (rows, width) in scale.sizes(&[(1, 72), (3, 101), (5, 6), (2, 1100)], &[(1, 4096), (700, 4096), (33, 11008)]) {
        let (mut x, mut cuda_x) = both(cpu, cuda, &numbers(rows * width), width, true);
        let (delta, cuda_delta) = both(cpu, cuda, &numbers(rows * width), width, false);
        let (gain, cuda_gain) = gains(cpu, cuda, &numbers(width));
        for with_delta in [false, true] {
            let (mut out, mut cuda_out) = empty(cpu, cuda, rows, width, false);
            cpu.norm(&mut x, with_delta.then_some(&delta), &gain, 1e-5, &mut out).unwrap();
            cuda.norm(&mut cuda_x, with_delta.then_some(&cuda_delta), &cuda_gain, 1e-5, &mut cuda_out).unwrap();
            same("norm", cuda, &cuda_out, &out, ONE_ROUNDING);
            same("sum before the norm", cuda, &cuda_x, &x, 0.0);
        }

        let (gate_up, cuda_gate_up) = both(cpu, cuda, &numbers(2 * rows * width), 2 * width, false);
        let (mut out, mut cuda_out) = empty(cpu, cuda, rows, width, false);
        cpu.swiglu(&gate_up, &mut out).unwrap();
        cuda.swiglu(&cuda_gate_up, &mut cuda_out).unwrap();
        same("swiglu", cuda, &cuda_out, &out, ONE_ROUNDING);

        let chosen = [rows as u32 - 1, 0, rows as u32 / 2];
        let (mut out, mut cuda_out) = empty(cpu, cuda, 3, width, true);
        cpu.gather(&x, &chosen, &mut out).unwrap();
        cuda.gather(&cuda_x, &chosen, &mut cuda_out).unwrap();
        same("gather", cuda, &cuda_out, &out, 0.0);

        let (table, cuda_table) = matrices(cpu, cuda, &numbers(9 * width), width);
        let mut batch = Batch::default();
        batch.push_chain(&[8, 0, 3], 0, &[0], Logits::All);
        cpu.embed(&table, &batch, &mut out).unwrap();
        cuda.embed(&cuda_table, &batch, &mut cuda_out).unwrap();
        same("embed", cuda, &cuda_out, &out, 0.0);
    }
}

pub fn products_of_all_sizes(cuda: &mut Cuda, scale: Scale) {
    let cpu = &mut cpu();
    let small = [(72, 97), (101, 16), (400, 40), (1056, 33), (8, 5)];
    for (inputs, outputs) in scale.sizes(&small, &[(4096, 4096), (4096, 32000), (11008, 4096)]) {
        let (weights, cuda_weights) = matrices(cpu, cuda, &numbers(inputs * outputs), inputs);
        for rows in scale.sizes(&[1, 3, 8, 9, 16, 31, 32, 33, 40], &[512]) {
            let (x, cuda_x) = both(cpu, cuda, &numbers(rows * inputs), inputs, false);
            for wide in [false, true] {
                let (mut out, mut cuda_out) = empty(cpu, cuda, rows, outputs, wide);
                cpu.matmul(&x, &weights, &mut out).unwrap();
                cuda.matmul(&cuda_x, &cuda_weights, &mut cuda_out).unwrap();
                let what = format!("{rows} rows of {inputs} times {outputs}");
                // The CPU and the GPU compute f32 sums in different orders. The GPU also rounds the result to bf16 if
                // it is not `wide`.
                same(&what, cuda, &cuda_out, &out, if wide { 1e-4 } else { ONE_ROUNDING });
            }
        }
    }
}

/// Reads the rows `0..rows` of the weight matrix `table` from the GPU, by embedding the tokens `0..rows`.
fn rows_of(cuda: &mut Cuda, table: &<Cuda as Device>::Matrix, rows: usize, width: usize) -> Vec<f32> {
    let mut out = cuda.buffer(rows, width).unwrap();
    let mut batch = Batch::default();
    let tokens: Vec<u32> = (0..rows as u32).collect();
    batch.push_chain(&tokens, 0, &vec![0; rows.div_ceil(16)], Logits::Skip);
    cuda.embed(table, &batch, &mut out).unwrap();
    downloaded(cuda, &out)
}

pub fn random_weights_are_the_hosts(cuda: &mut Cuda, scale: Scale) {
    let cpu = &mut cpu();
    for (rows, width) in scale.sizes(&[(5, 101), (3, 64)], &[(1000, 4096)]) {
        let seed = luck().bits(0);
        for dtype in [Dtype::Bf16, Dtype::F32] {
            let weights = RandomWeights { seed, dtype };
            let parts = [(weights.tensor("a"), rows), (weights.tensor("b"), 2 * rows)];
            let (table, cuda_table) =
                (cpu.matrix(&parts, width, Dtype::Bf16).unwrap(), cuda.matrix(&parts, width, dtype).unwrap());
            let mut batch = Batch::default();
            let tokens: Vec<u32> = (0..3 * rows as u32).collect();
            batch.push_chain(&tokens, 0, &vec![0; (3 * rows).div_ceil(16)], Logits::Skip);
            let mut expected = cpu.buffer(3 * rows, width).unwrap();
            cpu.embed(&table, &batch, &mut expected).unwrap();
            let expected: Vec<f32> = (0..3 * rows).flat_map(|r| expected.row(r).to_vec()).collect();
            assert!(rows_of(cuda, &cuda_table, 3 * rows, width) == expected, "{rows} rows of {width}, {dtype:?}");
        }
    }
}

pub fn stored_weights_of_all_types(cuda: &mut Cuda, _: Scale) {
    for width in [16, 21] {
        let expected = numbers(7 * width);
        let f32s: Vec<u8> = expected.iter().flat_map(|x| x.to_le_bytes()).collect();
        let bf16s: Vec<u8> = expected.iter().flat_map(|x| bf16::from_f32(*x).to_le_bytes()).collect();
        let halves: Vec<f32> = expected.iter().map(|&x| f16::from_f32(x).to_f32()).collect();
        let f16s: Vec<u8> = halves.iter().flat_map(|&x| f16::from_f32(x).to_le_bytes()).collect();
        for (dtype, bytes) in [(Dtype::F32, &f32s), (Dtype::Bf16, &bf16s), (Dtype::F16, &f16s)] {
            let table = cuda.matrix(&[(TensorData::Stored { dtype, bytes }, 7)], width, dtype).unwrap();
            close("stored", &rows_of(cuda, &table, 7, width), &expected, width, 1e-3);
        }
    }
}

fn shape(heads: u32, kv_heads: u32, head_dim: u32) -> LlamaShape {
    LlamaShape { layers: 2, heads, kv_heads, head_dim, max_positions: 100_000, ..preset("llama-3.1-8b").unwrap() }
}

/// Returns a block table for `tokens` tokens: `first`, `first + 5`, and so on. No two of these blocks are neighbours.
fn table(first: u32, tokens: usize) -> Vec<u32> {
    (0..tokens.div_ceil(16) as u32).map(|b| first + 5 * b).collect()
}

/// Returns the parent of each node of a random tree; node 0 is the root.
fn tree(nodes: usize) -> Vec<u32> {
    let luck = luck();
    (0..nodes as u64).map(|i| if i == 0 { ROOT } else { (luck.unit(i) * i as f64) as u32 }).collect()
}

pub fn attention_sees_what_it_should(cuda: &mut Cuda, scale: Scale) {
    let cpu = &mut cpu();
    let small = [(6, 2, 20, 40), (3, 3, 64, 300), (4, 1, 128, 700), (2, 2, 96, 21)];
    let large = [(32, 32, 128, 2000), (32, 8, 128, 5000), (12, 12, 64, 3000), (40, 40, 128, 7000)];
    for (heads, kv_heads, head_dim, context) in scale.sizes(&small, &large) {
        let shape = shape(heads, kv_heads, head_dim);
        let width = shape.q_width() + 2 * shape.kv_width();
        let blocks = 5 * (context as u32 + 200).div_ceil(16) + 5;
        let (mut kv, mut cuda_kv) =
            (cpu.kv(&shape, Dtype::F32, blocks).unwrap(), cuda.kv(&shape, Dtype::Bf16, blocks).unwrap());
        // Context lengths of the four requests, in tokens. A first batch runs the whole prompts of all four requests.
        let contexts = [context, context / 2 + 3, 17, 1];
        let mut check = |batch: &Batch, what: &str| {
            let rows = batch.rows();
            let (mut qkv, mut cuda_qkv) = both(cpu, cuda, &numbers(rows * width), width, false);
            let (mut out, mut cuda_out) = empty(cpu, cuda, rows, shape.q_width(), false);
            let layer = 1;
            cpu.rope_and_store(&mut qkv, batch, &mut kv, layer).unwrap();
            cuda.rope_and_store(&mut cuda_qkv, batch, &mut cuda_kv, layer).unwrap();
            cpu.attention(&qkv, batch, &kv, layer, &mut out).unwrap();
            cuda.attention(&cuda_qkv, batch, &cuda_kv, layer, &mut cuda_out).unwrap();
            // The GPU rounds queries, keys and attention weights to bf16. The CPU does not.
            same(&format!("{what} with {heads}/{kv_heads} heads of {head_dim}"), cuda, &cuda_out, &out, 0.03);
        };
        let mut batch = Batch::default();
        for (i, &n) in contexts.iter().enumerate() {
            batch.push_chain(&vec![0; n], 0, &table(i as u32, n + 200), Logits::Skip);
        }
        check(&batch, "prompts");
        batch.clear();
        batch.push_chain(&[0], contexts[0], &table(0, context + 200), Logits::Last);
        batch.push_chain(&[0; 9], contexts[1], &table(1, context + 200), Logits::All);
        batch.push_tree(&[0; 40], &tree(40), contexts[2], &table(2, context + 200), Logits::All);
        batch.push_tree(&[0; 90], &tree(90), contexts[3], &table(3, context + 200), Logits::All);
        batch.push_tree(&[0; 3], &tree(3), 0, &table(4, 16), Logits::All);
        check(&batch, "decodes, chains and trees");
        batch.clear();
        batch.push_chain(&[0; 70], contexts[1] + 9, &table(1, context + 200), Logits::Skip);
        batch.push_chain(&[0; 2], contexts[0] + 1, &table(0, context + 200), Logits::All);
        check(&batch, "a chunk and a chain");
    }
}

pub fn heads_are_normed(cuda: &mut Cuda, scale: Scale) {
    let cpu = &mut cpu();
    for (heads, kv_heads, head_dim) in scale.sizes(&[(6, 2, 20), (3, 1, 128)], &[(32, 8, 128)]) {
        let shape = shape(heads, kv_heads, head_dim);
        let width = shape.q_width() + 2 * shape.kv_width();
        let (kv, cuda_kv) = (cpu.kv(&shape, Dtype::F32, 1).unwrap(), cuda.kv(&shape, Dtype::Bf16, 1).unwrap());
        let (queries, cuda_queries) = gains(cpu, cuda, &numbers(head_dim as usize));
        let (keys, cuda_keys) = gains(cpu, cuda, &numbers(head_dim as usize));
        let (mut qkv, mut cuda_qkv) = both(cpu, cuda, &numbers(5 * width), width, false);
        cpu.norm_heads(&mut qkv, &kv, &queries, &keys, 1e-6).unwrap();
        cuda.norm_heads(&mut cuda_qkv, &cuda_kv, &cuda_queries, &cuda_keys, 1e-6).unwrap();
        same("heads", cuda, &cuda_qkv, &qkv, ONE_ROUNDING);
    }
}
