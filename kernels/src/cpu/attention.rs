//! Paged attention for ragged queries.
//!
//! The score of a token is a chain of multiply-adds over the head's dimensions, the sum of exponentials is made by
//! lanes in the order of what the query sees, and values are added one token after the other in that order. So a result
//! depends only on the keys and values seen and their order: not on blocks, on other queries, or on whether a path of a
//! tree or a chain led there.

use super::kv::{Kv, Pools};
use super::lanes::{Kernel, LANES, Lanes};
use super::level::Level;
use super::memory::{Buffer, Group, Shared};
use super::rowwise::Exponentials;
use super::threads::share;
use crate::paged::{BLOCK_SIZE, Batch, Span};
use std::cell::RefCell;
use std::ops::Range;

/// New tokens of a request whose queries go over a block of context together: it is read from memory once for them.
const TILE: usize = 16;

/// Blocks of values that are asked for ahead of their use: a block's are a few hundred cycles of work.
const AHEAD: usize = 4;

/// Bytes of a cache line.
const LINE: usize = 64;

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
    let given = (level, qkv, batch, kv);
    match &kv.pools {
        Pools::F32(pools) => run(given, &tasks.0, work, &pools[layer], out.shared()),
        Pools::Bf16(pools) => run(given, &tasks.0, work, &pools[layer], out.shared()),
    }
}

fn run<G: Group>(
    (level, qkv, batch, kv): (Level, &Buffer, &Batch, &Kv),
    tasks: &[Task],
    work: usize,
    pool: &[G],
    out: Shared<'_>,
) {
    share(tasks.len(), work, |i| {
        SCRATCH.with_borrow_mut(|scratch| {
            level.run(Queries { task: &tasks[i], qkv, batch, kv, pool, out, scratch });
        });
    });
}

struct Queries<'a, G> {
    task: &'a Task,
    qkv: &'a Buffer,
    batch: &'a Batch,
    kv: &'a Kv,
    /// Of the layer.
    pool: &'a [G],
    out: Shared<'a>,
    scratch: &'a mut Vec<f32>,
}

impl<G: Group> Kernel for Queries<'_, G> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let Queries { task, qkv, batch, kv, pool, out, scratch } = self;
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
            let keys = |i: usize| kv.keys(pool, table[b + i] as usize, task.head);
            for &block in &table[end..(end + L::TILE).min(blocks)] {
                ask_for::<L, G>(kv.keys(pool, block as usize, task.head));
            }
            let mut at = 0;
            while at < queries {
                let (scores, together) = (&mut scores[at * width..], (queries - at).min(L::TILE));
                match together {
                    1 => score::<L, G, 1>(&query, at, &keys, scores, width, b..end),
                    2 => score::<L, G, 2>(&query, at, &keys, scores, width, b..end),
                    3 => score::<L, G, 3>(&query, at, &keys, scores, width, b..end),
                    _ => score::<L, G, 4>(&query, at, &keys, scores, width, b..end),
                }
                at += together;
            }
        }

        // While the softmax is made.
        for &block in &table[..blocks.min(AHEAD)] {
            ask_for::<L, G>(kv.values(pool, block as usize, task.head));
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
            let values = kv.values(pool, block as usize, task.head);
            if let Some(&next) = table[..blocks].get(b + AHEAD) {
                ask_for::<L, G>(kv.values(pool, next as usize, task.head));
            }
            let begin = b * BLOCK_SIZE;
            let seen = |i: usize| {
                let prefix = batch.sights[task.first + i / group].prefix;
                prefix.clamp(begin, begin + BLOCK_SIZE) - begin
            };
            let mut at = 0;
            while at < queries {
                let (weights, sums) = (&scores[at * width + begin..], &mut sums[at * kv.padded..]);
                let together = (queries - at).min(L::TILE);
                match together {
                    1 => add_values::<L, G, 1>(values, [seen(at)], (weights, width), (sums, kv.padded)),
                    2 => add_values::<L, G, 2>(values, [seen(at), seen(at + 1)], (weights, width), (sums, kv.padded)),
                    3 => {
                        let seen = [seen(at), seen(at + 1), seen(at + 2)];
                        add_values::<L, G, 3>(values, seen, (weights, width), (sums, kv.padded));
                    }
                    _ => {
                        let seen = [seen(at), seen(at + 1), seen(at + 2), seen(at + 3)];
                        add_values::<L, G, 4>(values, seen, (weights, width), (sums, kv.padded));
                    }
                }
                at += together;
            }
        }
        for i in 0..queries {
            let row = task.first + i / group;
            let sight = &batch.sights[row];
            let sums = &mut sums[i * kv.padded..][..kv.padded];
            for (k, &t) in batch.paths[sight.path.clone()].iter().enumerate() {
                let (block, offset) = (table[t as usize / BLOCK_SIZE] as usize, t as usize % BLOCK_SIZE);
                let values = &kv.values(pool, block, task.head)[offset * kv.padded / LANES..];
                let weights = &scores[i * width + sight.prefix + k..];
                add_values::<L, G, 1>(values, [1], (weights, width), (sums, kv.padded));
            }
            let from = (task.head * group + i % group) * kv.head_dim;
            #[expect(unsafe_code, reason = "outputs are split by columns")]
            // SAFETY: tasks have different rows or heads, and a task's queries come one after the other.
            let out = unsafe { out.part(row, from, kv.head_dim) };
            out.copy_from_slice(&sums[..kv.head_dim]);
        }
    }
}

