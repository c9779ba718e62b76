//! Searches the fewest replicas again with the host time that was measured on a real server, if the experiment counts
//! none: host time may turn around whether drafting needs fewer GPUs.

use super::answer::{FleetAnswer, PolicyFleet};
use super::host::{Fewest, WithHost};
use super::plan::Question;
use super::probe::{Probe, probe};
use super::search::{Next, Search};
use crate::capacity::load::Load;
use crate::capacity::load::slo;
use crate::capacity::probe::Trial;
use crate::capacity::words::swept_in_words;
use crate::host_band::{SOURCE, counted, leaves_out};
use crate::plan::Plan;
use crate::setting::Setting;
use crate::spec::problem::Result;
use rayon::prelude::*;
use std::sync::atomic::AtomicBool;

/// Searches, for each combination of swept values at which no host time is counted and drafting is recommended, the
/// fewest replicas of the recommended policy and of plain decoding with host time, with the first seed.
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
    setting.set_replicas(1);
    let slo = slo(&mut setting, plan, flag)?;
    let most = variant.experiment.fleet.as_ref().map_or(1, |fleet| fleet.most_replicas);
    let trial = Trial { load: &load, policy: &plan.policies[policy].spec, slo, flag };
    let mut probes: Vec<Probe> = Vec::new();
    let replicas = loop {
        match (Search { first, most }).next(&probes.iter().map(Probe::tried).collect::<Vec<_>>()) {
            Next::Try(replicas) => probes.push(probe(&trial, &mut setting, replicas, load.own_rate(), false)?),
            Next::Found(replicas) => break Some(replicas),
            Next::Nothing => break None,
        }
    };
    let e2e_mean_s = match replicas {
        Some(replicas) => probe(&trial, &mut setting, replicas, load.own_rate(), true)?.latencies.map(|l| l.e2e.mean),
        None => None,
    };
    Ok(Fewest { replicas, e2e_mean_s })
}
