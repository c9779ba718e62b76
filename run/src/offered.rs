//! The load of a run in requests and tokens a second, and a warning if it is far from what the server carries: then a
//! log's times were often read in another unit than they have.

use crate::plan::Variant;
use foretoken_report::Cell;
use foretoken_sim::metrics::Pieces;
use foretoken_sim::{PassShape, Time, arrival_rate};
use foretoken_traces::{ArrivalSpec, TimeUnit, TraceFormat};
use serde::{Deserialize, Serialize};

/// The load of a run: how many requests came, how fast, and how long the server took for them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Offered {
    /// Requests per second from the first request to the last.
    pub req_s: f64,
    /// Output tokens of these requests per second.
    pub output_tok_s: f64,
    /// Requests per second that the server would have had to serve to end when the last request came, divided by those
    /// that it served until its last answer.
    #[serde(skip)]
    pub over: f64,
    /// In a closed loop, where requests come as fast as the server answers: the policy that served them so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub served_by: Option<String>,
}

/// A load is too low to be meant if it is below this share of what the server carries.
const TOO_LOW: f64 = 1e-3;
/// A load is too high to be meant if it is over this multiple of what the server carries.
const TOO_HIGH: f64 = 100.0;
/// Fewest requests whose rate is judged.
const FEWEST: usize = 8;
/// Requests in a batch for which the server's throughput is estimated. Most servers can have more, so the estimate is
/// rather too low.
const BATCH: u64 = 64;

impl Offered {
    /// The load of a run with these records. `None` if all requests came at once.
    pub fn of(records: &dyn Pieces) -> Option<Offered> {
        let (mut requests, mut tokens) = (0, 0u64);
        let (mut first, mut last, mut end) = (None, Time::ZERO, Time::ZERO);
        records.each(&mut |piece| {
            for i in 0..piece.len() {
                requests += 1;
                tokens += u64::from(piece.emitted[i]);
                first.get_or_insert(piece.arrival[i]);
                last = last.max(piece.arrival[i]);
                if piece.finished(i) {
                    end = end.max(piece.finish[i]);
                }
            }
        });
        let span = last.saturating_sub(first?).as_s();
        let req_s = arrival_rate(requests, span)?;
        let over = if requests < FEWEST { 1.0 } else { end.saturating_sub(first?).as_s() / span };
        Some(Offered { req_s, output_tok_s: req_s * tokens as f64 / requests as f64, over, served_by: None })
    }

    /// The mean of the loads of several seeds. `None` without a load.
    pub fn mean(all: &[Offered]) -> Option<Offered> {
        let mean = |of: fn(&Offered) -> f64| all.iter().map(of).sum::<f64>() / all.len() as f64;
        let [req_s, output_tok_s, over] = [mean(|o| o.req_s), mean(|o| o.output_tok_s), mean(|o| o.over)];
        (!all.is_empty()).then_some(Offered { req_s, output_tok_s, over, served_by: None })
    }

    /// The load as text, such as `5.52 requests/s, 815 output tokens/s`.
    pub fn in_words(&self) -> String {
        let by = self.served_by.as_ref().map_or(String::new(), |policy| format!(" by {policy}"));
        format!("{} requests/s, {} output tokens/s{by}", digits(self.req_s), digits(self.output_tok_s))
    }

    /// A warning if the load is far from what the server carries. `plain` is the run of plain decoding. `None` in
    /// closed loops, whose load is the server's.
    pub fn doubt(&self, variant: &Variant, plain: &Cell) -> Option<String> {
        let arrivals = &variant.experiment.workload.arrivals;
        if is_closed(variant) || plain.summary.requests < FEWEST as u64 {
            return None;
        }
        let came = digits(self.req_s);
        let (what, factor) = if self.over > TOO_HIGH {
            let carries = digits(self.req_s / self.over);
            (format!("{came} requests/s came, over a hundred times the {carries} that the server carries"), 1e-3)
        } else {
            let carries = carried(variant, plain).filter(|carries| self.req_s < TOO_LOW * carries)?;
            let carries = digits(carries);
            (format!("{came} requests/s came, less than a thousandth of some {carries} that the server carries"), 1e3)
        };
        let Some((key, unit)) = other_unit(arrivals, factor) else {
            return Some(format!("{what}: is the rate meant?"));
        };
        Some(format!("{what}: with {key} = \"{unit}\" it would be {} requests/s", digits(self.req_s * factor)))
    }
}

