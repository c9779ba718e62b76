//! Paged attention for requests with different numbers of new tokens.
//!
//! The score of a token is one chain of multiply-adds over the head's dimensions. The exponentials of the scores are
//! summed in sixteen lanes, in the order of the tokens that the query attends to. The weighted values are added in the
//! same order, one token after the other. At the end the sum is divided by the sum of the exponentials. A result
//! therefore depends only on the keys and values that the query attends to and on their order. It does not depend on
//! the blocks that hold them, on other queries, or on whether the tokens belong to a tree or to a chain.

use super::buffer::{Buffer, Shared};
use super::kv::{Kv, Pools};
use super::lanes::{Kernel, LANES, Lanes};
use super::level::Level;
use super::pairs::Pairs;
use super::rowwise::Exponentials;
use super::team::Team;
use crate::paged::{BLOCK_SIZE, Batch, Span};
use std::cell::RefCell;
use std::ops::Range;

/// Most new tokens of a request that one task handles. The queries of these tokens read a KV block of the context
/// together, so that the block is read from memory once.
const TILE: usize = 16;

/// Number of KV blocks whose values all queries of a task read before any query goes on to further blocks. The values
/// of these blocks stay in a near cache.
const NEAR: usize = 16;

thread_local! {
    /// Scaled queries, scores and sums of the task that this thread runs. The memory is reused, so a task allocates
    /// memory only if it needs more than every earlier task of the thread.
    static SCRATCH: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

/// One unit of work for a thread: the attention of one key-value head for the rows `first..end`. These rows are new
/// tokens of request number `span` of the batch.
struct Task {
    span: usize,
    first: usize,
    end: usize,
    head: usize,
}

/// The tasks of one call of [`attention`]. The next call reuses the list's memory.
#[derive(Default)]
pub(super) struct Tasks(Vec<Task>);

/// Computes one layer's attention for the queries of every row of `qkv` and writes the results to `out`.
pub(super) fn attention(
    (team, level): (&mut Team, Level),
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
    let given = (team, level, qkv, batch, kv);
    match &kv.pools {
        Pools::F32(pools) => run(given, &tasks.0, work, &pools[layer], out.shared()),
        Pools::Bf16(pools) => run(given, &tasks.0, work, &pools[layer], out.shared()),
    }
}

fn run<P: Pairs>(
    (team, level, qkv, batch, kv): (&mut Team, Level, &Buffer, &Batch, &Kv),
    tasks: &[Task],
    work: usize,
    pool: &[P],
    out: Shared<'_>,
) {
    team.share(tasks.len(), work, |i| {
        SCRATCH.with_borrow_mut(|scratch| {
            level.run(Queries { task: &tasks[i], qkv, batch, kv, pool, out, scratch });
        });
    });
}

struct Queries<'a, P> {
    task: &'a Task,
    qkv: &'a Buffer,
    batch: &'a Batch,
    kv: &'a Kv,
    /// The memory of all KV blocks of the layer whose attention is computed.
    pool: &'a [P],
    out: Shared<'a>,
    scratch: &'a mut Vec<f32>,
}

