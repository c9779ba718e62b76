//! Compares probabilities, draws and accepted tokens of the CUDA device with the CPU's.

use crate::support::{Scale, both, close, empty, luck, numbers, same};
use foretoken_kernels::accept::{self, Accepted, Chain, Tree};
use foretoken_kernels::cpu::Cpu;
use foretoken_kernels::cuda::Cuda;
use foretoken_kernels::device::{Choice, Device};
use foretoken_sim::tree::ROOT;
use foretoken_sim::{Luck, Stream};
use itertools::Itertools;

pub fn probabilities_and_the_likeliest(cuda: &mut Cuda, scale: Scale) {
    let cpu = &mut Cpu::new(1).unwrap();
    for (rows, vocab) in scale.sizes(&[(1, 97), (4, 1500), (3, 7)], &[(64, 32_000), (5, 128_256)]) {
        // `numbers` returns numbers that bf16 can represent, so a large vocabulary has some equal logits.
        let logits: Vec<f32> = numbers(rows * vocab).into_iter().map(|x| 8.0 * x).collect();
        let (logits, cuda_logits) = both(cpu, cuda, &logits, vocab, true);
        let (mut out, mut cuda_out) = empty(cpu, cuda, rows, vocab, true);
        for temperature in [1.0, 0.3] {
            cpu.softmax(&logits, temperature, &mut out).unwrap();
            cuda.softmax(&cuda_logits, temperature, &mut cuda_out).unwrap();
            same("softmax", cuda, &cuda_out, &out, 1e-5);
        }
        for k in [1, 5, 7] {
            let (mut expected, mut got): (Vec<Choice>, Vec<Choice>) = (Vec::new(), Vec::new());
            cpu.top_k(&logits, k, &mut expected).unwrap();
            cuda.top_k(&cuda_logits, k, &mut got).unwrap();
            let tokens = |choices: &[Choice]| choices.iter().map(|c| c.token).collect::<Vec<_>>();
            assert_eq!(tokens(&got), tokens(&expected), "the {k} likeliest of {vocab}");
            let probabilities = |choices: &[Choice]| choices.iter().map(|c| c.probability).collect::<Vec<_>>();
            close("probability", &probabilities(&got), &probabilities(&expected), k, 1e-5);
        }
    }
}

pub fn greedy_acceptance_is_the_hosts(cuda: &mut Cuda, _: Scale) {
    let cpu = &mut Cpu::new(1).unwrap();
    // The vocabulary has only 3 tokens, so that random guesses are often right.
    let (trees, nodes, vocab) = (20, 6, 3);
    let (logits, cuda_logits) = both(cpu, cuda, &numbers(trees * (nodes + 1) * vocab), vocab, true);
    let luck = luck();
    let draw = |i: usize, n: usize| (luck.unit(i as u64) * n as f64) as u32;
    let tokens: Vec<u32> = (0..trees * nodes).map(|i| draw(i, vocab)).collect();
    let parents: Vec<u32> = (0..trees * nodes)
        .map(|i| match draw(1000 + i, i % nodes + 1) {
            0 => ROOT,
            parent => parent - 1,
        })
        .collect();
    let trees: Vec<Tree<'_>> = (0..trees)
        .map(|t| Tree {
            first: t * (nodes + 1),
            tokens: &tokens[t * nodes..][..nodes],
            parents: &parents[t * nodes..][..nodes],
        })
        .collect();
    let (mut expected, mut got): (Vec<Accepted>, Vec<Accepted>) = (Vec::new(), Vec::new());
    cpu.accept_greedy(&logits, &trees, &mut expected).unwrap();
    cuda.accept_greedy(&cuda_logits, &trees, &mut got).unwrap();
    assert_eq!(got, expected);
    assert!(got.iter().any(|a| a.nodes.len() > 1) && got.iter().any(|a| a.nodes.is_empty()));
}

/// Returns `rows` random rows of probabilities, in which some tokens have probability 0.
fn probabilities(rows: usize, vocab: usize) -> Vec<f32> {
    let mut all: Vec<f32> = numbers(rows * vocab).into_iter().map(|x| x.max(0.0)).collect();
    for row in all.chunks_mut(vocab) {
        row[0] += 0.01;
        let sum: f32 = row.iter().sum();
        row.iter_mut().for_each(|x| *x /= sum);
    }
    all
}

pub fn rejection_is_the_hosts(cuda: &mut Cuda, scale: Scale) {
    let cpu = &mut Cpu::new(1).unwrap();
    let mut several_kept = 0;
    for (count, vocab) in scale.sizes(&[(60, 5), (20, 700)], &[(200, 32_000)]) {
        let k = 3;
        let draft_rows = probabilities(count * k, vocab);
        let mut target_rows = probabilities(count * (k + 1), vocab);
        // The target's distribution is mixed with the draft model's, so that most drafted tokens are accepted.
        for (i, p) in target_rows.iter_mut().enumerate() {
            let (chain, row) = (i / vocab / (k + 1), i / vocab % (k + 1));
            if row < k {
                *p = 0.3 * *p + 0.7 * draft_rows[(chain * k + row) * vocab + i % vocab];
            }
        }
        let (target, cuda_target) = both(cpu, cuda, &target_rows, vocab, true);
        let (draft, cuda_draft) = both(cpu, cuda, &draft_rows, vocab, true);
        let luck = luck();
        let tokens: Vec<u32> =
            (0..count * k).map(|i| accept::sample(&draft_rows[i * vocab..][..vocab], luck.unit(i as u64))).collect();
        // Chain c has c mod (k + 1) drafted tokens, where k is the largest number of drafted tokens.
        let chains: Vec<Chain<'_>> = (0..count)
            .map(|c| Chain {
                target: c * (k + 1),
                draft: c * k,
                tokens: &tokens[c * k..][..c % (k + 1)],
                luck: luck.narrow(c as u64),
            })
            .collect();
        let (mut expected, mut got): (Vec<Accepted>, Vec<Accepted>) = (Vec::new(), Vec::new());
        cpu.accept_sampled(&target, &draft, &chains, &mut expected).unwrap();
        cuda.accept_sampled(&cuda_target, &cuda_draft, &chains, &mut got).unwrap();
        // The CPU and the GPU compute f64 sums in different orders, so about one draw in 10¹² chooses another token.
        assert_eq!(got, expected);
        several_kept += got.iter().filter(|a| a.nodes.len() > 1).count();
    }
    assert!(several_kept > 0, "no chain was kept beyond its first token");
}

