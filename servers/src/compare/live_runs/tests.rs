//! The report of a small validation, as text and as a page. Two policies have two pieces each at one load; of a third
//! policy no piece counts.

use super::*;
use crate::compare::bounds::Check;
use crate::compare::page_text::page_text;
use crate::compare::pass_errors::{PassErrors, PassKind};
use crate::compare::token_flow::{Difference, Parting, TokenFlow};
use foretoken_report::validation_figures;
use foretoken_run::spec::validate::Tolerance;
use foretoken_sim::metrics::{Overload, Slo};
use foretoken_sim::{Outcome, RequestRecords, StepRecord, Time};

const LOAD: &str = "closed loop of 2";

/// A closed loop of two clients that send 40 requests with 11 output tokens each. All times are multiplied by `longer`.
/// A step has both requests and drafts `k` tokens for each; half of them are accepted.
fn records(longer: f64, k: u32) -> Records {
    let s = |x: f64| Time::from_s(longer * x);
    let mut requests = RequestRecords::new(40);
    let mut ends = [0.0, 0.0];
    for i in 0..40 {
        let start: f64 = ends[i % 2];
        ends[i % 2] = start + 0.4 + 0.01 * (i % 5) as f64;
        requests.arrival[i] = s(start);
        requests.first_token[i] = s(start + 0.1 + 0.001 * (i % 3) as f64);
        requests.finish[i] = s(ends[i % 2]);
        requests.emitted[i] = 11;
        requests.outcome[i] = Outcome::Finished;
    }
    let step = |n: u32| StepRecord {
        start: s(0.1 * f64::from(n)),
        end: s(0.1 * f64::from(n + 1)),
        batch_size: 2,
        drafted: 2 * k,
        verified: 2 * k,
        accepted: k,
        ..StepRecord::default()
    };
    Records { requests, steps: (0..80).map(step).collect() }
}

fn piece_runs(longer: f64, k: u32, parted: bool) -> PieceRuns {
    PieceRuns {
        live: vec![records(longer, k), records(1.01 * longer, k)],
        recorded: records(1.02 * longer, k),
        modelled: records(0.9 * longer, k),
        nudged: records(1.06 * longer, k),
        learned: Some(records(1.03 * longer, k)),
        flow: TokenFlow {
            same_steps: 60,
            steps: 80,
            parted: parted.then(|| Parting { step: 60, what: Difference::Schedule, how: "2 requests; 1".into() }),
            same_requests: 38,
            requests: 40,
            shared_rounds: 150,
            same_decisions: 147,
            other_acceptance: u64::from(parted),
            rounds: 160,
        },
        missed: Missed { other_round: 3 * u64::from(parted), invented: 0, looks: 0 },
        replay_parted: parted.then(|| "step 60: another batch".into()),
        overload: parted.then_some(Overload { offered_req_s: 6.0, completed_req_s: 4.0, waiting: [10, 20, 30] }),
        slo: Slo { tpot_s: Some(0.05), ..Slo::default() },
        own_tpot_s: vec![],
    }
}

fn piece(tape: &str, standing: Standing, drift: f64) -> PieceReport {
    PieceReport {
        tapes: vec![format!("{tape}.tape"), format!("{tape}-again.tape")],
        standing,
        spread: Some(drift.abs()),
        drift: Some(drift),
    }
}

fn pass_errors(region: PassKind, passes: u64, error: f64) -> PassErrors {
    let live_s = 0.0125;
    let predicted_s = live_s * (1.0 + error);
    PassErrors { region, passes, share: 0.4, live_s, predicted_s, error, mean_absolute_error: 2.0 * error.abs() }
}

fn cell_runs(policy: &str, longer: f64, k: u32, parted: bool) -> CellRuns {
    CellRuns {
        policy: policy.into(),
        load: LOAD.into(),
        share: None,
        pieces: vec![piece("a", Standing::Counts, -0.01), piece("b", Standing::Changed, 0.12)],
        counted: vec![piece_runs(longer, k, parted), piece_runs(1.1 * longer, k, parted)],
        parts: vec![],
        pass_errors: vec![pass_errors(PassKind::Decode, 80, 0.015), pass_errors(PassKind::Prefill, 40, -0.04)],
        step_times: vec![StepTimes { measured_s: 0.09, predicted_s: 0.091 }],
        learned_pass_errors: vec![pass_errors(PassKind::Decode, 80, 0.005)],
        requests: 80,
        overhead_s: 12e-6,
        host: HostTimes {
            step: Some(HostTime { steps: 80, mean_s: 11e-6, p50_s: 10e-6, p99_s: 20e-6 }),
            step_at_32: parted.then_some(HostTime { steps: 8, mean_s: 31e-6, p50_s: 30e-6, p99_s: 40e-6 }),
            ..HostTimes::default()
        },
    }
}

