//! The costs and effects of draft tokens, computed by hand: token budgets, parallel drafting, draft trees, and the time
//! of decisions.

use super::fixture::{Fixture, lookups};
use crate::config::DecisionSeconds;
use crate::tree::Node;
use crate::*;

fn requests(list: &[(f64, u32, u32)]) -> Workload {
    list.iter().map(|&(at, p, o)| Request::new(Time::from_s(at), p, o)).collect()
}

/// A policy that drafts the same length, or the same tree, in every step. All draft tokens are verified. Only the first
/// `first` decode requests of the batch run in a step (`None`: all); the others wait.
#[derive(Clone)]
struct Same {
    depth: u32,
    growth: Option<Growth>,
    nodes: u32,
    first: Option<usize>,
}

impl Same {
    fn chain(depth: u32) -> Same {
        Same { depth, growth: None, nodes: 0, first: None }
    }
}

impl SpecPolicy for Same {
    fn limits(&self) -> DraftLimits<'_> {
        DraftLimits::tree(self.depth, self.nodes)
    }

    fn max_batch(&mut self, _: &BatchView) -> Option<usize> {
        self.first
    }

    fn propose(&mut self, _: &BatchView, plan: &mut DraftPlan) {
        if let Some(growth) = &self.growth {
            plan.shape = DraftShape::Tree(growth.clone());
        }
        plan.fill(self.depth);
    }
}

fn run(f: &Fixture, policy: impl SpecPolicy + 'static) -> Run {
    f.with(|s| s.run(Speculation::Policy(Box::new(policy))))
}

/// With `budget_charge = trimmed` only verified tokens are charged. A lookup without a match proposes no draft token;
/// the token budget that was reserved for its draft tokens goes to prompts.
#[test]
fn trimming_frees_what_was_reserved_for_a_lookup_without_a_match() {
    let mut f = Fixture::new(requests(&[(0.0, 10, 9), (0.001, 100, 1)]));
    f.lookup = Some(lookups(0.0));
    f.config.draft_prefill = false;
    f.config.max_num_batched_tokens = 20;
    f.config.max_num_seqs = 20;
    f.config.max_num_new_slots_for_drafting = Some(0);
    let chunks = |f: &Fixture| -> Vec<u64> { run(f, Same::chain(7)).steps.iter().map(|s| s.chunk_tokens).collect() };
    assert_eq!(chunks(&f)[..3], [10, 12, 12]);
    f.config.budget_charge = BudgetCharge::Trimmed;
    assert_eq!(chunks(&f)[..3], [10, 19, 19]);
}

#[test]
fn trimming_frees_what_was_reserved_for_requests_left_out() {
    let mut f = Fixture::new(requests(&[(0.0, 5, 30), (0.0, 5, 30), (0.001, 100, 1)]));
    f.rate = 0.0;
    f.config.max_num_batched_tokens = 20;
    f.config.max_num_seqs = 20;
    f.config.max_num_new_slots_for_drafting = Some(0);
    f.config.budget_charge = BudgetCharge::Trimmed;
    let steps = run(&f, Same { first: Some(1), ..Same::chain(3) }).steps;
    // Two decode requests reserve 4 tokens each. Only the first one runs, with 1 + 3 tokens, so 16 of the 20 tokens of
    // the budget are left for the prompt.
    assert_eq!((steps[1].batch_size, steps[1].verified, steps[1].chunk_tokens), (1, 3, 16));
}

/// A policy that gives each request another length.
struct Rising;

impl SpecPolicy for Rising {
    fn limits(&self) -> DraftLimits<'_> {
        DraftLimits::chain(3)
    }

    fn propose(&mut self, batch: &BatchView, plan: &mut DraftPlan) {
        plan.draft_len.iter_mut().zip(batch.ids).for_each(|(len, id)| *len = 1 + id % 3);
    }
}

/// A policy in the seat of vLLM's scheduler has one length for the batch, the longest that it wants for any request.
#[test]
fn a_seated_policy_drafts_one_length_for_all_requests() {
    let mut f = Fixture::new(requests(&[(0.0, 5, 30), (0.0, 5, 30), (0.0, 5, 30)]));
    f.rate = 0.0;
    f.config.version = Version::V0_32;
    let verified = |f: &Fixture| run(f, Rising).steps[2].verified;
    assert_eq!(verified(&f), 1 + 2 + 3);
    f.config.seated = true;
    assert_eq!(verified(&f), 3 + 3 + 3);
}

