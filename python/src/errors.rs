//! Converts errors of this program to Python exceptions.

use foretoken_run::guard::Raised;
use foretoken_run::spec::problem::{Exit, Problem};
use pyo3::exceptions::{PyException, PyKeyboardInterrupt};
use pyo3::prelude::*;
use pyo3::types::PyTraceback;
use std::sync::{Mutex, PoisonError};

/// The first Python exception that a policy raised in the running job (a run or a search). It becomes the cause
/// (`__cause__`) of the exception that ends the job.
static CAUSE: Mutex<Option<PyErr>> = Mutex::new(None);

/// Clears the stored exception of a policy before a new job (a run or a search) begins.
pub fn begin() {
    *CAUSE.lock().unwrap_or_else(PoisonError::into_inner) = None;
}

/// Converts an error of this program to a Python exception: `foretoken.Error`, one of its subclasses, or
/// `KeyboardInterrupt`.
pub fn of(py: Python<'_>, problem: &Problem) -> PyErr {
    let words = problem.in_words();
    if problem.exit == Exit::Interrupted {
        return PyKeyboardInterrupt::new_err(words);
    }
    let made = py.import("foretoken.errors").and_then(|errors| {
        let kind = match problem.exit {
            Exit::BadInput => "BadInput",
            _ => "Error",
        };
        let hint = problem.help_text().to_owned();
        errors.getattr(kind)?.call1((words, problem.message(), hint, problem.place(), problem.exit as u8))
    });
    let error = made.map_or_else(|e| e, PyErr::from_value);
    error.set_cause(py, CAUSE.lock().unwrap_or_else(PoisonError::into_inner).take());
    error
}

/// Makes the error that ends a cell (a run of one policy) after the policy raised `error` in the hook `hook`. The
/// error's message has the exception and the traceback. The first such exception of a job is also stored, and becomes
/// the cause of the Python exception that ends the job.
pub fn raised(py: Python<'_>, policy: &str, hook: &str, error: &PyErr) -> Raised {
    let last = error.to_string();
    let text = |traceback: Bound<'_, PyTraceback>| -> PyResult<String> {
        error.value(py).setattr("__traceback__", &traceback)?;
        let lines = py.import("traceback")?.call_method1("format_exception", (error.value(py),))?;
        lines.extract::<Vec<String>>().map(|lines| lines.concat())
    };
    let traceback = error.traceback(py).map(text).transpose().ok().flatten().unwrap_or_default();
    let what = match traceback.is_empty() {
        true => format!("{hook}: {last}"),
        false => format!("{hook}: {last}\n{}", traceback.trim_end()),
    };
    let mut cause = CAUSE.lock().unwrap_or_else(PoisonError::into_inner);
    if cause.is_none() && error.is_instance_of::<PyException>(py) {
        *cause = Some(error.clone_ref(py));
    }
    Raised { what, help: format!("mend `{policy}`; the other cells' results are kept") }
}