fn runs() -> [CellRuns; 2] {
    [cell_runs("autoregressive", 1.0, 0, false), cell_runs("fixed-3", 0.7, 3, true)]
}

fn validation() -> Validation {
    let runs = runs();
    let cells: Vec<CellReport> = runs.iter().map(CellRuns::report).collect();
    let speedups = speedups(&cells[0], &cells.iter().collect::<Vec<_>>());
    let service: Vec<PolicyValue> = runs.iter().filter_map(|r| service(&r.policy, &r.counted, 2)).collect();
    let rankings = rankings(&service, &[(String::new(), speedups.clone())]);
    let pieces = vec![piece("c", Standing::Changed, 0.2), piece("d", Standing::Unended, 0.0)];
    let undecided = vec![Undecided { policy: "smartspec".into(), load: LOAD.into(), share: None, pieces }];
    let loads = [LoadName { share: 0.5, name: LOAD.into() }];
    let mut checks = checks(&cells, &rankings, &Tolerance::default());
    checks.push(Check::of_count("pairs without repeats".into(), 2, false, String::new()));
    Validation {
        caveats: vec!["a part: 2 of 3 policies are compared".into()],
        schema_version: SCHEMA_VERSION,
        name: "small".into(),
        version: "0.0.0".into(),
        device: "a test's device".into(),
        costs: "made up".into(),
        rule: Some("a piece counts if its probes are at most 5 % apart".into()),
        counted: (2, 6),
        drift: SpeedRange::over(cells.iter().flat_map(|c| &c.pieces)),
        repeats: repeats(&cells, &undecided, &loads, 0.02),
        service,
        speedups,
        rankings,
        undecided,
        regions: vec![pass_errors(PassKind::Verify, 160, 0.03)],
        learned_regions: vec![pass_errors(PassKind::Verify, 160, 0.01)],
        checks,
        notes: vec!["no GPU".into()],
        cells,
    }
}

#[test]
fn words() {
    insta::assert_snapshot!("words", render(&validation()));
}

#[test]
fn page_in_words() {
    let figures = runs().iter().map(CellRuns::figure_data).collect();
    insta::assert_snapshot!("page", page_text(&page(&validation(), figures)));
}

/// Without any cell that counts, no number is claimed.
#[test]
fn without_steady_pieces_nothing_is_decided() {
    let none = Validation {
        cells: vec![],
        checks: vec![],
        service: vec![],
        speedups: vec![],
        rankings: vec![],
        regions: vec![],
        learned_regions: vec![],
        ..validation()
    };
    assert!(!none.decided() && !none.steady() && validation().decided());
    insta::assert_snapshot!("words_of_nothing", render(&none));
    insta::assert_snapshot!("page_of_nothing", page_text(&page(&none, vec![])));
}

/// Each curve and each latency of the figures is from its own run.
#[test]
fn figures_hold_the_live_runs_and_their_simulations() {
    let data = cell_runs("fixed-3", 1.0, 3, false).figure_data();
    let median_e2e = data.latencies.each_ref().map(|[.., e2e]| foretoken_profiler::median(e2e.clone()));
    let expected = [1.0, 1.01, 1.02, 0.9].map(|longer| longer * median_e2e[0]);
    assert!(median_e2e.iter().zip(expected).all(|(is, wanted)| (is / wanted - 1.0).abs() < 1e-9), "{median_e2e:?}");
    assert_eq!(data.requests.len(), 80);
    assert!(data.requests.iter().all(|(live, simulated)| (simulated / live - 1.02).abs() < 1e-9));
    assert_eq!(data.title, "fixed-3, closed loop of 2");
    // The longest run is the simulation of the second piece: 80 steps of 0.1 s.
    assert!((data.end_s - 8.0 * 1.1 * 1.02).abs() < 1e-9, "{}", data.end_s);
    assert_eq!(data.steps, [(0.09, 0.091)]);
    assert_eq!(
        [&data.batch_size, &data.draft_len].map(|c| c.each_ref().map(Vec::is_empty)),
        [[false, false, false, true]; 2]
    );
    let figures = validation_figures(&foretoken_report::Validated { title: "x".into(), runs: vec![data] });
    assert_eq!(figures.len(), 7);
}
