//! A policy that lives across the steps of an engine in this process, for `foretoken.seat`.

use crate::errors;
use foretoken_policies::PolicySpec;
use foretoken_policies::seat::{Outcome, Seat as Policy, Setup, Unseated};
use foretoken_run::guard::guarded;
use foretoken_run::spec::problem::{Problem, Result};
use foretoken_run::spec::read::unknown_policy;
use foretoken_sim::{BatchView, Categories, ChunkTotals, NewRequest, Time};
use pyo3::prelude::*;
use std::sync::{Mutex, PoisonError};

/// The prompt chunks of a pass: number, new tokens, tokens that are in KV before, query-key pairs.
type Prompts = (u32, u64, u64, u64);

fn prompts((chunks, tokens, context, pairs): Prompts) -> ChunkTotals {
    ChunkTotals { chunks, tokens, context, pairs }
}

/// A policy in an engine's seat. `foretoken.Seat` is its Python face.
#[pyclass(frozen, module = "foretoken._native")]
pub struct Seat(Mutex<Policy>);

#[pymethods]
impl Seat {
    /// `policy` is a table with one key, the policy's name, as JSON; `setup` has what the engine knows, as JSON.
    #[new]
    fn new(py: Python<'_>, name: &str, policy: &str, setup: &str) -> PyResult<Seat> {
        take(name, policy, setup).map(|policy| Seat(Mutex::new(policy))).map_err(|problem| errors::of(py, &problem))
    }

    /// The most that the policy drafts for a request: in the next step, and ever.
    fn limits(&self, py: Python<'_>) -> PyResult<(u32, u32)> {
        self.ask(py, "limits", |policy| (policy.limits().depth, policy.limits().max_depth))
    }

    /// Whether a later request may get the id of a request that has ended.
    fn ids_may_return(&self, py: Python<'_>) -> PyResult<bool> {
        self.ask(py, "ids", |policy| policy.ids_may_return())
    }

    /// Whether the drafter reads the prompt of a request that is admitted. `prompt` has the numbers of its tokens and
    /// of those in the prefix cache, `load` the numbers of running and waiting requests.
    fn drafts_for_next(
        &self,
        py: Python<'_>,
        id: u32,
        prompt: (u32, u32),
        max_tokens: u32,
        load: (u32, u32),
    ) -> PyResult<bool> {
        let (prompt_len, num_cached_tokens) = prompt;
        let (num_running, num_waiting) = load;
        let of = NewRequest { id, prompt_len, num_cached_tokens, max_tokens, category: None, num_running, num_waiting };
        self.ask(py, "drafts_for_next", |policy| policy.drafts_for_next(&of))
    }

    /// The draft length of each request. All lists have one entry for each decode request. `load` has the numbers of
    /// running and waiting requests, `clock` the seconds and the index of the step.
    #[allow(clippy::too_many_arguments)]
    fn choose(
        &self,
        py: Python<'_>,
        ids: Vec<u32>,
        context: Vec<u32>,
        emitted: Vec<u32>,
        limit: Vec<u32>,
        draft_gap: Vec<u32>,
        slo_tpot_s: Vec<f64>,
        prefill: Prompts,
        draft_prefill: Prompts,
        always_extend: bool,
        load: (u32, u32),
        clock: (f64, u64),
    ) -> PyResult<Vec<u32>> {
        let n = ids.len();
        let lists = [context.len(), emitted.len(), limit.len(), draft_gap.len(), slo_tpot_s.len()];
        same_length(n, &lists).map_err(|problem| errors::of(py, &problem))?;
        let batch = BatchView {
            now: Time::from_s(clock.0),
            step: clock.1,
            ids: &ids,
            context: &context,
            emitted: &emitted,
            limit: &limit,
            draft_gap: &draft_gap,
            slo_tpot_s: &slo_tpot_s,
            categories: Categories::default(),
            context_sum: context.iter().map(|&c| u64::from(c)).sum(),
            prefill: prompts(prefill),
            draft_prefill: prompts(draft_prefill),
            always_extend,
            num_running: load.0,
            num_waiting: load.1,
        };
        self.ask(py, "choose", |policy| policy.choose(&batch).to_vec())
    }

    /// The policy learns what a step gave. All lists have one entry for each decode request of the step. `times` has
    /// the seconds of the draft passes and of the target pass.
    #[allow(clippy::too_many_arguments)]
    fn observe(
        &self,
        py: Python<'_>,
        ids: Vec<u32>,
        drafted: Vec<u32>,
        verified: Vec<u32>,
        accepted: Vec<u32>,
        passes: u32,
        times: (f64, f64),
    ) -> PyResult<()> {
        let lists = [drafted.len(), verified.len(), accepted.len()];
        same_length(ids.len(), &lists).map_err(|problem| errors::of(py, &problem))?;
        let outcome = Outcome {
            ids: &ids,
            drafted: &drafted,
            verified: &verified,
            accepted: &accepted,
            passes,
            draft_time: Time::from_s(times.0),
            verify_time: Time::from_s(times.1),
        };
        self.ask(py, "observe", |policy| policy.observe(&outcome))
    }

    /// The policy forgets a request that has ended.
    fn request_finished(&self, py: Python<'_>, id: u32) -> PyResult<()> {
        self.ask(py, "request_finished", |policy| policy.request_finished(id))
    }
}

impl Seat {
    /// Asks the policy. A panic of the policy is an error of the call.
    fn ask<T>(&self, py: Python<'_>, what: &str, ask: impl FnOnce(&mut Policy) -> T) -> PyResult<T> {
        let mut policy = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        guarded(what, || ask(&mut policy)).map_err(|problem| errors::of(py, &problem))
    }
}

fn same_length(n: usize, lists: &[usize]) -> Result<()> {
    match lists.iter().find(|&&len| len != n) {
        None => Ok(()),
        Some(len) => Err(Problem::bad_input(format!("{n} requests and a list of {len}"))
            .help("each list has one entry for each decode request, in the order of `ids`")),
    }
}

/// Builds the policy called `name`.
fn take(name: &str, policy: &str, setup: &str) -> Result<Policy> {
    let names = PolicySpec::all_names();
    if !names.contains(&name) {
        return Err(unknown_policy(name, names));
    }
    let wrong = |what: &str, e: serde_json::Error| Problem::bad_input(format!("{what}: {e}"));
    let spec: PolicySpec = serde_json::from_str(policy).map_err(|e| wrong(name, e))?;
    let setup: Setup = serde_json::from_str(setup).map_err(|e| wrong("the engine's setup", e))?;
    guarded(name, || Policy::new(&spec, &setup))?.map_err(|e| {
        let problem = Problem::bad_input(e.to_string());
        match e {
            Unseated::BadParameter(_) => problem,
            Unseated::Confidences("foresight") => problem.help("give it `confidences = false`"),
            _ => problem.help("`foretoken policies list` says what each policy sees"),
        }
    })
}
