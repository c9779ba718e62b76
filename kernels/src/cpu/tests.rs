//! Compares each kernel of the CPU device with a plain f64 reference on random inputs, at every level of vector
//! instructions that the processor has. The results of all levels must be equal to the bit.

use super::kv::Pools;
use super::pairs::Pairs;
use super::*;
use crate::model::preset;
use crate::paged::{BLOCK_SIZE, Logits};
use foretoken_sim::tree::ROOT;
use foretoken_sim::{Luck, Stream};
use itertools::Itertools;
use proptest::prelude::*;

/// Returns `n` random numbers, uniform in [−1, 1).
fn numbers(seed: u64, n: usize) -> Vec<f32> {
    let luck = Luck::new(seed, Stream::Weights, 9);
    (0..n).map(|i| (2.0 * luck.unit(i as u64) - 1.0) as f32).collect()
}

fn buffer(seed: u64, rows: usize, width: usize) -> Buffer {
    let mut buffer = Buffer::new(rows, width);
    buffer.set_rows(rows);
    let numbers = numbers(seed, rows * width);
    (0..rows).for_each(|r| buffer.row_mut(r).copy_from_slice(&numbers[r * width..][..width]));
    buffer
}

fn all_bits(buffer: &Buffer) -> Vec<u32> {
    (0..buffer.rows()).flat_map(|r| buffer.row(r)).map(|x| x.to_bits()).collect()
}

/// Runs an operation at every level of vector instructions of this processor, asserts that the results agree to the
/// bit, and returns the result.
fn at_every_level(mut run: impl FnMut(&mut Cpu) -> Buffer) -> Buffer {
    let mut cpu = Cpu::new(2).unwrap();
    let mut results = Level::all().into_iter().map(|level| {
        cpu.level = level;
        run(&mut cpu)
    });
    let first = results.next().unwrap();
    for (result, level) in results.zip(&Level::all()[1..]) {
        assert!(all_bits(&result) == all_bits(&first), "{level:?} differs from plain code");
    }
    first
}

/// Returns the largest error of the numbers in `got`, each relative to a scale. `expected(row, column)` returns
/// (expected value, scale). Rounding errors of a number are proportional to its scale.
fn worst(got: &Buffer, expected: impl Fn(usize, usize) -> (f64, f64)) -> f64 {
    let mut worst = 0f64;
    for row in 0..got.rows() {
        for (column, &got) in got.row(row).iter().enumerate() {
            let (expected, scale) = expected(row, column);
            worst = worst.max((f64::from(got) - expected).abs() / scale);
        }
    }
    worst
}

