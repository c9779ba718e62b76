//! Searches the fewest replicas again with the host time that was measured on a real server, if the experiment counts
//! none: host time may turn around whether drafting needs fewer GPUs.

use super::answer::{FleetAnswer, PolicyFleet};
use super::plan::Question;
use super::probe::{Probe, Trial};
use super::run::slo;
use super::search::{Next, Search};
use crate::load::Load;
use crate::words::swept_in_words;
use foretoken_run::host_band::{SOURCE, counted, leaves_out};
use foretoken_run::plan::Plan;
use foretoken_run::setting::Setting;
use foretoken_spec::problem::Result;
use rayon::prelude::*;
use serde::Serialize;
use std::sync::atomic::AtomicBool;

/// The recommended drafting policy and plain decoding, searched again with the host time of a measured server.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WithHost {
    /// The swept values of the searches as text; empty if nothing is swept.
    pub at: String,
    /// Name of the server from which the host time is taken.
    pub source: String,
    /// The label of the drafting policy that costs the least without host time.
    pub policy: String,
    /// The fewest replicas with this policy and host time, and the mean end-to-end latency on them.
    pub drafting: Fewest,
    /// The fewest replicas with plain decoding and host time, and the mean end-to-end latency on them.
    pub plain: Fewest,
    /// Does plain decoding need fewer replicas with host time, or as many and less time?
    pub turns: bool,
    /// The seed of both searches.
    pub seed: u64,
}

/// The fewest replicas that carry the load, and how long requests take on them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Fewest {
    /// The fewest replicas; `None` if the most that may be tried do not carry the load.
    pub replicas: Option<u32>,
    /// Mean end-to-end latency on these replicas, seconds.
    pub e2e_mean_s: Option<f64>,
}

/// Searches, for each combination of swept values at which no host time is counted and drafting is recommended, the
/// fewest replicas of the recommended policy and of plain decoding with host time, with the first seed.
///
/// # Errors
/// The search is interrupted.
pub fn look(question: &Question, answer: &FleetAnswer, flag: &AtomicBool) -> Result<Vec<WithHost>> {
    let plan = &question.plan;
    let policies = plan.policies.len();
    let asked = (0..plan.variants.len()).filter(|&v| leaves_out(&plan.variants[v])).filter_map(|v| {
        let here: Vec<&PolicyFleet> = answer.fleets[v * policies..(v + 1) * policies].iter().collect();
        let best = answer.best(&here).filter(|best| !best.baseline)?;
        here.iter().any(|f| f.baseline).then_some((v, best))
    });
    let asked: Vec<(usize, &PolicyFleet)> = asked.collect();
    let look = |(v, best): (usize, &PolicyFleet)| -> Result<WithHost> {
        let plan = &counted(plan, v)?;
        let at = plan.policies.iter().position(|p| p.spec.label() == best.policy).expect("the policies are the same");
        let first = best.replicas.unwrap_or(1);
        let find = |policy: usize| fewest(question, plan, policy, first, flag);
        let (drafting, plain) = rayon::join(|| find(at), || find(plan.baseline));
        let (drafting, plain) = (drafting?, plain?);
        Ok(WithHost {
            at: swept_in_words(&best.sweep),
            source: SOURCE.to_owned(),
            policy: best.policy.clone(),
            drafting,
            plain,
            turns: plain.is_better_than(&drafting),
            seed: plan.seeds[0],
        })
    };
    asked.into_par_iter().map(look).collect()
}

/// The fewest replicas of one policy in the only variant of `plan`, with the first seed. `first` is tried first.
fn fewest(question: &Question, plan: &Plan, policy: usize, first: u32, flag: &AtomicBool) -> Result<Fewest> {
    let variant = &plan.variants[0];
    let mut setting = Setting::new(variant, plan.seeds[0])?;
    let load = Load::whole(&mut setting, variant, &question.spec)?;
    let slo = slo(&mut setting, plan, flag)?;
    let most = variant.experiment.fleet.as_ref().map_or(1, |fleet| fleet.most_replicas);
    let trial = Trial { load: &load, policy: &plan.policies[policy].spec, slo, flag };
    let mut probes: Vec<Probe> = Vec::new();
    let replicas = loop {
        match (Search { first, most }).next(&probes.iter().map(Probe::tried).collect::<Vec<_>>()) {
            Next::Try(replicas) => probes.push(trial.probe(&mut setting, replicas, load.own_rate(), false)?),
            Next::Found(replicas) => break Some(replicas),
            Next::Nothing => break None,
        }
    };
    let e2e_mean_s = match replicas {
        Some(replicas) => trial.probe(&mut setting, replicas, load.own_rate(), true)?.latencies.map(|l| l.e2e.mean),
        None => None,
    };
    Ok(Fewest { replicas, e2e_mean_s })
}

impl Fewest {
    /// Fewer replicas, or as many on which requests take less time.
    fn is_better_than(&self, other: &Fewest) -> bool {
        let number = |of: &Fewest| of.replicas.unwrap_or(u32::MAX);
        match number(self).cmp(&number(other)) {
            std::cmp::Ordering::Equal => self.e2e_mean_s.zip(other.e2e_mean_s).is_some_and(|(own, of)| own < of),
            order => order.is_lt(),
        }
    }

    fn in_words(&self) -> String {
        let time = self.e2e_mean_s.map_or(String::new(), |s| format!(" ({s:.2} s a request)"));
        match self.replicas {
            None => "more replicas than may be tried".to_owned(),
            Some(1) => format!("1 replica{time}"),
            Some(n) => format!("{n} replicas{time}"),
        }
    }
}

impl WithHost {
    /// Both fleets with host time as text.
    pub fn in_words(&self) -> String {
        format!(
            "With the host time of a measured server ({}) {} needs {} and no drafting {} (seed {}).",
            self.source,
            self.policy,
            self.drafting.in_words(),
            self.plain.in_words(),
            self.seed
        )
    }

    /// A note for an answer that host time does not turn around.
    pub fn stays(&self) -> String {
        let at = if self.at.is_empty() { String::new() } else { format!("{}: ", self.at) };
        format!("{at}no host time is counted ([engine.host]). {} The answer stays.", self.in_words())
    }
}
