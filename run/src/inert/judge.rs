//! Repeats an experiment's runs without some of the settings, to see whether any number of the results changes. First,
//! each setting is left out alone, and only the first requests of one comparison are run. If a number changes there,
//! the setting has an effect; this is so for most settings. Then the remaining settings of one policy (or of no policy)
//! are left out together, and the whole run is repeated. If a number changes, these settings are split into halves, and
//! each half is tried. So all settings of a policy that do nothing cost one repeated run together.
//!
//! The cost is counted in simulated work (request-steps: decoding requests, summed over steps), not in seconds, so that
//! the same experiment always gets the same answer.

use super::found::Evidence;
use super::trial::{Trial, alter};
use crate::cells::{Numbers, play};
use crate::plan::Plan;
use crate::setting::Setting;
use crate::spec::problem::{Exit, Result};
use crate::workload::first;
use foretoken_policies::PolicySpec;
use foretoken_sim::metrics::Slo;
use rayon::prelude::*;
use std::sync::atomic::AtomicBool;

/// Number of the run's first requests that are simulated in the first trial of each setting (a run without the
/// setting).
const START: usize = 64;
/// The cost of building a run before it starts, in request-steps (decode requests summed over steps, the unit of
/// [`Judge::budget`]): (a constant part for the run, a further part for each of its requests).
const BUILD: (u64, u64) = (50_000, 20);

/// Repeats an experiment's runs with settings left out or changed, and compares the numbers with the unchanged run's.
pub struct Judge<'a> {
    pub plan: &'a Plan,
    /// Digest and size of the results of each cell in the unchanged run, in the order of the plan, which lists all
    /// runs.
    pub numbers: &'a [Numbers],
    /// Number of request-steps that may still be simulated.
    pub budget: u64,
    pub interrupt: &'a AtomicBool,
}

/// A trial (a run with a setting left out or changed) that changed no number, and how much of the run was repeated for
/// it.
type Judged = (Trial, Evidence);

/// For each policy, in the order in which the plan lists the policies, the digest of its results; `None` for a policy
/// that could not run.
type Digests = Vec<Option<blake3::Hash>>;