/// The largest relative error of one rounding to f32.
const EPSILON: f64 = f32::EPSILON as f64 / 2.0;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Each result of the product is a sum of terms, added in chains of up to 256. The allowed error is one rounding
    /// for each term of a chain plus one rounding for each chain (at most 3), each relative to the sum of the terms'
    /// absolute values.
    #[test]
    fn matmul_is_the_product(seed: u64, rows in 1usize..20, inputs in 1usize..600, outputs in 1usize..200, half: bool) {
        let dtype = if half { Dtype::Bf16 } else { Dtype::F32 };
        let data = TensorData::Random { luck: Luck::new(seed, Stream::Weights, 1), scale: 1.0, dtype };
        let weight = |o: usize, i: usize| f64::from(matrix::number(data, o * inputs + i));
        let x = buffer(seed, rows, inputs);
        let got = at_every_level(|cpu| {
            let Ok(w) = cpu.matrix(&[(data, outputs)], inputs, dtype);
            let mut out = Buffer::new(rows, outputs);
            let Ok(()) = cpu.matmul(&x, &w, &mut out);
            out
        });
        let error = worst(&got, |r, o| {
            let products = (0..inputs).map(|i| f64::from(x.row(r)[i]) * weight(o, i));
            (products.clone().sum(), products.map(f64::abs).sum())
        });
        prop_assert!(error < (inputs.min(256) as f64 + 3.0) * EPSILON, "{error:e}");
    }

    #[test]
    fn norm_is_rms_norm(seed: u64, rows in 1usize..4, width in 1usize..200, add: bool) {
        let (before, delta) = (buffer(seed, rows, width), buffer(seed ^ 1, rows, width));
        let gains = numbers(seed ^ 2, width);
        let eps = 1e-5f32;
        let got = at_every_level(|cpu| {
            let (mut x, mut out) = (before.clone(), Buffer::new(rows, width));
            let Ok(()) = cpu.norm(&mut x, add.then_some(&delta), &gains, eps, &mut out);
            let sum = |r: usize, i: usize| before.row(r)[i] + if add { delta.row(r)[i] } else { 0.0 };
            assert!((0..rows).all(|r| (0..width).all(|i| x.row(r)[i] == sum(r, i))), "the residual");
            out
        });
        let error = worst(&got, |r, i| {
            let x = |i: usize| f64::from(before.row(r)[i] + if add { delta.row(r)[i] } else { 0.0 });
            let mean = (0..width).map(|i| x(i) * x(i)).sum::<f64>() / width as f64;
            let expected = x(i) / (mean + f64::from(eps)).sqrt() * f64::from(gains[i]);
            (expected, expected.abs().max(1e-30))
        });
        prop_assert!(error < 30.0 * EPSILON, "{error:e}");
    }

    /// Each head's query and each head's key is normalised by the mean square of its own numbers. The attention values
    /// (V) are not changed.
    #[test]
    fn heads_are_normalised_by_themselves(
        seed: u64,
        rows in 1usize..4,
        heads in prop::sample::select(vec![(4usize, 2usize, 16usize), (6, 1, 20), (3, 3, 8), (2, 1, 48), (2, 1, 64), (2, 1, 112)]),
    ) {
        let (heads, kv_heads, dim) = heads;
        let shape = LlamaShape {
            layers: 1, heads: heads as u32, kv_heads: kv_heads as u32, head_dim: dim as u32,
            ..preset("qwen3-0.6b").unwrap()
        };
        let before = buffer(seed, rows, (heads + 2 * kv_heads) * dim);
        let gains = [numbers(seed ^ 1, dim), numbers(seed ^ 2, dim)];
        let eps = 1e-6f32;
        let got = at_every_level(|cpu| {
            let mut qkv = before.clone();
            let Ok(()) = cpu.norm_heads(&mut qkv, &Kv::new(&shape, Dtype::F32, 1), &gains[0], &gains[1], eps);
            qkv
        });
        let error = worst(&got, |r, i| {
            let (head, x) = (i / dim, |i: usize| f64::from(before.row(r)[i]));
            if head >= heads + kv_heads {
                return (x(i), x(i).abs().max(1e-30));
            }
            let mean = (head * dim..(head + 1) * dim).map(|i| x(i) * x(i)).sum::<f64>() / dim as f64;
            let gain = f64::from(gains[usize::from(head >= heads)][i % dim]);
            let expected = x(i) / (mean + f64::from(eps)).sqrt() * gain;
            (expected, expected.abs().max(1e-30))
        });
        prop_assert!(error < 30.0 * EPSILON, "{error:e}");
    }

    #[test]
    fn swiglu_is_silu_times_up(seed: u64, rows in 1usize..4, width in 1usize..100) {
        let mut x = buffer(seed, rows, 2 * width);
        (0..rows).for_each(|r| x.row_mut(r).iter_mut().for_each(|x| *x *= 20.0));
        let got = at_every_level(|cpu| {
            let mut out = Buffer::new(rows, width);
            let Ok(()) = cpu.swiglu(&x, &mut out);
            out
        });
        let error = worst(&got, |r, i| {
            let (gate, up) = (f64::from(x.row(r)[i]), f64::from(x.row(r)[width + i]));
            let expected = gate / (1.0 + (-gate).exp()) * up;
            (expected, expected.abs().max(1e-30))
        });
        prop_assert!(error < 12.0 * EPSILON, "{error:e}");
    }

    #[test]
    fn softmax_and_the_likeliest_tokens(
        seed: u64, rows in 1usize..4, width in 1usize..300, k in 1usize..9, warm: bool,
    ) {
        let (k, temperature) = (k.min(width), if warm { 0.7 } else { 1.0 });
        let mut x = buffer(seed, rows, width);
        // The logits are rounded to multiples of 1/4, so that some logits are equal.
        (0..rows).for_each(|r| x.row_mut(r).iter_mut().for_each(|x| *x = (*x * 60.0).round() / 4.0));
        let probability = |r: usize, i: usize| {
            let e = |x: f32| (f64::from(x) / f64::from(temperature)).exp();
            e(x.row(r)[i]) / x.row(r).iter().map(|&x| e(x)).sum::<f64>()
        };
        let got = at_every_level(|cpu| {
            let mut out = Buffer::new(rows, width);
            let Ok(()) = cpu.softmax(&x, temperature, &mut out);
            out
        });
        // The softmax computes e^((logit − largest logit) / temperature). This exponent lies between −30 / 0.7 and 0,
        // and is rounded to f32 first. The rounding of so large an exponent makes a large error, so the allowed error
        // is large.
        let error = worst(&got, |r, i| (probability(r, i), probability(r, i)));
        prop_assert!(error < 120.0 * EPSILON, "{error:e}");

        let mut choices = Vec::new();
        let Ok(()) = Cpu::new(1).unwrap().top_k(&x, k, &mut choices);
        for (r, choices) in choices.chunks_exact(k).enumerate() {
            let mut order: Vec<usize> = (0..width).collect();
            order.sort_by(|&a, &b| x.row(r)[b].total_cmp(&x.row(r)[a]).then(a.cmp(&b)));
            let tokens: Vec<usize> = choices.iter().map(|c| c.token as usize).collect();
            prop_assert_eq!(&tokens, &order[..k]);
            if temperature == 1.0 {
                for c in choices {
                    let exact = probability(r, c.token as usize);
                    prop_assert!((f64::from(c.probability) / exact - 1.0).abs() < 120.0 * EPSILON);
                }
            }
        }
    }

    /// A batch with a chain and a tree goes through rotary positions, paged writes of KV and attention. The result must
    /// agree with attention that is computed in f64 from its formula.
    #[test]
    fn attention_is_attention(
        seed: u64,
        context in 0usize..70,
        chain in 1usize..40,
        parents in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
        heads in prop::sample::select(vec![(4usize, 2usize, 16usize), (6, 1, 20), (3, 3, 8), (2, 1, 48), (2, 1, 64), (2, 1, 112)]),
    ) {
        let (heads, kv_heads, dim) = heads;
        let shape = LlamaShape {
            layers: 2, heads: heads as u32, kv_heads: kv_heads as u32, head_dim: dim as u32,
            ..preset("llama-3.2-1b").unwrap()
        };
        let table = |i: u32| (0..8).map(|b| 2 * b + i).collect::<Vec<u32>>();
        let parents: Vec<u32> =
            std::iter::once(ROOT).chain(parents.iter().enumerate().map(|(i, p)| p.index(i + 1) as u32)).collect();
        let mut first = Batch::default();
        let mut batch = Batch::default();
        if context > 0 {
            // The batch `first` writes the KV of the second request, from position 0 on.
            first.push_chain(&vec![0; context], 0, &table(1), Logits::Skip);
        }
        batch.push_chain(&vec![0; chain], 0, &table(0), Logits::Skip);
        batch.push_tree(&vec![0; parents.len()], &parents, context, &table(1), Logits::Skip);
        let width = (heads + 2 * kv_heads) * dim;
        let (before, now) = (buffer(seed, context.max(1), width), buffer(seed ^ 1, batch.rows(), width));

        let got = at_every_level(|cpu| {
            let mut kv = Kv::new(&shape, Dtype::F32, 16);
            let mut out = Buffer::new(batch.rows(), heads * dim);
            if context > 0 {
                let Ok(()) = cpu.rope_and_store(&mut before.clone(), &first, &mut kv, 1);
            }
            let mut qkv = now.clone();
            let Ok(()) = cpu.rope_and_store(&mut qkv, &batch, &mut kv, 1);
            let Ok(()) = cpu.attention(&qkv, &batch, &kv, 1, &mut out);
            out
        });

        let frequencies = frequencies(&shape);
        let turned = |row: &[f32], from: usize, position: u32, d: usize| {
            let (sin, cos) = f64::from(position as f32 * frequencies[d % (dim / 2)]).sin_cos();
            let x = |d: usize| f64::from(row[from + d]);
            if d < dim / 2 { x(d) * cos - x(d + dim / 2) * sin } else { x(d) * cos + x(d - dim / 2) * sin }
        };
        // `seen(row)` lists all tokens that the row attends to, in order: (the token's row of qkv, its position).
        let seen = |row: usize| -> Vec<(&[f32], u32)> {
            if row < chain {
                return (0..=row).map(|r| (now.row(r), r as u32)).collect();
            }
            let mut path = vec![row - chain];
            while parents[path[0]] != ROOT {
                path.insert(0, parents[path[0]] as usize);
            }
            let old = (0..context).map(|r| (before.row(r), r as u32));
            old.chain(path.iter().zip(context as u32..).map(|(&n, at)| (now.row(chain + n), at))).collect()
        };
        let error = worst(&got, |row, column| {
            let (head, d) = (column / dim, column % dim);
            let kv_head = head / (heads / kv_heads);
            let seen = seen(row);
            let position = seen.last().unwrap().1;
            let score = |(other, at): &(&[f32], u32)| {
                let key = (heads + kv_head) * dim;
                (0..dim)
                    .map(|d| turned(now.row(row), head * dim, position, d) * turned(other, key, *at, d))
                    .sum::<f64>()
                    / (dim as f64).sqrt()
            };
            let weights: Vec<f64> = seen.iter().map(|s| score(s).exp()).collect();
            let value = |other: &[f32]| f64::from(other[(heads + kv_heads + kv_head) * dim + d]);
            let total: f64 = weights.iter().sum();
            (seen.iter().zip_eq(&weights).map(|(s, w)| w * value(s.0)).sum::<f64>() / total, 1.0)
        });
        prop_assert!(error < 200.0 * EPSILON, "{error:e}");
    }
}

