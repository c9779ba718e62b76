//! What a policy in Python may time before serving starts: the passes that the presets with a cost table fill it from.
//!
//! The times are lent for as long as the policy is made. They cannot be kept, as in Rust: a policy that runs cannot
//! look at the true costs. A thread of its own answers, since an object of Python cannot hold a borrowed profile.

use foretoken_policies::PassTimes as Timed;
use foretoken_sim::{ContextReads, PassShape};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};

/// Whose pass is timed.
#[derive(Clone, Copy)]
enum Model {
    Draft,
    Target,
}

/// Passes that can be timed while a policy is made.
#[pyclass(frozen, module = "foretoken")]
pub struct PassTimes {
    /// How the context of a target pass is counted: `"once"` or `"per-position"`.
    #[pyo3(get)]
    context_reads: &'static str,
    line: Mutex<Option<Line>>,
}

/// To the thread that answers, and back.
struct Line {
    ask: Sender<(Model, PassShape)>,
    answer: Receiver<f64>,
}

#[pymethods]
impl PassTimes {
    /// Seconds of a draft pass.
    #[pyo3(signature = (batched, context=0, pairs=0))]
    fn draft_s(&self, batched: u64, context: u64, pairs: u64) -> PyResult<f64> {
        self.time(Model::Draft, PassShape { batched, context, pairs })
    }

    /// Seconds of a target pass.
    #[pyo3(signature = (batched, context=0, pairs=0))]
    fn target_s(&self, batched: u64, context: u64, pairs: u64) -> PyResult<f64> {
        self.time(Model::Target, PassShape { batched, context, pairs })
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

/// Hangs up when it is dropped, however the call ends: the thread that answers then ends too.
struct Ending<'a, 'py>(&'a Bound<'py, PassTimes>);

impl Drop for Ending<'_, '_> {
    fn drop(&mut self) {
        self.0.get().line.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

/// Calls `make` with the times of a profile, which answer until it returns.
///
/// # Errors
/// As `make`; there is no memory.
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
