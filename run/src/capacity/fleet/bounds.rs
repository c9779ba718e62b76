//! The bounds of a load that a fleet must keep.

use crate::cells::play;
use crate::plan::Plan;
use crate::setting::Setting;
use crate::spec::problem::{Problem, Result};
use foretoken_sim::Arrivals;
use foretoken_sim::metrics::Slo;
use std::sync::atomic::AtomicBool;

/// The SLO bounds of `setting` (requests and server at one combination of swept values with one seed). If the
/// experiment gives the TPOT bound as a multiple, the bound is this multiple of the P90 TPOT of autoregressive
/// decoding with one request at a time on one replica. It is an error if there is no bound at all.
pub(super) fn slo(setting: &mut Setting, plan: &Plan, flag: &AtomicBool) -> Result<Slo> {
    let plain = &plan.policies[plan.baseline].spec;
    let scaled = plan.variants[0].experiment.slo.adaspec_scale.is_some();
    let mut slo = setting.slo(None);
    if scaled {
        let arrivals = setting.arrivals();
        setting.set_arrivals(Arrivals::Closed { clients: 1 });
        setting.set_replicas(1);
        let played = play(setting, plain, Some(Slo::default()), flag);
        setting.set_arrivals(arrivals);
        slo = setting.slo(played?.stored.summary.tpot.map(|q| q.p90));
    }
    if slo == Slo::default() && setting.workload.slo_tpot_s.is_empty() {
        return Err(Problem::bad_input("the experiment has no SLO, so one replica would carry every load")
            .help("give it bounds: --set slo.ttft_s=0.5 --set slo.tpot_s=0.05"));
    }
    Ok(slo)
}
