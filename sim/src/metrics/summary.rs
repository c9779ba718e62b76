//! The summary of a run (latencies, goodputs, acceptance and others), defined in docs/model.md 4.8 and 14. The name of
//! each goodput says whether it counts tokens or requests.

use super::{Lived, Outcome, Overload, Pieces, RequestRecords, Totals, overload};
use crate::time::Time;
use serde::{Deserialize, Serialize};

/// Mean and quantiles of a metric, seconds. Quantiles interpolate linearly (numpy's default).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Quantiles {
    /// Arithmetic mean of the samples, seconds.
    pub mean: f64,
    /// Median of the samples, seconds.
    pub p50: f64,
    /// 90th percentile of the samples, seconds.
    pub p90: f64,
    /// 99th percentile of the samples, seconds.
    pub p99: f64,
}

impl Quantiles {
    /// Mean and quantiles of the samples; `None` without samples. Sorts `samples`.
    pub fn of(samples: &mut [f64]) -> Option<Quantiles> {
        samples.sort_unstable_by(f64::total_cmp);
        let mean = samples.iter().sum::<f64>() / samples.len() as f64;
        let quantile = |q| quantile_sorted(samples, q);
        (!samples.is_empty()).then(|| Quantiles { mean, p50: quantile(0.5), p90: quantile(0.9), p99: quantile(0.99) })
    }
}

/// The `q`-quantile of sorted samples by linear interpolation (numpy's default); NaN without samples.
pub fn quantile_sorted(sorted: &[f64], q: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let at = q * last as f64;
    let (low, high) = (at.floor() as usize, at.ceil() as usize);
    sorted[low] + (sorted[high] - sorted[low]) * (at - low as f64)
}

/// The latency bounds of a request. `None` means no bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Slo {
    /// The longest time to first token that a request may have, seconds.
    pub ttft_s: Option<f64>,
    /// The longest time per output token that a request may have, seconds. A request's own bound takes precedence.
    pub tpot_s: Option<f64>,
    /// The longest end-to-end latency that a request may have, seconds.
    pub e2e_s: Option<f64>,
}

impl Slo {
    /// Whether a finished request meets every latency bound. `own_tpot_s` is the request's own TPOT bound, seconds; it
    /// takes precedence over the run's. An output of one token meets every TPOT bound.
    pub fn met_by(&self, records: &RequestRecords, i: usize, own_tpot_s: Option<f64>) -> bool {
        let under = |bound: Option<f64>, value: Option<f64>| bound.zip(value).is_none_or(|(b, v)| v <= b);
        let own = own_tpot_s.filter(|s| s.is_finite());
        under(self.ttft_s, Some(records.ttft_s(i)))
            && under(own.or(self.tpot_s), records.tpot_s(i))
            && under(self.e2e_s, Some(records.e2e_s(i)))
    }
}

/// Counts of request-steps (one request in one step) for one draft position: the place, from 0, of a draft token in its
/// round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PositionCounts {
    /// Number of request-steps (one request in one step) that verified a draft token at this position.
    pub attempts: u64,
    /// Number of request-steps (one request in one step) that verified a draft token at this position and accepted
    /// every draft token before it.
    pub reached: u64,
    /// Number of request-steps (one request in one step) that accepted the draft token at this position.
    pub accepted: u64,
}