/// Do the requests of a combination of swept values come as answers let them, and not by a clock?
pub fn is_closed(variant: &Variant) -> bool {
    let workload = &variant.experiment.workload;
    workload.sessions_key().is_some() || matches!(workload.arrivals, ArrivalSpec::ClosedLoop(_) | ArrivalSpec::Batch(_))
}

/// The requests a second that the server carries without drafts, from the cost of a pass with [`BATCH`] requests and
/// the time that the run's prompts took. `None` if costs are not known or differ between replicas.
fn carried(variant: &Variant, plain: &Cell) -> Option<f64> {
    let e = &variant.experiment;
    let kinds = e.fleet.iter().flat_map(|fleet| fleet.replicas.kinds());
    if kinds.clone().any(|kind| !kind.hardware.is_empty()) {
        return None;
    }
    let replicas = e.fleet.as_ref().map_or(1, |fleet| fleet.replicas.number());
    let batch = BATCH.min(e.engine.max_num_seqs.into());
    let pass_s =
        e.hardware.target.build().pass(PassShape { requests: batch, batched: batch, context: 0, pairs: batch });
    let output = plain.summary.output_tokens as f64 / plain.summary.finished as f64;
    let request_s = plain.summary.ttft?.mean + output * pass_s.as_s() / batch as f64;
    (pass_s > Time::ZERO && request_s.is_finite()).then(|| f64::from(replicas) / request_s)
}

/// The key and the name of the unit in which a log's times would come `factor` times as fast; `None` if the arrivals
/// have no such unit.
fn other_unit(arrivals: &ArrivalSpec, factor: f64) -> Option<(&'static str, &'static str)> {
    let ArrivalSpec::Trace(trace) = arrivals else { return None };
    let (key, unit) = match &trace.columns {
        Some(columns) => ("columns.unit", columns.unit.unwrap_or_default()),
        None => {
            let format = trace.format.or_else(|| TraceFormat::detect(&trace.path).ok())?;
            (format == TraceFormat::Mooncake).then_some(("unit", trace.unit.unwrap_or(TimeUnit::Ms)))?
        }
    };
    Some((key, unit.thousandth(factor > 1.0)?))
}

/// A number with three digits.
fn digits(x: f64) -> String {
    if x > 0.0 {
        let behind = (2.0 - x.log10().floor()).clamp(0.0, 12.0) as usize;
        format!("{x:.behind$}")
    } else {
        "0".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use foretoken_sim::{Outcome, RequestRecords};

    /// Ten requests, one every two seconds with 30 tokens each, and the last answer at `end_s`.
    fn records(end_s: f64) -> RequestRecords {
        let mut r = RequestRecords::new(10);
        for i in 0..10 {
            r.arrival[i] = Time::from_s(2.0 * i as f64);
            (r.emitted[i], r.outcome[i], r.finish[i]) = (30, Outcome::Finished, Time::from_s(end_s));
        }
        r
    }

    #[test]
    fn a_load_is_counted_in_gaps() {
        let offered = Offered::of(&records(36.0)).unwrap();
        assert_eq!(offered, Offered { req_s: 0.5, output_tok_s: 15.0, over: 2.0, served_by: None });
        assert_eq!(offered.in_words(), "0.500 requests/s, 15.0 output tokens/s");
        let closed = Offered { served_by: Some("fixed-3".into()), ..offered.clone() };
        assert_eq!(closed.in_words(), "0.500 requests/s, 15.0 output tokens/s by fixed-3");
        assert_eq!(Offered::of(&RequestRecords::new(3)), None);
        assert_eq!(Offered::mean(&[offered.clone(), Offered { req_s: 1.5, ..offered }]).unwrap().req_s, 1.0);
    }

    #[test]
    fn numbers_have_three_digits() {
        let shown = [0.00562, 0.5, 5.523, 55.23, 552.3, 5523.4, 0.0].map(digits);
        assert_eq!(shown, ["0.00562", "0.500", "5.52", "55.2", "552", "5523", "0"]);
    }
}
