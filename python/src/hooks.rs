//! Runs a Python policy as a `SpecPolicy` of the engine. A hook is a method of the policy that the engine calls. For
//! each hook this file fills the arrays that Python sees, calls the Python method, checks the return value, and checks
//! that the policy stored none of the arrays. A hook of `SpecPolicy` cannot return an error. Therefore an error is
//! thrown as a panic, which ends the cell, the run of this policy (`foretoken_run::guard`).

use crate::answers::{self, Answer};
use crate::errors;
use crate::lending::{Lending, Lent};
use crate::views::{self, Batch, Outcome};
use foretoken_run::guard::Raised;
use foretoken_sim::{
    BatchView, Continue, DraftLimits, DraftPlan, DraftShape, Drafts, NewRequest, RequestId, SpecPolicy, StepOutcome,
    Wants,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::cell::{Cell, OnceCell};

/// The methods of the Python policy object. An optional hook is `None` if the object lacks it or inherits it from the
/// base class.
struct Methods {
    limit: Py<PyAny>,
    propose: Py<PyAny>,
    keep_drafting: Option<Py<PyAny>>,
    select: Option<Py<PyAny>>,
    observe: Option<Py<PyAny>>,
    request_finished: Option<Py<PyAny>>,
    drafts_for_next: Option<Py<PyAny>>,
    max_batch: Option<Py<PyAny>>,
    warnings: Option<Py<PyAny>>,
}

/// A Python policy during a run: its methods, and the objects that its hooks receive.
pub struct Running {
    name: &'static str,
    methods: Methods,
    wants: Wants,
    /// The first value that the policy's hook `limit` returned. It states a maximum that no later value may exceed.
    ever: OnceCell<answers::Limit>,
    /// The newest value that the policy's hook `limit` returned. The engine calls `limit` before it schedules a step.
    now: Cell<answers::Limit>,
    batch: Lending<Batch>,
    drafts: Lending<views::Drafts>,
    outcome: Lending<Outcome>,
}

/// Runs a hook of the policy `policy`. A Python exception ends the cell (the run of this policy).
fn hook<T>(policy: &str, name: &str, run: impl FnOnce(Python<'_>) -> PyResult<T>) -> T {
    Python::attach(|py| run(py).unwrap_or_else(|e| throw(py, policy, name, &e)))
}

/// Ends the cell (the run of one policy) with the Python exception that the policy raised.
pub fn throw(py: Python<'_>, policy: &str, hook: &str, error: &PyErr) -> ! {
    let Raised { what, help } = errors::raised(py, policy, hook, error);
    std::panic::resume_unwind(Box::new(Raised { what, help }))
}

/// Checks after a call of a hook that the policy stored no reference to the object `lent` or to one of its arrays. A
/// stored reference is an error.
fn let_go<T: Lent>(py: Python<'_>, lent: &Lending<T>) -> PyResult<()> {
    if !lent.is_kept(py)? {
        return Ok(());
    }
    // An object in a cycle of references is freed only by the garbage collector. The collector therefore runs before
    // this check reports a stored reference.
    let gc = py.import("gc")?;
    for generation in [0, 2] {
        gc.call_method1("collect", (generation,))?;
        if !lent.is_still_kept(py)? {
            return Ok(());
        }
    }
    let kept = "it keeps the batch, its drafts, its outcome or one of their arrays, which change with the next call";
    Err(PyValueError::new_err(format!("{kept}: keep a copy (`.copy()`)")))
}

impl Running {
    /// Makes a policy from `object`, the Python object that the user's registered factory function returned.
    /// `max_draft_len` is the most tokens that the policy may draft per request.
    ///
    /// # Errors
    /// If the object lacks a required hook, or a hook fails.
    pub fn new(py: Python<'_>, name: &'static str, object: &Bound<'_, PyAny>, max_draft_len: u32) -> PyResult<Running> {
        // The base class has every hook, but its hooks do nothing. Therefore a hook that the object inherits from it is
        // not called.
        let base = py.import("foretoken.policy")?.getattr("Policy")?;
        let of_base = |hook: &str| base.getattr(hook).ok();
        let kind = object.get_type();
        let method = |hook: &str| -> PyResult<Option<Py<PyAny>>> {
            let Some(given) = object.getattr_opt(hook)?.filter(|m| m.is_callable()) else { return Ok(None) };
            let inherited = match (kind.getattr_opt(hook)?, of_base(hook)) {
                (Some(own), Some(base)) => own.is(&base),
                _ => false,
            };
            Ok((!inherited).then(|| given.unbind()))
        };
        let needed = |hook: &str| {
            let missing = || {
                let kind = kind.qualname().map_or_else(|_| "it".to_owned(), |n| n.to_string());
                PyValueError::new_err(format!("`{kind}` has no method `{hook}`: a policy has `limit` and `propose`"))
            };
            method(hook)?.ok_or_else(missing)
        };
        let methods = Methods {
            limit: needed("limit")?,
            propose: needed("propose")?,
            keep_drafting: method("keep_drafting")?,
            select: method("select")?,
            observe: method("observe")?,
            request_finished: method("request_finished")?,
            drafts_for_next: method("drafts_for_next")?,
            max_batch: method("max_batch")?,
            warnings: method("warnings")?,
        };
        let wants = object.getattr_opt("wants")?.map_or(Ok(Wants::default()), |w| answers::wants(&w))?;
        let batch = Batch::lending(py)?;
        // The outcome object holds one reference to the drafts object, so `others` is 1.
        let drafts = views::Drafts::lending(py, max_draft_len, wants, 1)?;
        let outcome = Outcome::lending(py, &drafts.object)?;
        let (ever, now) = (OnceCell::new(), Cell::default());
        let running = Running { name, methods, wants, ever, now, batch, drafts, outcome };
        running.limit(py)?;
        Ok(running)
    }

    fn limit(&self, py: Python<'_>) -> PyResult<answers::Limit> {
        let now = answers::limit(self.methods.limit.bind(py).call0()?)?;
        let ever = self.ever.get_or_init(|| now);
        now.within(ever)?;
        self.now.set(now);
        Ok(now)
    }
}

impl SpecPolicy for Running {
    fn limits(&self) -> DraftLimits<'_> {
        let now = hook(self.name, "limit", |py| self.limit(py));
        let ever = self.ever.get().expect("asked when it was made");
        DraftLimits::tree(now.depth, now.tree_tokens).up_to(ever.max_depth).with_trees_up_to(ever.max_tree_tokens)
    }

    fn wants(&self) -> Wants {
        self.wants
    }

    fn drafts_for_next(&mut self, request: &NewRequest) -> bool {
        let Some(method) = &self.methods.drafts_for_next else { return true };
        hook(self.name, "drafts_for_next", |py| method.bind(py).call1((views::NewRequest::from(request),))?.is_truthy())
    }

    fn max_batch(&mut self, batch: &BatchView) -> Option<usize> {
        let method = self.methods.max_batch.as_ref()?;
        let seen = &self.batch;
        hook(self.name, "max_batch", |py| {
            seen.object.borrow_mut(py).fill(py, batch)?;
            let answer = answers::count(&method.bind(py).call1((&seen.object,))?, batch.len())?;
            let_go(py, seen)?;
            Ok(answer)
        })
    }

    fn propose(&mut self, batch: &BatchView, plan: &mut DraftPlan) {
        let Running { name, methods, now, batch: seen, .. } = self;
        hook(name, "propose", |py| {
            seen.object.borrow_mut(py).fill(py, batch)?;
            let answer = answers::propose(methods.propose.bind(py).call1((&seen.object,))?, batch.len())?;
            let_go(py, seen)?;
            if let Some(growth) = answer.growth {
                plan.shape = DraftShape::Tree(growth);
            }
            let most = now.get().depth;
            answer.lengths.into(&mut plan.draft_len, |_| most, "draft", "`limit` says at most")
        });
    }

    fn keep_drafting(&mut self, batch: &BatchView, drafts: &mut Drafts) -> Continue {
        let Running { name, methods, batch: seen, drafts: made, .. } = self;
        let Some(method) = &methods.keep_drafting else {
            drafts.nothing_to_decide();
            return Continue::Yes;
        };
        hook(name, "keep_drafting", |py| {
            seen.object.borrow_mut(py).fill(py, batch)?;
            made.object.borrow_mut(py).fill(py, batch.len(), drafts, None)?;
            let answer = answers::keep_drafting(&method.bind(py).call1((&seen.object, &made.object))?, batch.len())?;
            let_go(py, seen)?;
            let_go(py, made)?;
            Ok(match answer {
                Answer::All(true) => Continue::Yes,
                Answer::All(false) => Continue::Stop,
                Answer::Each(go_on) => {
                    let stopped = go_on.iter().enumerate().filter(|(_, go_on)| !**go_on);
                    stopped.for_each(|(i, _)| drafts.stop(i));
                    Continue::Yes
                }
            })
        })
    }

    fn select(&mut self, batch: &BatchView, drafts: &mut Drafts) {
        let Running { name, methods, batch: seen, drafts: made, .. } = self;
        let Some(method) = &methods.select else {
            return drafts.nothing_to_decide();
        };
        hook(name, "select", |py| {
            seen.object.borrow_mut(py).fill(py, batch)?;
            made.object.borrow_mut(py).fill(py, batch.len(), drafts, None)?;
            let answer = method.bind(py).call1((&seen.object, &made.object))?;
            if drafts.in_trees() {
                answers::select_trees(&answer, drafts, batch.limit)?;
            } else if !answer.is_none() {
                let lengths = answers::lengths(&answer, batch.len())?;
                let Drafts { draft_len, verify_len, .. } = drafts;
                lengths.into(verify_len, |i| draft_len[i], "verification", "drafted are")?;
            }
            drop(answer);
            let_go(py, seen)?;
            let_go(py, made)
        });
    }

    fn observe(&mut self, outcome: &StepOutcome) {
        let Running { name, methods, drafts: made, outcome: seen, .. } = self;
        let Some(method) = &methods.observe else { return };
        hook(name, "observe", |py| {
            seen.object.borrow_mut(py).fill(py, outcome)?;
            made.object.borrow_mut(py).fill(py, outcome.ids.len(), outcome.drafts, Some(outcome.accepted))?;
            method.bind(py).call1((&seen.object,))?;
            let_go(py, seen)?;
            let_go(py, made)
        });
    }

    fn request_finished(&mut self, id: RequestId) {
        let Some(method) = &self.methods.request_finished else { return };
        hook(self.name, "request_finished", |py| method.bind(py).call1((id,)).map(drop));
    }

    /// Returns false, because a policy in Python may remember a finished request by its id. No later request may then
    /// get this id.
    fn ids_may_return(&self) -> bool {
        false
    }

    fn warnings(&self) -> Vec<String> {
        let Some(method) = &self.methods.warnings else { return Vec::new() };
        hook(self.name, "warnings", |py| method.bind(py).call0()?.extract())
    }
}
