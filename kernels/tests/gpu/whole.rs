//! Compares whole forward passes on the CUDA device with passes on the CPU, and with passes over the same tokens in
//! other batches.

use crate::support::{Scale, close, downloaded, luck};
use foretoken_kernels::accept::{Accepted, Tree};
use foretoken_kernels::cpu::Cpu;
use foretoken_kernels::cuda::{Cuda, Tuning};
use foretoken_kernels::device::{Choice, Device};
use foretoken_kernels::forward::{Limits, Llama, LoadError};
use foretoken_kernels::model::{LlamaShape, preset};
use foretoken_kernels::paged::{Batch, Logits, slot};
use foretoken_kernels::weights::{Dtype, RandomWeights};
use foretoken_sim::tree::ROOT;
use itertools::Itertools;

const LIMITS: Limits = Limits { kv_blocks: 40, max_rows: 700, max_logit_rows: 128 };

/// Allowed difference between two computations of logits, relative to the logit's size plus the logits' root mean
/// square. There are about ten roundings to bf16 per layer, each of up to 2⁻⁹ of a number with random sign.
const TOLERANCE: f32 = 0.06;

fn shapes(scale: Scale) -> Vec<LlamaShape> {
    let plain = preset("tinyllama-1.1b").unwrap();
    let small = LlamaShape {
        layers: 2,
        hidden: 72,
        heads: 6,
        kv_heads: 2,
        head_dim: 20,
        intermediate: 101,
        vocab: 97,
        tied: false,
        max_positions: 2048,
        ..plain.clone()
    };
    let qwen = LlamaShape { heads: 3, kv_heads: 1, head_dim: 64, tied: true, qk_norm: true, ..small.clone() };
    // In this shape a head has width 64, which is also the width of a row of KV. With few rows, one kernel then
    // computes the queries, keys and values, rotates them, and stores the keys and values.
    let heads_of_64 = LlamaShape { qk_norm: false, ..qwen.clone() };
    let wide = LlamaShape { layers: 4, vocab: 5000, ..plain };
    scale.sizes(&[small, qwen, heads_of_64], &[wide])
}

fn weights() -> RandomWeights {
    RandomWeights { seed: luck().bits(0), dtype: Dtype::Bf16 }
}

fn prompt(length: usize, salt: u32) -> Vec<u32> {
    (0..length as u32).map(|i| (i * i * 31 + i * 17 + salt * 53) % 97).collect()
}

/// Returns a block table of eight blocks for one request. No two of these blocks are neighbours.
fn table(first: u32) -> Vec<u32> {
    (0..8).map(|b| first + 5 * b).collect()
}

/// Runs `tokens` as one chain, after `computed` tokens whose KV is already stored. Returns the logits of all tokens of
/// the chain.
fn run(llama: &mut Llama<Cuda>, cuda: &mut Cuda, tokens: &[u32], computed: usize, table: &[u32]) -> Vec<f32> {
    let mut batch = Batch::default();
    batch.push_chain(tokens, computed, table, Logits::All);
    llama.forward(cuda, &batch).unwrap();
    downloaded(cuda, llama.logits())
}

pub fn logits_are_the_cpus(cuda: &mut Cuda, scale: Scale) {
    let mut cpu = Cpu::new(std::thread::available_parallelism().map_or(1, usize::from)).unwrap();
    for shape in shapes(scale) {
        let weights = weights();
        let mut one = Llama::load(&mut cpu, &shape, &weights, LIMITS).unwrap();
        let mut other = Llama::load(cuda, &shape, &weights, LIMITS).unwrap();
        let mut batch = Batch::default();
        // The first pass runs a prompt and a tree. Each of two later passes decodes one token after the prompt.
        // Together, the three passes use split and tiled attention, and matrix products with few and with many rows.
        batch.push_chain(&prompt(60, 1), 0, &table(0), Logits::All);
        batch.push_tree(&prompt(5, 2), &[ROOT, 0, 0, 1, ROOT], 0, &table(1), Logits::All);
        for step in 0..3 {
            if step > 0 {
                batch.clear();
                batch.push_chain(&[7], 59 + step, &table(0), Logits::Last);
            }
            one.forward(&mut cpu, &batch).unwrap();
            other.forward(cuda, &batch).unwrap();
            let expected: Vec<f32> = (0..one.logits().rows()).flat_map(|r| one.logits().row(r).to_vec()).collect();
            close("logits", &downloaded(cuda, other.logits()), &expected, shape.vocab as usize, TOLERANCE);
        }
    }
}

