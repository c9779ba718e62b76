//! The draft passes at the end of a step: their number, and the number of tokens over which each runs.
//!
//! Taken from the model runners of vLLM 0.33.0 and 0.32.0 and tested against these releases (`tests/vllm/README.md`,
//! "The clock and the device"; `runners.py` there runs the released code).

use super::scheduler::{Derived, Lengths, SpeculativeConfig};
use crate::config::{DraftMethod, EngineConfig, FirstDraftPass, Runner};
use crate::executor::PassCost;
use crate::latency::PassShape;

/// The way in which a drafter makes its draft tokens: how many passes, and over which tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Kind {
    /// A pass over the step's tokens gives the first draft token of each request; each further draft token needs a pass
    /// over one token of each request.
    #[default]
    Sequential,
    /// Several MTP modules: every draft pass, not only the first, processes the step's tokens.
    Modules,
    /// One pass gives all draft tokens of a request.
    Parallel,
    /// A first draft pass writes the step's tokens into the draft model's KV, and a second pass gives all draft tokens.
    Block,
    /// Draft tokens are copied from earlier text (prompt lookup, suffix decoding), so that no draft pass processes
    /// tokens.
    Lookup,
}

/// The draft passes that a drafter makes at the end of a step: their number, and the number of tokens that each
/// processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DraftPasses {
    kind: Kind,
    /// Extra tokens of each request in the first draft pass, in addition to the step's tokens.
    slots: u32,
    /// Extra tokens of each request in the second pass of a block drafter (its first pass writes the context, its
    /// second gives all draft tokens), in addition to the request's draft tokens.
    anchors: u32,
    /// The most draft tokens that a request may ever have in a step.
    most: u32,
    /// Whether the drafter always makes as many passes as for the longest draft length, even if fewer draft tokens are
    /// wanted.
    pub always_all: bool,
    /// Whether a block drafter (its first pass writes the context, its second gives all draft tokens) leaves out its
    /// second pass if no draft tokens are wanted.
    context_alone: bool,
    /// Whether the first draft pass leaves out the step's rejected draft tokens, because the drafter knows which draft
    /// tokens were accepted.
    pub unseen: bool,
    /// `Some(n)`: if any request of a step is less than the draft length + n tokens away from `max_model_len`, no
    /// request of the step gets draft tokens.
    pub ends_early: Option<u32>,
}

/// Number of draft passes that a server makes at the end of a step to draft `k` tokens for each request. The server
/// takes the draft length from a table by batch size, and `most` is the largest length in this table. If the drafter
/// gives all draft tokens in one pass, this returns `k` instead.
pub fn passes_by_table(c: &EngineConfig, most: u32, k: u32) -> u32 {
    let spec = SpeculativeConfig { drafter: true, num_speculative_tokens: most, ..SpeculativeConfig::default() };
    let passes = DraftPasses::of(&Derived::of(c, &spec));
    if passes.in_parallel() { k } else { passes.number(k) }
}

/// Token counts of the step that just ran. From these counts follow the number of tokens that each draft pass at the
/// end of the step processes, and the number of KV tokens that it reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ran {
    /// Shape of the step's target pass: number of new tokens, and tokens of KV that it reads.
    pub tokens: PassShape,
    /// Number of requests in the step.
    pub requests: u64,
    /// Sum over the step's requests of their tokens in KV after the step.
    pub context: u64,
}

impl Ran {
    /// Leaves out a request that had `computed` tokens in KV and ran `tokens` tokens, of which `kept` stay in KV.
    pub fn leave_out(&mut self, computed: u32, tokens: u32, kept: u32) {
        let (c, n) = (u64::from(computed), u64::from(tokens));
        let all = &mut self.tokens;
        (all.requests, all.batched, all.context) = (all.requests - 1, all.batched - n, all.context - c);
        all.pairs -= n * c + n * (n + 1) / 2;
        (self.requests, self.context) = (self.requests - 1, self.context - c - u64::from(kept));
    }
}

impl DraftPasses {
    /// The draft passes at the end of a step, as they follow from the engine's settings and from the drafter.
    pub(super) fn of(derived: &Derived) -> DraftPasses {
        let &Derived { config: c, spec, k, runner, .. } = derived;
        let v2 = runner == Runner::V2;
        let modules = c.method == DraftMethod::Mtp && c.mtp_modules > 1 && k > 1 && v2;
        let kind = match c.method {
            DraftMethod::Ngram | DraftMethod::Suffix => Kind::Lookup,
            _ if derived.block => Kind::Block,
            _ if spec.parallel_drafting => Kind::Parallel,
            DraftMethod::Mtp if modules => Kind::Modules,
            _ => Kind::Sequential,
        };
        DraftPasses {
            kind,
            slots: match c.method {
                DraftMethod::DraftModel if spec.parallel_drafting => k,
                DraftMethod::DraftModel => 1,
                _ if kind == Kind::Parallel => k.saturating_sub(1),
                _ => 0,
            },
            anchors: u32::from(c.method != DraftMethod::Dspark),
            most: k,
            always_all: v2
                && (modules || kind == Kind::Block || c.method == DraftMethod::DraftModel)
                && spec.lengths == Lengths::Released,
            context_alone: v2 && c.release().writes_context_alone,
            unseen: derived.first_draft_pass == FirstDraftPass::Unseen,
            ends_early: (!v2).then_some(u32::from(c.method == DraftMethod::Dflash)),
        }
    }

