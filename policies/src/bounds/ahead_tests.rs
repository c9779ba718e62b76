//! Tests of the search for the draft lengths that are best over two steps. They compare the search with an exhaustive
//! search, which computes the costs with code of its own.

use super::*;
use crate::bounds::ahead::OneStepAhead;
use crate::testing::{BELIEF, Batch, CONTEXT, Run, any_batch, any_belief};
use crate::{Belief, PolicyContext};
use foretoken_sim::{ContextReads, Host, LatencyModel, Linear, Luck, Stream, Time};
use itertools::Itertools;
use proptest::prelude::*;

const LONGEST: u32 = 3;

/// For each request and depth: the probability that the draft token is right if all before it are, in this step (`now`)
/// and in the next step (`next`). `limit` has the most draft tokens of each request.
struct Odds<'a> {
    limit: &'a [u32],
    now: &'a [Vec<f64>],
    next: &'a [Vec<f64>],
}

impl Expected for Odds<'_> {
    fn most(&self, i: usize) -> u32 {
        self.limit[i]
    }

    fn survival(&self, i: usize, depth: u32) -> f64 {
        self.now[i][..depth as usize].iter().product()
    }

    fn next_survival(&self, i: usize, depth: u32) -> f64 {
        self.next[i][..depth as usize].iter().product()
    }
}

fn truth<'a>(draft: &'a dyn LatencyModel, target: &'a dyn LatencyModel, belief: &Belief) -> Truth<'a> {
    let (context_reads, drafting) = (belief.context_reads, belief.drafting);
    let overhead = Time(1_500_000_000);
    Truth { run: &[], draft, target, context_reads, drafting, overhead, hidden: None, host: Host::NONE }
}

/// One case of the tests: a batch with its true costs, the probabilities of acceptance in two steps, and the price of a
/// second in tokens. `owes` is true if the draft model misses tokens of requests that do not draft.
#[derive(Clone, Copy)]
struct State<'a> {
    batch: &'a BatchView<'a>,
    belief: &'a Belief,
    truth: &'a Truth<'a>,
    odds: &'a Odds<'a>,
    price: f64,
    owes: bool,
}

/// The worth, in tokens, of this step and the next one: expected tokens − price · seconds. This step drafts the lengths
/// `lens`, the next one runs `passes` draft passes. Pass times are linear.
fn worth(state: &State, lens: &[u32], passes: u32) -> f64 {
    let State { batch, belief, truth, odds, price, owes } = *state;
    let (draft, target) = (belief.draft, belief.target);
    let parallel = belief.drafting == Drafting::Parallel;
    let mut tokens = 2.0 * batch.len() as f64;
    let mut seconds = step_time(batch, truth, lens).as_s() + truth.overhead.as_s() + target.delta_s;
    let runs = if parallel { passes.min(1) } else { passes };
    seconds += draft.delta_s * f64::from(runs.max(u32::from(batch.always_extend)));
    for (i, &len) in lens.iter().enumerate() {
        seconds += target.gamma_s + target.alpha_s * f64::from(batch.context[i] + 1);
        tokens += (1..=len).map(|depth| odds.survival(i, depth)).sum::<f64>();
        for accepted in 0..=len {
            let reached = if accepted == 0 { 1.0 } else { odds.survival(i, accepted) };
            let chance = reached - if accepted < len { odds.survival(i, accepted + 1) } else { 0.0 };
            let context = f64::from(batch.context[i] + 1 + accepted);
            let debt = f64::from(match (owes, len) {
                (false, _) => 0,
                (true, 0) if batch.always_extend => 1,
                (true, 0) => batch.draft_gap[i] + 1,
                (true, _) if parallel => accepted,
                (true, _) => u32::from(accepted == len),
            });
            let mut certain = target.alpha_s * f64::from(accepted);
            if batch.always_extend {
                certain += draft.gamma_s * debt;
            }
            let gain = |next: u32| {
                let cost = |depth: u32| {
                    let before = f64::from(depth - 1);
                    let reads = match belief.context_reads {
                        ContextReads::Once => 0.0,
                        ContextReads::PerPosition => target.alpha_s * (context + f64::from(depth)),
                    };
                    let drafts = if parallel && depth > 1 { 0.0 } else { draft.alpha_s * (context + before) };
                    let owed = if depth == 1 && !batch.always_extend { draft.gamma_s * debt } else { 0.0 };
                    draft.gamma_s + drafts + owed + target.gamma_s + reads
                };
                (1..=next).map(|depth| odds.next_survival(i, depth) - price * cost(depth)).sum::<f64>()
            };
            let most = passes.min(odds.most(i));
            let best = (0..=most).map(gain).fold(0.0, f64::max);
            tokens += chance * (best - price * certain);
        }
    }
    tokens - price * seconds
}

