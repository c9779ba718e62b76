//! Runs a plan again without a setting, to see whether any number changes. First each setting is left out at the start
//! of one run under each policy, which most settings change. The remaining settings are left out together in the whole
//! run. If a number changes, they are split into halves. So all settings that do nothing cost one run together.
//!
//! The cost is counted in simulated work, not in seconds: the same plan always gets the same answer.

use super::found::Evidence;
use super::trial::{Trial, alter};
use crate::cells::{Numbers, play};
use crate::plan::Plan;
use crate::setting::Setting;
use crate::workload::first;
use foretoken_policies::PolicySpec;
use foretoken_sim::metrics::Slo;
use foretoken_spec::problem::{Exit, Result};
use rayon::prelude::*;
use std::sync::atomic::AtomicBool;

/// Number of requests at the start of a run that each setting is tried on first.
const START: usize = 64;
/// The cost of building a setting, in request-steps: a fixed part, and a part for each request.
const BUILD: (u64, u64) = (50_000, 20);

/// Runs a plan again with other settings.
pub struct Judge<'a> {
    pub plan: &'a Plan,
    /// The numbers of each cell, in the order of the plan.
    pub numbers: &'a [Numbers],
    /// Request-steps that may still be spent.
    pub budget: u64,
    pub interrupt: &'a AtomicBool,
}

/// A trial that changed nothing, and the part of the run that it was tried on.
type Judged = (Trial, Evidence);

/// The digest of each policy's numbers; `None` where it could not run.
type Digests = Vec<Option<blake3::Hash>>;

