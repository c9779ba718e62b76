//! The requests of a fleet's replica over time, in a fixed number of bins.

use super::{HandOff, RequestRecords};
use crate::time::Time;
use serde::{Deserialize, Serialize};

/// Number of bins of time from the start of a run to its end.
pub const FLOW_BINS: usize = 120;

/// The requests on a replica over time, in bins of equal width from time zero. Bins at the end in which nothing
/// happened are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flow {
    /// Width of a bin of time; the same for all replicas of a run.
    pub width: Time,
    /// What the requests on the replica did in each bin of time, from time zero.
    pub bins: Vec<FlowBin>,
}

/// The requests on a replica in one bin of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowBin {
    /// Sum of the time that requests waited for their first scheduling on the replica, ps.
    pub waiting: u128,
    /// Sum of the time that requests ran: from their first scheduling on the replica to their end there, ps. Time after
    /// a preemption counts too.
    pub running: u128,
    /// Number of requests that were sent to the replica.
    pub sent: u64,
    /// Sum of the prompt lengths of the requests that were sent, tokens.
    pub prompt_tokens: u64,
    /// Number of prompt tokens, over the requests that were sent, that the replica's prefix cache had at the request's
    /// first admission.
    pub cached_tokens: u64,
}

impl Flow {
    /// A flow without requests, for a run that ends at `end`.
    pub fn until(end: Time) -> Flow {
        Flow { width: Time(end.0 / FLOW_BINS as u64 + 1), bins: Vec::new() }
    }

    /// Mean number of waiting requests in a bin.
    pub fn waiting(&self, bin: &FlowBin) -> f64 {
        bin.waiting as f64 / self.width.0 as f64
    }

    /// Mean number of running requests in a bin.
    pub fn running(&self, bin: &FlowBin) -> f64 {
        bin.running as f64 / self.width.0 as f64
    }

    /// Adds the time that a request was on the replica, and the numbers of its prompt tokens and of its cached prompt
    /// tokens.
    pub fn add(&mut self, stay: &Stay, (prompt_tokens, cached_tokens): (u32, u32)) {
        let sent = self.bin(stay.sent);
        sent.sent += 1;
        sent.prompt_tokens += u64::from(prompt_tokens);
        sent.cached_tokens += u64::from(cached_tokens);
        self.spread(stay.sent, stay.scheduled, |bin, time| bin.waiting += time);
        self.spread(stay.scheduled, stay.ended, |bin, time| bin.running += time);
    }

    /// Adds the time from `from` to `to` as waiting, for a request that waited on the replica before its stay there
    /// began.
    pub fn add_wait(&mut self, from: Time, to: Time) {
        self.spread(from, to, |bin, time| bin.waiting += time);
    }

    fn bin(&mut self, at: Time) -> &mut FlowBin {
        let i = ((at.0 / self.width.0) as usize).min(FLOW_BINS - 1);
        self.bins.resize(self.bins.len().max(i + 1), FlowBin::default());
        &mut self.bins[i]
    }

    /// Adds the time from `from` to `to` to the bins in which it lies; `add` adds a part of it to a bin.
    fn spread(&mut self, from: Time, to: Time, add: fn(&mut FlowBin, u128)) {
        let mut at = from;
        while at < to {
            let next = Time((at.0 / self.width.0 + 1) * self.width.0).min(to);
            add(self.bin(at), u128::from((next - at).0));
            at = next;
        }
    }
}

/// When a request came to a replica, was first scheduled there, and ended there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stay {
    /// When the request was sent to the replica.
    pub sent: Time,
    /// When the request was first scheduled on the replica.
    pub scheduled: Time,
    /// When the request ended on the replica.
    pub ended: Time,
}

