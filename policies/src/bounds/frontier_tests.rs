//! Tests of the enumeration of draft lengths (`frontier.rs`) against exhaustive search. Each draft token is worth
//! between 0 and 1 tokens.

use super::*;
use crate::bounds::true_cost::step_time;
use crate::testing::{Batch, any_batch, any_belief};
use foretoken_sim::{Host, Linear, Time};
use itertools::Itertools;
use proptest::prelude::*;

fn all_vectors(most: &[u32]) -> Vec<Vec<u32>> {
    most.iter().map(|&m| 0..=m).multi_cartesian_product().collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    /// If true pass times are linear, no vector of draft lengths is worth more than the chosen one. Worth is the step's
    /// ratio of tokens to time, or tokens − price × time.
    #[test]
    fn it_equals_exhaustive_search(
        batch in any_batch(4, 4),
        belief in any_belief(),
        odds in prop::collection::vec(prop::collection::vec(0.0f64..=1.0, 4), 4),
        price in prop_oneof![Just(None), (1.0f64..20_000.0).prop_map(Some)],
        dear_gaps in any::<bool>(),
    ) {
        let mut belief = belief;
        if dear_gaps {
            belief.draft.gamma_s *= 30.0;
        }
        let (draft, target) = (Linear::new(belief.draft), Linear::new(belief.target));
        let (context_reads, drafting, overhead) = (belief.context_reads, belief.drafting, Time(1_500_000_000));
        let truth = Truth { run: &[], draft: &draft, target: &target, context_reads, drafting, overhead, hidden: None, host: Host::NONE };
        let view = batch.view();
        let survival = |i: usize, depth: u32| odds[i][..depth as usize].iter().product::<f64>();
        let worth = price.map_or(Worth::Ratio, Worth::Priced);
        let mut lens = vec![0; view.len()];
        let best = Frontier::default().best(&view, &truth, worth, (|i: usize| view.limit[i], survival), Some(&mut lens));
        let tokens_and_time = |lens: &[u32]| {
            let tokens: f64 = lens.iter().enumerate().map(|(i, &d)| 1.0 + (1..=d).map(|j| survival(i, j)).sum::<f64>()).sum();
            (tokens, step_time(&view, &truth, lens).0)
        };
        let chosen = tokens_and_time(&lens);
        prop_assert!((chosen.0 - best.tokens).abs() < 1e-9 && chosen.1 == best.time, "{chosen:?} {best:?}");
        // The policy and the test add up the same numbers in different orders, so two equal worths may differ in their
        // last bits.
        let slack = 1e-9 * match worth { Worth::Ratio => chosen.0 * chosen.1 as f64, Worth::Priced(p) => chosen.0 + p * 1e-12 * chosen.1 as f64 };
        for other in all_vectors(view.limit) {
            prop_assert!(worth.compare(tokens_and_time(&other), chosen) <= slack, "{other:?} {:?} beats {lens:?} {chosen:?}", tokens_and_time(&other));
        }
    }
}

/// On a staircase, where the time of a pass rises at every eighth batched token, the choice may miss the optimum. The
/// test bounds how often and by how much against exhaustive search.
#[test]
fn on_a_staircase_it_is_close_to_exhaustive_search() {
    struct Padded(Linear);
    impl foretoken_sim::LatencyModel for Padded {
        fn pass(&self, shape: foretoken_sim::PassShape) -> Time {
            self.0.pass(foretoken_sim::PassShape { batched: shape.batched.next_multiple_of(8), ..shape })
        }
    }
    let belief = crate::testing::BELIEF;
    let (draft, target) = (Padded(Linear::new(belief.draft)), Padded(Linear::new(belief.target)));
    let luck = foretoken_sim::Luck::new(5, foretoken_sim::Stream::Policy, 0);
    let (mut missed, mut worst, states) = (0, 1.0f64, 400);
    for s in 0..states {
        let contexts: Vec<u32> = (0..5).map(|i| 1 + (luck.narrow(s).unit(i) * 3000.0) as u32).collect();
        let batch = Batch::new(&contexts, &[4; 5]);
        let odds = |i: usize, j: u64| luck.narrow(s).unit(10 + 4 * i as u64 + j).sqrt();
        let survival = |i: usize, depth: u32| (0..u64::from(depth)).map(|j| odds(i, j)).product::<f64>();
        let (context_reads, drafting, overhead) = (belief.context_reads, belief.drafting, Time::ZERO);
        let truth = Truth {
            run: &[],
            draft: &draft,
            target: &target,
            context_reads,
            drafting,
            overhead,
            hidden: None,
            host: Host::NONE,
        };
        let view = batch.view();
        let best = Frontier::default().best(&view, &truth, Worth::Ratio, (|_: usize| 4, survival), None).rate();
        let rate = |lens: &Vec<u32>| {
            let tokens: f64 =
                lens.iter().enumerate().map(|(i, &d)| 1.0 + (1..=d).map(|j| survival(i, j)).sum::<f64>()).sum();
            tokens / step_time(&view, &truth, lens).as_s()
        };
        let most = all_vectors(&[4; 5]).iter().map(rate).fold(0.0, f64::max);
        missed += u32::from(best < most * (1.0 - 1e-9));
        worst = worst.min(best / most);
    }
    println!("{missed} of {states} states missed, the worst at {worst}");
    assert!(missed * 10 <= states as u32, "{missed} of {states} states missed, the worst at {worst}");
    assert!(worst > 0.99, "{worst}");
}
