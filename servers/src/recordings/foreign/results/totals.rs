//! The totals of a run that vLLM's and SGLang's benchmarks write in the same fields, and checks that apply to the
//! runs of all load generators.

use super::mean::Measured;
use super::run::{Load, Run};
use crate::recordings::foreign::number::Amount;
use crate::recordings::foreign::rate::Rate;
use crate::recordings::unread::Unread;
use serde::Deserialize;
use std::path::Path;

/// Where a load generator's run stands in its file, for error messages.
pub(super) struct Place<'a> {
    pub path: &'a Path,
    /// The line on which the run begins; `None` if the file has one JSON value.
    pub line: Option<usize>,
    /// The number of the run in the file, from 1.
    pub number: usize,
}

impl Place<'_> {
    pub(super) fn error(&self, what: impl Into<String>, hint: &str) -> Unread {
        Unread { line: self.line, ..Unread::file(self.path, what, hint) }
    }
}

/// Returns `completed`, the number of requests that succeeded, if it is above 0. Otherwise returns an error that
/// states `failed`, the number of requests that failed.
pub(super) fn completed(place: &Place, completed: u64, failed: u64) -> Result<u32, Unread> {
    if completed == 0 {
        let what = match failed {
            0 => format!("run {} has no request that succeeded", place.number),
            n => format!("run {} has no request that succeeded; {n} failed", place.number),
        };
        return Err(place.error(what, "see that the server answers, and run the benchmark again"));
    }
    u32::try_from(completed)
        .map_err(|_| place.error(format!("{completed} requests are too many"), "the file is damaged"))
}

/// How the requests of a run arrived: at a rate or from clients. `rate` is the file's request rate, `limit` its limit
/// on requests in flight. `rate_name` and `limit_name` are the names of these two fields in error messages.
pub(super) fn load(
    place: &Place,
    (rate_name, rate): (&str, Option<Rate>),
    (limit_name, limit): (&str, Option<u32>),
) -> Result<Load, Unread> {
    let number = place.number;
    match (rate, limit) {
        (Some(Rate::AtOnce) | None, Some(n)) if n > 0 => Ok(Load::Clients(n)),
        (Some(Rate::PerSecond(rate)), None) => Ok(Load::Rate(rate)),
        (Some(Rate::PerSecond(_)), Some(_)) => Err(place.error(
            format!("run {number} has both {rate_name} and {limit_name}: the load is one of them"),
            "run the benchmark with a number of clients and no rate, or with a rate and no limit",
        )),
        (Some(Rate::Trace), _) => Err(place.error(
            format!("run {number} sent its requests at the times of a trace: that is neither a rate nor clients"),
            "run the benchmark with a number of clients, or with a rate",
        )),
        _ => Err(place.error(
            format!("run {number} says neither clients ({limit_name}) nor a rate ({rate_name})"),
            "run the benchmark with a number of clients, or with a rate",
        )),
    }
}

/// The totals of a run in the files of vLLM's and SGLang's benchmarks. Fields that only one of the two benchmarks
/// writes come last. Times are in milliseconds.
#[derive(Deserialize)]
pub(super) struct Totals {
    pub request_rate: Option<Rate>,
    pub max_concurrency: Option<u32>,
    pub completed: u64,
    pub total_input_tokens: u64,
    pub total_output_tokens: Option<u64>,
    pub output_throughput: Option<Amount>,
    pub mean_ttft_ms: Option<Measured>,
    pub mean_tpot_ms: Option<Measured>,
    // SGLang always writes `mean_e2e_latency_ms`, vLLM writes `mean_e2el_ms` if the user asks for it.
    #[serde(alias = "mean_e2e_latency_ms")]
    pub mean_e2el_ms: Option<Measured>,
    // Only vLLM writes the fields from `failed` to `spec_decode_per_position_acceptance_rates`.
    pub failed: Option<u64>,
    pub num_prompts: Option<u64>,
    pub burstiness: Option<Amount>,
    pub spec_decode_num_drafts: Option<u64>,
    pub spec_decode_draft_tokens: Option<u64>,
    pub spec_decode_acceptance_length: Option<Amount>,
    #[serde(default)]
    pub spec_decode_per_position_acceptance_rates: Vec<Amount>,
    // Only SGLang writes `accept_length`.
    pub accept_length: Option<Amount>,
    // vLLM and SGLang write `errors` if the user asks for details. It has one text for each request, empty if the
    // request succeeded.
    #[serde(default)]
    pub errors: Vec<String>,
}

/// Makes the results of a load generator's run from its totals. `failed` is the number of failed requests. `hint` is a
/// text for errors that tells the user what to do.
pub(super) fn run(place: &Place, totals: &Totals, failed: u64, hint: &str) -> Result<Run, Unread> {
    let completed = completed(place, totals.completed, failed)?;
    let missing = |name: &str| place.error(format!("has no {name}"), hint);
    let output = totals.total_output_tokens.ok_or_else(|| missing("total_output_tokens"))?;
    let tok_s = totals.output_throughput.ok_or_else(|| missing("output_throughput"))?.0;
    let ttft = totals.mean_ttft_ms.ok_or_else(|| missing("mean_ttft_ms"))?;
    let tpot = totals.mean_tpot_ms.ok_or_else(|| missing("mean_tpot_ms"))?;
    Ok(Run {
        number: place.number,
        load: load(place, ("request_rate", totals.request_rate), ("max_concurrency", totals.max_concurrency))?,
        completed,
        failed,
        input: totals.total_input_tokens as f64 / f64::from(completed),
        output: output as f64 / f64::from(completed),
        tok_s,
        ttft_s: ttft.s_of_ms(),
        tpot_s: tpot.s_of_ms(),
        e2e_s: totals.mean_e2el_ms.and_then(Measured::s_of_ms),
        accepted: None,
        drafted: None,
        notes: vec![],
    })
}