pub fn ragged_and_paged_batches_equal_single_requests(cuda: &mut Cuda, scale: Scale) {
    for shape in shapes(scale) {
        let mut llama = Llama::load(cuda, &shape, &weights(), LIMITS).unwrap();
        let width = shape.vocab as usize;
        let prompts = [prompt(50, 1), prompt(3, 2), prompt(17, 3)];
        let alone: Vec<Vec<f32>> = prompts.iter().map(|p| run(&mut llama, cuda, p, 0, &table(4))).collect();
        // Each prompt runs in two chunks, and each prompt has KV blocks of its own.
        let mut batch = Batch::default();
        for (i, p) in prompts.iter().enumerate() {
            batch.push_chain(&p[..p.len() / 2], 0, &table(i as u32), Logits::Skip);
        }
        llama.forward(cuda, &batch).unwrap();
        batch.clear();
        for (i, p) in prompts.iter().enumerate() {
            batch.push_chain(&p[p.len() / 2..], p.len() / 2, &table(i as u32), Logits::All);
        }
        llama.forward(cuda, &batch).unwrap();
        let together = downloaded(cuda, llama.logits());
        let expected: Vec<f32> =
            prompts.iter().zip_eq(&alone).flat_map(|(p, a)| a[p.len() / 2 * width..].to_vec()).collect();
        close("a ragged batch", &together, &expected, width, TOLERANCE);
    }
}

pub fn a_verify_pass_equals_single_steps(cuda: &mut Cuda, scale: Scale) {
    for shape in shapes(scale) {
        let mut llama = Llama::load(cuda, &shape, &weights(), LIMITS).unwrap();
        let width = shape.vocab as usize;
        let tokens = prompt(40, 5);
        for (computed, k) in [(30, 4), (16, 8), (1, 20)] {
            run(&mut llama, cuda, &tokens[..computed], 0, &table(0));
            let steps: Vec<f32> =
                (computed..=computed + k).flat_map(|t| run(&mut llama, cuda, &tokens[t..=t], t, &table(0))).collect();
            let verified = run(&mut llama, cuda, &tokens[computed..=computed + k], computed, &table(0));
            close(&format!("{k} drafts after {computed}"), &verified, &steps, width, TOLERANCE);
        }
    }
}

pub fn moved_paths_become_context(cuda: &mut Cuda, scale: Scale) {
    for shape in shapes(scale) {
        let mut llama = Llama::load(cuda, &shape, &weights(), LIMITS).unwrap();
        let history = prompt(14, 1);
        let path = [0usize, 2, 4];
        let tokens = prompt(5, 9);
        run(&mut llama, cuda, &history, 0, &table(0));
        let mut batch = Batch::default();
        batch.push_tree(&tokens, &[ROOT, 0, 0, 1, 2], 14, &table(0), Logits::All);
        llama.forward(cuda, &batch).unwrap();
        let moves: Vec<(u32, u32)> =
            path.iter().enumerate().map(|(i, &n)| (slot(&table(0), 14 + n), slot(&table(0), 14 + i))).collect();
        llama.move_kv(cuda, &moves).unwrap();
        let after = run(&mut llama, cuda, &[42], 17, &table(0));
        let chain: Vec<u32> = history.iter().copied().chain(path.map(|n| tokens[n])).collect();
        run(&mut llama, cuda, &chain, 0, &table(1));
        let expected = run(&mut llama, cuda, &[42], 17, &table(1));
        close("after a move", &after, &expected, shape.vocab as usize, TOLERANCE);
    }
}

/// Returns (the most likely token of a row of logits, the difference between the largest and the second largest logit).
fn leader(row: &[f32]) -> (u32, f32) {
    let first = (0..row.len()).fold(0, |best, i| if row[i] > row[best] { i } else { best });
    let second = (0..row.len()).filter(|&i| i != first).map(|i| row[i]).fold(f32::NEG_INFINITY, f32::max);
    (first as u32, row[first] - second)
}