/// In parallel drafting the draft model does not process its own draft tokens. So it must process accepted draft tokens
/// later, in the first draft pass of the next step (catch up).
#[test]
fn parallel_drafting_is_one_pass_and_leaves_the_accepted_tokens_to_catch_up() {
    let mut f = Fixture::new(requests(&[(0.0, 10, 9)]));
    f.drafting = Drafting::Parallel;
    let draft = Linear::new(f.draft);
    let shape = |context, batched| draft.pass(PassShape { requests: 1, context, batched, pairs: 0 });
    f.rate = 1.0;
    let two = Same { depth: 2, growth: Some(Growth::Expansion([2, 1].into())), nodes: 4, first: None };
    let steps = run(&f, Same::chain(3)).steps;
    assert_eq!(steps.iter().map(|s| s.draft_passes).collect::<Vec<_>>(), [1, 1, 1]);
    assert_eq!([steps[1].draft_time, steps[2].draft_time], [shape(10, 3), shape(14, 3 + 3)]);
    // Several heads give a draft tree in one pass; each request has one new token at each depth in the pass. Here too
    // the draft model must process the accepted tokens later (catch up).
    let steps = run(&f, two.clone()).steps;
    assert_eq!([steps[1].draft_time, steps[2].draft_time], [shape(10, 2), shape(13, 2 + 2)]);
    f.rate = 0.0;
    let steps = run(&f, Same::chain(3)).steps;
    assert_eq!([steps[1].draft_time, steps[2].draft_time], [shape(10, 3), shape(11, 3)]);
    // A draft model without KV has no missed tokens to process later.
    f.rate = 1.0;
    f.config.draft_prefill = false;
    assert_eq!(run(&f, two).steps[2].draft_time, shape(13, 2));
}

/// A beam of two does not expand every node of a draft tree. If the path of accepted tokens ends at a node that was not
/// expanded, the draft model has not processed the last accepted token.
#[test]
fn an_accepted_node_that_was_not_expanded_is_caught_up() {
    let mut tree = DraftTree::default();
    let growth = Growth::Beam { topk: 2 };
    // Each first guess has confidence .9, each second guess .1. The nodes of level 2 that are expanded are node 1-1
    // (first guess after first guess, score .81) and one of the nodes 1-2 and 2-1, which both have score .09. The
    // earlier of the two is taken.
    let guess = |_: Option<&Node>, rank: u32| (if rank == 1 { 0.9 } else { 0.1 }, 0);
    (0..3).for_each(|_| tree.grow(&growth, guess));
    let mut fed = |ranks: [u32; 3]| (tree.accepted(|d| ranks[d as usize - 1]), tree.fed());
    assert_eq!(fed([1, 1, 1]), (3, 2), "the last level is never run over");
    assert_eq!(fed([1, 1, 3]), (2, 2));
    assert_eq!(fed([1, 2, 3]), (2, 2));
    assert_eq!(fed([2, 1, 1]), (2, 1), "2-1 was not expanded");
    assert_eq!(fed([2, 3, 1]), (1, 1));
    assert_eq!(fed([3, 1, 1]), (0, 0));
}

#[test]
fn a_gap_left_by_a_tree_is_charged_in_the_next_first_pass() {
    /// A policy that drafts a beam of two with three levels. It checks that the draft model has missed at most one
    /// token of each request.
    struct Beam;
    impl SpecPolicy for Beam {
        fn limits(&self) -> DraftLimits<'_> {
            DraftLimits::tree(3, 10)
        }
        fn propose(&mut self, batch: &BatchView, plan: &mut DraftPlan) {
            plan.shape = DraftShape::Tree(Growth::Beam { topk: 2 });
            plan.fill(3);
            assert!(batch.is_empty() || batch.draft_gap[0] <= 1);
        }
        fn observe(&mut self, o: &StepOutcome) {
            let Some(tree) = o.drafts.trees.first().filter(|_| !o.ids.is_empty()) else { return };
            assert!(o.accepted[0] - tree.fed() <= 1);
        }
    }
    let mut f = Fixture::new(requests(&[(0.0, 10, 400)]));
    f.rate = 0.4;
    let steps = run(&f, Beam).steps;
    let draft = Linear::new(f.draft);
    // Time of three draft passes of 1, 2 and 2 tokens. `gap` is 1 if the first pass also processes a token that the
    // draft model has missed.
    let passes = |c: u64, gap: u64| {
        let pass = |context, batched| draft.pass(PassShape { requests: 1, context, batched, pairs: 0 });
        pass(c, 1 + gap) + pass(c + 1, 2) + pass(c + 3, 2)
    };
    let gaps = |accepted: u32| {
        let after = steps[1..].windows(2).filter(|w| w[0].accepted == accepted);
        let gap = |w: &[StepRecord]| (0..2).find(|&g| w[1].draft_time == passes(w[1].context, g)).expect("0 or 1");
        after.map(gap).sum::<u64>()
    };
    assert_eq!((gaps(0), gaps(1)), (0, 0));
    assert!(gaps(2) > 0 && gaps(3) > 0);
}