/// The test's keys and values are numbers that bf16 can represent. Attention over a bf16 pool and over an f32 pool must
/// then give the same bits.
#[test]
fn attention_reads_bf16_as_it_reads_f32() {
    let shape = LlamaShape { layers: 1, heads: 6, kv_heads: 3, head_dim: 20, ..preset("vicuna-68m").unwrap() };
    let mut batch = Batch::default();
    batch.push_chain(&[0; 5], 83, &[3, 0, 9, 1, 7, 5], Logits::Skip);
    batch.push_tree(&[0; 4], &[ROOT, 0, 0, 2], 30, &[2, 4, 6], Logits::Skip);
    let qkv = buffer(1, batch.rows(), 12 * 20);
    let [narrow, wide] = [Dtype::Bf16, Dtype::F32].map(|dtype| {
        at_every_level(|cpu| {
            let mut kv = Kv::new(&shape, dtype, 10);
            for (slot, head) in (0..160).flat_map(|slot| (0..3).map(move |head| (slot, head))) {
                let mut row = numbers((slot * 3 + head) as u64, 40);
                row.iter_mut().for_each(|x| *x = half::bf16::from_f32(*x).to_f32());
                kv.write(Level::best(), 0, (slot, head), &row[..20], &row[20..]);
            }
            let mut out = Buffer::new(batch.rows(), 6 * 20);
            let Ok(()) = cpu.attention(&qkv, &batch, &kv, 0, &mut out);
            out
        })
    });
    for row in 0..batch.rows() {
        assert_eq!(narrow.row(row), wide.row(row), "row {row}");
        assert!(narrow.row(row).iter().all(|x| *x != 0.0));
    }
}

