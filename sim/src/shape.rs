//! The arithmetic of docs/model.md 12: how many tokens a pass processes and how much KV it reads (its shape).
//!
//! The event clock passes these shapes to the true latency model, and oracles and the estimates of policies use the
//! same functions. The formulas are written only here, so that true times and estimates cannot differ by accident.

use crate::common_len::common;
use crate::latency::{ContextReads, PassShape};
use crate::policy::BatchView;
use crate::tree::DraftTree;

/// How many tokens draft pass number `pass` (from 1) processes, and how many KV tokens it reads, if request i drafts
/// `draft_len[i]` tokens. Pass 1 also has the draft model's prefill chunks. It also has the context tokens that the
/// draft model has skipped: of the requests that draft or, with `always-extend`, of all requests.
pub fn draft_pass(batch: &BatchView, draft_len: &[u32], pass: u32) -> PassShape {
    let (mut n, mut context) = (0, 0);
    for (&d, &c) in draft_len.iter().zip(batch.context) {
        n += u64::from(d >= pass);
        context += u64::from(if d >= pass { c } else { 0 });
    }
    with_prefill_and_catch_up(
        batch,
        n,
        context,
        pass,
        |i| batch.always_extend || draft_len[i] > 0,
        |i| draft_len[i] > 0,
    )
}

/// Like [`draft_pass`], for a batch in which every decode request drafts at least `pass` tokens. It does not read the
/// draft lengths, so it is faster.
#[inline]
pub fn draft_pass_all(batch: &BatchView, pass: u32) -> PassShape {
    with_prefill_and_catch_up(batch, batch.len() as u64, batch.context_sum, pass, |_| true, |_| true)
}

/// How many tokens the only draft pass of a step with [`Drafting::Parallel`](crate::Drafting) processes, and how many
/// KV tokens it reads. Request i gets its `draft_len[i]` tokens at once. All these tokens count as batched tokens, and
/// each attends to the context and to the tokens before it. Prefill chunks, and context tokens that the draft model has
/// skipped, are added as in pass 1 of [`draft_pass`].
pub fn draft_block(batch: &BatchView, draft_len: &[u32]) -> PassShape {
    let mut shape = PassShape::default();
    for (&d, &c) in draft_len.iter().zip(batch.context) {
        if d > 0 {
            let (d, c) = (u64::from(d), u64::from(c));
            shape.requests += 1;
            shape.batched += d;
            shape.context += c;
            shape.pairs += d * c + d * (d + 1) / 2;
        }
    }
    add_draft_prefill(batch, &mut shape);
    add_catch_up(batch, |i| batch.always_extend || draft_len[i] > 0, |i| draft_len[i] > 0, &mut shape);
    shape
}

/// The shape (tokens processed, KV tokens read) of draft pass number `pass` (from 1) over trees. For each request i
/// with `draft_len[i] ≥ pass` the pass has the root or the frontier (the nodes that the pass expands) of `trees[i]`. It
/// reads once the KV of the request and of the tree tokens that earlier passes have processed. Pass 1 also has prefill
/// chunks, and context tokens that the draft model has skipped, as in [`draft_pass`].
pub fn draft_tree_pass(batch: &BatchView, draft_len: &[u32], pass: u32, trees: &[DraftTree]) -> PassShape {
    let mut shape = PassShape::default();
    for ((&d, &c), tree) in draft_len.iter().zip(batch.context).zip(trees) {
        if d >= pass {
            let (width, c) = (u64::from(tree.width()), u64::from(c));
            shape.requests += 1;
            shape.batched += width;
            shape.context += c + u64::from(tree.ran());
            shape.pairs += width * (c + u64::from(pass));
        }
    }
    if pass == 1 {
        add_draft_prefill(batch, &mut shape);
        add_catch_up(batch, |i| batch.always_extend || draft_len[i] > 0, |i| draft_len[i] > 0, &mut shape);
    }
    shape
}

/// The shape (tokens processed, KV tokens read) of the target pass over trees: the root and the nodes to verify of each
/// request, and the prefill chunks. With `per-position`, every node reads the context and the path from the root to the
/// node.
pub fn verify_tree_pass(batch: &BatchView, trees: &[DraftTree], reads: ContextReads) -> PassShape {
    let (mut nodes, mut positions) = (0u64, 0u64);
    for (tree, &c) in trees.iter().zip(batch.context) {
        positions += u64::from(c);
        for node in tree.nodes().iter().filter(|n| n.kept) {
            nodes += 1;
            positions += u64::from(c) + u64::from(node.depth);
        }
    }
    target_pass(batch, nodes, positions, reads)
}

