//! The searches of one experiment: of a policy with all its seeds, and of one seed.

use crate::bar::Bar;
use crate::capacity::answer::{Capacity, SeedResult};
use crate::capacity::load::Load;
use crate::capacity::load::slo;
use crate::capacity::probe::{Probe, Probes, Trial};
use crate::capacity::search::{Next, Search};
use crate::capacity::store::{SearchId, Store};
use crate::cells::{play, swept};
use crate::plan::Plan;
use crate::setting::Setting;
use crate::spec::capacity::CapacitySpec;
use crate::spec::problem::{Exit, Result};
use foretoken_policies::PolicySpec;
use foretoken_sim::metrics::Slo;
use std::sync::atomic::AtomicBool;

/// A figure of a capacity search shows tried rates up to this multiple of the capacity.
pub const SHOWN: f64 = 1.6;
/// For the figure, runs at rates above the capacity that were stopped early are repeated to the end. A run is not
/// repeated if its rate is below this multiple of the next lower rate above the capacity whose run went to the end.
const APART: f64 = 1.03;
/// A seed's capacity search begins with two rates. If an earlier seed of the policy found a capacity, they are this
/// capacity divided by this factor, and this capacity multiplied by this factor.
const NEAR: f64 = 1.1;
/// The two rates with which a capacity search begins, as multiples of the request rate of the experiment's arrivals.
/// Used if no earlier seed of the policy found a capacity. `capacity.bracket` replaces them.
const GUESS: [f64; 2] = [0.5, 2.0];

/// What all searches of a plan have in common.
pub(crate) struct Searcher<'a> {
    pub plan: &'a Plan,
    pub spec: &'a CapacitySpec,
    pub store: Store,
    pub flag: &'a AtomicBool,
    pub bar: &'a Bar,
    /// Are runs repeated to the end for the figure of the first seed?
    pub to_the_end: bool,
}

impl Searcher<'_> {
    pub(crate) fn capacity(&self, variant: usize, policy: usize) -> Result<Capacity> {
        let mut seeds: Vec<SeedResult> = Vec::new();
        for seed in 0..self.plan.seeds.len() {
            let id = SearchId { variant, policy, seed };
            let near = seeds.iter().find_map(|s| s.req_s).map(|rate| [rate / NEAR, rate * NEAR]);
            seeds.push(self.search(id, near)?);
            self.bar.inc(1);
        }
        let spec = &self.plan.policies[policy].spec;
        let baseline = policy == self.plan.baseline;
        let averaged = Capacity::of(spec.label(), swept(self.plan, variant), seeds);
        Ok(Capacity { baseline, bound: spec.sees_hidden_truth(), ..averaged })
    }

    /// Searches the capacity of one policy with one seed. `near` are the two rates with which the search begins; `None`
    /// for the experiment's.
    pub(crate) fn search(&self, id: SearchId, near: Option<[f64; 2]>) -> Result<SeedResult> {
        let (variant, number) = (&self.plan.variants[id.variant], self.plan.seeds[id.seed]);
        let mut setting = Setting::new(variant, number)?;
        let load = Load::of(&mut setting, variant, self.spec)?;
        let slo = slo(&mut setting, self.plan, self.flag)?;
        let guess = GUESS.map(|by| by * load.own_rate());
        let bracket = near.or(self.spec.bracket).unwrap_or(guess);
        let search = Search { bracket, tolerance: self.spec.tolerance, floor: load.floor() };
        let policy = &self.plan.policies[id.policy].spec;
        let trial = Trial { load: &load, policy, slo, flag: self.flag };
        let mut stored: Probes = self.store.load(id);
        let end = loop {
            let tried: Vec<_> = stored.probes.iter().map(Probe::tried).collect();
            match search.next(&tried) {
                Next::Try(rate) => {
                    self.bar.say(format!("{} at {rate:.3} requests/s", policy.label()));
                    stored.probes.push(trial.probe(&mut setting, rate, false)?);
                    self.store.save(id, &stored)?;
                }
                end => break end,
            }
        };
        if let (Next::Found(rate), 0, true) = (end, id.seed, self.to_the_end) {
            self.finish(&trial, &mut setting, rate, &mut stored.probes)?;
            self.store.save(id, &stored)?;
        }
        let tokens_gpu = load.output_tokens / f64::from(variant.gpus());
        let rejected = if end == Next::Nothing { self.rejected(&mut setting, &load, policy)? } else { None };
        Ok(SeedResult { rejected, ..SeedResult::of(number, end, slo, tokens_gpu, &load, stored.probes) })
    }

    /// Which limit of the engine rejects requests, in the words of `foretoken run`; `None` if none is rejected. A run
    /// at the experiment's own rate shows it, because such requests are rejected at any rate.
    fn rejected(&self, setting: &mut Setting, load: &Load, policy: &PolicySpec) -> Result<Option<String>> {
        setting.workload.arrival = load.at(load.own_rate());
        match play(setting, policy, Some(Slo::default()), self.flag) {
            Ok(played) => Ok(played.stored.warnings.into_iter().find(|warning| warning.contains("were rejected"))),
            Err(problem) if problem.exit == Exit::BadInput => {
                let said = problem.message();
                // The note has the policy's name already.
                let said = said.strip_prefix(&format!("{}: ", policy.label())).unwrap_or(said);
                Ok(Some(format!("{said}; {}", problem.help_text())))
            }
            Err(problem) => Err(problem),
        }
    }

    /// Repeats runs that were stopped early until all their counted requests have ended, because a figure shows the
    /// share of requests within their SLO bounds. Takes only rates above the capacity `found`, up to [`SHOWN`] ×
    /// `found`. A run is not repeated if its rate is below [`APART`] times the next lower of these rates whose run went
    /// to the end.
    fn finish(&self, trial: &Trial<'_>, setting: &mut Setting, found: f64, probes: &mut [Probe]) -> Result<()> {
        let mut above: Vec<&mut Probe> =
            probes.iter_mut().filter(|p| p.rate > found && p.rate <= SHOWN * found).collect();
        above.sort_by(|a, b| a.rate.total_cmp(&b.rate));
        let mut last = 0.0;
        for probe in above {
            if probe.is_whole() {
                last = probe.rate;
            } else if probe.rate >= APART * last {
                last = probe.rate;
                let carried = probe.carried;
                *probe = Probe { carried, ..trial.probe(setting, probe.rate, true)? };
            }
        }
        Ok(())
    }
}
