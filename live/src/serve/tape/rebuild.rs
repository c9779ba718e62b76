//! Rebuilds the records of requests and steps from the steps of a tape. This works also if the run was killed.

use super::{Head, Tail, span};
use foretoken_servers::compare::live_runs::Records;
use foretoken_sim::live::{MarkKind, StepTrace};
use foretoken_sim::{Arrivals, Outcome, RequestRecords, StepRecord, Time};

/// Rebuilds the records of requests and steps from a tape: from `head` (the facts known before the first step), `steps`
/// and `tail` (the facts known after the last step). `tail` is `None` if the run was killed.
pub fn rebuild_records<'a>(
    head: &Head,
    steps: impl IntoIterator<Item = &'a StepTrace>,
    tail: Option<&Tail>,
) -> Records {
    let mut rebuilt = Rebuilt::new(head, tail.map_or(&[], |t| &t.rejected));
    let steps = steps.into_iter().filter_map(|step| rebuilt.step(step)).collect();
    rebuilt.reject();
    Records { requests: rebuilt.requests, steps }
}

struct Rebuilt<'a> {
    head: &'a Head,
    rejected: &'a [u32],
    requests: RequestRecords,
    /// In a closed loop: number of requests sent so far. A client sends the next request when one of its requests has
    /// ended.
    sent: usize,
}

impl<'a> Rebuilt<'a> {
    fn new(head: &'a Head, rejected: &'a [u32]) -> Rebuilt<'a> {
        let mut requests = RequestRecords::new(head.arrival.len());
        match head.arrivals() {
            Arrivals::Open | Arrivals::Sessions => requests.arrival.clone_from(&head.arrival),
            Arrivals::Closed { .. } => {}
        }
        let mut rebuilt = Rebuilt { head, rejected, requests, sent: 0 };
        if let Arrivals::Closed { clients } = head.arrivals() {
            // In a closed loop, every client sends its first request at time 0, as long as the workload has requests.
            (0..clients.min(head.arrival.len() as u32)).for_each(|_| rebuilt.send(Time::ZERO));
        }
        rebuilt
    }

    /// In a closed loop: a client sends the workload's next request at time `at`. If this request was rejected, the
    /// client sends another one at once.
    fn send(&mut self, at: Time) {
        while self.sent < self.requests.len() {
            self.requests.arrival[self.sent] = at;
            self.sent += 1;
            if !self.rejected.contains(&(self.sent as u32 - 1)) {
                break;
            }
        }
    }

    fn reject(&mut self) {
        for &id in self.rejected {
            self.requests.outcome[id as usize] = Outcome::Rejected;
            self.requests.finish[id as usize] = self.requests.arrival[id as usize];
        }
    }

    fn step(&mut self, step: &StepTrace) -> Option<StepRecord> {
        let (start, end) = span(step)?;
        let before_verify = step.marks.iter().take_while(|m| m.kind != MarkKind::Verify).map(|m| m.end);
        let drafted = before_verify.max().unwrap_or(start).max(start);
        let drafts = |m: &&foretoken_sim::live::Mark| matches!(m.kind, MarkKind::Draft(_)) && m.shape.batched > 0;
        let mut record = StepRecord {
            step: step.step,
            start,
            end,
            draft_time: drafted - start,
            verify_time: end - drafted,
            batch_size: step.rounds.len() as u32,
            chunks: step.chunks.len() as u32,
            chunk_tokens: step.chunks.iter().map(|c| u64::from(c.tokens)).sum(),
            waiting: step.num_waiting,
            draft_passes: step.marks.iter().filter(drafts).count() as u32,
            ..StepRecord::default()
        };
        let mut nodes = step.nodes.as_slice();
        for round in &step.rounds {
            let i = round.request as usize;
            let (own, rest) = nodes.split_at(round.nodes as usize);
            nodes = rest;
            let (drafted, verified) = match round.nodes {
                0 => (round.drafted, round.verified),
                n => (n, own.iter().filter(|n| n.kept).count() as u32),
            };
            self.requests.rounds[i] += u32::from(round.verified > 0);
            self.requests.drafted[i] += drafted;
            self.requests.verified[i] += verified;
            self.requests.accepted[i] += round.accepted;
            record.drafted += drafted;
            record.verified += verified;
            record.accepted += round.accepted;
            record.context += u64::from(round.context);
            record.emitted += self.emit(i, 1 + round.accepted, end);
        }
        for chunk in &step.chunks {
            let i = chunk.request as usize;
            let again = self.requests.first_scheduled[i] != Time::MAX && chunk.computed == 0;
            self.requests.preemptions[i] += u32::from(again);
            record.preempted += u32::from(again);
            self.requests.first_scheduled[i] = self.requests.first_scheduled[i].min(start);
            if chunk.last {
                record.emitted += self.emit(i, 1, end);
            }
        }
        Some(record)
    }

    /// Adds up to `tokens` tokens to the output of request `i` at time `at`, until the output is complete. Sets the
    /// times of the first token and of the end. In a closed loop, the end of a request sends the next request. Returns
    /// the number of tokens that were added.
    fn emit(&mut self, i: usize, tokens: u32, at: Time) -> u32 {
        let r = &mut self.requests;
        let stop_at = self.head.stop_at(i);
        let tokens = tokens.min(stop_at - r.emitted[i]);
        r.emitted[i] += tokens;
        r.first_token[i] = r.first_token[i].min(at);
        if r.emitted[i] == stop_at && r.outcome[i] == Outcome::InFlight {
            r.outcome[i] = Outcome::Finished;
            r.finish[i] = at;
            if matches!(self.head.arrivals(), Arrivals::Closed { .. }) {
                self.send(at);
            }
        }
        tokens
    }
}
