//! Runs that draw requests one at a time and remove ended requests from memory. So the memory of such a run does not
//! grow with the number of requests.

use super::Setting;
use crate::plan::Variant;
use crate::spec::problem::Result;
use crate::spec::read::trace_problem;
use foretoken_policies::PolicySpec;
use foretoken_sim::acceptance::Rates;
use foretoken_sim::{Arrivals, Request, RequestId, RequestRecords, Run, Simulation, Speculation};
use foretoken_traces::{Built, Drawn};
use std::sync::atomic::AtomicBool;

impl Setting {
    /// Builds a setting as [`new`](Setting::new) does, but only for running `policies` with
    /// [`stream`](Setting::stream). If the workload and all policies allow it, the requests are not kept in memory, and
    /// each run draws them again.
    pub fn streaming<'p>(
        variant: &Variant,
        seed: u64,
        mut policies: impl Iterator<Item = &'p PolicySpec>,
    ) -> Result<Setting> {
        let e = &variant.experiment;
        // In these cases all requests must be in memory: a live or observed run, a fleet, acceptance that is recorded
        // or differs by category, and wrapper policies such as `true-cost`.
        let reads = e.live.is_some()
            || e.observe.is_some()
            || e.fleet.is_some()
            || e.acceptance.source.is_recorded()
            || matches!(e.acceptance.source, Rates::Table(_) | Rates::ByCategory(_))
            || e.policies.iter().any(|policy| policy.definition().wraps().is_some());
        let drawn = match reads {
            true => None,
            false => Drawn::of(&e.workload, seed).map_err(|err| trace_problem(&variant.document(), &err))?,
        };
        let Some(drawn) = drawn else { return Setting::new(variant, seed) };
        let (workload, arrivals) = (drawn.shape.clone(), drawn.arrivals);
        let built = Built { workload, arrivals, files: Vec::new(), notes: Vec::new() };
        let setting = Setting::of(variant, seed, built, Some(drawn))?;
        if policies.all(|policy| setting.to_stream(policy).is_some()) {
            Ok(setting)
        } else {
            Setting::new(variant, seed)
        }
    }

    /// The policy in the form that [`stream`](Self::stream) runs. `None` for a fleet, for sessions, for a clairvoyant
    /// policy (which runs several fixed lengths), and for a policy whose decisions depend on the ids of requests:
    /// `stream` cannot run these.
    pub fn to_stream(&self, policy: &PolicySpec) -> Option<Speculation> {
        let whole = self.fleet.is_some()
            || self.arrivals == Arrivals::Sessions
            || !policy.definition().tries(self.server.with_drafter.max_draft_len).is_empty();
        let built = || Some(self.server.speculation(policy)).filter(Speculation::ids_may_return);
        if whole { None } else { built() }
    }

    /// Runs a policy as [`run_with_lives`](Self::run_with_lives) does, but takes the requests one at a time, removes
    /// ended requests from memory, and gives their records to `give` in pieces ([`Simulation::stream`]). `speculation`
    /// is the policy's form that [`to_stream`](Self::to_stream) returns.
    pub fn stream(
        &self,
        speculation: Speculation,
        slo_tpot_s: f64,
        interrupt: &AtomicBool,
        give: &mut dyn FnMut(RequestRecords) -> bool,
    ) -> Run {
        let server = &self.server;
        let (config, models) = (server.config(&speculation), server.models());
        let simulation = server.simulation((&self.workload, self.arrivals), config, &models, slo_tpot_s, interrupt);
        let mut requests: Box<dyn Iterator<Item = Request>> = match &self.drawn {
            Some(drawn) => Box::new(drawn.iter()),
            None => Box::new((0..self.workload.len() as RequestId).map(|id| self.workload.get(id))),
        };
        let mut run = Simulation { keep_lives: true, ..simulation }.stream(speculation, &mut *requests, give);
        run.warnings.extend(server.beyond(&models));
        run
    }
}
