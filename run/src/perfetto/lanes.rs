//! The timeline's rows of requests, called lanes. A request takes the free lane with the lowest number when it arrives.
//! The lane shows how long the request was queued, in prefill and in decode.

use super::event::Event;
use super::recorded::REQUESTS;
use foretoken_sim::{Outcome, RequestRecords, Time};
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

/// Adds the events of requests that are in the system between the times `from` and `to`. Events are cut at these two
/// times. Requests that did not finish end at `ends`, the end of the run. `transfer`: when the KV of a request's prompt
/// was transferred to another replica, and its bytes; `None` if it was not. Returns the requests that began to run
/// between `from` and `to`.
pub fn add(
    events: &mut Vec<Event>,
    requests: &RequestRecords,
    (from, to, ends): (Time, Time, Time),
    transfer: impl Fn(usize) -> Option<(Time, Time, u64)>,
) -> Vec<Placed> {
    let mut placed = Vec::new();
    let mut lanes = Lanes::default();
    let clip = |t: Time| t.clamp(from, to);
    for i in 0..requests.len() {
        let finish = requests.finish[i].min(ends.max(requests.arrival[i]));
        if requests.arrival[i] >= to || finish < from {
            continue;
        }
        let (start, end) = (clip(requests.arrival[i]), clip(finish));
        let lane = lanes.take(events, start, end);
        let on = (REQUESTS, lane);
        events.push(Event::span(&format!("request {i}"), on, start, end, numbers(requests, i)));
        let scheduled = requests.first_scheduled[i].min(finish);
        let first_token = requests.first_token[i].min(finish);
        let rejected = requests.outcome[i] == Outcome::Rejected;
        let phases = [
            (if rejected { "rejected" } else { "queued" }, requests.arrival[i], scheduled),
            ("prefill", scheduled, first_token),
            ("decode", first_token, finish),
        ];
        for (name, a, b) in phases.map(|(name, a, b)| (name, clip(a), clip(b))) {
            if a < b {
                events.push(Event::span(name, on, a, b, Value::Null));
            }
            if let ("prefill", Some((begun, arrived, bytes))) = (name, transfer(i)) {
                let (begun, arrived) = (begun.clamp(a, b), arrived.clamp(a, b));
                if begun < arrived {
                    events.push(Event::span("KV transfer", on, begun, arrived, json!({ "bytes": bytes })));
                }
            }
        }
        if scheduled < first_token && clip(scheduled) == scheduled {
            placed.push(Placed { request: i, on });
        }
    }
    placed
}

/// A request that begins to run in the part of the run that the timeline shows.
pub struct Placed {
    pub request: usize,
    /// (Process id, thread id) of the timeline's row that shows the request.
    pub on: (u32, u32),
}

fn numbers(r: &RequestRecords, i: usize) -> Value {
    let outcome = match r.outcome[i] {
        Outcome::Finished => "finished",
        Outcome::Rejected => "rejected",
        Outcome::InFlight => "in flight",
    };
    json!({
        "outcome": outcome,
        "emitted": r.emitted[i],
        "drafted": r.drafted[i],
        "accepted": r.accepted[i],
        "rounds": r.rounds[i],
        "preemptions": r.preemptions[i],
        "cached_tokens": r.cached_tokens[i],
        "ttft_s": (r.first_token[i] != Time::MAX).then(|| r.ttft_s(i)),
        "e2e_s": r.finished(i).then(|| r.e2e_s(i)),
    })
}

#[derive(Default)]
struct Lanes {
    /// The timeline's rows of requests (lanes) that are in use, as (time at which the lane becomes free, lane number).
    /// The earliest time comes first.
    busy: BinaryHeap<Reverse<(Time, u32)>>,
    free: BTreeSet<u32>,
    made: u32,
}

impl Lanes {
    /// Takes the free row of requests (lane) with the lowest number at the time `start`, and keeps it until `end`.
    /// Lanes count from 1. If no lane is free, makes a new one and adds its name to `events`.
    fn take(&mut self, events: &mut Vec<Event>, start: Time, end: Time) -> u32 {
        while let Some(&Reverse((until, lane))) = self.busy.peek()
            && until <= start
        {
            self.busy.pop();
            self.free.insert(lane);
        }
        let lane = self.free.pop_first().unwrap_or_else(|| {
            self.made += 1;
            let name = json!({ "name": format!("lane {}", self.made) });
            events.push(Event::about("thread_name", (REQUESTS, self.made), name));
            self.made
        });
        self.busy.push(Reverse((end, lane)));
        lane
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_free_lane_is_taken() {
        let mut lanes = Lanes::default();
        let mut events = Vec::new();
        let mut take = |a, b| lanes.take(&mut events, Time(a), Time(b));
        assert_eq!([take(0, 10), take(1, 5), take(2, 30), take(5, 8), take(10, 11)], [1, 2, 3, 2, 1]);
        assert_eq!(events.len(), 3, "each lane is named once");
    }
}