/// With a draft length that is fixed before drafting there is one decision in a step. The host does not wait for the
/// device between draft passes.
#[test]
fn only_decisions_that_are_made_cost_time() {
    /// A policy that decides after every draft pass whether to run the next one, and selects the draft tokens to
    /// verify.
    struct Looks;
    impl SpecPolicy for Looks {
        fn limits(&self) -> DraftLimits<'_> {
            DraftLimits::chain(3)
        }
        fn propose(&mut self, _: &BatchView, plan: &mut DraftPlan) {
            plan.fill(3);
        }
        fn keep_drafting(&mut self, _: &BatchView, _: &mut Drafts) -> Continue {
            Continue::Yes
        }
        fn select(&mut self, _: &BatchView, _: &mut Drafts) {}
    }
    let mut f = Fixture::new(requests(&[(0.0, 10, 9)]));
    let free = run(&f, Looks).steps[1].draft_time;
    f.config.decision_s = DecisionSeconds { propose: 1e-6, keep_drafting: 1e-5, select: 1e-4 };
    let cost = |run: Run| (run.steps[1].draft_time - free, run.steps[0].draft_time);
    let (prompt, us) = (run(&f, Looks).steps[0].draft_time, |us: u64| Time(us * 1_000_000));
    assert_eq!(cost(run(&f, Looks)), (us(1 + 30 + 100), prompt));
    assert_eq!(cost(run(&f, Same::chain(3))), (us(1), prompt));
    // One draft pass gives all draft tokens of a step, so the host waits for the device only once in a step.
    f.drafting = Drafting::Parallel;
    let looks = run(&f, Looks).steps[1].draft_time;
    f.config.decision_s = DecisionSeconds::default();
    assert_eq!(looks - run(&f, Looks).steps[1].draft_time, us(1 + 10 + 100));
}

/// A selection needs the confidences of the step's last draft pass, so the pass that verifies the selected tokens
/// begins after it. The request has two such passes, whatever the order of the steps is, and each is one selection
/// later.
#[test]
fn a_selection_delays_the_pass_that_verifies_its_tokens_in_every_order() {
    /// A policy that drafts three tokens and selects all of them.
    struct Selects;
    impl SpecPolicy for Selects {
        fn limits(&self) -> DraftLimits<'_> {
            DraftLimits::chain(3)
        }
        fn propose(&mut self, _: &BatchView, plan: &mut DraftPlan) {
            plan.fill(3);
        }
        fn select(&mut self, _: &BatchView, _: &mut Drafts) {}
    }
    // The prompt's step emits one token, and two steps of 4 tokens emit the other 8 tokens.
    let mut f = Fixture::new(requests(&[(0.0, 10, 9)]));
    f.rate = 1.0;
    for order in [(DraftAt::StepStart, false), (DraftAt::StepEnd, false), (DraftAt::StepEnd, true)] {
        (f.config.draft_at, f.config.async_scheduling) = (Some(order.0), Some(order.1));
        f.config.decision_s = DecisionSeconds::default();
        let free = run(&f, Selects).records.finish[0];
        f.config.decision_s.select = 5e-3;
        assert_eq!(run(&f, Selects).records.finish[0] - free, Time::from_s(2.0 * 5e-3), "{order:?}");
        // A policy that does not select pays nothing.
        assert_eq!(run(&f, Same::chain(3)).records.finish[0], free, "{order:?}");
    }
}