/// Compares the tokens that speculation emits with plain decoding. A token may differ only if the two largest logits
/// are so close that roundings can exchange them.
pub fn greedy_speculation_emits_the_autoregressive_tokens(cuda: &mut Cuda, scale: Scale) {
    for shape in shapes(scale) {
        let same = weights();
        let mut target = Llama::load(cuda, &shape, &same, LIMITS).unwrap();
        // The draft model is the target without its last layer, so it is right often but not always.
        let shallow = LlamaShape { layers: shape.layers - 1, ..shape.clone() };
        let mut draft = Llama::load(cuda, &shallow, &same, LIMITS).unwrap();
        let (output, width) = (if scale == Scale::Gpu { 100 } else { 12 }, shape.vocab as usize);
        let (mut ties, mut kept, mut all) = (0, 0, 0);
        for (salt, k) in [(1, 1), (2, 3), (3, 5)] {
            let mut tokens = prompt(20, salt);
            let mut next = leader(&run(&mut target, cuda, &tokens, 0, &table(0))[19 * width..]).0;
            let mut out: Vec<Accepted> = Vec::new();
            while tokens.len() < 20 + output {
                tokens.push(next);
                let context = tokens.len() - 1;
                run(&mut draft, cuda, &tokens, 0, &table(1));
                let mut choices: Vec<Choice> = Vec::new();
                cuda.top_k(draft.logits(), 1, &mut choices).unwrap();
                let mut drafted = vec![choices[context].token];
                while drafted.len() < k {
                    let at = tokens.len() + drafted.len() - 1;
                    run(&mut draft, cuda, &drafted[drafted.len() - 1..], at, &table(1));
                    cuda.top_k(draft.logits(), 1, &mut choices).unwrap();
                    drafted.push(choices[0].token);
                }
                let pass: Vec<u32> = tokens[context..].iter().chain(&drafted).copied().collect();
                run(&mut target, cuda, &pass, context, &table(0));
                let parents: Vec<u32> = (0..k as u32).map(|i| i.wrapping_sub(1)).collect();
                let tree = Tree { first: 0, tokens: &drafted, parents: &parents };
                cuda.accept_greedy(target.logits(), &[tree], &mut out).unwrap();
                tokens.extend(&drafted[..out[0].nodes.len()]);
                next = out[0].next;
                kept += out[0].nodes.len();
            }
            // The emitted tokens run one by one through the target. Each emitted token is compared with the most
            // likely token after the tokens before it.
            run(&mut target, cuda, &tokens[..20], 0, &table(2));
            for t in 20..tokens.len() - 1 {
                let logits = run(&mut target, cuda, &tokens[t..=t], t, &table(2));
                let spread = (logits.iter().map(|x| x * x).sum::<f32>() / width as f32).sqrt();
                let (choice, lead) = leader(&logits);
                let tie = lead <= 2.0 * TOLERANCE * spread;
                ties += usize::from(tie);
                all += 1;
                assert!(
                    tie || choice == tokens[t + 1],
                    "token {t}: {} instead of {choice}, {lead} ahead",
                    tokens[t + 1]
                );
            }
        }
        println!("{all} tokens, {kept} of them drafted; two likeliest within the tolerance: {ties}");
        assert!(kept > 0 && ties < all / 2, "{kept} drafts kept, {ties} ties of {all}: nothing was tried");
    }
}

/// Passes that are replayed as CUDA graphs with other tokens and blocks give the same results as passes without graphs.
pub fn graphs_change_nothing(cuda: &mut Cuda, scale: Scale) {
    let shape = shapes(scale).swap_remove(0);
    let weights = weights();
    let mut llama = Llama::load(cuda, &shape, &weights, LIMITS).unwrap();
    let mut results = Vec::new();
    for salt in 0..4 {
        results.push(run(&mut llama, cuda, &prompt(11, salt), 0, &table(salt)));
        let mut batch = Batch::default();
        for request in 0..=salt {
            batch.push_chain(&[request + salt], 11, &table(request), Logits::Last);
        }
        llama.forward(cuda, &batch).unwrap();
        results.push(downloaded(cuda, llama.logits()));
    }
    assert!(cuda.graphs() > 0, "no pass came twice");
    let without = Tuning { graphs: false, ..Tuning::default() };
    let mut plain = match scale {
        Scale::Gpu => Cuda::tuned(0, without).unwrap(),
        Scale::Emulated => crate::emulate::device(without).unwrap(),
    };
    let mut llama = Llama::load(&mut plain, &shape, &weights, LIMITS).unwrap();
    for salt in 0..4u32 {
        let expected = run(&mut llama, &mut plain, &prompt(11, salt), 0, &table(salt));
        close("a prompt without graphs", &results[2 * salt as usize], &expected, shape.vocab as usize, 1e-5);
        let mut batch = Batch::default();
        for request in 0..=salt {
            batch.push_chain(&[request + salt], 11, &table(request), Logits::Last);
        }
        llama.forward(&mut plain, &batch).unwrap();
        let expected = downloaded(&mut plain, llama.logits());
        close("decodes without graphs", &results[2 * salt as usize + 1], &expected, shape.vocab as usize, 1e-5);
    }
    assert_eq!(plain.graphs(), 0);
}

pub fn a_model_too_large_is_refused(cuda: &mut Cuda, _: Scale) {
    let shape = preset("llama-3.3-70b").unwrap();
    let limits = Limits { kv_blocks: 20_000, ..LIMITS };
    let Err(LoadError::Memory(why)) = Llama::load(cuda, &shape, &weights(), limits) else { panic!("70 billion fit") };
    assert!(why.to_string().contains("MiB of memory are needed"), "{why}");
}