impl<P: Pairs> Kernel for Queries<'_, P> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let Queries { task, qkv, batch, kv, pool, out, scratch } = self;
        let span = &batch.spans[task.span];
        let table = &batch.tables[span.table.clone()];
        let group = kv.heads / kv.kv_heads;
        let queries = (task.end - task.first) * group;
        // One more than the largest context index to which any query of the task attends.
        let end = (task.first..task.end).map(|row| last_seen(batch, span, row) + 1).max().expect("a task has rows");
        let blocks = end.div_ceil(BLOCK_SIZE);
        let width = blocks * BLOCK_SIZE;
        scratch.clear();
        scratch.resize(queries * (kv.head_dim + width + kv.padded), 0.0);
        let (scaled, rest) = scratch.split_at_mut(queries * kv.head_dim);
        let (scores, sums) = rest.split_at_mut(queries * width);

        let scale = 1.0 / (kv.head_dim as f32).sqrt();
        for (i, scaled) in scaled.chunks_exact_mut(kv.head_dim).enumerate() {
            let from = (task.head * group + i % group) * kv.head_dim;
            let query = &qkv.row(task.first + i / group)[from..from + kv.head_dim];
            for (scaled, x) in scaled.iter_mut().zip(query) {
                *scaled = x * scale;
            }
        }
        // The queries of the task are multiplied with the keys of a few KV blocks at a time. These keys stay in the
        // nearest cache until all queries have read them.
        for b in (0..blocks).step_by(tile_of::<L>()) {
            let end = (b + tile_of::<L>()).min(blocks);
            let keys = |i: usize| kv.keys(pool, table[b + i] as usize, task.head);
            let mut at = 0;
            while at < queries {
                let (scores, together) = (&mut scores[at * width..], (queries - at).min(tile_of::<L>()));
                match together {
                    1 => score::<L, P, 1>(&scaled[at * kv.head_dim..], &keys, scores, (width, kv.head_dim), b..end),
                    2 => score::<L, P, 2>(&scaled[at * kv.head_dim..], &keys, scores, (width, kv.head_dim), b..end),
                    3 => score::<L, P, 3>(&scaled[at * kv.head_dim..], &keys, scores, (width, kv.head_dim), b..end),
                    _ => score::<L, P, 4>(&scaled[at * kv.head_dim..], &keys, scores, (width, kv.head_dim), b..end),
                }
                at += together;
            }
        }

        for i in 0..queries {
            let sight = &batch.sights[task.first + i / group];
            let scores = &mut scores[i * width..][..width];
            // The query attends to a path of the draft tree (the tokens from the root to the query's token). The scores
            // of this path move to the indices right after the scores of the prefix. The path's context indices rise,
            // so no score is overwritten before it is moved.
            for (to, &t) in batch.paths[sight.path.clone()].iter().enumerate() {
                scores[sight.prefix + to] = scores[t as usize];
            }
            let total = Exponentials(&mut scores[..sight.prefix + sight.path.len()]).run::<L>();
            // The scaled query is not needed after this point. The sum of exponentials overwrites the first number of
            // the scaled query.
            scaled[i * kv.head_dim] = total;
        }

        let values = |i: usize| kv.values(pool, table[i] as usize, task.head);
        let prefix = |i: usize| batch.sights[task.first + i / group].prefix;
        // First, all queries of the task add the values of the KV blocks that every one of these queries attends to
        // completely, `NEAR` blocks at a time. The values stay in a near cache until all queries have read them.
        let full = (0..queries).map(prefix).min().expect("a task has rows") / BLOCK_SIZE;
        for from in (0..full).step_by(NEAR) {
            let blocks = from..(from + NEAR).min(full);
            let mut at = 0;
            while at < queries {
                let (weights, together) =
                    (&scores[at * width + from * BLOCK_SIZE..], (queries - at).min(tile_of::<L>()));
                let sums = (&mut sums[at * kv.padded..], kv.padded);
                match together {
                    1 => add_values::<L, P, 1>(&values, blocks.clone(), 0..BLOCK_SIZE, (weights, width), sums),
                    2 => add_values::<L, P, 2>(&values, blocks.clone(), 0..BLOCK_SIZE, (weights, width), sums),
                    3 => add_values::<L, P, 3>(&values, blocks.clone(), 0..BLOCK_SIZE, (weights, width), sums),
                    _ => add_values::<L, P, 4>(&values, blocks.clone(), 0..BLOCK_SIZE, (weights, width), sums),
                }
                at += together;
            }
        }
        for i in 0..queries {
            let row = task.first + i / group;
            let (scores, sums) = (&scores[i * width..][..width], &mut sums[i * kv.padded..][..kv.padded]);
            // Then each query adds the values of its remaining tokens: the tokens of its prefix after the blocks that
            // all queries share, and its path in the draft tree.
            let mut seen = full * BLOCK_SIZE;
            while seen < prefix(i) {
                let (b, tokens) = (seen / BLOCK_SIZE, (prefix(i) - seen).min(BLOCK_SIZE));
                add_values::<L, P, 1>(&values, b..b + 1, 0..tokens, (&scores[seen..], width), (sums, kv.padded));
                seen += tokens;
            }
            let sight = &batch.sights[row];
            for (k, &t) in batch.paths[sight.path.clone()].iter().enumerate() {
                let (b, token) = (t as usize / BLOCK_SIZE, t as usize % BLOCK_SIZE);
                let weights = (&scores[sight.prefix + k..], width);
                add_values::<L, P, 1>(&values, b..b + 1, token..token + 1, weights, (sums, kv.padded));
            }
            let from = (task.head * group + i % group) * kv.head_dim;
            #[expect(unsafe_code, reason = "outputs are split by columns")]
            // SAFETY: two tasks differ in their rows or their head, so they write different parts of `out`. A task
            // handles its queries one after the other.
            let out = unsafe { out.part(row, from, kv.head_dim) };
            for (out, sum) in out.iter_mut().zip(sums.iter()) {
                *out = sum / scaled[i * kv.head_dim];
            }
        }
    }
}

