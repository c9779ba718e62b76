//! Whole simulations with draft trees, compared with theory and with chains, which are trees of width 1.

use foretoken_sim::acceptance::{AcceptanceSpec, RankLaw, Rates};
use foretoken_sim::*;
use std::sync::atomic::AtomicBool;

/// A policy that drafts the same tree for every request, cut to the limits. It drafts a chain if `growth` is `None`.
struct Static {
    growth: Option<Growth>,
    depth: u32,
    nodes: u32,
    order: Vec<u32>,
}

impl Static {
    fn tree(growth: Growth, depth: u32, nodes: u32) -> Speculation {
        Speculation::Policy(Box::new(Static { growth: Some(growth), depth, nodes, order: Vec::new() }))
    }

    fn chain(depth: u32) -> Speculation {
        Speculation::Policy(Box::new(Static { growth: None, depth, nodes: 0, order: Vec::new() }))
    }
}

impl SpecPolicy for Static {
    fn limits(&self) -> DraftLimits<'_> {
        DraftLimits::tree(self.depth, self.nodes)
    }

    fn propose(&mut self, _: &BatchView, plan: &mut DraftPlan) {
        if let Some(growth) = &self.growth {
            plan.shape = DraftShape::Tree(growth.clone());
        }
        plan.fill(self.depth);
    }

    fn select(&mut self, batch: &BatchView, drafts: &mut Drafts) {
        if drafts.in_trees() {
            for (tree, &limit) in drafts.trees.iter_mut().zip(batch.limit) {
                tree.keep_best(limit.min(self.nodes), &mut self.order);
            }
        }
    }
}

/// The seed of the draws that decide which draft tokens are right.
pub const SEED: u64 = 5;

/// A run with `requests` requests that arrive 3 ms apart, with random noise on the time of every pass.
pub fn run_with(
    spec: &AcceptanceSpec,
    requests: u32,
    output_len: u32,
    config: EngineConfig,
    policy: Speculation,
) -> Run {
    let arrival = |i: u32| Time::from_s(f64::from(i) * 0.003);
    let workload: Workload = (0..requests).map(|i| Request::new(arrival(i), 20 + 7 * (i % 30), output_len)).collect();
    let acceptance = spec.build(SEED, &workload).expect("a good source");
    let draft = Linear::new(Coefficients { alpha_s: 1e-9, gamma_s: 2e-6, delta_s: 0.5e-3 });
    let target = Linear::new(Coefficients { alpha_s: 1e-7, gamma_s: 40e-6, delta_s: 8e-3 });
    let simulation = Simulation {
        workload: &workload,
        arrivals: Arrivals::Open,
        config: &config,
        draft: &draft,
        target: &target,
        context_reads: ContextReads::PerPosition,
        drafting: Drafting::Autoregressive,
        noise_cv: 0.1,
        acceptance: &*acceptance,
        seed: 3,
        slo_tpot_s: f64::INFINITY,
        keep_steps: true,
        keep_lives: false,
        interrupt: &AtomicBool::new(false),
    };
    simulation.run(policy)
}

fn run(
    source: Rates,
    ranks: RankLaw,
    requests: u32,
    output_len: u32,
    config: EngineConfig,
    policy: Speculation,
) -> Run {
    let spec = AcceptanceSpec { source, ranks, ..AcceptanceSpec::default() };
    run_with(&spec, requests, output_len, config, policy)
}

/// Whole runs with few KV blocks, a small token budget, chunked prompts and a draft model with KV. A draft tree of
/// width 1 and a chain must give equal records.
#[test]
fn a_tree_of_width_one_runs_as_the_chain() {
    let start = Some(DraftAt::StepStart);
    for (version, draft_at, blocks) in
        [(Version::V0_33, None, 96), (Version::V0_33, start, 96), (Version::V0, None, 300)]
    {
        let config = EngineConfig {
            version,
            draft_at,
            num_gpu_blocks: blocks,
            max_num_batched_tokens: 260,
            max_num_seqs: 24,
            max_model_len: 260,
            ..EngineConfig::default()
        };
        for depth in [1, 3, 8] {
            let source = || Rates::ByDepth { rates: vec![0.8, 0.7, 0.6] };
            let run_of = |policy| run(source(), RankLaw::default(), 60, 70, config.clone(), policy);
            let chain = run_of(Static::chain(depth));
            for growth in [Growth::Expansion([1].into()), Growth::Beam { topk: 1 }] {
                let tree = run_of(Static::tree(growth, depth, depth));
                assert_eq!((&tree.records, &tree.steps), (&chain.records, &chain.steps));
                assert_eq!(tree.totals.verified_accepted, chain.totals.verified_accepted);
            }
            assert!(chain.totals.preemptions > 0 || version != Version::V0_33, "no pressure, no test");
        }
    }
}

