//! The true time of a step, updated as draft tokens are added one by one. Bounds compare choices by this time. No other
//! policy can, because it needs the hidden [`Truth`]. The sizes of the passes that this module adds up must equal the
//! sizes of the passes that the simulator runs ([`foretoken_sim::shape`]).

use foretoken_sim::host::HostStep;
use foretoken_sim::{BatchView, ContextReads, Drafting, LatencyModel, MAX_SPEC_LEN, PassShape, Time, Truth, shape};

const DEPTHS: usize = MAX_SPEC_LEN as usize;

/// The true time of a step. Draft tokens are added to the step one by one, and all of them are verified.
#[derive(Clone, Copy)]
pub(crate) struct TrueCost<'a> {
    batch: &'a BatchView<'a>,
    truth: &'a Truth<'a>,
    /// The draft model's pass in a step without draft tokens; `None` if no pass then runs. With draft tokens, this work
    /// is part of draft pass 1.
    idle: Option<PassShape>,
    idle_time: Time,
    /// For each depth: the size of the draft pass that makes the tokens of this depth (`passes`) and its time
    /// (`times`). Zero for depths without draft tokens. A drafter that makes all tokens in one pass has only the first
    /// entry.
    passes: [PassShape; DEPTHS],
    times: [Time; DEPTHS],
    /// Time of all draft passes that make draft tokens, in picoseconds: the sum of `times`.
    draft_time: Time,
    verify: PassShape,
    verify_time: Time,
}

impl<'a> TrueCost<'a> {
    /// The true time of the step if nothing is drafted. Takes O(requests) time.
    pub fn undrafted(batch: &'a BatchView<'a>, truth: &'a Truth<'a>) -> TrueCost<'a> {
        let idle = shape::draft_idle_pass(batch);
        let verify = shape::plain_pass(batch);
        TrueCost {
            batch,
            truth,
            idle,
            idle_time: idle.map_or(Time::ZERO, |s| truth.draft.pass(s)),
            passes: [PassShape::default(); DEPTHS],
            times: [Time::ZERO; DEPTHS],
            draft_time: Time::ZERO,
            verify,
            verify_time: truth.target.pass(verify),
        }
    }

    /// Adds the draft token of request `i` at `depth` (from 1) to the draft pass and to verification. The request's
    /// tokens at smaller depths must have been added before.
    pub fn add(&mut self, i: usize, depth: u32) {
        let parallel = self.truth.drafting == Drafting::Parallel;
        let slot = if parallel { 0 } else { depth as usize - 1 };
        let mut pass = self.passes[slot];
        if depth == 1 && pass.batched == 0 {
            pass = self.idle.unwrap_or_default();
        }
        pass = plus(pass, draft_token(self.batch, i, depth, self.truth.drafting));
        let time = self.truth.draft.pass(pass);
        self.draft_time = self.draft_time - self.times[slot] + time;
        (self.passes[slot], self.times[slot]) = (pass, time);
        self.verify = plus(self.verify, verify_token(self.batch, i, depth, self.truth.context_reads));
        self.verify_time = self.truth.target.pass(self.verify);
    }

    /// Returns the true time of the step: the overhead, the host's time, and the time of the draft and verify passes.
    pub fn time(&self) -> Time {
        let drafted = self.passes[0].batched > 0;
        let decodes = self.batch.len() as u64;
        let (requests, tokens) = (self.verify.requests, self.verify.batched);
        let drafts = tokens - decodes - self.batch.prefill.tokens;
        let host = self.truth.host.time(HostStep { decodes, requests, tokens, drafts }).whole();
        self.truth.overhead + host + self.verify_time + if drafted { self.draft_time } else { self.idle_time }
    }

    #[cfg(test)]
    pub fn shapes(&self) -> (&[PassShape], PassShape) {
        (&self.passes, self.verify)
    }
}