impl Judge<'_> {
    /// Returns the trials that changed nothing, each with its evidence, and the trials that the budget did not reach.
    ///
    /// # Errors
    /// The setting of the first variant and seed cannot be built, or the work is interrupted. A trial whose altered
    /// experiment is wrong or cannot be run is no error: its settings did something.
    pub fn judge(&mut self, trials: Vec<Trial>, setting: &Setting) -> Result<(Vec<Judged>, Vec<Trial>)> {
        let (looked_at, left) = self.affordable(trials, setting);
        let expected = self.start_as_given(setting)?;
        let same: Vec<Result<bool>> =
            looked_at.par_iter().map(|trial| self.same_at_the_start(trial, setting, &expected)).collect();
        let same = same.into_iter().collect::<Result<Vec<bool>>>()?;
        let mut suspects: Vec<Trial> = looked_at.into_iter().zip(same).filter_map(|(t, s)| s.then_some(t)).collect();
        let mut found = Vec::new();
        while let Some(of) = suspects.first().map(Trial::policy) {
            let (group, others) = suspects.into_iter().partition(|t| t.policy() == of);
            self.settle(of, group, &mut found)?;
            suspects = others;
        }
        found.sort_by_key(|(t, _)| self.plan.variants[0].document().get(&t.path).map(|node| node.span().start));
        Ok((found, left))
    }

    /// Splits the trials: the first ones, whose first tries cost half of the budget at most, and the others.
    fn affordable(&mut self, mut trials: Vec<Trial>, setting: &Setting) -> (Vec<Trial>, Vec<Trial>) {
        let share = (START as f64 / setting.workload.len() as f64).min(1.0);
        let mut half = self.budget / 2;
        let fits = trials.iter().take_while(|trial| {
            let cost = self.cost(0, 0, trial.policy(), share);
            let fits = cost <= half;
            half = half.saturating_sub(cost);
            fits
        });
        let left = trials.split_off(fits.count());
        self.budget = self.budget / 2 + half;
        (trials, left)
    }

    /// The cost of running a comparison again, in request-steps.
    fn cost(&self, variant: usize, seed: usize, policy: Option<usize>, share: f64) -> u64 {
        let row = self.row(variant, seed);
        let steps: u64 = match policy.map(|i| self.place(i)) {
            Some(place) => row[place].request_steps + row[self.plan.baseline].request_steps,
            None => row.iter().map(|n| n.request_steps).sum(),
        };
        BUILD.0 + BUILD.1 * row[0].requests + (steps as f64 * share) as u64
    }

    fn row(&self, variant: usize, seed: usize) -> &[Numbers] {
        let (seeds, policies) = (self.plan.seeds.len(), self.plan.policies.len());
        &self.numbers[(variant * seeds + seed) * policies..][..policies]
    }

    /// The index in the plan of the file's policy.
    fn place(&self, policy: usize) -> usize {
        policy + usize::from(self.plan.policies[self.plan.baseline].implied)
    }

    fn start_as_given(&self, setting: &Setting) -> Result<Digests> {
        let mut start = Setting::new(&self.plan.variants[0], self.plan.seeds[0])?;
        start.set_workload(first(&setting.workload, START));
        let Some((baseline, slo)) = self.play(&start, &self.plan.policies[self.plan.baseline].spec, None)? else {
            return Ok(vec![None; self.plan.policies.len()]);
        };
        let digest = |p: usize| match p == self.plan.baseline {
            true => Ok(Some(baseline)),
            false => Ok(self.play(&start, &self.plan.policies[p].spec, Some(slo))?.map(|played| played.0)),
        };
        (0..self.plan.policies.len()).into_par_iter().map(digest).collect()
    }

    fn same_at_the_start(&self, trial: &Trial, setting: &Setting, expected: &Digests) -> Result<bool> {
        let requests = setting.workload.len() as u64;
        let Ok(altered) = alter(self.plan, 0, &[trial], trial.policy(), requests) else { return Ok(false) };
        self.same(&altered, trial.policy(), 0, expected, requests, (Some(START), None))
    }

    /// Tries all suspects together on everything; where something changes, tries each half.
    fn settle(&mut self, of: Option<usize>, suspects: Vec<Trial>, found: &mut Vec<(Trial, Evidence)>) -> Result<()> {
        match self.together(of, &suspects)? {
            Some(evidence) => found.extend(suspects.into_iter().map(|trial| (trial, evidence))),
            None if suspects.len() > 1 => {
                let mut first = suspects;
                let second = first.split_off(first.len() / 2);
                self.settle(of, first, found)?;
                self.settle(of, second, found)?;
            }
            None => {}
        }
        Ok(())
    }

    /// How much of the run comes out the same without all suspects, as far as the budget goes; `None` when something
    /// changes.
    fn together(&mut self, of: Option<usize>, suspects: &[Trial]) -> Result<Option<Evidence>> {
        let trials: Vec<&Trial> = suspects.iter().collect();
        let (variants, seeds) = (self.plan.variants.len(), self.plan.seeds.len());
        for (variant, seed) in (0..variants).flat_map(|v| (0..seeds).map(move |s| (v, s))) {
            let cost = self.cost(variant, seed, of, 1.0);
            if cost > self.budget {
                let same = variant * seeds + seed;
                return Ok(Some(match same {
                    0 => Evidence::Start { requests: START.min(self.row(0, 0)[0].requests as usize) },
                    same => Evidence::Part { same, of: variants * seeds },
                }));
            }
            self.budget -= cost;
            let row = self.row(variant, seed);
            let (requests, expected) = (row[0].requests, row.iter().map(|n| Some(n.digest)).collect());
            let Ok(altered) = alter(self.plan, variant, &trials, of, requests) else { return Ok(None) };
            let bound = match self.plan.bound_from(variant).filter(|&from| from != variant) {
                None => None,
                Some(from) => match self.bound(from, seed, &trials, of)? {
                    None => return Ok(None),
                    bound => bound,
                },
            };
            if !self.same(&altered, of, seed, &expected, requests, (None, bound))? {
                return Ok(None);
            }
        }
        Ok(Some(Evidence::Whole))
    }

    /// The bounds that another variant's baseline gives without the settings; `None` where that baseline does not
    /// run.
    fn bound(&self, from: usize, seed: usize, trials: &[&Trial], of: Option<usize>) -> Result<Option<Slo>> {
        let requests = self.row(from, seed)[0].requests;
        let Ok(altered) = alter(self.plan, from, trials, of, requests) else { return Ok(None) };
        let Ok(setting) = Setting::new(&altered.variants[0], self.plan.seeds[seed]) else { return Ok(None) };
        Ok(self.play(&setting, &altered.policies[altered.baseline].spec, None)?.map(|(_, slo)| slo))
    }

    /// Does an altered plan give the expected numbers? Bounds come from another variant's run where the plan says so.
    fn same(
        &self,
        altered: &Plan,
        of: Option<usize>,
        seed: usize,
        expected: &Digests,
        requests: u64,
        (cut, bound): (Option<usize>, Option<Slo>),
    ) -> Result<bool> {
        // If nothing can be built without the setting, the setting has an effect.
        let Ok(mut setting) = Setting::new(&altered.variants[0], self.plan.seeds[seed]) else { return Ok(false) };
        if setting.workload.len() as u64 != requests {
            return Ok(false);
        }
        if let Some(n) = cut {
            setting.set_workload(first(&setting.workload, n));
        }
        let baseline = &altered.policies[altered.baseline].spec;
        let Some((digest, slo)) = self.play(&setting, baseline, bound)? else {
            return Ok(expected[self.plan.baseline].is_none());
        };
        let places = (0..altered.policies.len()).map(|p| (p, of.map_or(p, |i| self.place(i))));
        let (own, others): (Vec<_>, Vec<_>) = places.partition(|(p, _)| *p == altered.baseline);
        // Beside a single policy the baseline only serves for its bounds.
        let alone = of.is_some() && !others.is_empty();
        if !alone && own.iter().any(|&(_, place)| expected[place] != Some(digest)) {
            return Ok(false);
        }
        let changed = others.par_iter().find_map_any(|&(p, place)| {
            match self.play(&setting, &altered.policies[p].spec, Some(slo)) {
                Ok(played) if played.map(|(digest, _)| digest) == expected[place] => None,
                Ok(_) => Some(Ok(())),
                Err(interrupted) => Some(Err(interrupted)),
            }
        });
        changed.transpose().map(|changed| changed.is_none())
    }

    /// The digest of a policy's numbers and its bounds; `None` when it cannot run.
    fn play(&self, setting: &Setting, spec: &PolicySpec, slo: Option<Slo>) -> Result<Option<(blake3::Hash, Slo)>> {
        match play(setting, spec, slo, self.interrupt) {
            Ok(played) => Ok(Some((played.stored.numbers(), played.slo))),
            Err(problem) if problem.exit == Exit::Interrupted => Err(problem),
            Err(_) => Ok(None),
        }
    }
}
