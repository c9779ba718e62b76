//! Simulates the policy that the headline names with the host time that was measured on a real server, if the
//! experiment counts no host time.

use crate::cells::{Advised, play, swept};
use crate::host_band::{HostBand, SOURCE, Tried, counted, is_left_out, leaves_out};
use crate::plan::{Plan, Variant};
use crate::setting::Setting;
use crate::spec::problem::Result;
use foretoken_policies::PolicySpec;
use foretoken_report::words;
use std::sync::atomic::AtomicBool;

/// With more variants than this, only the first one is simulated with host time.
const MOST: usize = 8;

/// Simulates the advised policy and plain decoding with the host time of a measured server and the first seed, at every
/// variant that counts none. `None` if every variant counts host time, if the run was measured, or if no policy that
/// drafts is advised.
pub fn look(plan: &Plan, advised: Option<&Advised>, interrupt: &AtomicBool) -> Result<Option<HostBand>> {
    let Some(advised) = advised.filter(|_| is_left_out(plan)) else { return Ok(None) };
    let spec = plan.policies.iter().find(|p| p.spec.label() == advised.policy).map(|p| p.spec.clone());
    let Some(spec) = spec.filter(|spec| *spec != plan.policies[plan.baseline].spec) else { return Ok(None) };
    let last = if plan.variants.len() > MOST { 1 } else { plan.variants.len() };
    let mut tried = Vec::new();
    for at in (0..last).filter(|&at| leaves_out(&plan.variants[at])) {
        let without = match plan.variants[at].experiment.slo.adaspec_scale {
            // A bound that plain decoding's latency sets would be another with host time, so neither run has it.
            Some(_) => speedup(plan, &plan.variants[at], &spec, interrupt)?,
            None => advised.speedups[at].unwrap_or(f64::NAN),
        };
        let with = speedup(plan, &counted(plan, at)?.variants[0], &spec, interrupt)?;
        tried.push(Tried { at: words(&swept(plan, at)), without, with });
    }
    Ok(Some(HostBand { source: SOURCE.into(), policy: advised.policy.clone(), seed: plan.seeds[0], tried }))
}

/// The speedup of a policy over plain decoding with the first seed.
fn speedup(plan: &Plan, variant: &Variant, spec: &PolicySpec, interrupt: &AtomicBool) -> Result<f64> {
    let setting = Setting::new(variant, plan.seeds[0])?;
    let e2e = |spec: &PolicySpec| -> Result<f64> {
        let played = play(&setting, spec, Some(setting.slo(None)), interrupt)?;
        Ok(played.stored.summary.e2e.map_or(f64::NAN, |q| q.mean))
    };
    Ok(e2e(&plan.policies[plan.baseline].spec)? / e2e(spec)?)
}
