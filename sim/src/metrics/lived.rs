//! The parts (waiting, prompts, draft passes, …) of the end-to-end latency of a run's finished requests, defined in
//! docs/model.md 14.1. The parts sum to the latency.

use crate::time::Time;
use serde::{Deserialize, Serialize};

/// The device's time, picoseconds, in parts: decoding, prompts, draft passes and others. Time in which no pass runs is
/// the host's time and belongs to no part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Time that target passes would take with one token for each decode request and without prompts, picoseconds.
    pub decoding: u64,
    /// Time by which prompts lengthen target passes, picoseconds.
    pub prompts: u64,
    /// Time by which recomputed tokens (computed before, and lost with their KV) lengthen target passes, picoseconds.
    pub recomputing: u64,
    /// Time of draft passes, picoseconds.
    pub drafting: u64,
    /// Time by which accepted draft tokens lengthen target passes, picoseconds.
    pub verifying: u64,
    /// Time by which rejected draft tokens and padding lengthen target passes, picoseconds.
    pub rejected: u64,
}

impl Spent {
    /// Sum of the device's time over all parts (decoding, prompts, draft passes, …), picoseconds.
    pub fn sum(&self) -> u64 {
        self.all().into_iter().sum()
    }

    fn all(&self) -> [u64; 6] {
        [self.decoding, self.prompts, self.recomputing, self.drafting, self.verifying, self.rejected]
    }

    /// For each part of the device's time (decoding, prompts, …): combines the time of this part in `self` and in
    /// `other` by the function `f`.
    fn zip(&self, other: &Spent, f: impl Fn(u64, u64) -> u64) -> Spent {
        Spent {
            decoding: f(self.decoding, other.decoding),
            prompts: f(self.prompts, other.prompts),
            recomputing: f(self.recomputing, other.recomputing),
            drafting: f(self.drafting, other.drafting),
            verifying: f(self.verifying, other.verifying),
            rejected: f(self.rejected, other.rejected),
        }
    }

    /// For each part of the device's time (decoding, prompts, …): adds the time of this part in `self` and in `other`.
    pub fn plus(&self, other: &Spent) -> Spent {
        self.zip(other, u64::saturating_add)
    }

    /// Each part of the device's time (decoding, prompts, …) times `num` / `den`, rounded down. `den` must not be 0.
    pub fn scaled(&self, num: u64, den: u64) -> Spent {
        self.zip(self, |part, _| (u128::from(part) * u128::from(num) / u128::from(den)) as u64)
    }
}

/// Where the time of a request has gone so far. The device's counters are subtracted when the request enters the
/// running list and added when it leaves the list. The difference is the time spent in between, and no step has to
/// update it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Life {
    /// Device time by part (decoding, prompts, draft passes, …) while the request was in the running list.
    spent: Spent,
    /// Time in the waiting list after preemptions, picoseconds.
    away: u64,
    /// Whether the request is in the running list.
    runs: bool,
}

impl Life {
    /// Notes that the request enters the running list at `now`. `first` says whether this is its first time or follows
    /// a preemption. `spent` is the device's time up to `now`, by part (decoding, prompts, draft passes, …).
    pub(crate) fn enter(&mut self, spent: &Spent, now: Time, first: bool) {
        self.spent = self.spent.zip(spent, u64::wrapping_sub);
        if !first {
            self.away = self.away.wrapping_add(now.0);
        }
        self.runs = true;
    }

    /// Notes that the request lost its KV at `now` and waits from now on. `spent` is the device's time up to `now`, by
    /// part (decoding, prompts, draft passes, …).
    pub(crate) fn lose(&mut self, spent: &Spent, now: Time) {
        self.spent = self.spent.zip(spent, u64::wrapping_add);
        self.away = self.away.wrapping_sub(now.0);
        self.runs = false;
    }
}

/// The parts of the end-to-end latency, each summed over a run's finished requests, picoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lives {
    /// Number of finished requests.
    pub requests: u64,
    /// Time from a request's arrival to its finish, summed over the finished requests, picoseconds.
    pub whole: u128,
    /// Time from arrival until the request was first scheduled, summed over the finished requests, picoseconds.
    pub waiting: u128,
    /// Time in the waiting list after a preemption, and time by which recomputed tokens lengthened target passes,
    /// summed over the finished requests, picoseconds.
    pub kv_lost: u128,
    /// Time that target passes would have taken with one token for each decode request and without prompts, summed over
    /// the finished requests, picoseconds.
    pub decoding: u128,
    /// Time by which prompts lengthened target passes, summed over the finished requests, picoseconds.
    pub prompts: u128,
    /// Time of draft passes, summed over the finished requests, picoseconds.
    pub drafting: u128,
    /// Time by which accepted draft tokens lengthened target passes, summed over the finished requests, picoseconds.
    pub verifying: u128,
    /// Time by which rejected draft tokens and padding lengthened target passes, summed over the finished requests,
    /// picoseconds.
    pub rejected: u128,
}