fn all_vectors(most: &[u32]) -> Vec<Vec<u32>> {
    most.iter().map(|&m| 0..=m).multi_cartesian_product().collect()
}

/// Tries all `lens` of this step with all numbers of draft passes of the next step. Returns the greatest worth (tokens
/// − price · seconds).
fn exhaustive(lens: &[Vec<u32>], worth: impl Fn(&[u32], u32) -> f64) -> f64 {
    let both = lens.iter().cartesian_product(0..=LONGEST);
    both.map(|(lens, passes)| worth(lens, passes)).fold(f64::NEG_INFINITY, f64::max)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    /// If true pass times are linear, no draft lengths are worth more over two steps (tokens − price · seconds) than
    /// the lengths that the search chooses.
    #[test]
    fn it_equals_exhaustive_search(
        batch in any_batch(3, LONGEST),
        belief in any_belief(),
        now in prop::collection::vec(prop::collection::vec(0.0f64..=1.0, 3), 3),
        next in prop::collection::vec(prop::collection::vec(0.0f64..=1.0, 3), 3),
        price in 1.0f64..20_000.0,
        dear_gaps in any::<bool>(),
        owes in any::<bool>(),
    ) {
        let mut belief = belief;
        if dear_gaps {
            belief.draft.gamma_s *= 30.0;
        }
        let (draft, target) = (Linear::new(belief.draft), Linear::new(belief.target));
        let (truth, view) = (truth(&draft, &target, &belief), batch.view());
        let odds = Odds { limit: view.limit, now: &now, next: &next };
        let mut lens = vec![0; view.len()];
        let priced = Worth::Priced(price);
        let gain = TwoSteps::default().best(&view, &truth, priced, owes, &odds, &mut lens);
        let state = State { batch: &view, belief: &belief, truth: &truth, odds: &odds, price, owes };
        let worth = |lens: &[u32], passes| worth(&state, lens, passes);
        // Two computations of one worth (tokens − price · seconds) may differ: pass times are rounded to picoseconds,
        // and slopes are differences of rounded times.
        let slack = 1e-6 + price * 1e-9;
        let best = exhaustive(&all_vectors(view.limit), worth);
        let chosen = exhaustive(&[lens.clone()], worth);
        prop_assert!(best - chosen <= slack, "{lens:?} are worth {chosen}, the best {best}");
        let said = gain.worth(price * 1e-12);
        prop_assert!((said - chosen).abs() <= slack, "{lens:?}: {said} and {chosen}");
    }

    /// Without a price, the search finds the lengths with the most tokens a second over two steps. With this rate as
    /// the price of a second, no lengths have tokens − price · seconds above 0.
    #[test]
    fn the_ratio_of_both_steps_is_the_best(
        batch in any_batch(3, LONGEST),
        belief in any_belief(),
        odds in prop::collection::vec(prop::collection::vec(0.0f64..=1.0, 3), 3),
        owes in any::<bool>(),
    ) {
        let (draft, target) = (Linear::new(belief.draft), Linear::new(belief.target));
        let (truth, view) = (truth(&draft, &target, &belief), batch.view());
        let odds = Odds { limit: view.limit, now: &odds, next: &odds };
        let mut lens = vec![0; view.len()];
        let gain = TwoSteps::default().best(&view, &truth, Worth::Ratio, owes, &odds, &mut lens);
        let rate = gain.tokens / (gain.ps * 1e-12);
        let state = State { batch: &view, belief: &belief, truth: &truth, odds: &odds, price: rate, owes };
        let worth = |lens: &[u32], passes| worth(&state, lens, passes);
        let best = exhaustive(&all_vectors(view.limit), worth);
        prop_assert!(best <= 1e-6 + rate * 2e-9, "at {rate} tokens/s a choice is worth {best} more");
    }
}

