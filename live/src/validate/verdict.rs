//! The verdict: every bound is a line, kept or not. Nothing is averaged away.

use super::compare::{CellReport, Row};
use super::maths::Ranking;
use foretoken_spec::validate::Tolerance;
use serde::{Deserialize, Serialize};

/// A bound, and whether it is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// What has the bound, as text.
    pub what: String,
    /// The error as a share, or a count that must be 0.
    pub value: f64,
    /// The greatest allowed value.
    pub bound: f64,
    /// True if the value is within the bound.
    pub kept: bool,
    /// A note for the reader.
    pub note: String,
}

/// A value of one policy: its service rate or its speedup.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Service {
    /// The policy's label.
    pub policy: String,
    /// The value: live, and simulated with recorded and with modelled acceptance.
    pub rate: Row,
}

/// A ranking of the policies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ranked {
    /// The value by which they are ranked, as text.
    pub by: String,
    /// Relative differences below this are ties: the largest difference between two live runs of one policy.
    pub noise: f64,
    /// (policy, live value, simulated value with recorded acceptance, the same with modelled acceptance).
    pub policies: Vec<(String, f64, f64, Option<f64>)>,
    /// The pairs, live against simulated with recorded acceptance.
    pub pairs: Ranking,
    /// Kendall's τ-b of these pairs; ties within the noise count.
    pub tau: Option<f64>,
    /// Kendall's τ-b of live against simulated with modelled acceptance.
    pub tau_modelled: Option<f64>,
}

/// Ranks policies by one value. `None` if one has no simulated value.
pub fn rank(by: &str, values: &[Service]) -> Option<Ranked> {
    let mean = |live: &[f64]| live.iter().sum::<f64>() / live.len() as f64;
    let noise = values.iter().filter_map(|v| v.rate.live_against_live).fold(0.0, f64::max);
    let live: Vec<f64> = values.iter().map(|v| mean(&v.rate.live)).collect();
    let recorded: Vec<f64> = values.iter().map(|v| v.rate.recorded).collect::<Option<_>>()?;
    let modelled: Option<Vec<f64>> = values.iter().map(|v| v.rate.modelled).collect();
    let pairs = Ranking::of(&live, noise, &recorded, noise);
    let each = values.iter().zip(live.iter().zip(&recorded));
    Some(Ranked {
        by: by.to_owned(),
        noise,
        tau: pairs.tau(),
        tau_modelled: modelled.and_then(|m| Ranking::of(&live, noise, &m, noise).tau()),
        policies: each.map(|(v, (&live, &recorded))| (v.policy.clone(), live, recorded, v.rate.modelled)).collect(),
        pairs,
    })
}

/// Share of the service rate above which a policy's queues amplify small errors of step times. E2E is then reported
/// with its sensitivity and has no bound.
pub const QUEUES: f64 = 0.8 + 1e-9;

/// All bounds of these cells.
pub fn checks(cells: &[CellReport], rankings: &[Ranked], t: &Tolerance) -> Vec<Check> {
    let mut all = Vec::new();
    for cell in cells {
        flow_checks(cell, &mut all);
        let amplified = cell.share.is_some_and(|s| s > QUEUES) || cell.overload.is_some();
        let mut bound = |quantity: &str, bound: f64| {
            let Some(row) = cell.row(quantity) else { return };
            let Some(error) = row.recorded_error else { return };
            all.push(Check {
                what: format!("{}, {}: {quantity}", cell.policy, cell.load),
                value: error.abs(),
                bound,
                kept: error.abs() <= bound,
                note: row.live_against_live.map_or(String::new(), |l| format!("live against live {:.1} %", l * 100.0)),
            });
        };
        bound("TPOT, mean", t.tpot);
        match amplified {
            false => bound("E2E, mean", t.e2e),
            true => bound("completed requests/s", t.completed),
        }
    }
    all.extend(rankings.iter().map(|r| Check {
        what: format!("ranking by {}: pairs in the opposite order", r.by),
        value: f64::from(r.pairs.disagree),
        bound: 0.0,
        kept: r.pairs.disagree == 0,
        note: format!("differences up to {:.1} % are ties", r.noise * 100.0),
    }));
    all
}

/// Values that do not depend on time must be exact.
fn flow_checks(cell: &CellReport, all: &mut Vec<Check>) {
    let mut exact = |what: &str, count: u64, note: &str| {
        all.push(Check {
            what: format!("{}, {}: {what}", cell.policy, cell.load),
            value: count as f64,
            bound: 0.0,
            kept: count == 0,
            note: note.to_owned(),
        });
    };
    exact("rounds decided alike with other tokens accepted", cell.flow.other_acceptance, "");
    let parted = cell.replay_parted.as_deref();
    exact("replay on recorded times leaves the recording", u64::from(parted.is_some()), parted.unwrap_or(""));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validate::compare::row;
    use crate::validate::flow::Flow;
    use crate::validate::numbers::Unit;

    fn cell(share: f64, tpot: f64, e2e: f64, completed: f64) -> CellReport {
        let rows = [("TPOT, mean", tpot), ("E2E, mean", e2e), ("completed requests/s", completed)];
        let rows = rows.map(|(name, error)| row(name, Unit::Seconds, vec![1.0, 1.0], [Some(1.0 + error), None, None]));
        CellReport {
            policy: "fixed-3".into(),
            load: format!("{share}"),
            share: Some(share),
            pieces: vec![],
            requests: 10,
            parts: vec![],
            replay_parted: None,
            flow: Flow::default(),
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

    fn broken(cells: &[CellReport]) -> Vec<String> {
        let all = checks(cells, &[], &Tolerance::default());
        all.into_iter().filter(|c| !c.kept).map(|c| c.what).collect()
    }

    #[test]
    fn e2e_is_held_below_the_service_rate_and_throughput_above_it() {
        assert!(broken(&[cell(0.8, 0.05, -0.09, 0.5)]).is_empty());
        assert_eq!(broken(&[cell(0.8, 0.05, 0.12, 0.0)]), ["fixed-3, 0.8: E2E, mean"]);
        assert!(broken(&[cell(1.2, 0.05, 0.9, 0.02)]).is_empty());
        assert_eq!(broken(&[cell(1.2, -0.11, 0.9, 0.12)]).len(), 2);
    }

    #[test]
    fn other_tokens_are_never_within_a_tolerance() {
        let mut wrong = cell(0.5, 0.0, 0.0, 0.0);
        wrong.flow.other_acceptance = 1;
        wrong.replay_parted = Some("step 3".into());
        assert_eq!(broken(&[wrong]).len(), 2);
    }

    #[test]
    fn rankings_ignore_what_two_live_runs_differ_by() {
        let value = |name: &str, live: [f64; 2], simulated: f64| Service {
            policy: name.to_owned(),
            rate: row("x", Unit::Plain, live.to_vec(), [Some(simulated), None, None]),
        };
        let near = rank("x", &[value("a", [1.0, 1.1], 1.06), value("b", [1.08, 1.08], 1.0)]).unwrap();
        assert!(near.noise > 0.09 && near.pairs.disagree == 0 && near.tau.is_none());
        let far = rank("x", &[value("a", [1.0, 1.0], 3.0), value("b", [2.0, 2.0], 1.0)]).unwrap();
        assert_eq!((far.pairs.disagree, far.tau), (1, Some(-1.0)));
        let kept: Vec<bool> = checks(&[], &[near, far], &Tolerance::default()).iter().map(|c| c.kept).collect();
        assert_eq!(kept, [true, false]);
    }
}