impl Judge<'_> {
    /// Tries each setting of `trials`: runs the experiment without it or with another value. `setting` has the workload
    /// and server of the plan's first variant with the first seed. Returns (the trials that changed no number, each
    /// with the part of the run that was repeated for it; the trials for which the budget was too small).
    ///
    /// # Errors
    /// The workload or server of the first variant and seed cannot be built, or the work is interrupted. If the
    /// experiment of a trial is wrong or cannot run, that is no error: the setting has an effect.
    pub fn judge(&mut self, trials: Vec<Trial>, setting: &Setting) -> Result<(Vec<Judged>, Vec<Trial>)> {
        let (looked_at, left) = self.affordable(trials, setting);
        let expected = self.start_as_given(setting)?;
        let same: Vec<Result<bool>> =
            looked_at.par_iter().map(|trial| self.same_at_the_start(trial, setting, &expected)).collect();
        let same = same.into_iter().collect::<Result<Vec<bool>>>()?;
        let mut suspects: Vec<Trial> = looked_at.into_iter().zip(same).filter_map(|(t, s)| s.then_some(t)).collect();
        let mut found = Vec::new();
        while let Some(policy) = suspects.first().map(Trial::policy) {
            let (group, others) = suspects.into_iter().partition(|t| t.policy() == policy);
            self.settle(policy, group, &mut found)?;
            suspects = others;
        }
        found.sort_by_key(|(t, _)| self.plan.variants[0].document().get(&t.path).map(|node| node.span().start));
        Ok((found, left))
    }

    /// Splits the trials (runs with one setting left out or changed) into two lists. The first trials go to the first
    /// list, as far as half of the budget pays for trying them at the start of the run. All others go to the second
    /// list. Subtracts the cost of the first list from the budget.
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

    /// The cost of repeating a comparison (all policies with one seed and one combination of swept values), in
    /// request-steps. With a `policy` (an index in the file), only this policy and the autoregressive baseline run;
    /// else all policies. `share` (0 to 1) is the part of the requests that is run.
    fn cost(&self, variant: usize, seed: usize, policy: Option<usize>, share: f64) -> u64 {
        let row = self.row(variant, seed);
        let steps: u64 = match policy.map(|i| self.index_in_plan(i)) {
            Some(place) => row[place].request_steps + row[self.plan.baseline].request_steps,
            None => row.iter().map(|n| n.request_steps).sum(),
        };
        BUILD.0 + BUILD.1 * row[0].requests + (steps as f64 * share) as u64
    }

    fn row(&self, variant: usize, seed: usize) -> &[Numbers] {
        let (seeds, policies) = (self.plan.seeds.len(), self.plan.policies.len());
        &self.numbers[(variant * seeds + seed) * policies..][..policies]
    }

    /// The index in the plan of policy number `policy` of the experiment's file. The two numbers differ if the plan
    /// begins with an autoregressive baseline that the file does not list.
    fn index_in_plan(&self, policy: usize) -> usize {
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

    /// Leaves out all `suspects` (settings that may have no effect) together, and repeats the whole run. If a number
    /// changes, tries each half of the suspects. Adds the trials that change no number to `found`. All suspects must
    /// belong to the same policy, or to no policy.
    fn settle(&mut self, policy: Option<usize>, suspects: Vec<Trial>, found: &mut Vec<Judged>) -> Result<()> {
        match self.together(policy, &suspects)? {
            Some(evidence) => found.extend(suspects.into_iter().map(|trial| (trial, evidence))),
            None if suspects.len() > 1 => {
                let mut first = suspects;
                let second = first.split_off(first.len() / 2);
                self.settle(policy, first, found)?;
                self.settle(policy, second, found)?;
            }
            None => {}
        }
        Ok(())
    }

    /// Repeats the run without all `suspects` (settings that may have no effect), comparison by comparison, as far as
    /// the budget goes. Returns how much of the run was repeated with equal numbers. `None` if a number changes, or if
    /// the experiment without these settings is wrong.
    fn together(&mut self, policy: Option<usize>, suspects: &[Trial]) -> Result<Option<Evidence>> {
        let trials: Vec<&Trial> = suspects.iter().collect();
        let (variants, seeds) = (self.plan.variants.len(), self.plan.seeds.len());
        for (variant, seed) in (0..variants).flat_map(|v| (0..seeds).map(move |s| (v, s))) {
            let cost = self.cost(variant, seed, policy, 1.0);
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
            let Ok(altered) = alter(self.plan, variant, &trials, policy, requests) else { return Ok(None) };
            let bound = match self.plan.bound_from(variant).filter(|&from| from != variant) {
                None => None,
                Some(from) => match self.bound(from, seed, &trials, policy)? {
                    None => return Ok(None),
                    bound => bound,
                },
            };
            if !self.same(&altered, policy, seed, &expected, requests, (None, bound))? {
                return Ok(None);
            }
        }
        Ok(Some(Evidence::Whole))
    }

    /// The SLO bounds that the autoregressive run of variant `from` gives if the settings of `trials` are changed.
    /// `None` if that run fails.
    fn bound(&self, from: usize, seed: usize, trials: &[&Trial], policy: Option<usize>) -> Result<Option<Slo>> {
        let requests = self.row(from, seed)[0].requests;
        let Ok(altered) = alter(self.plan, from, trials, policy, requests) else { return Ok(None) };
        let Ok(setting) = Setting::new(&altered.variants[0], self.plan.seeds[seed]) else { return Ok(None) };
        Ok(self.play(&setting, &altered.policies[altered.baseline].spec, None)?.map(|(_, slo)| slo))
    }

    /// Do the runs of the plan `altered`, in which settings were changed, give results with the digests `expected`?
    /// `policy` is the policy to which `altered` is reduced; `None` if it has all. `cut` is the number of requests to
    /// run; `None` for all. `bound` are the SLO bounds; `None` if the autoregressive baseline's own run gives them.
    fn same(
        &self,
        altered: &Plan,
        policy: Option<usize>,
        seed: usize,
        expected: &Digests,
        requests: u64,
        (cut, bound): (Option<usize>, Option<Slo>),
    ) -> Result<bool> {
        // If the experiment cannot be built without the setting, then the setting has an effect.
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
        // For each policy: (its index in the changed plan, its index in the original plan).
        let indices = (0..altered.policies.len()).map(|p| (p, policy.map_or(p, |i| self.index_in_plan(i))));
        let (baselines, others): (Vec<_>, Vec<_>) = indices.partition(|(p, _)| *p == altered.baseline);
        // If the plan `altered` is reduced to one policy, its autoregressive baseline runs only to give the SLO bounds,
        // and is not compared.
        let only_bounds = policy.is_some() && !others.is_empty();
        if !only_bounds && baselines.iter().any(|&(_, index)| expected[index] != Some(digest)) {
            return Ok(false);
        }
        let changed = others.par_iter().find_map_any(|&(p, index)| {
            match self.play(&setting, &altered.policies[p].spec, Some(slo)) {
                Ok(played) if played.map(|(digest, _)| digest) == expected[index] => None,
                Ok(_) => Some(Ok(())),
                Err(interrupted) => Some(Err(interrupted)),
            }
        });
        changed.transpose().map(|changed| changed.is_none())
    }

    /// Runs a policy with the workload and server of `setting`. Returns the digest of its results and its SLO bounds;
    /// `None` if the policy cannot run.
    fn play(&self, setting: &Setting, spec: &PolicySpec, slo: Option<Slo>) -> Result<Option<(blake3::Hash, Slo)>> {
        match play(setting, spec, slo, self.interrupt) {
            Ok(played) => Ok(Some((played.stored.numbers(&played.stored.records), played.slo))),
            Err(problem) if problem.exit == Exit::Interrupted => Err(problem),
            Err(_) => Ok(None),
        }
    }
}