/// Most KV blocks of keys that are multiplied at a time, and also most queries that are multiplied at a time. The
/// number is small enough that all sums of these blocks and queries fit in registers.
#[inline(always)]
fn tile_of<L: Lanes>() -> usize {
    if L::WIDE { 4 } else { 2 }
}

/// Returns the context index of the last token to which the row (a new token) attends. (The request's block table gives
/// the KV slot of a context index.)
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

/// Computes the scores of the first `Q` queries of `all` against the keys of the context's KV blocks `to`. `keys(i)`
/// gives the keys of the i-th of these blocks. In `scores`, the scores of two successive queries are `width` numbers
/// apart.
///
/// This function and the functions below it use plain loops, because a closure that is not inlined is compiled without
/// the vector instructions of the level.
#[inline(always)]
fn score<'k, L: Lanes, P: Pairs + 'k, const Q: usize>(
    all: &[f32],
    keys: &impl Fn(usize) -> &'k [P],
    scores: &mut [f32],
    (width, dim): (usize, usize),
    to: Range<usize>,
) {
    let mut queries: [&[f32]; Q] = [&[]; Q];
    for (i, query) in queries.iter_mut().enumerate() {
        *query = &all[i * dim..][..dim];
    }
    match to.len() {
        1 => tile::<L, P, Q, 1>(queries, [keys(0)], scores, width, to.start),
        2 => tile::<L, P, Q, 2>(queries, [keys(0), keys(1)], scores, width, to.start),
        3 => tile::<L, P, Q, 3>(queries, [keys(0), keys(1), keys(2)], scores, width, to.start),
        _ => tile::<L, P, Q, 4>(queries, [keys(0), keys(1), keys(2), keys(3)], scores, width, to.start),
    }
}

