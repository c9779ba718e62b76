//! How a scaling rule changed the number of replicas of a fleet over time.

use crate::time::Time;
use serde::{Deserialize, Serialize};

/// The replicas of a fleet that a rule scales, and what the rule decided.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Scaled {
    /// All replicas that the fleet ever had, in the order in which the scaling rule requested them.
    pub lives: Vec<ReplicaLife>,
    /// The decisions that changed the number of replicas, in order of time.
    pub decisions: Vec<ScalingDecision>,
    /// When the last request of the run ended.
    pub end: Time,
}

/// The times of a replica. The time of an event that did not happen is `Time::MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaLife {
    /// When the scaling rule requested the replica. The replica boots from this time on.
    pub ordered: Time,
    /// When the replica had booted, so that it could get requests.
    pub ready: Time,
    /// The time from which on the replica gets no more requests.
    pub drained: Time,
    /// When the replica ended: after its last request, or when the scaling rule cancelled it while it booted.
    pub ended: Time,
}

/// A decision that changed the number of replicas.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScalingDecision {
    /// When the scaling rule made this decision.
    pub at: Time,
    /// Number of replicas that served requests before the decision.
    pub serving: u32,
    /// Number of replicas that were booting before the decision.
    pub booting: u32,
    /// Number of replicas, serving or booting, that the rule wants.
    pub wished: u32,
    /// The rule's reason for the decision, as text.
    pub reason: String,
}

/// Hours, summed over all replicas, that replicas spent booting, serving and draining.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReplicaHours {
    /// Hours from the time at which the scaling rule requests a replica until the replica serves.
    pub booting: f64,
    /// Hours in which a replica may get requests.
    pub serving: f64,
    /// Hours from the time at which a replica stops getting requests until its end.
    pub draining: f64,
}

impl ReplicaHours {
    /// Hours of booting, serving and draining together.
    pub fn total(&self) -> f64 {
        self.booting + self.serving + self.draining
    }
}

impl ReplicaLife {
    /// The times at which the replica starts to boot, starts to serve, starts to drain, and ends. Times after `end`
    /// become `end`.
    pub fn phases(&self, end: Time) -> [Time; 4] {
        let ended = self.ended.min(end);
        let drained = self.drained.min(ended);
        let ready = self.ready.min(drained);
        [self.ordered.min(ready), ready, drained, ended]
    }
}

impl Scaled {
    /// Hours that replicas spent booting, serving and draining until the end of the run, summed over all replicas.
    pub fn hours(&self) -> ReplicaHours {
        let mut sums = [Time::ZERO; 3];
        for life in &self.lives {
            let phases = life.phases(self.end);
            (0..3).for_each(|i| sums[i] += phases[i + 1] - phases[i]);
        }
        let [booting, serving, draining] = sums.map(|sum| sum.as_s() / 3600.0);
        ReplicaHours { booting, serving, draining }
    }

    /// The number of replicas over time: one entry (time, [booting, serving, draining]) for each time at which a number
    /// changes.
    pub fn over_time(&self) -> Vec<(Time, [u32; 3])> {
        let mut changes: Vec<(Time, [i64; 3])> = Vec::new();
        for life in &self.lives {
            let phases = life.phases(self.end);
            for i in (0..3).filter(|&i| phases[i] < phases[i + 1]) {
                changes.push((phases[i], std::array::from_fn(|j| i64::from(i == j))));
                changes.push((phases[i + 1], std::array::from_fn(|j| -i64::from(i == j))));
            }
        }
        changes.sort_by_key(|change| change.0);
        let mut counts = [0i64; 3];
        let mut rows: Vec<(Time, [u32; 3])> = Vec::new();
        for (at, change) in changes {
            (0..3).for_each(|i| counts[i] += change[i]);
            let now = counts.map(|count| count as u32);
            match rows.last_mut().filter(|row| row.0 == at) {
                Some(row) => row.1 = now,
                None => rows.push((at, now)),
            }
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One replica serves from 0 to the end at 7200 s. A second replica is requested at 3600 s, serves from 4500 s,
    /// drains from 5400 s and ends at 6300 s. A third replica is requested at 3600 s and cancelled at 4500 s.
    #[test]
    fn hours_by_hand() {
        let (s, never) = (Time::from_s, Time::MAX);
        let life = |ordered, ready, drained, ended| ReplicaLife { ordered, ready, drained, ended };
        let lives = vec![
            life(s(0.0), s(0.0), never, never),
            life(s(3600.0), s(4500.0), s(5400.0), s(6300.0)),
            life(s(3600.0), never, s(4500.0), s(4500.0)),
        ];
        let scaled = Scaled { lives, decisions: Vec::new(), end: s(7200.0) };
        assert_eq!(scaled.hours(), ReplicaHours { booting: 0.5, serving: 2.25, draining: 0.25 });
        assert_eq!(scaled.hours().total(), 3.0);
        let over_time = [(0.0, [0, 1, 0]), (3600.0, [2, 1, 0]), (4500.0, [0, 2, 0]), (5400.0, [0, 1, 1])];
        let mut over_time: Vec<(Time, [u32; 3])> = over_time.map(|(at, n)| (s(at), n)).to_vec();
        over_time.extend([(s(6300.0), [0, 1, 0]), (s(7200.0), [0, 0, 0])]);
        assert_eq!(scaled.over_time(), over_time);
    }
}