impl Stay {
    /// From a replica's own records: when request `at` came to the replica, was first scheduled and ended. Times after
    /// `end`, the end of the run, become `end`.
    pub fn of(own: &RequestRecords, at: usize, end: Time) -> Stay {
        let ended = own.finish[at].min(end);
        Stay { sent: own.arrival[at].min(ended), scheduled: own.first_scheduled[at].min(ended), ended }
    }

    /// Returns this stay with an earlier end, for the prefill replica of a request whose KV goes from there to a decode
    /// replica: the stay ends when the prompt is computed.
    pub fn of_prompt(self, hand_off: &HandOff) -> Stay {
        let ended = self.ended.min(hand_off.computed);
        Stay { sent: self.sent.min(ended), scheduled: self.scheduled.min(ended), ended }
    }

    /// Returns this stay with a later begin, for the decode replica of a request whose prompt a prefill replica
    /// computes: the stay begins when the prompt is computed, and the request waits until its KV has arrived.
    pub fn of_output(self, hand_off: &HandOff) -> Stay {
        let sent = hand_off.computed.min(self.ended);
        Stay { sent, scheduled: self.scheduled.max(hand_off.arrived).max(sent).min(self.ended), ended: self.ended }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run of 120 s has bins of one second. A request is sent at 0.5 s, scheduled at 2.25 s, and ends at 4 s.
    #[test]
    fn times_are_spread_over_bins() {
        let s = Time::from_s;
        let mut flow = Flow::until(Time(s(120.0).0 - 1));
        assert_eq!(flow.width, s(1.0));
        flow.add(&Stay { sent: s(0.5), scheduled: s(2.25), ended: s(4.0) }, (100, 64));
        let of = |name: fn(&Flow, &FlowBin) -> f64| flow.bins.iter().map(|bin| name(&flow, bin)).collect::<Vec<_>>();
        assert_eq!(of(Flow::waiting), [0.5, 1.0, 0.25, 0.0]);
        assert_eq!(of(Flow::running), [0.0, 0.0, 0.75, 1.0]);
        let first = flow.bins[0];
        assert_eq!((first.sent, first.prompt_tokens, first.cached_tokens), (1, 100, 64));
        assert_eq!(flow.bins.iter().map(|bin| bin.sent).sum::<u64>(), 1);
    }

    #[test]
    fn the_last_instant_lies_in_the_last_bin() {
        let end = Time::from_s(7.0);
        let mut flow = Flow::until(end);
        flow.add(&Stay { sent: end, scheduled: end, ended: end }, (1, 0));
        assert_eq!(flow.bins.len(), FLOW_BINS);
        let mut empty = Flow::until(Time::ZERO);
        empty.add(&Stay { sent: Time::ZERO, scheduled: Time::ZERO, ended: Time::ZERO }, (1, 0));
        assert_eq!(empty.bins.len(), 1);
    }

    /// A prompt is computed from 1 s to 3 s and arrives at 4 s. The decode replica had scheduled the request at 3.5 s.
    #[test]
    fn a_request_that_is_handed_off_waits_for_its_kv() {
        let s = Time::from_s;
        let hand_off = HandOff { replica: 0, computed: s(3.0), begun: s(3.0), arrived: s(4.0), bytes: 8 };
        let prompt = Stay { sent: s(0.5), scheduled: s(1.0), ended: s(9.0) }.of_prompt(&hand_off);
        assert_eq!(prompt, Stay { sent: s(0.5), scheduled: s(1.0), ended: s(3.0) });
        let output = Stay { sent: s(0.5), scheduled: s(3.5), ended: s(9.0) }.of_output(&hand_off);
        assert_eq!(output, Stay { sent: s(3.0), scheduled: s(4.0), ended: s(9.0) });
        // Here the decode replica allocated blocks before the prefill replica began with the prompt.
        let output = Stay { sent: s(0.5), scheduled: s(0.75), ended: s(9.0) }.of_output(&hand_off);
        assert_eq!(output, Stay { sent: s(3.0), scheduled: s(4.0), ended: s(9.0) });
    }
}
