//! The `[capacity]` table of an experiment: how `foretoken capacity` searches for the highest request rate at which the
//! latency bounds of `[slo]` are kept.

use crate::spec::document::{Document, Path};
use crate::spec::problem::Result;
use serde::de::{Deserializer, Error};
use serde::{Deserialize, Serialize};

/// The `[capacity]` table: settings of `foretoken capacity`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CapacitySpec {
    /// Share of the counted requests that must keep every bound of `[slo]`, (0, 1]. Requests that only fill the server
    /// before the counted ones, or keep it full after them, are not counted. Rejected and unfinished requests count as
    /// breaking a bound.
    pub share: f64,
    /// Two rates at which the search begins, requests a second, the lower one first; absent: half and twice the
    /// experiment's own rate. The search tries lower or higher rates if the capacity is not between these two.
    #[serde(deserialize_with = "pair", skip_serializing_if = "Option::is_none")]
    pub bracket: Option<[f64; 2]>,
    /// How exact the search is, 0.0001 to 0.5. The search encloses the capacity between two tried rates: at the lower
    /// rate enough requests keep the bounds, at the higher rate too few. It ends when the higher rate is at most this
    /// share above the lower rate.
    pub tolerance: f64,
    /// Number of requests of a run at one rate that count for `share`, at least 1.
    pub requests: u32,
    /// Number of requests before the counted ones, which fill the server. The same number of requests after the counted
    /// ones keep the server full. The requests of these two groups are not counted. If arrivals come from a trace, a
    /// run serves the first requests of the trace.
    pub warm_up_requests: u32,
    /// For a load that changes in time: `[from, to]`, seconds of the workload. The requests that arrive between these
    /// two times are the ones that count, and `requests` is not used. Absent: the counted requests are given by their
    /// number (`requests`).
    #[serde(deserialize_with = "pair", skip_serializing_if = "Option::is_none")]
    pub window_s: Option<[f64; 2]>,
}

/// The allowed range of `tolerance` (how exact a capacity search is). Two rates that differ by less than 0.01 % would
/// give equal results, so a smaller tolerance is refused.
const TOLERANCES: [f64; 2] = [1e-4, 0.5];

/// Reads a list of exactly two numbers. serde alone would ignore further numbers.
fn pair<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<Option<[f64; 2]>, D::Error> {
    let all = Vec::<f64>::deserialize(from)?;
    match <[f64; 2]>::try_from(all) {
        Ok(pair) => Ok(Some(pair)),
        Err(all) => Err(D::Error::custom(format!("there must be two numbers here, not {}", all.len()))),
    }
}

impl Default for CapacitySpec {
    fn default() -> Self {
        CapacitySpec {
            share: 0.99,
            bracket: None,
            tolerance: 0.01,
            requests: 2000,
            warm_up_requests: 200,
            window_s: None,
        }
    }
}

impl CapacitySpec {
    /// Number of requests of a probe. It is the sum of three groups: the requests before the counted ones, which fill
    /// the server; the counted requests; and the requests after them, which keep the server full.
    pub fn probe_requests(&self) -> u32 {
        self.requests.saturating_add(self.warm_up_requests.saturating_mul(2))
    }

    /// Checks every value of the `[capacity]` table that serde cannot check.
    pub(crate) fn check(&self, doc: &Document) -> Result<()> {
        let refuse = |key: &str, message: String, help: &str| {
            Err(doc.problem_at(&Path::of(&format!("capacity.{key}")), message).help(help))
        };
        if !(self.share > 0.0 && self.share <= 1.0) {
            return refuse(
                "share",
                format!("{} is not a share in (0, 1]", self.share),
                "0.99: one request in a hundred may miss",
            );
        }
        let [least, most] = TOLERANCES;
        if !(self.tolerance >= least && self.tolerance <= most) {
            let message = format!("{:?} is not in [{least}, {most}]", self.tolerance);
            return refuse("tolerance", message, "0.01 is one per cent");
        }
        if let Some([low, high]) = self.bracket {
            let positive = |rate: f64| rate.is_finite() && rate > 0.0;
            if !(positive(low) && positive(high)) {
                return refuse(
                    "bracket",
                    format!("[{low}, {high}] are not two rates above 0"),
                    "requests a second, such as [1.0, 50.0]",
                );
            }
            if low >= high {
                return refuse("bracket", format!("[{low}, {high}] is upside down"), "the lesser rate comes first");
            }
        }
        if self.requests == 0 {
            return refuse("requests", "0 requests say nothing".into(), "2000 are enough for a share of 0.99");
        }
        let misses = (1.0 - self.share) * f64::from(self.requests);
        if self.share < 1.0 && misses < 1.0 {
            let needed = (1.0 / (1.0 - self.share)).ceil();
            return refuse(
                "requests",
                format!("{} requests are too few for a share of {}", self.requests, self.share),
                &format!("at least {needed}"),
            );
        }
        if let Some([from, to]) = self.window_s
            && !(from >= 0.0 && to > from && to.is_finite())
        {
            return refuse(
                "window_s",
                format!("[{from}, {to}] is no span of time"),
                "seconds of the workload, from and to",
            );
        }
        Ok(())
    }
}

const ARRIVALS: &str = "workload.arrivals";

/// True if the arrivals come from a log (a trace), false if they are generated. If arrivals are swept, all swept values
/// must be of the same kind.
pub fn of_logs(document: &Document) -> Result<bool> {
    let arrivals = document.value_at(&Path::of(ARRIVALS));
    let is_log = |value: &toml::Value| value.get("trace").is_some();
    let Some(all) = arrivals.as_ref().and_then(|a| a.get("sweep")?.as_array()) else {
        return Ok(arrivals.as_ref().is_some_and(is_log));
    };
    let logs = all.iter().filter(|value| is_log(value)).count();
    if logs > 0 && logs < all.len() {
        let message =
            "the sweep has both logs and generated arrivals, whose probes take their requests in different ways";
        let problem = document.problem_at(&Path::of(ARRIVALS), message);
        return Err(problem.help("ask for each in a call of its own: --set 'workload.arrivals={ trace = { ... } }'"));
    }
    Ok(logs > 0)
}
