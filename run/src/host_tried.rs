//! Simulates the fastest policy with the host time that was measured on a real server, if the experiment counts no host
//! time.

use crate::cells::play;
use crate::compare::{Comparison, PolicyResult};
use crate::host_band::{HostBand, SOURCE, Tried, is_left_out, leaves_out, measured};
use crate::plan::{Plan, Variant};
use crate::setting::Setting;
use foretoken_policies::PolicySpec;
use foretoken_spec::document::Path;
use foretoken_spec::problem::Result;
use std::sync::atomic::AtomicBool;

/// Simulates the fastest drafting policy of the first variant (combination of swept values) with the first seed,
/// without host time and with the host time of a measured server. `None` if every variant counts host time, if the run
/// was measured, or if no policy drafts. If the first variant counts host time and a later one does not, nothing is
/// simulated, and the result has no speedups.
///
/// # Errors
/// The workload or server of the first variant cannot be built, or the work is interrupted.
pub fn look(plan: &Plan, comparison: &Comparison, interrupt: &AtomicBool) -> Result<Option<HostBand>> {
    let drafts = |p: &&PolicyResult| !p.sees_hidden_truth && p.policy != "autoregressive" && p.speedup.is_some();
    let speedup = |p: &PolicyResult| p.speedup.as_ref().map_or(0.0, |s| s.mean);
    let fastest = comparison
        .variants
        .first()
        .and_then(|v| v.policies.iter().filter(drafts).max_by(|a, b| speedup(a).total_cmp(&speedup(b))));
    let Some(fastest) = fastest.filter(|_| is_left_out(plan)) else { return Ok(None) };
    let spec = plan.policies.iter().find(|p| p.spec.label() == fastest.policy).map(|p| p.spec.clone());
    let tried = match spec {
        Some(spec) if leaves_out(&plan.variants[0]) => Some(tried(plan, &spec, interrupt)?),
        _ => None,
    };
    Ok(Some(HostBand { source: SOURCE.into(), tried }))
}

fn tried(plan: &Plan, spec: &PolicySpec, interrupt: &AtomicBool) -> Result<Tried> {
    let seed = plan.seeds[0];
    let plain = plan.policies[plan.baseline].spec.clone();
    let speedup = |variant: &Variant| -> Result<f64> {
        let setting = Setting::new(variant, seed)?;
        let e2e = |spec: &PolicySpec| -> Result<f64> {
            let played = play(&setting, spec, Some(setting.slo(None)), interrupt)?;
            Ok(played.stored.summary.e2e.map_or(f64::NAN, |q| q.mean))
        };
        Ok(e2e(&plain)? / e2e(spec)?)
    };
    let law = toml::Value::try_from(measured()).expect("plain data is TOML").to_string();
    let counted = plan.altered(0, |document| document.replace(&Path::of("engine.host"), SOURCE, &law))?;
    let (without, with) = (speedup(&plan.variants[0])?, speedup(&counted.variants[0])?);
    Ok(Tried { policy: spec.label(), without, with, seed })
}
