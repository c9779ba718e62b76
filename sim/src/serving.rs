//! A run on any executor: the engine with a workload and a drafter.

use crate::config::EngineConfig;
use crate::engine::{ByPolicy, Drafter, Ending, Engine, Finished, NoDraft, RejectReason, Rules};
use crate::executor::Executor;
use crate::metrics::{Replicas, RequestRecords, Series, StepRecord, Totals};
use crate::patience::Patience;
use crate::policy::SpecPolicy;
use crate::workload::{Arrivals, RequestId, Workload};
use std::borrow::Cow;
use std::sync::atomic::AtomicBool;

/// The workload and the settings of a run, for any executor.
#[derive(Clone, Copy)]
pub struct Serving<'a> {
    /// The requests to serve.
    pub workload: &'a Workload,
    /// Whether requests arrive at their own times, when a client's last request has ended, or in sessions.
    pub arrivals: Arrivals,
    /// The engine's settings.
    pub config: &'a EngineConfig,
    /// The run's TPOT limit that policies see, seconds; infinity for none. A request's own limit takes precedence.
    pub slo_tpot_s: f64,
    /// Whether to keep a record of every step.
    pub keep_steps: bool,
    /// Set this flag to end the run early.
    pub interrupt: &'a AtomicBool,
}

/// The results of a run.
#[derive(Clone, Debug)]
pub struct Run {
    /// One record for each request of the run.
    pub records: RequestRecords,
    /// Counters of the run, summed over all its steps: times, passes, and drafted, verified and accepted tokens.
    pub totals: Totals,
    /// Load and draft length of the run over time.
    pub series: Series,
    /// One record for each step, if wanted. The steps of a fleet are in the order of its replicas.
    pub steps: Vec<StepRecord>,
    /// Requests that could never run to their end, with the reason.
    pub rejected: Vec<(RequestId, RejectReason)>,
    /// Warnings for the user about the run, from the drafter or from the settings.
    pub warnings: Vec<String>,
    /// How the run ended. Unless it is [`Ending::Done`], the numbers cover only a part of the run.
    pub ending: Ending,
    /// Number of KV blocks of the target's pool that requests can use.
    pub usable_blocks: u32,
    /// What each replica of a fleet did; `None` for a run of a single engine.
    pub replicas: Option<Replicas>,
}

/// The results of a run, and its executor.
pub struct Served<E: Executor> {
    /// The whole run, or the part before its early end.
    pub run: Run,
    /// The executor, returned to the caller.
    pub executor: E,
    /// The error of the pass that failed, if the run ended with [`Ending::Failed`].
    pub error: Option<E::Error>,
    /// The counts of requests that met or missed their latency bounds, if the run was to find out whether enough meet
    /// them.
    pub patience: Option<Patience>,
}

impl Serving<'_> {
    /// Serves the whole workload. Without a policy there is no drafter (invariant 7 of INVARIANTS.md). Oracles cannot
    /// run here, because only the event clock (simulated time) knows which draft tokens are right and the true pass
    /// times. Panics on a configuration that [`Speculation::check`](crate::Speculation::check) refuses.
    pub fn run<E: Executor>(&self, executor: E, policy: Option<Box<dyn SpecPolicy>>) -> Served<E> {
        match policy {
            None => self.derive(executor, NoDraft),
            Some(policy) => self.derive(executor, ByPolicy(policy)),
        }
    }

    /// Derives the scheduler's rules from settings, drafter and executor, and serves the workload.
    fn derive<E: Executor, D: Drafter<E>>(&self, executor: E, drafter: D) -> Served<E> {
        let speculation = drafter.speculative_config(self.config.max_draft_len, executor.drafts_in_parallel());
        let rules = Rules::of(self.config, &speculation).expect("the configuration was checked before");
        self.with(rules, executor, drafter, None)
    }

    /// Like [`run`](Serving::run), with any drafter and with the rules that follow from this drafter. If `patience` is
    /// given, the run ends as soon as it is certain whether enough requests meet their latency bounds.
    pub(crate) fn with<E: Executor, D: Drafter<E>>(
        &self,
        rules: Rules,
        executor: E,
        drafter: D,
        patience: Option<Patience>,
    ) -> Served<E> {
        let Serving { workload, arrivals, config, slo_tpot_s, keep_steps, interrupt } = *self;
        let mut engine = Engine::new(
            config,
            Cow::Borrowed(workload),
            arrivals,
            slo_tpot_s,
            rules,
            executor,
            drafter,
            keep_steps,
            (),
        );
        engine.be_patient(patience);
        let (ending, error) = match engine.run(interrupt) {
            Ok(ending) => (ending, None),
            Err(error) => (Ending::Failed, Some(error)),
        };
        let (run, patience, executor) = Run::of(engine.finish(), ending);
        Served { run, executor, error, patience }
    }
}

impl Run {
    /// Turns the state of an engine whose run ended with `ending` into three results: the run, the counts of requests
    /// that met or missed their latency bounds, and the executor.
    pub(crate) fn of<E>(finished: Finished<E, ()>, ending: Ending) -> (Run, Option<Patience>, E) {
        let Finished { mut out, warnings, usable_blocks, executor, watch: () } = finished;
        let patience = out.patience();
        let run = Run {
            records: out.records,
            totals: out.totals,
            series: out.series,
            steps: out.steps,
            rejected: out.rejected,
            warnings,
            ending,
            usable_blocks,
            replicas: None,
        };
        (run, patience, executor)
    }
}
