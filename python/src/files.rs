//! Reads profiles and truth tables (recorded acceptance of a draft model) for Python.

use crate::errors;
use foretoken_run::profiled::{Costs, costs_of};
use foretoken_run::spec::problem::{Problem, Result};
use foretoken_sim::{Coefficients, PassShape};
use foretoken_traces::TraceError;
use foretoken_traces::truth::TruthTable;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::path::PathBuf;

/// A profile: the times of draft and target passes, either measured pass by pass or calibrated to a server.
#[pyclass(frozen, module = "foretoken._native")]
pub struct Profile(Costs);

#[pymethods]
impl Profile {
    #[new]
    fn new(py: Python<'_>, path: PathBuf) -> PyResult<Profile> {
        let read = || -> Result<Costs> {
            let text = foretoken_run::spec::text::read(&path).map_err(|e| {
                Problem::bad_input(format!("cannot read the profile: {e}")).help("`foretoken profile` makes one")
            })?;
            costs_of(&path.display().to_string(), &text)
        };
        py.detach(read).map(Profile).map_err(|problem| errors::of(py, &problem))
    }

    /// Returns the seconds of a pass of `model` ("target" or "draft") with `batched` new tokens, `context` tokens read
    /// from KV, and `pairs` query-key pairs of attention.
    fn pass_s(&self, model: &str, batched: u64, context: u64, pairs: u64) -> PyResult<f64> {
        Ok(self.of(model)?.0.build().pass(PassShape { requests: 0, batched, context, pairs }).as_s())
    }

    /// Returns the linear pass costs that policies assume for `model`: (alpha, gamma, delta), in seconds.
    fn line(&self, model: &str) -> PyResult<(f64, f64, f64)> {
        let Coefficients { alpha_s, gamma_s, delta_s } = self.of(model)?.1;
        Ok((alpha_s, gamma_s, delta_s))
    }

    /// How often a verify pass reads a request's context: `"once"`, or `"per-position"` (for each verified position).
    #[getter]
    fn context_reads(&self) -> PyResult<String> {
        let word = serde_json::to_value(self.0.reads).ok();
        Ok(word.and_then(|w| w.as_str().map(str::to_owned)).unwrap_or_default())
    }

    /// Coefficient of variation of the time of a target pass.
    #[getter]
    fn noise_cv(&self) -> f64 {
        self.0.noise_cv
    }

    /// Host time between two steps, seconds; `None` if the profile does not have it.
    #[getter]
    fn step_overhead_s(&self) -> Option<f64> {
        self.0.step_overhead_s
    }

    /// The reason not to trust the pass times of the profile; `None` if there is no such reason.
    #[getter]
    fn distrust(&self) -> Option<String> {
        self.0.distrust.clone()
    }
}

impl Profile {
    fn of(&self, model: &str) -> PyResult<&(foretoken_profiler::hardware::LatencySpec, Coefficients)> {
        match model {
            "target" => Ok(&self.0.models[0]),
            "draft" => Ok(&self.0.models[1]),
            other => Err(PyValueError::new_err(format!("`{other}` is neither \"target\" nor \"draft\""))),
        }
    }
}

/// A truth table: recorded acceptance of a draft model on a target's own text. The fields are: the table's header as
/// JSON; for each output the index of its text family, its prompt length and its number of positions; for each output
/// position the rank of the target's token among the draft model's guesses (one byte) and the draft model's confidence
/// (two bytes, in 65,535ths).
type Columns<'py> = (String, Vec<u16>, Vec<u32>, Vec<usize>, Bound<'py, PyBytes>, Bound<'py, PyBytes>);

/// Reads a truth table (recorded acceptance of a draft model) from a file.
#[pyfunction]
pub fn truth_table(py: Python<'_>, path: PathBuf) -> PyResult<Columns<'_>> {
    let wrong = |e: TraceError| {
        errors::of(py, &Problem::bad_input(e.to_string()).help("`foretoken profile-acceptance` makes a truth table"))
    };
    let table = py.detach(|| TruthTable::read(&path)).map_err(wrong)?;
    let header = serde_json::to_string(&table.header).expect("plain data always serialises");
    let each = || table.outputs.iter();
    let ranks: Vec<u8> = each().flat_map(|o| o.ranks.iter().copied()).collect();
    let confidences: Vec<u8> = each().flat_map(|o| o.confidences.iter().flat_map(|c| c.to_le_bytes())).collect();
    Ok((
        header,
        each().map(|o| o.family).collect(),
        each().map(|o| o.prompt_len).collect(),
        each().map(|o| o.ranks.len()).collect(),
        PyBytes::new(py, &ranks),
        PyBytes::new(py, &confidences),
    ))
}