/// The true time of a step with these draft lengths, all of which are verified: the overhead, the host's time, and the
/// time of the draft and verify passes.
pub(crate) fn step_time(batch: &BatchView, truth: &Truth, lens: &[u32]) -> Time {
    let verify = shape::verify_pass(batch, lens, truth.context_reads);
    let drafts = lens.iter().map(|&len| u64::from(len)).sum();
    let (decodes, requests, tokens) = (batch.len() as u64, verify.requests, verify.batched);
    let host = truth.host.time(HostStep { decodes, requests, tokens, drafts }).whole();
    let mut time = truth.overhead + host + truth.target.pass(verify);
    let deepest = lens.iter().copied().max().unwrap_or(0);
    match truth.drafting {
        Drafting::Parallel if deepest > 0 => time += truth.draft.pass(shape::draft_block(batch, lens)),
        _ => (1..=deepest).for_each(|pass| time += truth.draft.pass(shape::draft_pass(batch, lens, pass))),
    }
    match shape::draft_idle_pass(batch) {
        Some(idle) if deepest == 0 => time + truth.draft.pass(idle),
        _ => time,
    }
}

fn plus(a: PassShape, b: PassShape) -> PassShape {
    PassShape {
        requests: a.requests + b.requests,
        batched: a.batched + b.batched,
        context: a.context + b.context,
        pairs: a.pairs + b.pairs,
    }
}

/// The work (tokens, context, query-key pairs) that the draft token of request `i` at `depth` adds to its draft pass.
/// At depth 1 the work includes the request's catch-up (context tokens that the draft model skipped), unless the engine
/// runs the catch-up of the whole batch in every step.
pub(crate) fn draft_token(batch: &BatchView, i: usize, depth: u32, drafting: Drafting) -> PassShape {
    draft_token_at(batch.context[i], batch.draft_gap[i], batch.always_extend, depth, drafting)
}

/// [`draft_token`] (the size that one draft token adds to its draft pass) for a request with `context` tokens, `gap` of
/// which the draft model has not processed. `always_extend` is true if the draft model processes the gaps of the whole
/// batch in every step.
pub(crate) fn draft_token_at(context: u32, gap: u32, always_extend: bool, depth: u32, drafting: Drafting) -> PassShape {
    let before = u64::from(context) + u64::from(depth) - 1;
    // A drafter that makes all tokens in one pass reads the context once. The first draft token is charged for it.
    let context_read = if drafting == Drafting::Parallel && depth > 1 { 0 } else { before };
    // A pass counts each request once in `requests`. With a drafter that makes all tokens in one pass, the token at
    // depth 1 counts the request. If a pass without draft tokens processes the context that the draft model skipped,
    // this pass has counted the request already.
    let first = drafting != Drafting::Parallel || depth == 1;
    let idle_has_it = depth == 1 && always_extend && gap > 0;
    let requests = u64::from(first && !idle_has_it);
    let mut token = PassShape { requests, batched: 1, context: context_read, pairs: before + 1 };
    if depth == 1 && !always_extend {
        let missed = catch_up(context, gap);
        token.batched += missed.batched;
        token.pairs += missed.pairs;
    }
    token
}

/// The shape of a pass in which the draft model processes the last `gap` tokens of a request with `context` tokens,
/// because it skipped them before. Each of them attends to itself and to all tokens before it.
pub(crate) fn catch_up(context: u32, gap: u32) -> PassShape {
    let (c, gap) = (u64::from(context), u64::from(gap));
    PassShape { requests: 0, batched: gap, context: 0, pairs: gap * (c - gap) + gap * (gap + 1) / 2 }
}

/// The work (tokens, context, query-key pairs) that the draft token of request `i` at `depth` adds to the verify pass.
pub(crate) fn verify_token(batch: &BatchView, i: usize, depth: u32, reads: ContextReads) -> PassShape {
    verify_token_at(batch.context[i], depth, reads)
}

/// The work that a draft token at `depth` adds to the verify pass, for a request with `context` tokens in KV.
pub(crate) fn verify_token_at(context: u32, depth: u32, reads: ContextReads) -> PassShape {
    let position = u64::from(context) + u64::from(depth);
    let context = match reads {
        ContextReads::Once => 0,
        ContextReads::PerPosition => position,
    };
    PassShape { requests: 0, batched: 1, context, pairs: position + 1 }
}

