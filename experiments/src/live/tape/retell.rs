//! From the steps of a tape to what happened to each request: what a run that was killed did not get to write.

use super::{Head, Step, Tail};
use foretoken_sim::{Arrivals, Outcome, RequestRecords, StepRecord, Time};

/// What the steps tell.
pub struct Told {
    /// One record a request. Preemptions show as prompts that were computed again.
    pub records: RequestRecords,
    /// One record a step, without the KV blocks, which no executor sees.
    pub steps: Vec<StepRecord>,
}

/// Tells the run again from its steps.
pub fn retell<'a>(head: &Head, steps: impl IntoIterator<Item = &'a Step>, tail: Option<&Tail>) -> Told {
    let mut story = Story::new(head);
    let steps = steps.into_iter().map(|step| story.step(step)).collect();
    for &id in tail.iter().flat_map(|t| &t.rejected) {
        story.records.outcome[id as usize] = Outcome::Rejected;
        story.records.finish[id as usize] = story.records.arrival[id as usize];
    }
    Told { records: story.records, steps }
}

struct Story<'a> {
    head: &'a Head,
    records: RequestRecords,
    /// Closed loop: requests that were sent.
    sent: usize,
}

impl Story<'_> {
    fn new(head: &Head) -> Story<'_> {
        let n = head.arrival.len();
        let mut records = RequestRecords::new(n);
        let sent = match head.arrivals() {
            Arrivals::Open => {
                records.arrival.clone_from(&head.arrival);
                n
            }
            Arrivals::Closed { clients } => n.min(clients as usize),
        };
        Story { head, records, sent }
    }

    fn step(&mut self, step: &Step) -> StepRecord {
        let mut record = StepRecord {
            step: step.step,
            start: step.start,
            end: step.end,
            draft_time: step.draft_time(),
            verify_time: step.verify.time,
            batch_size: step.rounds.len() as u32,
            chunks: step.chunks.len() as u32,
            chunk_tokens: step.chunks.iter().map(|c| u64::from(c.tokens)).sum(),
            waiting: step.waiting,
            draft_passes: step.draft.iter().filter(|p| p.batched > 0).count() as u32,
            ..StepRecord::default()
        };
        for round in &step.rounds {
            let i = round.request as usize;
            let (drafted, verified) = if round.nodes == (0, 0) { (round.drafted, round.verified) } else { round.nodes };
            self.records.rounds[i] += u32::from(round.verified > 0);
            self.records.drafted[i] += drafted;
            self.records.verified[i] += verified;
            self.records.accepted[i] += round.accepted;
            record.drafted += drafted;
            record.verified += verified;
            record.accepted += round.accepted;
            record.context += u64::from(self.head.prompt_len[i] + round.start) - 1;
            record.emitted += self.emit(i, 1 + round.accepted, step.end);
        }
        for chunk in &step.chunks {
            let i = chunk.request as usize;
            let again = self.records.first_scheduled[i] != Time::MAX && chunk.computed == 0;
            self.records.preemptions[i] += u32::from(again);
            record.preempted += u32::from(again);
            self.records.first_scheduled[i] = self.records.first_scheduled[i].min(step.start);
            if chunk.last {
                record.emitted += self.emit(i, 1, step.end);
            }
        }
        record
    }

    /// Adds tokens to a request's output, up to its end; returns how many.
    fn emit(&mut self, i: usize, tokens: u32, at: Time) -> u32 {
        let r = &mut self.records;
        let stop_at = self.head.stop_at(i);
        let tokens = tokens.min(stop_at - r.emitted[i]);
        r.emitted[i] += tokens;
        r.first_token[i] = r.first_token[i].min(at);
        if r.emitted[i] == stop_at && r.outcome[i] == Outcome::InFlight {
            r.outcome[i] = Outcome::Finished;
            r.finish[i] = at;
            if matches!(self.head.arrivals(), Arrivals::Closed { .. }) && self.sent < r.len() {
                r.arrival[self.sent] = at;
                self.sent += 1;
            }
        }
        tokens
    }
}
