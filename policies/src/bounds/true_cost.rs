//! The true time of a step, updated as draft tokens are added one by one. Bounds compare choices by this time. No other
//! policy can, because it needs the hidden [`Truth`]. The shapes must equal the shapes of the passes that the executor
//! runs ([`foretoken_sim::shape`]).

use foretoken_sim::host::HostStep;
use foretoken_sim::{BatchView, ContextReads, Drafting, LatencyModel, MAX_SPEC_LEN, PassShape, Time, Truth, shape};

const DEPTHS: usize = MAX_SPEC_LEN as usize;

/// The true cost of a step in which every drafted token is verified.
#[derive(Clone, Copy)]
pub(crate) struct TrueCost<'a> {
    batch: &'a BatchView<'a>,
    truth: &'a Truth<'a>,
    /// The work of the draft model in a step without draft tokens; `None` if it then does no work. With draft tokens,
    /// this work is part of draft pass 1.
    idle: Option<PassShape>,
    idle_time: Time,
    /// By depth: shape and time of the draft pass; zero for depths without drafts. A parallel draft has a single pass,
    /// which is stored as the first.
    passes: [PassShape; DEPTHS],
    times: [Time; DEPTHS],
    /// Sum of `times`.
    draft_time: Time,
    verify: PassShape,
    verify_time: Time,
}

impl<'a> TrueCost<'a> {
    /// The cost of the step without drafts. Walks over the batch once.
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

fn plus(a: PassShape, b: PassShape) -> PassShape {
    PassShape {
        requests: a.requests + b.requests,
        batched: a.batched + b.batched,
        context: a.context + b.context,
        pairs: a.pairs + b.pairs,
    }
}

/// The shape that the draft token of request `i` at `depth` adds to its draft pass. At depth 1 the shape includes the
/// request's catch-up (context tokens that the draft model skipped), unless the engine runs the catch-up of the whole
/// batch in every step.
pub(crate) fn draft_token(batch: &BatchView, i: usize, depth: u32, drafting: Drafting) -> PassShape {
    let c = u64::from(batch.context[i]);
    let before = c + u64::from(depth) - 1;
    // A parallel draft is one pass, which reads the context once, with the first token.
    let context = if drafting == Drafting::Parallel && depth > 1 { 0 } else { before };
    // A pass counts each request once. A parallel draft counts the request with its first token. If the request's
    // catch-up is in the idle pass, that pass has counted the request already.
    let first = drafting != Drafting::Parallel || depth == 1;
    let idle_has_it = depth == 1 && batch.always_extend && batch.draft_gap[i] > 0;
    let requests = u64::from(first && !idle_has_it);
    let mut token = PassShape { requests, batched: 1, context, pairs: before + 1 };
    if depth == 1 && !batch.always_extend {
        let gap = u64::from(batch.draft_gap[i]);
        token.batched += gap;
        token.pairs += gap * (c - gap) + gap * (gap + 1) / 2;
    }
    token
}

/// The shape that the draft token of request `i` at `depth` adds to the verify pass.
pub(crate) fn verify_token(batch: &BatchView, i: usize, depth: u32, reads: ContextReads) -> PassShape {
    let position = u64::from(batch.context[i]) + u64::from(depth);
    let context = match reads {
        ContextReads::Once => 0,
        ContextReads::PerPosition => position,
    };
    PassShape { requests: 0, batched: 1, context, pairs: position + 1 }
}

/// What a latency model charges for one more batched token, for one more context token and for one more query-key pair,
/// in picoseconds. Exact for a linear model. For other models it is the mean slope from the given shape to twice its
/// work. Never negative.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slopes {
    batched: f64,
    context: f64,
    pairs: f64,
}

impl Slopes {
    /// The slopes of `model` at the shape `at`.
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

    /// Returns the cost of `more` in picoseconds.
    pub fn cost(&self, more: PassShape) -> f64 {
        self.batched * more.batched as f64 + self.context * more.context as f64 + self.pairs * more.pairs as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{any_batch, any_belief};
    use foretoken_sim::{Host, Linear};
    use proptest::prelude::*;

    proptest! {
        /// Shapes that are grown token by token equal the executor's shapes, and so do the times.
        #[test]
        fn grown_shapes_are_the_executors(batch in any_batch(8, 6), belief in any_belief()) {
            let (draft, target) = (Linear::new(belief.draft), Linear::new(belief.target));
            let (context_reads, overhead) = (belief.context_reads, Time(12_345));
            let drafting = belief.drafting;
            let truth = Truth { run: &[], draft: &draft, target: &target, context_reads, drafting, overhead, hidden: None, host: Host::NONE };
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
            prop_assert_eq!(cost.time(), time);
        }
    }
}
