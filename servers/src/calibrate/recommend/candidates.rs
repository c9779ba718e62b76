//! The policies that a server could run, and their simulated results with the calibrated costs and acceptance.

use super::gain::Gain;
use super::names::name_of;
use super::question::{Engine, Goal, Objective, Question};
use super::unknown::setting;
use crate::calibrate::kept::Known;
use foretoken_policies::{BatchRange, Fixed, PolicySpec, SglangGen3, Slot, VllmDynamic};
use foretoken_report::{Choice, which};
use foretoken_run::cells::play;
use foretoken_run::load::with_defaults;
use foretoken_run::plan::Plan;
use foretoken_run::spec::problem::Result;
use foretoken_sim::Summary;
use foretoken_sim::metrics::{Overload, Slo};
use serde::Serialize;
use std::sync::atomic::AtomicBool;

/// A policy that the server could run, with its simulated results at one load.
#[derive(Clone, Debug, Serialize)]
pub struct Candidate {
    /// The label of the candidate policy, such as `fixed-3`.
    pub policy: String,
    /// The name of the candidate policy in advice, such as `K = 3`.
    pub name: String,
    /// The largest number of draft tokens that the candidate policy gives a request in a step; 0 is plain decoding.
    pub longest: u32,
    /// True for a policy with one fixed draft length, plain decoding included.
    pub fixed: bool,
    /// The candidate's cost: the geometric mean over seeds of the number that should be as low as possible, such as
    /// mean E2E (see `Objective::cost`). `None` if a run has no cost with some seed, for example because it breaks the
    /// limit on TPOT.
    pub cost: Option<f64>,
    /// Gain over the policy that the server runs now.
    pub gain: Option<Gain>,
    /// Accepted over drafted tokens of the runs with all seeds; `None` if nothing was drafted.
    pub acceptance_rate: Option<f64>,
    /// The overload: how far the server with this policy fell behind the arrivals, with the first seed with which it
    /// did. `None` if the server kept up with every seed.
    pub overload: Option<Overload>,
    #[serde(skip)]
    pub spec: PolicySpec,
    /// The cost (such as mean E2E) of the run with each seed.
    #[serde(skip)]
    pub costs: Vec<Option<f64>>,
    /// The numbers of the run with each seed.
    #[serde(skip)]
    pub summaries: Vec<Summary>,
}

/// The candidate policies: every fixed draft length up to `ask.longest`, the engine's adaptive policies, and the
/// server's policy.
pub fn specs(plan: &Plan, ask: &Question, table: &[BatchRange]) -> Vec<PolicySpec> {
    let mut all = vec![preset("autoregressive")];
    all.extend((1..=ask.longest).map(|k| PolicySpec::Fixed(Fixed { k })));
    match ask.engine {
        Engine::Vllm => {
            // A table of draft lengths by batch size that has one range is a fixed draft length, which is a candidate
            // already.
            if table.len() > 1 {
                let table = VllmDynamic { num_speculative_tokens_per_batch_size: table.to_vec() };
                all.push(PolicySpec::VllmDynamic(table));
            }
            // The adaptive policy of vLLM 0.33 decides by the draft model's probabilities of the draft tokens. No
            // observed run shows these probabilities. So the policy is no candidate if costs and acceptance come from
            // observed runs (a calibration).
            if plan.variants[0].experiment.engine.release().adapts_verification && ask.known.is_none() {
                all.push(preset("vllm-adaptive"));
            }
        }
        Engine::Sglang => all.push(PolicySpec::SglangGen3(adaptive(table, ask.longest))),
    }
    if !all.contains(&ask.now.spec) {
        all.push(ask.now.spec.clone());
    }
    all
}

/// SGLang's adaptive policy with one slot for each batch range of `table`. A slot is a range of batch sizes with the
/// draft lengths that may be chosen there. In a slot, the policy chooses between the range's draft length and the
/// neighbouring lengths as acceptance changes. An empty table gives SGLang's default slots.
fn adaptive(table: &[BatchRange], longest: u32) -> SglangGen3 {
    let around = |k: u32| if k == 0 { vec![0] } else { ((k - 1).max(1)..=(k + 1).min(longest)).collect() };
    let slot = |&(batch_size, _, k): &BatchRange| Slot { batch_size, candidates: around(k), ..Slot::default() };
    let slots: Vec<Slot> = table.iter().map(slot).collect();
    let by_default = SglangGen3::default();
    SglangGen3 { slots: if slots.is_empty() { by_default.slots } else { slots }, ..by_default }
}

fn preset(name: &str) -> PolicySpec {
    with_defaults(name).expect("the registry has it")
}

/// The batch sizes 1, 2, 4, … up to `most`, and `most` itself.
pub fn doubling(most: u32) -> impl Iterator<Item = u32> {
    std::iter::successors(Some(1u32), |n| n.checked_mul(2)).take_while(move |&n| n < most).chain([most])
}

