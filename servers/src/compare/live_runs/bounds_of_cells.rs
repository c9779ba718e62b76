//! The bounds of a validation (live runs against simulations of them): on the errors of latencies and rates, on the
//! order of policies, and on the token flow (accepted tokens, replays), which must be exact.

use super::cell::CellReport;
use crate::compare::bounds::Check;
use crate::compare::numbers::{COMPLETED, E2E, TPOT};
use crate::compare::rankings::Ranked;
use foretoken_run::spec::validate::Tolerance;

/// Above this share of a policy's service rate, the policy's queues amplify small errors of step times. At such loads
/// E2E has no bound; the report only shows how sensitive E2E is to pass times.
pub const QUEUES: f64 = 0.8 + 1e-9;

/// Checks all bounds of a validation: on the errors of `cells` (each is a policy at a load), and on the order of
/// policies in `rankings`.
pub fn checks(cells: &[CellReport], rankings: &[Ranked], tolerance: &Tolerance) -> Vec<Check> {
    let mut checks = Vec::new();
    for cell in cells {
        checks.extend(flow_checks(cell));
        checks.extend(bounded(cell, tolerance).into_iter().filter_map(|(quantity, bound)| {
            let row = cell.row(quantity)?;
            let what = format!("{}, {}: {quantity}", cell.policy, cell.load);
            Some(Check::of_error(what, row, row.predicted.recorded_error?, bound, tolerance.repeats))
        }));
    }
    checks.extend(rankings.iter().map(|r| {
        let what = format!("ranking by {}: pairs in the opposite order", r.by);
        let note = format!("differences up to {:.1} % are ties", r.noise * 100.0);
        Check::of_count(what, r.pairs.disagree.into(), r.repeated, note)
    }));
    checks
}

/// The two numbers of a cell that have bounds on their errors, as (name, bound). One is mean TPOT. The other is mean
/// E2E or, if the cell is overloaded or its load is above [`QUEUES`], completed requests per second.
fn bounded(cell: &CellReport, tolerance: &Tolerance) -> [(&'static str, f64); 2] {
    let amplified = cell.share.is_some_and(|s| s > QUEUES) || cell.overload.is_some();
    let second = if amplified { (COMPLETED, tolerance.completed) } else { (E2E, tolerance.e2e) };
    [(TPOT, tolerance.tpot), second]
}

/// Two checks of a cell that do not depend on measured times, so they need no repeated run. First: rounds with equal
/// decisions have equal numbers of accepted tokens, live and simulated. Second: a replay with the recorded step times
/// does not differ from the live run.
fn flow_checks(cell: &CellReport) -> [Check; 2] {
    let exact = |what: &str, count: u64, note: &str| {
        Check::of_count(format!("{}, {}: {what}", cell.policy, cell.load), count, true, note.to_owned())
    };
    let parted = cell.replay_parted.as_deref();
    [
        exact("rounds decided alike with other tokens accepted", cell.flow.other_acceptance, ""),
        exact("replay on recorded times leaves the recording", u64::from(parted.is_some()), parted.unwrap_or("")),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::simulated::{PolicyValue, Simulated};
    use super::*;
    use crate::compare::bounds::Verdict;
    use crate::compare::numbers::Unit;
    use crate::compare::rankings::rank;
    use crate::compare::token_flow::TokenFlow;

    /// A test's cell at the load `share` of the policy's service rate. `tpot`, `e2e` and `completed` are the errors of
    /// mean TPOT, of mean E2E and of completed requests. The values of the cell's two live runs differ by the share
    /// `apart`.
    fn cell(share: f64, apart: f64, [tpot, e2e, completed]: [f64; 3]) -> CellReport {
        let rows = [(TPOT, tpot), (E2E, e2e), (COMPLETED, completed)].map(|(name, error)| {
            let simulated = Simulated { recorded: Some(1.0 + error), ..Simulated::default() };
            simulated.row(name, Unit::Seconds, vec![1.0 - apart / 2.0, 1.0 + apart / 2.0])
        });
        CellReport {
            policy: "fixed-3".into(),
            load: format!("{share}"),
            share: Some(share),
            pieces: vec![],
            requests: 10,
            parts: vec![],
            replay_parted: None,
            flow: TokenFlow::default(),
            missed: Default::default(),
            rows: rows.to_vec(),
            distances: [None; 3],
            live_distances: None,
            curves: [None; 2],
            live_curves: None,
            learned_regions: vec![],
            regions: vec![],
            e2e_sensitivity: None,
            overload: None,
            overhead_s: 0.0,
            host: Default::default(),
        }
    }

    fn with_verdict(verdict: Verdict, cells: &[CellReport]) -> Vec<String> {
        let checks = checks(cells, &[], &Tolerance::default());
        checks.into_iter().filter(|c| c.verdict == verdict).map(|c| c.what).collect()
    }

    fn broken(cells: &[CellReport]) -> Vec<String> {
        with_verdict(Verdict::Broken, cells)
    }

    #[test]
    fn e2e_is_bounded_up_to_its_share_of_the_service_rate() {
        assert!(broken(&[cell(0.8, 0.0, [0.05, -0.09, 0.5])]).is_empty());
        assert_eq!(broken(&[cell(0.8, 0.0, [0.05, 0.12, 0.0])]), ["fixed-3, 0.8: E2E, mean"]);
    }

    #[test]
    fn throughput_is_bounded_above_the_service_rate() {
        assert!(broken(&[cell(1.2, 0.0, [0.05, 0.9, 0.02])]).is_empty());
        assert_eq!(broken(&[cell(1.2, 0.0, [-0.11, 0.9, 0.12])]).len(), 2);
    }

    #[test]
    fn other_tokens_are_broken_whatever_the_repeats_say() {
        let mut wrong = cell(0.5, 0.2, [0.0; 3]);
        wrong.flow.other_acceptance = 1;
        wrong.replay_parted = Some("step 3".into());
        assert_eq!(broken(&[wrong]).len(), 2);
    }

    #[test]
    fn repeats_that_differ_decide_no_time() {
        let cells = [cell(0.5, 0.06, [0.0, 0.3, 0.0])];
        assert_eq!(with_verdict(Verdict::Undecided, &cells), ["fixed-3, 0.5: TPOT, mean", "fixed-3, 0.5: E2E, mean"]);
        assert!(broken(&cells).is_empty());
    }

    #[test]
    fn a_ranking_of_runs_without_repeats_is_undecided() {
        let value = |name: &str, live: &[f64], simulated: f64| {
            let predicted = Simulated { recorded: Some(simulated), ..Simulated::default() };
            PolicyValue { policy: name.to_owned(), rate: predicted.row("x", Unit::Plain, live.to_vec()) }
        };
        let once = rank("x", &[value("a", &[1.0], 3.0), value("b", &[2.0], 1.0)]).unwrap();
        let twice = rank("x", &[value("a", &[1.0, 1.0], 3.0), value("b", &[2.0, 2.0], 1.0)]).unwrap();
        let verdicts: Vec<Verdict> =
            checks(&[], &[once, twice], &Tolerance::default()).iter().map(|c| c.verdict).collect();
        assert_eq!(verdicts, [Verdict::Undecided, Verdict::Broken]);
    }
}
