//! SMG's score of a worker: the seconds until it has drained (finished its queued tokens). Three of SMG's policies
//! choose by this score.

use super::random::below;
use crate::router::{Asked, Seen};

/// The settings of SMG's score of a replica, the seconds until it has drained (SMG 1.13 `policies/least_load.rs`).
#[derive(Clone, Copy, Debug)]
pub(super) struct ExpectedWait {
    /// Seconds that the score rises when half of the KV blocks are in use.
    pub kv_pressure_weight_s: f64,
    /// Tokens a second that are assumed for a replica that has reported no rate.
    pub default_throughput_tok_s: f64,
    /// Prompt tokens that are assumed for each request of a replica whose waiting tokens the router does not know, such
    /// as a running request.
    pub mean_prefill_tokens: u32,
}

impl Default for ExpectedWait {
    fn default() -> ExpectedWait {
        ExpectedWait { kv_pressure_weight_s: 0.15, default_throughput_tok_s: 2000.0, mean_prefill_tokens: 1024 }
    }
}

/// Replicas whose scores (seconds until drained) differ by at most this number of seconds have a tie.
const TIE_S: f64 = 1e-6;

/// Chooses the replica with the lowest score (seconds until drained). Counts the requests and tokens that were sent to
/// each replica since its last load report.
pub(super) struct Scorer {
    settings: ExpectedWait,
    seed: u64,
    sent: Vec<Sent>,
}

/// What the router has sent to a replica since the replica's last report arrived.
#[derive(Clone, Copy, Debug, Default)]
struct Sent {
    /// Number of the replica's load reports that had arrived when the counts were set to 0.
    reports: u64,
    tokens: u64,
    requests: u64,
}

/// The numbers of all candidate replicas on which the score of one replica (seconds until drained) depends.
struct Fleet {
    /// Mean rate of the candidate replicas that have reported a rate, output tokens a second; without any, the setting
    /// `default_throughput_tok_s`.
    nominal: f64,
    /// The lowest score (seconds until drained) of the candidate replicas that have reported their load; `None` if none
    /// has.
    best_known: Option<f64>,
}

impl Scorer {
    pub fn new(settings: ExpectedWait, seed: u64, replicas: usize) -> Scorer {
        Scorer { settings, seed, sent: vec![Sent::default(); replicas] }
    }

    pub fn joined(&mut self) {
        self.sent.push(Sent::default());
    }

    pub fn left(&mut self, replica: usize) {
        self.sent.remove(replica);
    }

    /// The candidate replica with the lowest score (seconds until drained), to which the request counts as sent. Of
    /// candidates with equal scores one is drawn at random. `draws` is the number of random draws that the router made
    /// for the request before.
    pub fn choose(&mut self, candidates: &[usize], request: &Asked, replicas: &[Seen], draws: u64) -> usize {
        for (sent, replica) in self.sent.iter_mut().zip(replicas) {
            if sent.reports != replica.reports {
                *sent = Sent { reports: replica.reports, ..Sent::default() };
            }
        }
        let fleet = self.fleet(candidates, replicas);
        let (mut best, mut best_s, mut tied) = (candidates[0], self.score(candidates[0], replicas, &fleet), 1);
        let mut draw = draws;
        for &candidate in &candidates[1..] {
            let score = self.score(candidate, replicas, &fleet);
            if score < best_s - TIE_S {
                (best, best_s, tied) = (candidate, score, 1);
            } else if (score - best_s).abs() <= TIE_S {
                tied += 1;
                best_s = best_s.min(score);
                if below(self.seed, request, draw, tied) == 0 {
                    best = candidate;
                }
                draw += 1;
            }
        }
        self.sent[best].tokens += u64::from(request.prompt_len);
        self.sent[best].requests += 1;
        best
    }

    fn fleet(&self, candidates: &[usize], replicas: &[Seen]) -> Fleet {
        let reports = || candidates.iter().filter_map(|&r| replicas[r].report);
        let rates = reports().map(|report| report.tok_s).filter(|rate| *rate > 0.0);
        let (sum, count) = rates.fold((0.0, 0u32), |(sum, n), rate| (sum + rate, n + 1));
        let nominal = if count > 0 { sum / f64::from(count) } else { self.settings.default_throughput_tok_s };
        let fleet = Fleet { nominal, best_known: None };
        let known = candidates.iter().filter(|&&r| replicas[r].report.is_some());
        let best_known = known.map(|&r| self.score(r, replicas, &fleet)).reduce(f64::min);
        Fleet { best_known, ..fleet }
    }

    /// The score of a replica; the lowest wins. If the replica has reported: the seconds that it needs at its rate for
    /// its queued tokens, plus a penalty for KV blocks in use. Queued are its waiting tokens, an assumed number of
    /// tokens for each running request and each request that its report does not know, and the prompts sent since the
    /// report. If only other replicas have reported: the lowest of their scores, plus the seconds for the replica's own
    /// requests in flight. If no replica has reported: the replica's number of requests in flight.
    fn score(&self, replica: usize, replicas: &[Seen], fleet: &Fleet) -> f64 {
        let (settings, seen, sent) = (&self.settings, &replicas[replica], &self.sent[replica]);
        let mean = f64::from(settings.mean_prefill_tokens);
        match (seen.report, fleet.best_known) {
            (Some(report), _) => {
                let load = report.load;
                let waiting = match load.waiting_tokens {
                    0 => f64::from(load.waiting) * mean,
                    tokens => tokens as f64,
                };
                let known = u64::from(load.running) + u64::from(load.waiting) + sent.requests;
                let unknown = u64::from(seen.in_flight).saturating_sub(known) as f64;
                let queued = waiting + f64::from(load.running) * mean + unknown * mean;
                let rate = if report.tok_s > 0.0 { report.tok_s } else { settings.default_throughput_tok_s };
                let k = load.kv_use().clamp(0.0, 0.999);
                (queued + sent.tokens as f64) / rate + settings.kv_pressure_weight_s * k / (1.0 - k)
            }
            (None, Some(best)) => best + f64::from(seen.in_flight) * mean / fleet.nominal,
            (None, None) => f64::from(seen.in_flight),
        }
    }
}