/// A request whose draft token is not worth its time still drafts it, if the token that the draft model otherwise
/// misses would cost more in the next step.
#[test]
fn a_debt_that_costs_more_than_a_draft_is_not_made() {
    let mut belief = BELIEF;
    (belief.draft.gamma_s, belief.target.gamma_s) = (1e-3, 0.0);
    (belief.draft.delta_s, belief.draft.alpha_s, belief.target.alpha_s) = (1e-9, 0.0, 0.0);
    let (draft, target) = (Linear::new(belief.draft), Linear::new(belief.target));
    let truth = truth(&draft, &target, &belief);
    let batch = Batch::new(&[100], &[1]);
    let view = batch.view();
    // A draft token takes 1 ms, which costs 0.4 tokens at the price of 400 tokens a second, and is accepted with
    // probability 0.3. In the next step this probability is 0.95.
    let odds = Odds { limit: &[1], now: &[vec![0.3]], next: &[vec![0.95]] };
    let chosen = |owes| {
        let mut lens = [0];
        TwoSteps::default().best(&view, &truth, Worth::Priced(400.0), owes, &odds, &mut lens);
        lens
    };
    assert_eq!((chosen(false), chosen(true)), ([0], [1]));
}

/// The bound counts tokens that the draft model will miss from the first step on in which it missed one. Until then,
/// the drafter may be one that never misses a token.
#[test]
fn debts_count_once_a_token_was_missed() {
    let without_gap = Batch::new(&[100], &[8]);
    let mut with_gap = without_gap.clone();
    with_gap.gap[0] = 1;
    let chosen = |gamma_s: f64, before: &Batch| {
        let mut belief = BELIEF;
        (belief.draft.gamma_s, belief.draft.delta_s) = (gamma_s, 1e-9);
        let mut run = Run::of(&OneStepAhead::default(), &PolicyContext { belief, profile: &belief, ..CONTEXT });
        [before, &without_gap].map(|batch| run.step(batch, |_, _| 0.0, &[0]).draft_len[0])[1]
    };
    let gammas = (1..100).map(|i| f64::from(i) * 1e-4);
    let differ = gammas.filter(|&gamma_s| chosen(gamma_s, &with_gap) != chosen(gamma_s, &without_gap)).count();
    assert!(differ > 0, "a missed token changes nothing");
}

/// On a staircase, where the time of a pass rises at every fourth batched token, the choice may miss the optimum of the
/// first step. The test bounds how much of the first step's worth is lost against an exhaustive search over the draft
/// lengths of this step.
#[test]
fn on_a_staircase_the_first_step_is_never_worse_than_the_best_for_it_alone() {
    struct Padded(Linear);
    impl LatencyModel for Padded {
        fn pass(&self, shape: PassShape) -> Time {
            self.0.pass(PassShape { batched: shape.batched.next_multiple_of(4), ..shape })
        }
    }
    let (draft, target) = (Padded(Linear::new(BELIEF.draft)), Padded(Linear::new(BELIEF.target)));
    let truth = truth(&draft, &target, &BELIEF);
    let luck = Luck::new(5, Stream::Policy, 0);
    let (mut lost, mut all) = (0.0, 0.0);
    for s in 0..200 {
        let contexts: Vec<u32> = (0..4).map(|i| 1 + (luck.narrow(s).unit(i) * 3000.0) as u32).collect();
        let batch = Batch::new(&contexts, &[LONGEST; 4]);
        let odds: Vec<Vec<f64>> =
            (0..4).map(|i| (0..3).map(|j| luck.narrow(s).unit(10 + 3 * i + j).sqrt()).collect()).collect();
        let odds = Odds { limit: &[LONGEST; 4], now: &odds, next: &odds };
        let (view, price) = (batch.view(), 400.0);
        let mut lens = vec![0; 4];
        TwoSteps::default().best(&view, &truth, Worth::Priced(price), false, &odds, &mut lens);
        let alone = |lens: &[u32]| {
            let tokens: f64 =
                (0..4).flat_map(|i| (1..=lens[i]).map(move |depth| (i, depth))).map(|(i, d)| odds.survival(i, d)).sum();
            tokens - price * step_time(&view, &truth, lens).as_s()
        };
        let none = alone(&[0; 4]);
        let best = all_vectors(&[LONGEST; 4]).iter().map(|lens| alone(lens)).fold(none, f64::max);
        lost += best - alone(&lens);
        all += best - none;
    }
    println!("{lost} of {all} tokens lost");
    assert!(lost <= 0.02 * all, "{lost} of {all} tokens lost");
}