/// The shape (tokens processed, KV tokens read) of draft pass `pass`, in which `n` requests draft one token each. These
/// requests together have `context` tokens in KV. `drafts(i)` says whether request i is one of them. Pass 1 also has
/// prefill chunks. It also has the context tokens that the draft model has skipped, for each request i for which
/// `catches_up(i)` is true.
#[inline]
fn with_prefill_and_catch_up(
    batch: &BatchView,
    n: u64,
    context: u64,
    pass: u32,
    catches_up: impl Fn(usize) -> bool,
    drafts: impl Fn(usize) -> bool,
) -> PassShape {
    let context = context + n * u64::from(pass - 1);
    let mut shape = PassShape { requests: n, batched: n, context, pairs: context + n };
    if pass == 1 {
        add_draft_prefill(batch, &mut shape);
        add_catch_up(batch, catches_up, drafts, &mut shape);
    }
    shape
}

/// How many tokens the draft pass of a step in which nothing is drafted processes, and how many KV tokens it reads. The
/// pass has prefill chunks and, with `always-extend`, all context tokens that the draft model has skipped. `None` if
/// the pass would have no tokens.
pub fn draft_idle_pass(batch: &BatchView) -> Option<PassShape> {
    let mut shape = PassShape::default();
    add_draft_prefill(batch, &mut shape);
    add_catch_up(batch, |_| batch.always_extend, |_| false, &mut shape);
    (shape.batched > 0).then_some(shape)
}

/// How many tokens the target pass of a step without a drafter processes, and how many KV tokens it reads. It processes
/// one token for each decode request, and the prefill chunks.
pub fn plain_pass(batch: &BatchView) -> PassShape {
    let n = batch.len() as u64;
    PassShape {
        requests: n + u64::from(batch.prefill.chunks),
        batched: n + batch.prefill.tokens,
        context: batch.context_sum + batch.prefill.context,
        pairs: batch.context_sum + n + batch.prefill.pairs,
    }
}

/// How many tokens the target pass processes, and how many KV tokens it reads. It processes `verify_len[i] + 1`
/// positions of decode request i, and the prefill chunks.
pub fn verify_pass(batch: &BatchView, verify_len: &[u32], reads: ContextReads) -> PassShape {
    if let Some(v) = common(verify_len) {
        return verify_pass_all(batch, v, reads);
    }
    let mut drafts = 0u64;
    // Sum over the requests of the KV tokens before each verified position. A request with c tokens of context and v
    // verified draft tokens adds Σ_{j=0..v} (c + j) = (v+1)·c + v(v+1)/2.
    let mut positions = 0u64;
    for (&v, &c) in verify_len.iter().zip(batch.context) {
        let (v, c) = (u64::from(v), u64::from(c));
        drafts += v;
        positions += (v + 1) * c + v * (v + 1) / 2;
    }
    target_pass(batch, drafts, positions, reads)
}

/// Like [`verify_pass`], for a batch in which every decode request verifies `verify_len` tokens.
#[inline]
pub fn verify_pass_all(batch: &BatchView, verify_len: u32, reads: ContextReads) -> PassShape {
    let (n, v) = (batch.len() as u64, u64::from(verify_len));
    target_pass(batch, n * v, (v + 1) * batch.context_sum + n * (v * (v + 1) / 2), reads)
}

/// The shape (tokens processed, KV tokens read) of the target pass over the step's prefill chunks, the newest token of
/// each decode request, and `drafts` draft tokens in total. `positions` is a sum over these newest tokens and draft
/// tokens: the number of KV tokens before each of them. `reads` says whether a request's context is read once, or once
/// for each of its tokens.
fn target_pass(batch: &BatchView, drafts: u64, positions: u64, reads: ContextReads) -> PassShape {
    let decodes = drafts + batch.len() as u64;
    PassShape {
        requests: batch.len() as u64 + u64::from(batch.prefill.chunks),
        batched: decodes + batch.prefill.tokens,
        context: batch.prefill.context
            + match reads {
                ContextReads::Once => batch.context_sum,
                ContextReads::PerPosition => positions,
            },
        pairs: positions + decodes + batch.prefill.pairs,
    }
}

fn add_draft_prefill(batch: &BatchView, shape: &mut PassShape) {
    shape.requests += u64::from(batch.draft_prefill.chunks);
    shape.batched += batch.draft_prefill.tokens;
    shape.context += batch.draft_prefill.context;
    shape.pairs += batch.draft_prefill.pairs;
}