pub fn draws_entropies_and_divergences_are_the_hosts(cuda: &mut Cuda, scale: Scale) {
    let cpu = &mut Cpu::new(1).unwrap();
    for (rows, vocab) in scale.sizes(&[(3, 5), (4, 700)], &[(64, 32_000)]) {
        let (p, cuda_p) = both(cpu, cuda, &probabilities(rows, vocab), vocab, true);
        let (q, cuda_q) = both(cpu, cuda, &probabilities(rows, vocab), vocab, true);
        let luck = luck();
        let uniforms: Vec<f64> = (0..rows as u64).map(|row| luck.unit(row)).collect();
        let (mut expected, mut got): (Vec<Choice>, Vec<Choice>) = (Vec::new(), Vec::new());
        cpu.sample(&p, &uniforms, &mut expected).unwrap();
        cuda.sample(&cuda_p, &uniforms, &mut got).unwrap();
        assert_eq!(got, expected);

        let near = |got: &[f64], expected: &[f64]| {
            assert_eq!(got.len(), expected.len());
            let off = |(g, e): (&f64, &f64)| (g - e).abs() <= 1e-12 * (1.0 + e.abs());
            assert!(got.iter().zip(expected).all(off), "{got:?} instead of {expected:?}");
        };
        let (mut expected, mut got) = (Vec::new(), Vec::new());
        cpu.entropy(&p, rows, &mut expected).unwrap();
        cuda.entropy(&cuda_p, rows, &mut got).unwrap();
        near(&got, &expected);
        let pairs: Vec<(u32, u32)> = (0..rows as u32).map(|row| (rows as u32 - 1 - row, row)).collect();
        cpu.divergence((&p, &q), vocab, &pairs, &mut expected).unwrap();
        cuda.divergence((&cuda_p, &cuda_q), vocab, &pairs, &mut got).unwrap();
        near(&got, &expected);

        let places: Vec<u32> = (0..rows as u32).rev().map(|row| 2 * row).collect();
        let (mut out, mut cuda_out) = empty(cpu, cuda, 2 * rows, vocab, true);
        cpu.scatter(&p, &places, &mut out).unwrap();
        cuda.scatter(&cuda_p, &places, &mut cuda_out).unwrap();
        same("scatter", cuda, &cuda_out, &out, 0.0);
    }
}

/// A χ² test: the first tokens that rejection sampling emits must have the target's distribution.
pub fn rejection_keeps_the_targets_distribution(cuda: &mut Cuda, scale: Scale) {
    let cpu = &mut Cpu::new(1).unwrap();
    let (vocab, at_once) = (8, 1000);
    let draws = if scale == Scale::Gpu { 1_000_000 } else { 10_000 };
    let p = probabilities(2, vocab);
    let q = probabilities(1, vocab);
    let (_, target) = both(cpu, cuda, &p, vocab, true);
    let (_, draft) = both(cpu, cuda, &q, vocab, true);
    let mut seen = vec![0u64; vocab];
    let mut out: Vec<Accepted> = Vec::new();
    // The seed is fixed, because the test would fail by chance in a small share of runs with random seeds.
    for batch in 0..draws / at_once {
        let luck = Luck::new(7, Stream::Policy, batch as u64);
        let tokens: Vec<u32> = (0..at_once).map(|i| accept::sample(&q, luck.unit(i as u64))).collect();
        let chain = |i: usize| Chain { target: 0, draft: 0, tokens: &tokens[i..=i], luck: luck.narrow(1 + i as u64) };
        let chains: Vec<Chain<'_>> = (0..at_once).map(chain).collect();
        cuda.accept_sampled(&target, &draft, &chains, &mut out).unwrap();
        for (i, accepted) in out.iter().enumerate() {
            seen[if accepted.nodes.is_empty() { accepted.next } else { tokens[i] } as usize] += 1;
        }
    }
    let expected: Vec<f64> = p[..vocab].iter().map(|&x| f64::from(x) * draws as f64).collect();
    assert!(seen.iter().zip_eq(&expected).all(|(&n, &e)| e > 0.0 || n == 0), "a token of probability 0");
    let chi2: f64 =
        seen.iter().zip_eq(&expected).filter(|(_, e)| **e > 0.0).map(|(&n, e)| (n as f64 - e).powi(2) / e).sum();
    // 29.88 is the 99.99 % point of χ² with 7 degrees of freedom.
    assert!(chi2 < 29.88, "chi² {chi2} of {seen:?} against {expected:?}");
}