impl Lives {
    /// Adds a request that finished at `now`. `spent` is the device's time up to `now`, by part (decoding, prompts,
    /// draft passes, …). `whole` and `waiting` are the request's values of the fields of the same name.
    pub(crate) fn add(&mut self, mut life: Life, spent: &Spent, now: Time, whole: Time, waiting: Time) {
        if life.runs {
            life.lose(spent, now);
        }
        // If the request was in the running list, the call of `lose` above subtracted `now` from `away`, and this
        // addition cancels it. If the request had lost its KV before (a step in flight gave it its last token), the
        // addition ends its time in the waiting list.
        life.away = life.away.wrapping_add(now.0);
        let s = life.spent;
        self.requests += 1;
        self.whole += u128::from(whole.0);
        self.waiting += u128::from(waiting.0);
        self.kv_lost += u128::from(life.away) + u128::from(s.recomputing);
        self.decoding += u128::from(s.decoding);
        self.prompts += u128::from(s.prompts);
        self.drafting += u128::from(s.drafting);
        self.verifying += u128::from(s.verifying);
        self.rejected += u128::from(s.rejected);
    }

    /// Adds the parts of the latency (waiting, prompts, draft passes, …) of another run's finished requests.
    pub fn merge(&mut self, other: &Lives) {
        self.requests += other.requests;
        self.whole += other.whole;
        self.waiting += other.waiting;
        self.kv_lost += other.kv_lost;
        self.decoding += other.decoding;
        self.prompts += other.prompts;
        self.drafting += other.drafting;
        self.verifying += other.verifying;
        self.rejected += other.rejected;
    }

    /// Time in the running list during which no pass ran, because the device waited for the host: the latency minus all
    /// other parts. It may be a few picoseconds below zero, because a request that joins in the middle of a pass gets
    /// rounded parts of the pass.
    pub fn host(&self) -> i128 {
        let passes = self.decoding + self.prompts + self.drafting + self.verifying + self.rejected;
        let others = self.waiting + self.kv_lost + passes;
        self.whole.cast_signed() - others.cast_signed()
    }
}

/// The parts of the mean end-to-end latency of the finished requests, seconds. The parts sum to this latency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Lived {
    /// Time from arrival until the request was first scheduled, mean over the finished requests, seconds.
    pub waiting_s: f64,
    /// Time by which prompts lengthened target passes, mean over the finished requests, seconds.
    pub prompts_s: f64,
    /// Time that target passes would have taken with one token for each decode request and without prompts, mean over
    /// the finished requests, seconds.
    pub decoding_s: f64,
    /// Time of draft passes, mean over the finished requests, seconds.
    pub drafting_s: f64,
    /// Time by which accepted draft tokens lengthened target passes, mean over the finished requests, seconds.
    pub verifying_s: f64,
    /// Time by which rejected draft tokens and padding lengthened target passes, mean over the finished requests,
    /// seconds.
    pub rejected_s: f64,
    /// Time in the running list while the device waited for the host, mean over the finished requests, seconds.
    pub host_s: f64,
    /// Time in the waiting list after a preemption, and time by which recomputed tokens lengthened target passes, mean
    /// over the finished requests, seconds.
    pub kv_lost_s: f64,
}

/// The name of a part of the end-to-end latency, and the function that reads this part.
type Named = (&'static str, fn(&Lived) -> f64);

/// The parts of the mean end-to-end latency with their names, in the order in which tables show them.
pub const PARTS: [Named; 8] = [
    ("plain", |l| l.decoding_s),
    ("drafts", |l| l.drafting_s),
    ("verify", |l| l.verifying_s),
    ("rejected", |l| l.rejected_s),
    ("prompts", |l| l.prompts_s),
    ("host", |l| l.host_s),
    ("waiting", |l| l.waiting_s),
    ("kv_lost", |l| l.kv_lost_s),
];

impl Lived {
    /// The parts of the mean end-to-end latency of the requests in `lives`; `None` if no request finished.
    pub fn of(lives: &Lives) -> Option<Lived> {
        let seconds = |sum: f64| sum / crate::time::PS_PER_S / lives.requests as f64;
        let mean = |sum: u128| seconds(sum as f64);
        (lives.requests > 0).then(|| Lived {
            waiting_s: mean(lives.waiting),
            prompts_s: mean(lives.prompts),
            decoding_s: mean(lives.decoding),
            drafting_s: mean(lives.drafting),
            verifying_s: mean(lives.verifying),
            rejected_s: mean(lives.rejected),
            host_s: seconds(lives.host() as f64),
            kv_lost_s: mean(lives.kv_lost),
        })
    }

    /// Sum of all parts of the mean end-to-end latency, seconds.
    pub fn sum_s(&self) -> f64 {
        PARTS.iter().map(|(_, part)| part(self)).sum()
    }
}