/// Adds to the draft pass `shape` the context tokens that the draft model has skipped, of each request i for which
/// `runs(i)` is true. They count as batched tokens but not as context (docs/model.md 12), because the request's own
/// context is already read once. If `counted(i)` is false, request i is not in the pass yet, and is added to the number
/// of requests.
fn add_catch_up(
    batch: &BatchView,
    runs: impl Fn(usize) -> bool,
    counted: impl Fn(usize) -> bool,
    shape: &mut PassShape,
) {
    if common(batch.draft_gap) == Some(0) {
        return;
    }
    for (i, (&gap, &c)) in batch.draft_gap.iter().zip(batch.context).enumerate() {
        if gap > 0 && runs(i) {
            let (g, c) = (u64::from(gap), u64::from(c));
            shape.requests += u64::from(!counted(i));
            shape.batched += g;
            // The g tokens that the draft model has skipped are at positions c−g to c−1 of the request. Each of them
            // attends to itself and to all tokens before it.
            shape.pairs += g * (c - g) + g * (g + 1) / 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::categories::Categories;
    use crate::policy::ChunkTotals;
    use crate::time::Time;

    fn batch<'a>(context: &'a [u32], gap: &'a [u32]) -> BatchView<'a> {
        BatchView {
            now: Time::ZERO,
            step: 0,
            ids: &[0, 1, 2][..context.len()],
            context,
            emitted: &[1, 1, 1][..context.len()],
            limit: &[8, 8, 8][..context.len()],
            draft_gap: gap,
            slo_tpot_s: &[f64::INFINITY; 3][..context.len()],
            categories: Categories::default(),
            context_sum: context.iter().map(|&c| u64::from(c)).sum(),
            prefill: ChunkTotals { chunks: 1, tokens: 100, context: 50, pairs: 100 * 50 + 5050 },
            draft_prefill: ChunkTotals { chunks: 1, tokens: 90, context: 60, pairs: 0 },
            always_extend: false,
            num_running: 4,
            num_waiting: 0,
        }
    }

    #[test]
    fn shapes_equal_a_count_by_hand() {
        let b = batch(&[100, 200, 300], &[0, 1, 7]);
        let d = [3, 1, 0];
        // Pass 1 has one token of request 0 and one of request 1, the prefill chunk, and the one token of request 1
        // that the draft model has skipped. Request 2 does not draft.
        let first = draft_pass(&b, &d, 1);
        assert_eq!((first.batched, first.context), (2 + 90 + 1, 300 + 60));
        let second = draft_pass(&b, &d, 2);
        assert_eq!((second.batched, second.context), (1, 101));
        assert_eq!((draft_pass(&b, &d, 3).batched, draft_pass(&b, &d, 3).context), (1, 102));
        let once = verify_pass(&b, &d, ContextReads::Once);
        assert_eq!((once.batched, once.context), (4 + 2 + 1 + 100, 600 + 50));
        let per = verify_pass(&b, &d, ContextReads::PerPosition);
        assert_eq!(per.context, (100 + 101 + 102 + 103) + (200 + 201) + 300 + 50);
        assert_eq!(per.pairs, (101 + 102 + 103 + 104) + (201 + 202) + 301 + 100 * 50 + 5050);
    }

    #[test]
    fn the_short_cuts_agree() {
        let b = batch(&[100, 200, 300], &[0, 1, 7]);
        for pass in 1..4 {
            assert_eq!(draft_pass_all(&b, pass), draft_pass(&b, &[3, 5, 4], pass));
        }
        for reads in [ContextReads::Once, ContextReads::PerPosition] {
            assert_eq!(plain_pass(&b), verify_pass(&b, &[0, 0, 0], reads));
            // Three requests, each of which verifies two draft tokens.
            let together = verify_pass(&b, &[2, 2, 2], reads);
            let own = |i: usize| 3 * u64::from(b.context[i]) + 3;
            assert_eq!(together.batched, 3 * 3 + 100);
            assert_eq!(together.pairs, own(0) + own(1) + own(2) + 9 + 100 * 50 + 5050);
        }
    }

    /// A chunk of 3 tokens after 5 tokens in KV: each of its tokens attends to these 5 and to the chunk's tokens up to
    /// itself.
    #[test]
    fn a_chunk_has_the_pairs_of_its_tokens() {
        let mut chunks = ChunkTotals::default();
        chunks.add(5, 3);
        assert_eq!(chunks, ChunkTotals { chunks: 1, tokens: 3, context: 5, pairs: 6 + 7 + 8 });
        chunks.add(0, 2);
        assert_eq!(chunks, ChunkTotals { chunks: 2, tokens: 5, context: 5, pairs: 6 + 7 + 8 + 1 + 2 });
    }

    /// Request 2 does not draft. The draft model has skipped one token of request 1, whose context is 200.
    #[test]
    fn a_block_pass_has_the_requests_that_draft() {
        let b = BatchView { draft_prefill: ChunkTotals::default(), ..batch(&[100, 200, 300], &[0, 1, 7]) };
        let shape = draft_block(&b, &[3, 1, 0]);
        assert_eq!((shape.requests, shape.batched, shape.context), (2, 3 + 1 + 1, 100 + 200));
        // The skipped token is the last of the context, so it attends to 200 tokens.
        assert_eq!(shape.pairs, (101 + 102 + 103) + 201 + 200);
    }

    #[test]
    fn an_idle_draft_runs_only_what_it_must() {
        let mut b = batch(&[100, 200], &[0, 4]);
        assert_eq!(draft_idle_pass(&b).unwrap().batched, 90);
        b.draft_prefill = ChunkTotals::default();
        assert_eq!(draft_idle_pass(&b), None);
        b.always_extend = true;
        assert_eq!(draft_idle_pass(&b).unwrap().batched, 4);
        // Only request 0 drafts. With `always_extend`, the same pass also has the four tokens of request 1 that the
        // draft model has skipped.
        assert_eq!(draft_pass(&b, &[1, 0], 1).batched, 1 + 4);
    }
}
