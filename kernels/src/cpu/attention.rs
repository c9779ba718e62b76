//! Paged attention for ragged queries.
//!
//! The score of a token is a chain of multiply-adds over the head's dimensions, the sum of exponentials is made by
//! lanes in the order of what the query sees, and values are added one token after the other in that order. So a result
//! depends only on the keys and values seen and their order: not on blocks, on other queries, or on whether a path of a
//! tree or a chain led there.

use super::kv::Kv;
use super::lanes::{Kernel, LANES, Lanes, Level};
use super::memory::{Buffer, Shared};
use super::rowwise::Exponentials;
use super::threads::share;
use crate::paged::{BLOCK_SIZE, Batch, Span};
use std::cell::RefCell;
use std::ops::Range;

/// New tokens of a request whose queries go over a block of context together: it is read from memory once for them.
const TILE: usize = 16;

thread_local! {
    /// Scores and sums of the task at hand; kept, so that a pass allocates nothing once the context has been seen.
    static SCRATCH: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

/// One task: some new tokens of one request, one key-value head.
struct Task {
    span: usize,
    first: usize,
    end: usize,
    head: usize,
}

/// Scratch of the operation: its tasks.
#[derive(Default)]
pub(super) struct Tasks(Vec<Task>);

/// Attention of every row's queries.
pub(super) fn attention(
    level: Level,
    tasks: &mut Tasks,
    qkv: &Buffer,
    batch: &Batch,
    (kv, layer): (&Kv, usize),
    out: &mut Buffer,
) {
    tasks.0.clear();
    let mut work = 0;
    for (span, s) in batch.spans.iter().enumerate() {
        for first in s.rows.clone().step_by(TILE) {
            let end = (first + TILE).min(s.rows.end);
            tasks.0.extend((0..kv.kv_heads).map(|head| Task { span, first, end, head }));
            work += 2 * (end - first) * (s.computed + s.rows.len()) * kv.heads * kv.head_dim;
        }
    }
    out.set_rows(qkv.rows);
    let (tasks, shared) = (&tasks.0, out.shared());
    share(tasks.len(), work, |i| {
        SCRATCH.with_borrow_mut(|scratch| {
            level.run(Queries { task: &tasks[i], qkv, batch, kv, layer, out: shared, scratch });
        });
    });
}

struct Queries<'a> {
    task: &'a Task,
    qkv: &'a Buffer,
    batch: &'a Batch,
    kv: &'a Kv,
    layer: usize,
    out: Shared<'a>,
    scratch: &'a mut Vec<f32>,
}

impl Kernel for Queries<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let Queries { task, qkv, batch, kv, layer, out, scratch } = self;
        let span = &batch.spans[task.span];
        let table = &batch.tables[span.table.clone()];
        let group = kv.heads / kv.kv_heads;
        let queries = (task.end - task.first) * group;
        // The tokens of the context that any of these queries may see.
        let end = (task.first..task.end).map(|row| last_seen(batch, span, row) + 1).max().expect("a task has rows");
        let blocks = end.div_ceil(BLOCK_SIZE);
        let width = blocks * BLOCK_SIZE;
        scratch.clear();
        scratch.resize(queries * (width + kv.padded), 0.0);
        let (scores, sums) = scratch.split_at_mut(queries * width);

        let query = |i: usize| {
            let from = (task.head * group + i % group) * kv.head_dim;
            &qkv.row(task.first + i / group)[from..from + kv.head_dim]
        };
        // Some blocks at a time, which stay in the nearest cache for all queries.
        for b in (0..blocks).step_by(L::TILE) {
            let end = (b + L::TILE).min(blocks);
            let keys = |i: usize| kv.keys(layer, table[b + i] as usize, task.head);
            let mut at = 0;
            while at < queries {
                let (scores, together) = (&mut scores[at * width..], (queries - at).min(L::TILE));
                match together {
                    1 => score::<L, 1>(&query, at, &keys, scores, width, b..end),
                    2 => score::<L, 2>(&query, at, &keys, scores, width, b..end),
                    3 => score::<L, 3>(&query, at, &keys, scores, width, b..end),
                    _ => score::<L, 4>(&query, at, &keys, scores, width, b..end),
                }
                at += together;
            }
        }

        let scale = 1.0 / (kv.head_dim as f32).sqrt();
        for i in 0..queries {
            let sight = &batch.sights[task.first + i / group];
            let scores = &mut scores[i * width..][..width];
            // A path's scores move up to follow the prefix; it rises, so none is overwritten before it is moved.
            for (to, &t) in batch.paths[sight.path.clone()].iter().enumerate() {
                scores[sight.prefix + to] = scores[t as usize];
            }
            let seen = &mut scores[..sight.prefix + sight.path.len()];
            seen.iter_mut().for_each(|s| *s *= scale);
            let total = Exponentials(seen).run::<L>();
            seen.iter_mut().for_each(|s| *s /= total);
        }

        for (b, &block) in table[..blocks].iter().enumerate() {
            let values = kv.values(layer, block as usize, task.head);
            for i in 0..queries {
                let sight = &batch.sights[task.first + i / group];
                let here = b * BLOCK_SIZE..sight.prefix.min((b + 1) * BLOCK_SIZE);
                if !here.is_empty() {
                    let sums = &mut sums[i * kv.padded..][..kv.padded];
                    add_values::<L>(values, &scores[i * width..][here], sums);
                }
            }
        }
        for i in 0..queries {
            let row = task.first + i / group;
            let sight = &batch.sights[row];
            let sums = &mut sums[i * kv.padded..][..kv.padded];
            for (k, &t) in batch.paths[sight.path.clone()].iter().enumerate() {
                let (block, offset) = (table[t as usize / BLOCK_SIZE] as usize, t as usize % BLOCK_SIZE);
                let values = &kv.values(layer, block, task.head)[offset * kv.padded / LANES..];
                add_values::<L>(values, &scores[i * width + sight.prefix + k..][..1], sums);
            }
            let from = (task.head * group + i % group) * kv.head_dim;
            #[expect(unsafe_code, reason = "outputs are split by columns")]
            // SAFETY: tasks have different rows or heads, and a task's queries come one after the other.
            let out = unsafe { out.part(row, from, kv.head_dim) };
            out.copy_from_slice(&sums[..kv.head_dim]);
        }
    }
}