/// The summary of one run (one policy, one seed): latencies, goodputs, acceptance and others. `queue`, `ttft`, `tpot`
/// and `e2e` are over finished requests. `itl` is over all requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Number of requests of the run, also if some had not arrived when the run stopped.
    pub requests: u64,
    /// Number of requests that emitted their whole output.
    pub finished: u64,
    /// Number of requests that were rejected, because they could never run to their end.
    pub rejected: u64,
    /// Number of requests that had not ended when the run stopped. It is 0 unless the run ended early or clients
    /// aborted requests.
    pub in_flight: u64,
    /// Number of preemptions in the run.
    pub preemptions: u64,
    /// Number of steps of the run.
    pub steps: u64,
    /// Number of request-steps (one request in one step): the sum over all steps of the number of decode requests.
    pub request_steps: u64,
    /// Time from the first arrival to the last finish, seconds.
    pub duration_s: f64,
    /// Time inside the steps of the run, seconds.
    pub busy_s: f64,
    /// Share of the time inside steps that draft passes and decisions take.
    pub draft_time_share: f64,
    /// Time from arrival until the request was first scheduled, seconds.
    pub queue: Option<Quantiles>,
    /// Time to first token, seconds.
    pub ttft: Option<Quantiles>,
    /// Time per output token after the first, seconds. Requests with one output token are left out.
    pub tpot: Option<Quantiles>,
    /// Gaps between a request's emissions, pooled, seconds. Quantiles to 3 significant digits, the mean exact.
    pub itl: Option<Quantiles>,
    /// End-to-end latency, seconds.
    pub e2e: Option<Quantiles>,
    /// Output tokens of finished requests.
    pub output_tokens: u64,
    /// Token goodput (G1 in docs/model.md): output tokens of finished requests / (last finish − first arrival), tokens
    /// a second.
    pub token_goodput_tok_s: f64,
    /// Output tokens of finished requests / total time inside steps, tokens a second.
    pub busy_token_goodput_tok_s: f64,
    /// Request goodput (G2 in docs/model.md): requests that meet every bound / (last finish − first arrival); `None`
    /// without a bound.
    pub slo_goodput_req_s: Option<f64>,
    /// Token goodput within the bounds (G3 in docs/model.md): output tokens of requests that meet every bound / (last
    /// finish − first arrival); `None` without a bound.
    pub slo_token_goodput_tok_s: Option<f64>,
    /// SLO attainment (G4 in docs/model.md): requests that meet every bound / (finished + rejected requests); `None`
    /// without a bound.
    pub slo_attainment: Option<f64>,
    /// The bounds on the requests' latencies by which `slo_attainment` and the SLO goodputs were computed.
    pub slo: Slo,
    /// Number of draft tokens drafted in the run.
    pub drafted: u64,
    /// Number of draft tokens verified in the run.
    pub verified: u64,
    /// Number of draft tokens accepted in the run. Accepted draft tokens beyond an output's end count too.
    pub accepted: u64,
    /// Number of request-steps (one request in one step) with at least one verified draft token.
    pub rounds: u64,
    /// Mean number of draft tokens that a decode request drafts in a step.
    pub drafted_per_step: f64,
    /// Mean number of draft tokens that a decode request verifies in a step.
    pub verified_per_step: f64,
    /// Mean number of draft tokens that a decode request accepts in a step.
    pub accepted_per_step: f64,
    /// Accepted / drafted draft tokens of the run, [0, 1]; `None` if nothing was drafted.
    pub acceptance_rate: Option<f64>,
    /// 1 + accepted / rounds, where a round is one request in one step with verified draft tokens; `None` without
    /// rounds. Never rank policies by this number (docs/model.md 4.8).
    pub mean_acceptance_length: Option<f64>,
    /// Counts for each draft position, up to the deepest position that was verified.
    pub positions: Vec<PositionCounts>,
    /// Mean number of decode requests in a step, weighted by the time inside steps.
    pub mean_batch_size: f64,
    /// Mean share of the KV pool that the tokens of decode requests fill, weighted by time inside steps.
    pub kv_use_mean: f64,
    /// Largest share of the blocks of the target's pool that requests held at any time; in a fleet, in any one replica.
    pub kv_use_peak: f64,
    /// Arrival rate, completion rate and waiting requests if more requests arrived than were completed; `None` if the
    /// run was not overloaded. Always `None` for a closed loop, and before [`with_overload`](Summary::with_overload) is
    /// called.
    pub overload: Option<Overload>,
    /// The parts of the mean end-to-end latency (waiting, prompts, draft passes, …). `None` if the run did not record
    /// them, as on a device.
    pub lived: Option<Lived>,
}

