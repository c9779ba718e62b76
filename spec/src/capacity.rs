//! The `[capacity]` table of an experiment: of how much load its [slo] is to hold, and how exactly that is asked.

use crate::document::{Document, Path};
use crate::problem::Result;
use serde::de::{Deserializer, Error};
use serde::{Deserialize, Serialize};

/// The `[capacity]` table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CapacitySpec {
    /// Share of the counted requests that must keep every bound of `[slo]`. Rejected and unfinished ones keep none.
    pub share: f64,
    /// Requests a second to begin with, the lesser first; absent: guessed. It grows where it does not hold.
    #[serde(deserialize_with = "pair", skip_serializing_if = "Option::is_none")]
    pub bracket: Option<[f64; 2]>,
    /// How near the rates that are carried and that are not come to each other, as a share.
    pub tolerance: f64,
    /// Requests of a probe that count.
    pub requests: u32,
    /// Requests before them, which fill the server and do not count. As many come behind them and keep it full. A log
    /// gives its first requests.
    pub warm_up_requests: u32,
    /// Of a load that changes in time: seconds of the workload, from and to, whose requests count instead.
    #[serde(deserialize_with = "pair", skip_serializing_if = "Option::is_none")]
    pub window_s: Option<[f64; 2]>,
}

/// The range of tolerances. A finer one would tell rates apart at which the same requests keep their bounds.
const TOLERANCES: [f64; 2] = [1e-4, 0.5];

/// Two numbers, and no more: what stands behind them would be ignored.
fn pair<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<Option<[f64; 2]>, D::Error> {
    let all = Vec::<f64>::deserialize(from)?;
    match <[f64; 2]>::try_from(all) {
        Ok(pair) => Ok(Some(pair)),
        Err(all) => Err(D::Error::custom(format!("two numbers are wanted here, and these are {}", all.len()))),
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
    /// Requests of a probe: those that fill the server, those that count, and those that keep it full.
    pub fn probe_requests(&self) -> u32 {
        self.requests.saturating_add(self.warm_up_requests.saturating_mul(2))
    }

    /// Whether what is asked can be answered.
    pub(crate) fn check(&self, doc: &Document) -> Result<()> {
        let at = |key: &str, message: String, help: &str| {
            Err(doc.problem_at(&Path::of(&format!("capacity.{key}")), message).help(help))
        };
        if !(self.share > 0.0 && self.share <= 1.0) {
            return at(
                "share",
                format!("{} is not a share in (0, 1]", self.share),
                "0.99: one request in a hundred may miss",
            );
        }
        let [least, most] = TOLERANCES;
        if !(self.tolerance >= least && self.tolerance <= most) {
            let message = format!("{:?} is not in [{least}, {most}]", self.tolerance);
            return at("tolerance", message, "0.01 is one per cent");
        }
        if let Some([low, high]) = self.bracket {
            let positive = |rate: f64| rate.is_finite() && rate > 0.0;
            if !(positive(low) && positive(high)) {
                return at(
                    "bracket",
                    format!("[{low}, {high}] are not two rates above 0"),
                    "requests a second, such as [1.0, 50.0]",
                );
            }
            if low >= high {
                return at("bracket", format!("[{low}, {high}] is upside down"), "the lesser rate comes first");
            }
        }
        if self.requests == 0 {
            return at("requests", "0 requests say nothing".into(), "2000 are enough for a share of 0.99");
        }
        let misses = (1.0 - self.share) * f64::from(self.requests);
        if self.share < 1.0 && misses < 1.0 {
            let needed = (1.0 / (1.0 - self.share)).ceil();
            return at(
                "requests",
                format!("{} requests cannot tell a share of {}", self.requests, self.share),
                &format!("at least {needed}"),
            );
        }
        if let Some([from, to]) = self.window_s
            && !(from >= 0.0 && to > from && to.is_finite())
        {
            return at(
                "window_s",
                format!("[{from}, {to}] is no stretch of time"),
                "seconds of the workload, from and to",
            );
        }
        Ok(())
    }
}

const ARRIVALS: &str = "workload.arrivals";

/// Do the requests come as a log has them, at every swept value?
///
/// # Errors
/// They do at some swept values and not at others.
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