/// Asks for numbers that will soon be read, a cache line at a time.
#[inline(always)]
fn ask_for<L: Lanes, G: Group>(numbers: &[G]) {
    for group in numbers.iter().step_by(LINE / size_of::<G>()) {
        L::prefetch(group);
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
fn score<'k, L: Lanes, G: Group + 'k, const Q: usize>(
    query: &impl Fn(usize) -> &'k [f32],
    at: usize,
    keys: &impl Fn(usize) -> &'k [G],
    scores: &mut [f32],
    width: usize,
    to: Range<usize>,
) {
    let mut queries: [&[f32]; Q] = [&[]; Q];
    for (i, q) in queries.iter_mut().enumerate() {
        *q = query(at + i);
    }
    match to.len() {
        1 => tile::<L, G, Q, 1>(queries, [keys(0)], scores, width, to.start),
        2 => tile::<L, G, Q, 2>(queries, [keys(0), keys(1)], scores, width, to.start),
        3 => tile::<L, G, Q, 3>(queries, [keys(0), keys(1), keys(2)], scores, width, to.start),
        _ => tile::<L, G, Q, 4>(queries, [keys(0), keys(1), keys(2), keys(3)], scores, width, to.start),
    }
}

/// Scores of `Q` queries against the sixteen keys of each of `B` blocks from block `b` on. A score is one chain of
/// multiply-adds, each of which waits for the one before; several chains at a time keep the processor busy.
#[inline(always)]
fn tile<L: Lanes, G: Group, const Q: usize, const B: usize>(
    mut queries: [&[f32]; Q],
    mut keys: [&[G]; B],
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
            *key = keys[d].lanes();
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

/// Adds a block's values, each times its weight, one after the other: to the sums of `Q` queries, each of which sees so
/// many of the block's first tokens. The weights of a query lie `width` behind those of the one before, its sums `padded`.
#[inline(always)]
fn add_values<L: Lanes, G: Group, const Q: usize>(
    values: &[G],
    seen: [usize; Q],
    (weights, width): (&[f32], usize),
    (sums, padded): (&mut [f32], usize),
) {
    let per_token = padded / LANES;
    let mut all = BLOCK_SIZE;
    for &n in &seen {
        all = all.min(n);
    }
    let mut first = 0;
    while first < per_token {
        let groups = (per_token - first).min(L::TILE);
        let values = (values, per_token, first);
        match groups {
            4 if L::TILE == 4 => add_groups::<L, G, Q, 4>(values, 0..all, (weights, width), (sums, padded)),
            2.. => add_groups::<L, G, Q, 2>(values, 0..all, (weights, width), (sums, padded)),
            _ => add_groups::<L, G, Q, 1>(values, 0..all, (weights, width), (sums, padded)),
        }
        first += match groups {
            4 if L::TILE == 4 => 4,
            2.. => 2,
            _ => 1,
        };
    }
    // The last block of a context: later queries see more of it.
    for (q, &n) in seen.iter().enumerate() {
        for first in (0..per_token).take_while(|_| n > all) {
            let (weights, sums) = (&weights[q * width..], &mut sums[q * padded..]);
            add_groups::<L, G, 1, 1>((values, per_token, first), all..n, (weights, width), (sums, padded));
        }
    }
}

/// [`add_values`] of some tokens, for `N` groups of dimensions from group `first` on: as many chains of multiply-adds at a
/// time as there are queries and groups.
#[inline(always)]
fn add_groups<L: Lanes, G: Group, const Q: usize, const N: usize>(
    (values, per_token, first): (&[G], usize, usize),
    tokens: Range<usize>,
    (weights, width): (&[f32], usize),
    (sums, padded): (&mut [f32], usize),
) {
    let mut totals = [[L::zero(); N]; Q];
    for (q, totals) in totals.iter_mut().enumerate() {
        let (sums, _) = sums[q * padded..].as_chunks();
        for (n, total) in totals.iter_mut().enumerate() {
            *total = L::load(&sums[first + n]);
        }
    }
    for t in tokens {
        let token = &values[t * per_token + first..][..N];
        let mut value = [L::zero(); N];
        for (value, group) in value.iter_mut().zip(token) {
            *value = group.lanes();
        }
        for (q, totals) in totals.iter_mut().enumerate() {
            let weight = L::splat(weights[q * width + t]);
            for (total, value) in totals.iter_mut().zip(&value) {
                *total = total.fma(weight, *value);
            }
        }
    }
    for (q, totals) in totals.into_iter().enumerate() {
        let (sums, _) = sums[q * padded..].as_chunks_mut();
        for (n, total) in totals.into_iter().enumerate() {
            total.store(&mut sums[first + n]);
        }
    }
}