#[test]
fn embedding_gather_and_download_copy_rows() {
    let mut cpu = Cpu::new(1).unwrap();
    let data = TensorData::Random { luck: Luck::new(1, Stream::Weights, 2), scale: 1.0, dtype: Dtype::Bf16 };
    let Ok(table) = cpu.matrix(&[(data, 30)], 19, Dtype::Bf16);
    let mut batch = Batch::default();
    batch.push_chain(&[4, 29, 0], 0, &[0], Logits::Skip);
    let (mut x, mut chosen, mut host) = (Buffer::new(3, 19), Buffer::new(2, 19), Vec::new());
    let Ok(()) = cpu.embed(&table, &batch, &mut x);
    let Ok(()) = cpu.gather(&x, &[2, 1], &mut chosen);
    let Ok(()) = cpu.download(&chosen, &mut host);
    let expected: Vec<f32> =
        [0, 29].into_iter().flat_map(|t| (0..19).map(move |i| matrix::number(data, t * 19 + i))).collect();
    assert_eq!(host, expected);
}

#[test]
fn moving_kv_moves_every_layer_and_head_and_nothing_else() {
    for dtype in [Dtype::F32, Dtype::Bf16] {
        moving_kv(dtype);
    }
}

fn moving_kv(dtype: Dtype) {
    let shape = LlamaShape { layers: 2, heads: 4, kv_heads: 2, head_dim: 10, ..preset("vicuna-68m").unwrap() };
    let mut cpu = Cpu::new(1).unwrap();
    let mut kv = Kv::new(&shape, dtype, 3);
    let number =
        |layer: usize, slot: usize, head: usize, d: usize| ((((layer * 48 + slot) * 2 + head) * 20 + d) % 251) as f32;
    for (layer, slot, head) in (0..2).flat_map(|l| (0..48).flat_map(move |s| [(l, s, 0), (l, s, 1)])) {
        let row: Vec<f32> = (0..20).map(|d| number(layer, slot, head, d)).collect();
        kv.write(Level::best(), layer, (slot, head), &row[..10], &row[10..]);
    }
    let Ok(()) = cpu.move_kv(&mut kv, &[(47, 3), (20, 21)]);
    for (layer, slot, head) in (0..2).flat_map(|l| (0..48).flat_map(move |s| [(l, s, 0), (l, s, 1)])) {
        let from = [(3, 47), (21, 20)].into_iter().find(|m| m.0 == slot).map_or(slot, |m| m.1);
        let (block, offset) = (slot / BLOCK_SIZE, slot % BLOCK_SIZE);
        let held = |d: usize| match &kv.pools {
            Pools::F32(p) => (
                kv.keys(&p[layer], block, head)[d / 2].get(d % 2, offset),
                kv.values(&p[layer], block, head)[offset].get(0, d),
            ),
            Pools::Bf16(p) => (
                kv.keys(&p[layer], block, head)[d / 2].get(d % 2, offset),
                kv.values(&p[layer], block, head)[offset].get(0, d),
            ),
        };
        for d in 0..10 {
            assert_eq!(held(d), (number(layer, from, head, d), number(layer, from, head, 10 + d)));
        }
    }
}