/// Simulates each candidate policy with every seed. The seed also draws the uncertain values of the calibration
/// `known`.
pub fn evaluate(
    plan: &Plan,
    specs: &[PolicySpec],
    objective: Objective,
    known: Option<&Known>,
    interrupt: &AtomicBool,
) -> Result<Vec<Candidate>> {
    let variant = &plan.variants[0];
    let settings = plan.seeds.iter().map(|&seed| setting(variant, seed, known)).collect::<Result<Vec<_>>>()?;
    let scaled = variant.experiment.slo.adaspec_scale.is_some() && objective.of == Goal::Slo;
    let bounds = settings.iter().map(|setting| match scaled {
        // The experiment states the SLO bound on TPOT as a multiple of plain decoding's latency. So plain decoding is
        // simulated with the same seed.
        true => Ok(play(setting, &preset("autoregressive"), None, interrupt)?.slo),
        false => Ok(setting.slo(None)),
    });
    let bounds = bounds.collect::<Result<Vec<Slo>>>()?;
    let mut all = Vec::new();
    for spec in specs {
        let (mut costs, mut summaries) = (Vec::new(), Vec::new());
        let (mut drafted, mut accepted) = (0, 0);
        let mut overload = None;
        for (setting, &slo) in settings.iter().zip(&bounds) {
            let summary = play(setting, spec, Some(slo), interrupt)?.stored.summary;
            costs.push(objective.cost(&summary));
            drafted += summary.drafted;
            accepted += summary.accepted;
            overload = overload.or(summary.overload);
            summaries.push(summary);
        }
        let whole: Option<Vec<f64>> = costs.iter().copied().collect();
        all.push(Candidate {
            policy: spec.label(),
            name: name_of(spec),
            longest: longest_of(spec),
            fixed: matches!(spec, PolicySpec::Fixed(_) | PolicySpec::Autoregressive(_)),
            cost: whole.map(|c| (c.iter().map(|cost| cost.ln()).sum::<f64>() / c.len() as f64).exp()),
            gain: None,
            acceptance_rate: (drafted > 0).then(|| accepted as f64 / drafted as f64),
            overload,
            spec: spec.clone(),
            costs,
            summaries,
        });
    }
    Ok(all)
}

/// The largest draft length of a policy; the largest `u32` for a policy that does not state one.
fn longest_of(spec: &PolicySpec) -> u32 {
    match spec {
        PolicySpec::Autoregressive(_) => 0,
        PolicySpec::Fixed(p) => p.k,
        PolicySpec::VllmDynamic(p) => p.num_speculative_tokens_per_batch_size.iter().map(|r| r.2).max().unwrap_or(0),
        PolicySpec::SglangGen3(p) => p.slots.iter().flat_map(|s| &s.candidates).copied().max().unwrap_or(0),
        _ => u32::MAX,
    }
}

/// Sets the gain of every candidate policy over the policy `now`, which the server runs at present.
pub fn compare(all: &mut [Candidate], now: &PolicySpec) {
    let Some(now) = all.iter().find(|c| c.spec == *now).map(|c| c.costs.clone()) else { return };
    for c in all {
        c.gain = Gain::of(&now, &c.costs);
    }
}

impl Candidate {
    /// The candidate as a choice of [`which`], with its largest loss over the loads. `now` is the policy that the
    /// server runs at present.
    pub fn choice(&self, loss: Option<f64>, now: Option<&PolicySpec>) -> Choice {
        let fixed = self.fixed.then_some(self.longest);
        Choice { longest: self.longest, now: now == Some(&self.spec), ..Choice::new(loss, fixed) }
    }
}

/// The candidate policy to run at one load, by [`which`]. `now` is the policy that the server runs at present. `None`
/// if no candidate has a cost.
pub fn best<'a>(all: impl Iterator<Item = &'a Candidate>, now: Option<&PolicySpec>) -> Option<&'a Candidate> {
    let all: Vec<&Candidate> = all.collect();
    let least = all.iter().filter_map(|c| c.cost).min_by(f64::total_cmp)?;
    let choice = |c: &&Candidate| c.choice(c.cost.map(|cost| cost / least - 1.0), now);
    which(&all.iter().map(choice).collect::<Vec<_>>()).map(|at| all[at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batch_sizes_double_up_to_the_largest() {
        let sizes = |most| doubling(most).collect::<Vec<_>>();
        assert_eq!((sizes(1), sizes(2), sizes(8)), (vec![1], vec![1, 2], vec![1, 2, 4, 8]));
        assert_eq!(sizes(9), [1, 2, 4, 8, 9]);
    }

    fn candidate(longest: u32, fixed: bool, cost: Option<f64>) -> Candidate {
        Candidate {
            policy: String::new(),
            name: format!("{longest} {fixed}"),
            longest,
            fixed,
            cost,
            gain: None,
            acceptance_rate: None,
            overload: None,
            spec: preset("autoregressive"),
            costs: vec![],
            summaries: vec![],
        }
    }

    #[test]
    fn of_costs_within_a_percent_the_shortest_fixed_length_is_the_best() {
        let name = |all: &[Candidate]| best(all.iter(), None).map(|c| c.name.clone());
        let (short, long) = (candidate(1, true, Some(1.0099)), candidate(3, true, Some(1.0)));
        assert_eq!(name(&[long.clone(), short]).unwrap(), "1 true");
        assert_eq!(name(&[candidate(1, true, Some(1.011)), long.clone()]).unwrap(), "3 true");
        assert_eq!(name(&[candidate(3, false, Some(1.0)), long]).unwrap(), "3 true");
        assert_eq!(name(&[candidate(0, true, None)]), None);
        let (now, longer) = (candidate(1, true, Some(1.009)), candidate(2, true, Some(1.008)));
        let longer = Candidate { spec: PolicySpec::Fixed(Fixed { k: 2 }), ..longer };
        let taken = best([&now, &longer].into_iter(), Some(&longer.spec)).map(|c| c.name.clone());
        assert_eq!(taken.unwrap(), "2 true", "a tie with what runs now keeps it");
    }

    #[test]
    fn sglangs_slots_have_the_neighbouring_lengths() {
        let found = adaptive(&[(1, 4, 3), (5, 8, 1), (9, 16, 0)], 3);
        let slots: Vec<_> = found.slots.iter().map(|slot| (slot.batch_size, slot.candidates.clone())).collect();
        assert_eq!(slots, [(1, vec![2, 3]), (5, vec![1, 2]), (9, vec![0])]);
        assert_eq!(adaptive(&[], 3).slots, SglangGen3::default().slots);
    }
}
