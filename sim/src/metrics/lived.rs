//! The parts of the end-to-end latency of a run's finished requests, defined in docs/model.md 14.1. They sum to the
//! latency.

use crate::time::Time;
use serde::{Deserialize, Serialize};

/// The device's time by part, picoseconds. Time in which no pass runs is the host's and is in no part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Target passes, as long as they would take with one token for each decode request and no prompts.
    pub decoding: u64,
    /// What prompts add to target passes.
    pub prompts: u64,
    /// What tokens that were computed before, and whose KV was lost, add to target passes.
    pub recomputing: u64,
    /// Draft passes.
    pub drafting: u64,
    /// What accepted drafts add to target passes.
    pub verifying: u64,
    /// What rejected drafts and padding add to target passes.
    pub rejected: u64,
}

impl Spent {
    /// Sum of all parts.
    pub fn sum(&self) -> u64 {
        self.all().into_iter().sum()
    }

    fn all(&self) -> [u64; 6] {
        [self.decoding, self.prompts, self.recomputing, self.drafting, self.verifying, self.rejected]
    }

    /// Applies `f` to each part and the same part of `other`.
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

    /// The sum, part by part.
    pub fn plus(&self, other: &Spent) -> Spent {
        self.zip(other, u64::saturating_add)
    }

    /// Each part times `num` / `den`, rounded down. `den` must not be 0.
    pub fn scaled(&self, num: u64, den: u64) -> Spent {
        self.zip(self, |part, _| (u128::from(part) * u128::from(num) / u128::from(den)) as u64)
    }
}

/// Where the time of a request went so far. The clocks are subtracted when the request enters the running list and
/// added when it leaves the list, so that no step has to update it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Life {
    /// What the device did while the request was in the running list.
    spent: Spent,
    /// Time in the waiting list after a preemption.
    away: u64,
    /// Whether the request is in the running list.
    runs: bool,
}

impl Life {
    /// Notes that the request joins the running list at `now`, for the `first` time or after a preemption. `spent` is
    /// the device's time by part up to `now`.
    pub(crate) fn enter(&mut self, spent: &Spent, now: Time, first: bool) {
        self.spent = self.spent.zip(spent, u64::wrapping_sub);
        if !first {
            self.away = self.away.wrapping_add(now.0);
        }
        self.runs = true;
    }

    /// Notes that the request lost its KV at `now` and waits from then on.
    pub(crate) fn lose(&mut self, spent: &Spent, now: Time) {
        self.spent = self.spent.zip(spent, u64::wrapping_add);
        self.away = self.away.wrapping_sub(now.0);
        self.runs = false;
    }
}

/// The parts of the latency, summed over finished requests, picoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lives {
    /// Number of finished requests.
    pub requests: u64,
    /// From arrival to finish.
    pub whole: u128,
    /// From arrival until a step took the request in.
    pub waiting: u128,
    /// In the waiting list after a preemption, and in passes that computed lost tokens again.
    pub kv_lost: u128,
    /// Target passes, as long as they would take with one token for each decode request and no prompts.
    pub decoding: u128,
    /// What prompts added to target passes.
    pub prompts: u128,
    /// Draft passes.
    pub drafting: u128,
    /// What accepted drafts added to target passes.
    pub verifying: u128,
    /// What rejected drafts and padding added to target passes.
    pub rejected: u128,
}

impl Lives {
    /// Adds a request that finished at `now`, when the device's time by part was `spent`. `whole` and `waiting` are as
    /// in the fields.
    pub(crate) fn add(&mut self, mut life: Life, spent: &Spent, now: Time, whole: Time, waiting: Time) {
        if life.runs {
            life.lose(spent, now);
        }
        // A step in flight may end a request that has lost its KV: this ends its time in the waiting list. For other
        // requests it cancels the subtraction in `lose`.
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

    /// Adds the sums of another run.
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

    /// The time in the running list during which no pass ran: the device waited for the host. It is what the other
    /// parts leave of the latency. It may be a few picoseconds below zero, because a request that joins in the middle
    /// of a pass gets rounded parts of the pass.
    pub fn host(&self) -> i128 {
        let passes = self.decoding + self.prompts + self.drafting + self.verifying + self.rejected;
        let others = self.waiting + self.kv_lost + passes;
        self.whole.cast_signed() - others.cast_signed()
    }
}

/// The parts of the finished requests' mean end-to-end latency, seconds. They sum to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Lived {
    /// From arrival until a step took the request in.
    pub waiting_s: f64,
    /// What prompts added to target passes.
    pub prompts_s: f64,
    /// Target passes, as long as they would take with one token for each decode request and no prompts.
    pub decoding_s: f64,
    /// Draft passes.
    pub drafting_s: f64,
    /// What accepted drafts added to target passes.
    pub verifying_s: f64,
    /// What rejected drafts and padding added to target passes.
    pub rejected_s: f64,
    /// In the running list, while the device waited for the host.
    pub host_s: f64,
    /// In the waiting list after a preemption, and in passes that computed lost tokens again.
    pub kv_lost_s: f64,
}

/// A part's name, and the function that reads the part.
type Named = (&'static str, fn(&Lived) -> f64);

/// The parts with their names, in the order in which tables show them.
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
    /// The means of `lives`; `None` if no request finished.
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

    /// Sum of all parts, seconds.
    pub fn sum_s(&self) -> f64 {
        PARTS.iter().map(|(_, part)| part(self)).sum()
    }
}