impl Summary {
    /// Computes the summary from the records and totals of a run. `slo_tpot_s` has the requests' own TPOT limits,
    /// seconds; empty if they have none. `usable_blocks` and `block_size` describe the target's pool.
    pub fn new(
        records: &dyn Pieces,
        totals: &Totals,
        slo: Slo,
        slo_tpot_s: &[f64],
        usable_blocks: u32,
        block_size: u32,
    ) -> Summary {
        let counts = Counts::of(records, slo, slo_tpot_s);
        let Counts { requests, finished, rejected, output_tokens, met_tokens, .. } = counts;
        let quantiles = |f: fn(&RequestRecords, usize) -> Option<f64>| {
            let mut samples = Vec::with_capacity(finished as usize);
            let mut add = |piece: &RequestRecords| {
                samples.extend((0..piece.len()).filter(|&i| piece.finished(i)).filter_map(|i| f(piece, i)));
            };
            records.each(&mut add);
            Quantiles::of(&mut samples)
        };
        let bounded = slo != Slo::default() || slo_tpot_s.iter().any(|s| s.is_finite());
        let met = counts.met as f64;
        let first = counts.first.unwrap_or_default();
        let duration_s = (counts.last.unwrap_or(first) - first).as_s();
        let per = |amount: f64, span: f64| if span > 0.0 { amount / span } else { 0.0 };

        let (verified, accepted, rounds) = (totals.verified, totals.accepted(), totals.rounds());
        let busy = totals.busy.as_s();
        let pool_tokens = f64::from(usable_blocks) * f64::from(block_size);
        Summary {
            requests,
            finished,
            rejected,
            in_flight: requests - finished - rejected,
            preemptions: totals.preemptions,
            steps: totals.steps,
            request_steps: totals.request_steps,
            duration_s,
            busy_s: busy,
            draft_time_share: per(totals.draft_time.as_s(), busy),
            queue: quantiles(|r, i| Some(r.queue_s(i))),
            ttft: quantiles(|r, i| Some(r.ttft_s(i))),
            tpot: quantiles(RequestRecords::tpot_s),
            itl: itl(totals),
            e2e: quantiles(|r, i| Some(r.e2e_s(i))),
            output_tokens,
            token_goodput_tok_s: per(output_tokens as f64, duration_s),
            busy_token_goodput_tok_s: per(output_tokens as f64, busy),
            slo_goodput_req_s: bounded.then(|| per(met, duration_s)),
            slo_token_goodput_tok_s: bounded.then(|| per(met_tokens as f64, duration_s)),
            slo_attainment: bounded.then(|| per(met, (finished + rejected) as f64)),
            slo,
            drafted: totals.drafted,
            verified,
            accepted,
            rounds,
            drafted_per_step: per(totals.drafted as f64, totals.request_steps as f64),
            verified_per_step: per(verified as f64, totals.request_steps as f64),
            accepted_per_step: per(accepted as f64, totals.request_steps as f64),
            acceptance_rate: (totals.drafted > 0).then(|| accepted as f64 / totals.drafted as f64),
            mean_acceptance_length: (rounds > 0).then(|| 1.0 + accepted as f64 / rounds as f64),
            positions: positions(totals),
            mean_batch_size: per(totals.batch_time as f64 / 1e12, busy),
            kv_use_mean: per(totals.context_time as f64 / 1e12, busy) / pool_tokens,
            kv_use_peak: f64::from(totals.peak_blocks) / f64::from(usable_blocks),
            overload: None,
            lived: totals.lives.as_ref().and_then(Lived::of),
        }
    }

    /// Fills in the field `overload`: arrival rate, completion rate and waiting requests of an overloaded run, or
    /// `None` if the run was not overloaded. Call this only for open arrivals.
    pub fn with_overload(self, records: &dyn Pieces) -> Summary {
        Summary { overload: overload(records), ..self }
    }
}

/// Counts over the requests of a run, from which the numbers of its summary are computed.
#[derive(Default)]
struct Counts {
    requests: u64,
    finished: u64,
    rejected: u64,
    /// Sum of the output tokens of finished requests.
    output_tokens: u64,
    /// Number of finished requests that meet every latency bound (`met`), and sum of their output tokens
    /// (`met_tokens`).
    met: u64,
    met_tokens: u64,
    /// When the first request arrived (`first`), and when the last finished request ended (`last`); `None` without such
    /// requests.
    first: Option<Time>,
    last: Option<Time>,
}

impl Counts {
    fn of(records: &dyn Pieces, slo: Slo, slo_tpot_s: &[f64]) -> Counts {
        let mut counts = Counts::default();
        records.each(&mut |piece| counts.add(piece, slo, slo_tpot_s));
        counts
    }

    /// Counts the requests of `r`, the next part of the run's request records.
    fn add(&mut self, r: &RequestRecords, slo: Slo, slo_tpot_s: &[f64]) {
        let before = self.requests as usize;
        self.requests += r.len() as u64;
        for i in 0..r.len() {
            // In a run that ended early, a request that has not arrived has arrival time zero, which must not count as
            // the first arrival. Requests that were not scheduled are therefore left out.
            if r.outcome[i] != Outcome::InFlight || r.first_scheduled[i] < Time::MAX {
                self.first = Some(self.first.map_or(r.arrival[i], |first| first.min(r.arrival[i])));
            }
            self.rejected += u64::from(r.outcome[i] == Outcome::Rejected);
            if r.finished(i) {
                let met = u64::from(slo.met_by(r, i, slo_tpot_s.get(before + i).copied()));
                self.finished += 1;
                self.output_tokens += u64::from(r.emitted[i]);
                self.met += met;
                self.met_tokens += met * u64::from(r.emitted[i]);
                self.last = self.last.max(Some(r.finish[i]));
            }
        }
    }
}