/// At each depth, independently: P(a level with w guesses has the target's token) = a + (1 − a)·P(rank ≤ w | first
/// guess wrong). For a tree that is the same in every step, the expected accepted length is Σ over depths of the
/// product of these probabilities up to the depth (docs/model.md 5.3, "rank-acceptance table").
#[test]
fn a_static_tree_accepts_what_the_rank_law_says() {
    let hazards = [0.4, 0.25, 0.1];
    let missed = |w: u32| (0..w as usize - 1).map(|r| 1.0 - hazards[r.min(2)]).product::<f64>();
    for (a, vector) in [(0.5, vec![3, 2, 1, 2]), (0.7, vec![1, 1, 3, 1]), (0.2, vec![4, 4]), (0.9, vec![2; 5])] {
        let passes: Vec<f64> = vector.iter().map(|&w| 1.0 - (1.0 - a) * missed(w)).collect();
        let theory: f64 = (1..=passes.len()).map(|d| passes[..d].iter().product::<f64>()).sum();
        let nodes: u32 = (1..=vector.len()).map(|d| vector[..d].iter().product::<u32>()).sum();
        let depth = vector.len() as u32;
        let policy = Static::tree(Growth::Expansion(vector.clone().into()), depth, nodes);
        let ranks = RankLaw::new(hazards.to_vec()).expect("probabilities");
        let run = run(Rates::Constant { rate: a }, ranks, 400, 400, EngineConfig::default(), policy);
        let rounds = run.totals.rounds() as f64;
        let mean = run.totals.accepted() as f64 / rounds;
        // The tolerance is four standard errors of the mean number of accepted tokens, over request-steps with draft
        // tokens (one request in one step). `second` is the variance of this number.
        let second: f64 = run
            .totals
            .verified_accepted
            .iter()
            .flat_map(|row| row.iter().enumerate())
            .map(|(x, &n)| (x as f64 - mean).powi(2) * n as f64)
            .sum::<f64>()
            / rounds;
        let error = 4.0 * (second / rounds).sqrt();
        println!("{vector:?} at {a}: {mean:.4} ± {error:.4}, theory {theory:.4}");
        assert!((mean - theory).abs() < error, "{vector:?} at {a}: {mean} ± {error} against {theory}");
    }
}

/// A run counts all nodes of a draft tree as drafted and verified, and the nodes of one path as accepted.
#[test]
fn records_count_nodes_and_depths_apart() {
    let policy = Static::tree(Growth::Expansion([2, 2].into()), 2, 6);
    // Draft tokens are made at the start of a step. If they were made at the end of a step, some would be made for
    // requests that end with this step. Such draft tokens would run, but not be counted.
    let config = EngineConfig { draft_at: Some(DraftAt::StepStart), ..EngineConfig::default() };
    let run = run(Rates::Constant { rate: 1.0 }, RankLaw::default(), 3, 31, config, policy);
    assert!(
        run.steps.iter().filter(|s| s.batch_size > 0).all(|s| s.drafted == 6 * s.batch_size && s.draft_passes == 2)
    );
    // 31 output tokens: the prompt's step emits one token, and each of ten steps with draft tokens emits three.
    assert_eq!(run.records.rounds, vec![10; 3]);
    assert_eq!((run.records.verified, run.records.accepted), (vec![60; 3], vec![20; 3]));
}

/// A wider beam of the same depth accepts more tokens in a step than a narrower beam or a chain, and so needs fewer
/// steps. The draft tokens that are right are the same in all runs, but the wider beam has more guesses.
#[test]
fn a_wider_tree_of_the_same_depth_accepts_at_least_as_much() {
    let source = || Rates::Constant { rate: 0.6 };
    let accepted_and_rounds = |policy| {
        let r = run(source(), RankLaw::default(), 100, 200, EngineConfig::default(), policy);
        (r.totals.accepted() as f64 / r.totals.rounds() as f64, r.records.rounds.iter().sum::<u32>())
    };
    let chain = accepted_and_rounds(Static::chain(5));
    let mut last = chain;
    for width in [2, 3] {
        let nodes = (1..=5).map(|d| u32::pow(width, d)).sum::<u32>().min(256);
        let beam = accepted_and_rounds(Static::tree(Growth::Beam { topk: width }, 5, nodes));
        assert!(beam.0 > last.0 && beam.1 < last.1, "{width}: {beam:?} after {last:?}");
        last = beam;
    }
}
