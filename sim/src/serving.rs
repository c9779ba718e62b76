//! A run on any executor: the engine over what arrives, with whoever decides the draft lengths.

use crate::config::EngineConfig;
use crate::engine::{ByPolicy, Drafter, Ending, Engine, Finished, NoDraft, RejectReason};
use crate::executor::Executor;
use crate::metrics::{RequestRecords, Series, StepRecord, Totals};
use crate::patience::Patience;
use crate::policy::SpecPolicy;
use crate::workload::{Arrivals, RequestId, Workload};
use std::sync::atomic::AtomicBool;

/// What is to be served, and how. An executor says what it is served with.
#[derive(Clone, Copy)]
pub struct Serving<'a> {
    /// What arrives.
    pub workload: &'a Workload,
    /// How it arrives.
    pub arrivals: Arrivals,
    /// The engine's settings.
    pub config: &'a EngineConfig,
    /// The run's TPOT limit shown to policies, seconds; infinity is none. A request's own comes before it.
    pub slo_tpot_s: f64,
    /// Keep a record of every step.
    pub keep_steps: bool,
    /// Set from outside to end the run early.
    pub interrupt: &'a AtomicBool,
}

/// What a run leaves behind.
#[derive(Clone, Debug)]
pub struct Run {
    /// One record a request.
    pub records: RequestRecords,
    /// Sums over steps.
    pub totals: Totals,
    /// Load over time.
    pub series: Series,
    /// One record a step, when asked for.
    pub steps: Vec<StepRecord>,
    /// Requests that could never run to their end, and why.
    pub rejected: Vec<(RequestId, RejectReason)>,
    /// What the user should be told.
    pub warnings: Vec<String>,
    /// How it ended. Unless it is [`Ending::Done`], the numbers are those of a part.
    pub ending: Ending,
    /// Blocks of the target's pool that requests can use.
    pub usable_blocks: u32,
}

/// What came of it.
pub struct Served<E: Executor> {
    /// The run: all of it, or the part before it was interrupted or failed.
    pub run: Run,
    /// The executor, given back.
    pub executor: E,
    /// What failed, where the run ended by [`Ending::Failed`].
    pub error: Option<E::Error>,
    /// What it was to find out, where it was to find out something.
    pub patience: Option<Patience>,
}

impl Serving<'_> {
    /// Serves the whole workload. `None` is the plain engine (invariant 7). Oracles have no place here: they see a truth that
    /// only the event clock has. Panics on a configuration that
    /// [`Speculation::check`](crate::Speculation::check) refuses.
    pub fn run<E: Executor>(&self, executor: E, policy: Option<Box<dyn SpecPolicy>>) -> Served<E> {
        match policy {
            None => self.with(executor, NoDraft, None),
            Some(policy) => self.with(executor, ByPolicy(policy), None),
        }
    }

    /// As [`run`](Serving::run), with any drafter; ends once the verdict is certain, where there is one to find.
    pub(crate) fn with<E: Executor, D: Drafter<E>>(
        &self,
        executor: E,
        drafter: D,
        patience: Option<Patience>,
    ) -> Served<E> {
        let Serving { workload, arrivals, config, slo_tpot_s, keep_steps, interrupt } = *self;
        let mut engine = Engine::new(config, workload, arrivals, slo_tpot_s, executor, drafter, keep_steps);
        engine.be_patient(patience);
        let (ending, error) = match engine.run(interrupt) {
            Ok(ending) => (ending, None),
            Err(error) => (Ending::Failed, Some(error)),
        };
        let Finished { mut out, warnings, usable_blocks, executor, watch: () } = engine.finish();
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
        };
        Served { run, executor, error, patience }
    }
}