/// The last token of the context that a row sees.
fn last_seen(batch: &Batch, span: &Span, row: usize) -> usize {
    let sight = &batch.sights[row];
    match batch.paths[sight.path.clone()].last() {
        Some(&t) => t as usize,
        None => {
            debug_assert_eq!(sight.prefix, span.computed + row - span.rows.start + 1);
            sight.prefix - 1
        }
    }
}

/// Scores of `Q` queries from query `at` on against the keys of blocks `to`, of which `keys` gives the first, second and so
/// on.
///
/// Plain loops, here and below: a closure that is not inlined is not compiled for the processor at hand.
#[inline(always)]
fn score<'k, L: Lanes, const Q: usize>(
    query: &impl Fn(usize) -> &'k [f32],
    at: usize,
    keys: &impl Fn(usize) -> &'k [[f32; LANES]],
    scores: &mut [f32],
    width: usize,
    to: Range<usize>,
) {
    let mut queries: [&[f32]; Q] = [&[]; Q];
    for (i, q) in queries.iter_mut().enumerate() {
        *q = query(at + i);
    }
    match to.len() {
        4 if L::TILE == 4 => tile::<L, Q, 4>(queries, [keys(0), keys(1), keys(2), keys(3)], scores, width, to.start),
        2 if L::TILE == 2 => tile::<L, Q, 2>(queries, [keys(0), keys(1)], scores, width, to.start),
        _ => {
            for b in to.clone() {
                tile::<L, Q, 1>(queries, [keys(b - to.start)], scores, width, b);
            }
        }
    }
}

/// Scores of `Q` queries against the sixteen keys of each of `B` blocks from block `b` on. A score is one chain of
/// multiply-adds, each of which waits for the one before; several chains at a time keep the processor busy.
#[inline(always)]
fn tile<L: Lanes, const Q: usize, const B: usize>(
    mut queries: [&[f32]; Q],
    mut keys: [&[[f32; LANES]]; B],
    scores: &mut [f32],
    width: usize,
    b: usize,
) {
    let dims = keys[0].len();
    for query in &mut queries {
        *query = &query[..dims];
    }
    for keys in &mut keys {
        *keys = &keys[..dims];
    }
    let mut sums = [[L::zero(); B]; Q];
    let mut key = [L::zero(); B];
    for d in 0..dims {
        for (key, keys) in key.iter_mut().zip(&keys) {
            *key = L::load(&keys[d]);
        }
        for (sums, query) in sums.iter_mut().zip(&queries) {
            let query = L::splat(query[d]);
            for (sum, key) in sums.iter_mut().zip(&key) {
                *sum = sum.fma(query, *key);
            }
        }
    }
    for (q, sums) in sums.into_iter().enumerate() {
        for (i, sum) in sums.into_iter().enumerate() {
            let out = &mut scores[q * width + (b + i) * BLOCK_SIZE..][..BLOCK_SIZE];
            sum.store(out.try_into().expect("sixteen scores"));
        }
    }
}

/// Adds the first values, each times its weight, one after the other.
#[inline(always)]
fn add_values<L: Lanes>(values: &[[f32; LANES]], weights: &[f32], sums: &mut [f32]) {
    let (sums, _) = sums.as_chunks_mut::<LANES>();
    let per_token = sums.len();
    let (fours, rest) = sums.as_chunks_mut::<4>();
    for (i, sums) in fours.iter_mut().enumerate() {
        add_groups::<L, 4>(values, per_token, 4 * i, weights, sums);
    }
    for (i, sum) in rest.iter_mut().enumerate() {
        add_groups::<L, 1>(values, per_token, per_token - per_token % 4 + i, weights, std::array::from_mut(sum));
    }
}

/// [`add_values`] for `G` groups of dimensions, `first` and the next: as many chains of multiply-adds at a time.
#[inline(always)]
fn add_groups<L: Lanes, const G: usize>(
    values: &[[f32; LANES]],
    per_token: usize,
    first: usize,
    weights: &[f32],
    sums: &mut [[f32; LANES]; G],
) {
    let mut totals = [L::zero(); G];
    for (total, sum) in totals.iter_mut().zip(sums.iter()) {
        *total = L::load(sum);
    }
    for (&weight, token) in weights.iter().zip(values.chunks_exact(per_token)) {
        let (weight, token) = (L::splat(weight), &token[first..][..G]);
        for (total, value) in totals.iter_mut().zip(token) {
            *total = total.fma(weight, L::load(value));
        }
    }
    for (total, sum) in totals.into_iter().zip(sums) {
        total.store(sum);
    }
}