/// The picoseconds that a pass gets longer per batched token, per context token and per query-key pair. Exact for a
/// linear latency model. For other models each value is a mean slope: from the given pass to a pass with twice its
/// batched tokens (or context tokens, or pairs). Never negative.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slopes {
    batched: f64,
    context: f64,
    pairs: f64,
}

impl Slopes {
    /// The slopes of the model's pass time at the pass size `at`: picoseconds for one more batched token, context token
    /// and query-key pair.
    pub fn of(model: &dyn LatencyModel, at: PassShape) -> Slopes {
        let base = model.pass(at);
        let rise = |amount: u64, more: fn(&mut PassShape, u64)| {
            let (mut further, amount) = (at, amount.max(1));
            more(&mut further, amount);
            model.pass(further).saturating_sub(base).0 as f64 / amount as f64
        };
        Slopes {
            batched: rise(at.batched, |s, n| s.batched += n),
            context: rise(at.context, |s, n| s.context += n),
            pairs: rise(at.pairs, |s, n| s.pairs += n),
        }
    }

    /// The time in picoseconds that the work `more` (tokens, context, query-key pairs) adds to a pass by these slopes.
    pub fn cost(&self, more: PassShape) -> f64 {
        self.batched * more.batched as f64 + self.context * more.context as f64 + self.pairs * more.pairs as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{any_batch, any_belief};
    use foretoken_sim::host::{HostLaw, SpeculatingSeconds};
    use foretoken_sim::{Host, Linear};
    use proptest::prelude::*;

    proptest! {
        /// The sizes of passes that are built up token by token equal the sizes of the simulator's passes, and so do
        /// their times and the host's time.
        #[test]
        fn grown_shapes_are_the_executors(batch in any_batch(8, 6), belief in any_belief()) {
            let (draft, target) = (Linear::new(belief.draft), Linear::new(belief.target));
            let (context_reads, overhead) = (belief.context_reads, Time(12_345));
            let drafting = belief.drafting;
            let speculating = SpeculatingSeconds { step_s: 1e-3, request_s: 2e-4, token_s: 3e-5 };
            let host = Host::of(&HostLaw { request_s: 1e-4, token_s: 1e-5, speculating, ..HostLaw::default() });
            let truth = Truth { run: &[], draft: &draft, target: &target, context_reads, drafting, overhead, hidden: None, host };
            let view = batch.view();
            let mut cost = TrueCost::undrafted(&view, &truth);
            let lens = view.limit.to_vec();
            for depth in 1..=6 {
                for i in (0..lens.len()).filter(|&i| lens[i] >= depth) {
                    cost.add(i, depth);
                }
            }
            let deepest = lens.iter().copied().max().unwrap_or(0);
            let (passes, verify) = cost.shapes();
            let mut time = overhead + target.pass(verify);
            prop_assert_eq!(verify, shape::verify_pass(&view, &lens, belief.context_reads));
            for pass in 1..=if drafting == Drafting::Parallel { deepest.min(1) } else { deepest } {
                let wanted = match drafting {
                    Drafting::Parallel => shape::draft_block(&view, &lens),
                    Drafting::Autoregressive => shape::draft_pass(&view, &lens, pass),
                };
                prop_assert_eq!(passes[pass as usize - 1], wanted);
                time += draft.pass(wanted);
            }
            if deepest == 0 && let Some(idle) = shape::draft_idle_pass(&view) {
                time += draft.pass(idle);
            }
            let drafts = lens.iter().map(|&len| u64::from(len)).sum();
            let (decodes, requests, tokens) = (view.len() as u64, verify.requests, verify.batched);
            time += host.time(HostStep { decodes, requests, tokens, drafts }).whole();
            prop_assert_eq!(cost.time(), time);
            prop_assert_eq!(step_time(&view, &truth, &lens), time);
        }
    }
}