    /// Whether one pass gives all draft tokens of a request.
    pub fn in_parallel(&self) -> bool {
        matches!(self.kind, Kind::Parallel | Kind::Block | Kind::Lookup)
    }

    /// Number of draft passes at the end of a step if at most `k` draft tokens are wanted for each request.
    pub fn number(&self, k: u32) -> u32 {
        match self.kind {
            Kind::Lookup | Kind::Parallel => 1,
            Kind::Block if k == 0 && self.context_alone => 1,
            Kind::Block => 2,
            Kind::Sequential | Kind::Modules if self.always_all => self.most,
            Kind::Sequential | Kind::Modules => k.max(1),
        }
    }

    /// Whether pass number `pass` (from 1) only writes the step's tokens into the draft model's KV, as the first pass
    /// of a block drafter does. Such a pass makes no draft tokens.
    pub fn writes_context(&self, pass: u32) -> bool {
        self.kind == Kind::Block && pass == 1
    }

    /// From what a simulated clock computes the time of pass number `pass` (from 1), whose shape is
    /// [`shape`](DraftPasses::shape).
    pub fn cost(&self, ran: &Ran, k: u32, pass: u32) -> PassCost {
        let shape = self.shape(ran, k, pass);
        if self.writes_context(pass) { PassCost::Context(shape) } else { PassCost::Given(shape) }
    }

    /// How many tokens draft pass number `pass` (from 1) processes, and how many KV tokens it reads. `ran` has the
    /// token counts of the step at whose end the pass runs, and `k` is the draft length.
    pub fn shape(&self, ran: &Ran, k: u32, pass: u32) -> PassShape {
        match self.kind {
            Kind::Lookup => PassShape::default(),
            Kind::Block if pass == 2 => {
                let k = if self.always_all { self.most } else { k };
                each(ran, u64::from(k + self.anchors))
            }
            Kind::Sequential if pass > 1 => {
                let behind = u64::from(pass - 1);
                let context = ran.context + ran.requests * behind;
                PassShape { requests: ran.requests, batched: ran.requests, context, pairs: context + ran.requests }
            }
            _ => {
                let slots = each(ran, self.slots.into());
                PassShape {
                    requests: ran.requests,
                    batched: ran.tokens.batched + slots.batched,
                    context: ran.tokens.context,
                    pairs: ran.tokens.pairs + slots.pairs,
                }
            }
        }
    }
}

/// How many tokens a pass over `n` new tokens of each request processes, and how many KV tokens it reads. The new
/// tokens follow the request's tokens in KV.
fn each(ran: &Ran, n: u64) -> PassShape {
    let own = ran.requests * n * (n + 1) / 2;
    PassShape { requests: ran.requests, batched: ran.requests * n, context: ran.context, pairs: ran.context * n + own }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Version;

    fn passes(c: &EngineConfig, parallel_drafting: bool, k: u32) -> Vec<u64> {
        let spec = SpeculativeConfig {
            drafter: true,
            num_speculative_tokens: 4,
            parallel_drafting,
            per_batch_size: Vec::new(),
            lengths: Lengths::Released,
        };
        let ran = Ran { tokens: PassShape { requests: 1, batched: 11, context: 0, pairs: 0 }, requests: 3, context: 0 };
        let passes = DraftPasses::of(&Derived::of(c, &spec));
        (1..=passes.number(k)).map(|pass| passes.shape(&ran, k, pass).batched).collect()
    }

    /// Compares the number of tokens of each draft pass with `tests/vllm/runners.py`, which runs the released runners
    /// and drafters, after a step with 11 tokens of 3 requests. The longest draft length is 4.
    #[test]
    fn passes_are_those_of_the_released_runners() {
        let v1 = |method| EngineConfig { method, runner: Some(Runner::V1), ..EngineConfig::default() };
        let v2 = |method| EngineConfig { method, runner: Some(Runner::V2), ..EngineConfig::default() };
        let old = |c| EngineConfig { version: Version::V0_32, ..c };
        use DraftMethod::{Dflash, DraftModel, Eagle, Eagle3, Mtp, Ngram};
        let mtp = EngineConfig { mtp_modules: 2, ..v2(Mtp) };
        let cases: [(EngineConfig, bool, u32, &[u64]); 17] = [
            (v2(DraftModel), false, 4, &[14, 3, 3, 3]),
            (v2(DraftModel), false, 0, &[14, 3, 3, 3]),
            (v2(Eagle), false, 4, &[11, 3, 3, 3]),
            (v2(Eagle), false, 2, &[11, 3]),
            (v2(Eagle), false, 0, &[11]),
            (mtp.clone(), false, 4, &[11, 11, 11, 11]),
            (mtp, false, 0, &[11, 11, 11, 11]),
            (v2(Dflash), false, 2, &[11, 15]),
            (v2(Dflash), false, 0, &[11]),
            (old(v2(Dflash)), false, 0, &[11, 15]),
            (v2(Ngram), false, 4, &[0]),
            (v1(Eagle), false, 4, &[11, 3, 3, 3]),
            (v1(DraftModel), false, 4, &[14, 3, 3, 3]),
            (v1(DraftModel), false, 0, &[14]),
            (v1(Dflash), false, 0, &[11, 3]),
            (v1(DraftModel), true, 4, &[23]),
            (v1(Eagle3), true, 4, &[20]),
        ];
        for (c, parallel, k, expected) in cases {
            assert_eq!(passes(&c, parallel, k), expected, "{c:?} parallel {parallel}, {k} drafts");
        }
    }
}