fn itl(totals: &Totals) -> Option<Quantiles> {
    let gaps = &totals.gaps;
    (!gaps.is_empty()).then(|| {
        let [p50, p90, p99] = gaps.quantiles_s([0.5, 0.9, 0.99]);
        Quantiles { mean: gaps.mean_s(), p50, p90, p99 }
    })
}

fn positions(totals: &Totals) -> Vec<PositionCounts> {
    let table = &totals.verified_accepted;
    let sum = |from_v: usize, from_a: usize| table[from_v..].iter().flat_map(|row| &row[from_a..]).sum::<u64>();
    (0..table.len() - 1)
        .map(|j| PositionCounts { attempts: sum(j + 1, 0), reached: sum(j + 1, j), accepted: sum(j + 1, j + 1) })
        .take_while(|p| p.attempts > 0)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_numpys() {
        // The expected values are from numpy: quantile([1, 2, 3, 4], [.5, .9, .99]) = [2.5, 3.7, 3.97].
        let q = Quantiles::of(&mut [4.0, 1.0, 3.0, 2.0]).unwrap();
        assert_eq!((q.mean, q.p50), (2.5, 2.5));
        assert!((q.p90 - 3.7).abs() < 1e-12 && (q.p99 - 3.97).abs() < 1e-12);
        assert_eq!(Quantiles::of(&mut []), None);
    }

    /// Request 1 had not arrived when the run stopped, so it does not change the duration of the run.
    #[test]
    fn requests_that_did_not_arrive_do_not_lengthen_the_run() {
        let mut r = RequestRecords::new(2);
        r.arrival[0] = Time::from_s(3.0);
        r.first_scheduled[0] = Time::from_s(3.0);
        (r.first_token[0], r.finish[0]) = (Time::from_s(4.0), Time::from_s(5.0));
        (r.emitted[0], r.outcome[0]) = (10, Outcome::Finished);
        let x = Summary::new(&r, &Totals::default(), Slo::default(), &[], 100, 16);
        assert_eq!((x.duration_s, x.token_goodput_tok_s, x.in_flight), (2.0, 5.0, 1));
    }

    /// Two finished requests, one of which meets its TPOT bound, and one rejected request.
    #[test]
    fn goodputs_by_hand() {
        let mut r = RequestRecords::new(3);
        let s = |x: f64| Time::from_s(x);
        r.arrival = vec![s(0.0), s(1.0), s(2.0)];
        r.first_scheduled = vec![s(0.0), s(1.5), Time::MAX];
        r.first_token = vec![s(0.5), s(2.0), Time::MAX];
        r.finish = vec![s(1.5), s(6.0), s(2.0)];
        r.emitted = vec![11, 11, 0];
        r.outcome = vec![Outcome::Finished, Outcome::Finished, Outcome::Rejected];
        let mut totals = Totals { busy: s(5.0), request_steps: 20, drafted: 30, verified: 20, ..Totals::default() };
        totals.verified_accepted[2][1] = 10;
        totals.verified_accepted[0][0] = 10;
        let slo = Slo { tpot_s: Some(0.2), ..Slo::default() };
        let x = Summary::new(&r, &totals, slo, &[], 100, 16);
        assert_eq!((x.finished, x.rejected, x.in_flight), (2, 1, 0));
        assert_eq!(x.duration_s, 6.0);
        assert_eq!(x.token_goodput_tok_s, 22.0 / 6.0);
        assert_eq!(x.busy_token_goodput_tok_s, 22.0 / 5.0);
        assert_eq!(x.slo_attainment, Some(1.0 / 3.0));
        assert_eq!(x.slo_goodput_req_s, Some(1.0 / 6.0));
        assert_eq!(x.slo_token_goodput_tok_s, Some(11.0 / 6.0));
        assert_eq!(x.tpot.unwrap().mean, (0.1 + 0.4) / 2.0);
        assert_eq!(x.queue.unwrap().mean, 0.25);
        assert_eq!((x.verified, x.accepted, x.rounds), (20, 10, 10));
        assert_eq!(x.mean_acceptance_length, Some(2.0));
        assert_eq!(
            x.positions,
            [
                PositionCounts { attempts: 10, reached: 10, accepted: 10 },
                PositionCounts { attempts: 10, reached: 10, accepted: 0 },
            ]
        );
        // Request 1 has its own TPOT limit of 0.5 s, which takes precedence over the run's limit of 0.2 s, so it meets
        // its bound.
        assert_eq!(Summary::new(&r, &totals, slo, &[f64::INFINITY, 0.5, 0.5], 100, 16).slo_attainment, Some(2.0 / 3.0));
    }
}