/// Computes the scores of `Q` queries against the sixteen keys of each of `B` KV blocks, from block `b` on. A score is
/// one chain of multiply-adds, in which each multiply-add waits for the result of the multiply-add before. Several
/// chains run at a time, so that the processor does not wait.
#[inline(always)]
fn tile<L: Lanes, P: Pairs, const Q: usize, const B: usize>(
    mut queries: [&[f32]; Q],
    mut keys: [&[P]; B],
    scores: &mut [f32],
    width: usize,
    b: usize,
) {
    let pairs = keys[0].len();
    for query in &mut queries {
        *query = &query[..2 * pairs];
    }
    for keys in &mut keys {
        *keys = &keys[..pairs];
    }
    let mut sums = [[L::zero(); B]; Q];
    for d in 0..pairs {
        for (b, keys) in keys.iter().enumerate() {
            #[expect(unsafe_code, reason = "checked once for the loop, not in each turn")]
            // SAFETY: every slice was just cut to `pairs` pairs or `2 * pairs` numbers, and `d < pairs`.
            unsafe {
                let keys = keys.get_unchecked(d);
                let key = keys.first::<L>();
                for (sums, query) in sums.iter_mut().zip(&queries) {
                    sums[b] = sums[b].fma(key, L::splat(*query.get_unchecked(2 * d)));
                }
                let key = keys.second::<L>();
                for (sums, query) in sums.iter_mut().zip(&queries) {
                    sums[b] = sums[b].fma(key, L::splat(*query.get_unchecked(2 * d + 1)));
                }
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

/// Adds weight · value to the output sums of `Q` queries. Of each KV block of `blocks`, in order, the function adds the
/// values of the tokens at the places `tokens` (within 0..16). `values(b)` gives the values of block `b`. In memory,
/// the weights of two successive queries are `width` numbers apart, and their sums are `padded` numbers apart.
#[inline(always)]
fn add_values<'p, L: Lanes, P: Pairs + 'p, const Q: usize>(
    values: &impl Fn(usize) -> &'p [P],
    blocks: Range<usize>,
    tokens: Range<usize>,
    (weights, width): (&[f32], usize),
    (sums, padded): (&mut [f32], usize),
) {
    let mut rows: [&[f32]; Q] = [&[]; Q];
    for (q, row) in rows.iter_mut().enumerate() {
        *row = &weights[q * width..];
    }
    let (pairs, mut first) = (padded / (2 * LANES), 0);
    while first < pairs {
        // Two pairs (32 dimensions of the values each) are added at a time if there are enough registers. They are also
        // added at a time if there is only one query: with few sums, each addition would wait for the addition before.
        if pairs - first >= 2 && (L::WIDE || Q == 1) {
            add_pairs::<L, P, Q, 2>(values, blocks.clone(), tokens.clone(), first, rows, (sums, padded));
            first += 2;
        } else {
            add_pairs::<L, P, Q, 1>(values, blocks.clone(), tokens.clone(), first, rows, (sums, padded));
            first += 1;
        }
    }
}

/// Adds weight · value as [`add_values`] does, but only for 32 · `N` dimensions of the values. A pair is 32 dimensions
/// (two groups of sixteen); the function handles `N` pairs, from pair `first` on. 2 · `N` · `Q` chains of multiply-adds
/// run at a time.
#[inline(always)]
fn add_pairs<'p, L: Lanes, P: Pairs + 'p, const Q: usize, const N: usize>(
    values: &impl Fn(usize) -> &'p [P],
    blocks: Range<usize>,
    tokens: Range<usize>,
    first: usize,
    mut weights: [&[f32]; Q],
    (sums, padded): (&mut [f32], usize),
) {
    let mut totals = [[[L::zero(); 2]; N]; Q];
    for (q, totals) in totals.iter_mut().enumerate() {
        let (sums, _) = sums[q * padded..].as_chunks();
        for (n, [one, two]) in totals.iter_mut().enumerate() {
            (*one, *two) = (L::load(&sums[2 * (first + n)]), L::load(&sums[2 * (first + n) + 1]));
        }
    }
    for b in blocks.clone() {
        let (all, ahead) = (values(b), values((b + 1).min(blocks.end - 1)));
        let mut pairs: [&[P]; N] = [&[]; N];
        for (n, pairs) in pairs.iter_mut().enumerate() {
            *pairs = &all[(first + n) * BLOCK_SIZE..][tokens.clone()];
        }
        let mut here: [&[f32]; Q] = [&[]; Q];
        for (here, weights) in here.iter_mut().zip(&mut weights) {
            (*here, *weights) = weights.split_at(tokens.len());
        }
        let ahead = ahead[first * BLOCK_SIZE..].as_ptr();
        for t in 0..tokens.len() {
            L::prefetch(ahead.wrapping_add(t));
            #[expect(unsafe_code, reason = "checked once for the loop, not in each turn")]
            // SAFETY: every slice was just cut to `tokens.len()` elements, and `t < tokens.len()`.
            unsafe {
                for (n, pairs) in pairs.iter().enumerate() {
                    let pairs = pairs.get_unchecked(t);
                    let value = pairs.first::<L>();
                    for (totals, weights) in totals.iter_mut().zip(&here) {
                        totals[n][0] = totals[n][0].fma(value, L::splat(*weights.get_unchecked(t)));
                    }
                    let value = pairs.second::<L>();
                    for (totals, weights) in totals.iter_mut().zip(&here) {
                        totals[n][1] = totals[n][1].fma(value, L::splat(*weights.get_unchecked(t)));
                    }
                }
            }
        }
    }
    for (q, totals) in totals.into_iter().enumerate() {
        let (sums, _) = sums[q * padded..].as_chunks_mut();
        for (n, [one, two]) in totals.into_iter().enumerate() {
            one.store(&mut sums[2 * (first + n)]);
            two.store(&mut sums[2 * (first + n) + 1]);
        }
    }
}