/// A request that the drafter declines is in no draft pass, neither with its prompt nor with its output: the draft
/// passes of the other request take as long as if it were alone.
#[test]
fn a_declined_request_joins_no_draft_pass() {
    /// A policy that drafts three tokens for request 0 alone.
    struct First;
    impl SpecPolicy for First {
        fn limits(&self) -> DraftLimits<'_> {
            DraftLimits::chain(3)
        }
        fn drafts_for_next(&mut self, request: &NewRequest) -> bool {
            let prompt = [10, 700][request.id as usize];
            assert_eq!((request.prompt_len, request.num_cached_tokens, request.num_running), (prompt, 0, 2));
            request.id == 0
        }
        fn propose(&mut self, _: &BatchView, plan: &mut DraftPlan) {
            plan.fill(3);
        }
    }
    for order in [(DraftAt::StepStart, false), (DraftAt::StepEnd, false), (DraftAt::StepEnd, true)] {
        let of = |sent: &[(f64, u32, u32)], policy: Box<dyn SpecPolicy>| {
            let mut f = Fixture::new(requests(sent));
            (f.config.draft_at, f.config.async_scheduling) = (Some(order.0), Some(order.1));
            let run = f.with(|s| s.run(Speculation::Policy(policy)));
            run.steps.iter().map(|step| step.draft_time).fold(Time::ZERO, |sum, time| sum + time)
        };
        let alone = of(&[(0.0, 10, 60)], Box::new(Same::chain(3)));
        assert_eq!(of(&[(0.0, 10, 60), (0.0, 700, 60)], Box::new(First)), alone, "{order:?}");
    }
}

/// A drafter that processes no prompts drafts behind a step with prompts alone, too: after the prompt's step, two steps
/// of 4 tokens emit the other 8 tokens.
#[test]
fn drafts_follow_a_prompt_that_the_draft_model_does_not_process() {
    let mut f = Fixture::new(requests(&[(0.0, 10, 9)]));
    (f.rate, f.config.draft_at, f.config.draft_prefill) = (1.0, Some(DraftAt::StepEnd), false);
    f.config.async_scheduling = Some(false);
    let accepted: Vec<u64> = run(&f, Same::chain(3)).steps.iter().map(|step| u64::from(step.accepted)).collect();
    assert_eq!(accepted, [0, 3, 3]);
}

/// Prompt lookup has no KV. If the engine's setting `draft_prefill` is on, the engine charges draft passes over prompts
/// that a lookup does not make, and must warn.
#[test]
fn a_lookup_with_a_draft_prefill_gives_a_warning() {
    let mut f = Fixture::new(requests(&[(0.0, 10, 9)]));
    let warns = |f: &Fixture| run(f, Same::chain(3)).warnings.iter().any(|w| w.contains("draft_prefill"));
    assert!(!warns(&f));
    f.lookup = Some(lookups(0.4));
    assert!(warns(&f) && f.plain().warnings.is_empty());
    f.config.draft_prefill = false;
    assert!(!warns(&f));
}

/// If the draft model does not process prompts, there is no draft prefill to skip. Then `drafts_for_next` is not
/// called, and every request may draft.
#[test]
fn draft_prefill_can_only_be_skipped_where_there_is_some() {
    struct Never;
    impl SpecPolicy for Never {
        fn limits(&self) -> DraftLimits<'_> {
            DraftLimits::chain(3)
        }
        fn drafts_for_next(&mut self, _: &NewRequest) -> bool {
            false
        }
        fn propose(&mut self, _: &BatchView, plan: &mut DraftPlan) {
            plan.fill(3);
        }
    }
    let mut f = Fixture::new(requests(&[(0.0, 10, 9)]));
    assert_eq!(run(&f, Never).totals.drafted, 0);
    f.config.draft_prefill = false;
    assert!(run(&f, Never).totals.drafted > 0);
}

/// An acceptance source knows which draft tokens are right only up to `max_draft_len` tokens beyond an output's end. A
/// policy's limit of a tree counts tokens and not depth, so the engine must limit the tree's depth.
#[test]
fn no_tree_is_deeper_than_the_longest_draft() {
    let mut f = Fixture::new(requests(&[(0.0, 10, 100)]));
    f.rate = 1.0;
    let deep = Same { depth: 40, growth: Some(Growth::Expansion([1].into())), nodes: 60, first: None };
    let run = run(&f, deep);
    assert_eq!((run.steps[1].drafted, run.steps[1].accepted, run.records.emitted[0]), (8, 8, 100));
}
