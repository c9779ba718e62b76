//! The native module `foretoken._native`. Users import the Python package in `python/foretoken/`, whose modules call
//! the functions of this native module.

mod answers;
mod arrays;
mod errors;
mod experiment;
mod files;
mod hooks;
mod lending;
mod outside;
mod passes;
mod seat;
mod tree;
mod views;
mod work;

use foretoken_run::spec::problem::Problem;
use foretoken_sim::metrics::RatioInterval;
use pyo3::prelude::*;
use std::ffi::OsString;

/// Runs the command line of `foretoken` and returns its exit code. The first argument is the program's name.
#[pyfunction]
fn main(py: Python<'_>, arguments: Vec<OsString>) -> u8 {
    py.detach(|| foretoken::main_with(arguments))
}

/// Returns, as JSON, the decision that each policy makes in the server state `state` (JSON). Error messages call the
/// state `name`. If `explain` is true, the JSON also has the alternatives (such as draft lengths) that each policy
/// compared.
#[pyfunction]
fn decide(py: Python<'_>, name: &str, state: &str, explain: bool) -> PyResult<String> {
    py.detach(|| foretoken::decide(name, state, explain)).map_err(|problem| errors::of(py, &problem))
}

/// Returns the policies that experiments can name, as JSON.
#[pyfunction]
fn policies(py: Python<'_>) -> PyResult<String> {
    py.detach(foretoken::policies).map_err(|problem| errors::of(py, &problem))
}

/// Converts JSON to TOML: to a document if `document` is true, else to a value on one line.
#[pyfunction]
fn as_toml(py: Python<'_>, json: &str, document: bool) -> PyResult<String> {
    let wrong = |e: String| errors::of(py, &Problem::bad_input(format!("it cannot be written as TOML: {e}")));
    let value: serde_json::Value = serde_json::from_str(json).map_err(|e| wrong(e.to_string()))?;
    let value = toml::Value::try_from(value).map_err(|e| wrong(e.to_string()))?;
    if document { toml::to_string(&value).map_err(|e| wrong(e.to_string())) } else { Ok(value.to_string()) }
}

/// The mean of the ratios of runs, one for each seed, the ends of its 95 % interval, and the number of seeds. The ends
/// are `None` with one seed.
#[pyfunction]
fn ratio_interval(py: Python<'_>, ratios: Vec<f64>) -> PyResult<(f64, Option<f64>, Option<f64>, usize)> {
    let of = RatioInterval::of(&ratios).ok_or_else(|| errors::of(py, &Problem::bad_input("there is no ratio")))?;
    Ok((of.mean, of.low, of.high, of.n))
}

/// Registers the functions and classes of the module.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_function(wrap_pyfunction!(main, module)?)?;
    module.add_function(wrap_pyfunction!(decide, module)?)?;
    module.add_function(wrap_pyfunction!(policies, module)?)?;
    module.add_function(wrap_pyfunction!(as_toml, module)?)?;
    module.add_function(wrap_pyfunction!(ratio_interval, module)?)?;
    module.add_function(wrap_pyfunction!(outside::register, module)?)?;
    module.add_function(wrap_pyfunction!(experiment::run, module)?)?;
    module.add_function(wrap_pyfunction!(experiment::capacity, module)?)?;
    module.add_function(wrap_pyfunction!(experiment::fleet, module)?)?;
    module.add_function(wrap_pyfunction!(experiment::begin_fleet, module)?)?;
    module.add_function(wrap_pyfunction!(experiment::shard_fleet, module)?)?;
    module.add_function(wrap_pyfunction!(experiment::merge_fleet, module)?)?;
    module.add_function(wrap_pyfunction!(experiment::begin, module)?)?;
    module.add_function(wrap_pyfunction!(experiment::shard, module)?)?;
    module.add_function(wrap_pyfunction!(experiment::merge_shards, module)?)?;
    module.add_function(wrap_pyfunction!(experiment::state, module)?)?;
    module.add_function(wrap_pyfunction!(experiment::report, module)?)?;
    module.add_class::<views::Batch>()?;
    module.add_class::<views::Chunks>()?;
    module.add_class::<views::Drafts>()?;
    module.add_class::<views::NewRequest>()?;
    module.add_class::<views::Outcome>()?;
    module.add_class::<tree::Tree>()?;
    module.add_class::<passes::PassTimes>()?;
    module.add_class::<seat::Seat>()?;
    module.add_class::<files::Profile>()?;
    module.add_function(wrap_pyfunction!(files::truth_table, module)?)
}
