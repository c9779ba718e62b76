//! Holds the advice against what was measured: runs that were faster than what is advised, and a calibration that is
//! not trusted. Both lead the advice.

use super::at_load::AtLoad;
use super::question::{AskedLoad, Goal, Objective};
use crate::calibrate::loads::SeenRun;
use foretoken_report::AS_GOOD;
use serde::Serialize;

/// Where the advised policy was not measured, a run contradicts the advice only if it was faster by more than this
/// share: a predicted mean E2E is good if its error is at most as large (`crate::compare`).
const PREDICTED: f64 = 0.05;

/// A measured run that is faster than the advised policy, although the simulation does not say so.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Faster {
    pub load: String,
    /// The name of the measured run, such as `line 4`.
    pub run: String,
    /// The draft length with which the run was measured.
    pub k: u32,
    /// The measured mean E2E of the run, seconds.
    pub e2e_s: f64,
    /// The name of the advised candidate policy, such as `K = 7`.
    pub advised: String,
    /// The mean E2E of the advised candidate policy at this load, seconds.
    pub advised_e2e_s: f64,
    /// True if the advised policy was measured at this load. Otherwise its mean E2E is the simulation's.
    pub advised_is_measured: bool,
}

impl Faster {
    /// The share by which the measured run is faster than the advised policy.
    pub fn gain(&self) -> f64 {
        1.0 - self.e2e_s / self.advised_e2e_s
    }

    pub fn in_words(&self) -> String {
        let Faster { load, run, k, advised, .. } = self;
        let (off, than) = (100.0 * self.gain(), if self.advised_is_measured { "measured" } else { "simulated" });
        format!(
            "The measurements contradict this advice: at {load}, {} was measured ({run}) with a mean E2E of {:.4} s, \
             {off:.1} % below the {:.4} s that were {than} for {advised}",
            super::names::name_of(&super::now::fixed(*k)),
            self.e2e_s,
            self.advised_e2e_s
        )
    }
}

/// The measured runs that contradict the advice to run candidate policy `advised`: for each load, the fastest such run.
/// A run contradicts the advice if it was faster than the advised policy by more than the tie rule allows, and the
/// simulation does not rank it so. `error` is the calibration's error between runs. It counts where the advised policy
/// was not measured, because the simulation then stands for it.
pub fn contradicting(
    asked: &[AskedLoad],
    at_loads: &[AtLoad],
    objective: Objective,
    advised: usize,
    error: f64,
) -> Vec<Faster> {
    if objective.of != Goal::MeanE2e {
        return Vec::new();
    }
    let at_load = |(asked, at): (&AskedLoad, &AtLoad)| {
        let candidate = &at.candidates[advised];
        let measured = |run: &SeenRun| Some((run.k?, run.mean_e2e_s?));
        let own: Vec<f64> = asked
            .runs()
            .iter()
            .filter_map(measured)
            .filter(|(k, _)| candidate.fixed && *k == candidate.longest)
            .map(|(_, e2e_s)| e2e_s)
            .collect();
        let (advised_e2e_s, bound) = match own.is_empty() {
            false => (own.iter().sum::<f64>() / own.len() as f64, AS_GOOD),
            true => (candidate.cost?, PREDICTED.max(error)),
        };
        let faster = asked.runs().iter().filter_map(|run| {
            let (k, e2e_s) = measured(run)?;
            let simulated = at.candidates.iter().find(|c| c.fixed && c.longest == k)?.cost?;
            // Where the simulation ranks the two as the measurement does, another load decides the advice.
            let is_known = candidate.cost.is_some_and(|cost| simulated < cost * (1.0 - AS_GOOD));
            (e2e_s < advised_e2e_s * (1.0 - bound) && !is_known).then(|| Faster {
                load: at.load.clone(),
                run: run.name.clone(),
                k,
                e2e_s,
                advised: candidate.name.clone(),
                advised_e2e_s,
                advised_is_measured: !own.is_empty(),
            })
        });
        faster.min_by(|a, b| a.e2e_s.total_cmp(&b.e2e_s))
    };
    asked.iter().zip(at_loads).filter_map(at_load).collect()
}
