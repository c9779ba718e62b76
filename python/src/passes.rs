//! Lets a Python policy ask for the times of draft and target passes before serving starts. Built-in policies that fill
//! a cost table ask for the same times.
//!
//! A policy can ask only while it is made; a running policy cannot read the true costs. A separate thread computes the
//! times, because a Python object cannot hold a borrowed profile.

use foretoken_policies::PassTimes as Timed;
use foretoken_sim::{ContextReads, PassShape};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};

/// The model, target or draft, that runs a pass.
#[derive(Clone, Copy)]
enum Model {
    Draft,
    Target,
}

/// Gives a policy the times of passes while the policy is made. Later calls are errors.
#[pyclass(frozen, module = "foretoken")]
pub struct PassTimes {
    /// How often a target pass reads a request's context: `"once"`, or `"per-position"` (for each verified position).
    #[pyo3(get)]
    context_reads: &'static str,
    line: Mutex<Option<Line>>,
}

/// Two channels to the thread that computes times of passes: a policy asks for the time of a pass on one, and gets the
/// time on the other.
struct Line {
    ask: Sender<(Model, PassShape)>,
    answer: Receiver<f64>,
}

#[pymethods]
impl PassTimes {
    /// Returns the seconds of a draft pass with `batched` new tokens, `context` tokens read from KV, and `pairs`
    /// query-key pairs.
    #[pyo3(signature = (batched, context=0, pairs=0))]
    fn draft_s(&self, batched: u64, context: u64, pairs: u64) -> PyResult<f64> {
        self.time(Model::Draft, PassShape { requests: 0, batched, context, pairs })
    }

    /// Returns the seconds of a target pass with `batched` new tokens, `context` tokens read from KV, and `pairs`
    /// query-key pairs.
    #[pyo3(signature = (batched, context=0, pairs=0))]
    fn target_s(&self, batched: u64, context: u64, pairs: u64) -> PyResult<f64> {
        self.time(Model::Target, PassShape { requests: 0, batched, context, pairs })
    }
}

impl PassTimes {
    fn time(&self, model: Model, shape: PassShape) -> PyResult<f64> {
        let line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        let asked = line.as_ref().and_then(|line| {
            line.ask.send((model, shape)).ok()?;
            line.answer.recv().ok()
        });
        asked.ok_or_else(|| {
            PyValueError::new_err(
                "passes are timed before serving starts: ask `context.profile` while the policy is made (in `__init__`), and keep the numbers",
            )
        })
    }
}

/// Guard that closes the channels to the thread when it is dropped. The thread then ends, even if `make` fails or
/// panics.
struct Ending<'a, 'py>(&'a Bound<'py, PassTimes>);

impl Drop for Ending<'_, '_> {
    fn drop(&mut self) {
        self.0.get().line.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

/// Calls `make` with an object that gives the times of passes from `profile`. The object works until `make` returns.
///
/// # Errors
/// The error of `make`, or memory runs out.
pub fn lend<'py, T>(
    py: Python<'py>,
    profile: &dyn Timed,
    make: impl FnOnce(&Bound<'py, PassTimes>) -> PyResult<T>,
) -> PyResult<T> {
    let context_reads = match profile.context_reads() {
        ContextReads::Once => "once",
        ContextReads::PerPosition => "per-position",
    };
    let ((ask, asked), (reply, answer)) = (channel(), channel());
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for (model, shape) in asked {
                let seconds = match model {
                    Model::Draft => profile.draft_s(shape),
                    Model::Target => profile.target_s(shape),
                };
                if reply.send(seconds).is_err() {
                    break;
                }
            }
        });
        let passes = Bound::new(py, PassTimes { context_reads, line: Mutex::new(Some(Line { ask, answer })) })?;
        let _ending = Ending(&passes);
        make(&passes)
    })
}
