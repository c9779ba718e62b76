//! Collects the results of a run: request records, totals, time series and, if wanted, a record of every step.

use super::request::{RejectReason, RunningRequest};
use super::scheduler::Scheduler;
use super::scheduler_output::Admission;
use super::spec_decode::SpecDecode;
use crate::metrics::{Emissions, Life, Outcome, RequestRecords, Series, Spent, StepRecord, Totals};
use crate::patience::Patience;
use crate::time::Time;
use crate::workload::RequestId;

/// Collects all results of a run.
#[derive(Clone, Debug)]
pub struct Collector {
    /// What happened to each request: when it arrived, was first scheduled, emitted its first token and ended, and its
    /// counts of tokens.
    pub records: RequestRecords,
    /// Counters of the run, summed over all its steps: times, passes, and drafted, verified and accepted tokens.
    pub totals: Totals,
    /// Batch size, and drafted, accepted and emitted tokens of the run over time, in bins of equal width.
    pub series: Series,
    /// One record for each step, if the run keeps records of steps; otherwise empty.
    pub steps: Vec<StepRecord>,
    /// The requests that could never run to their end, in order of their rejections: each request's number (how many
    /// requests came before it) and the reason.
    pub rejected: Vec<(RequestId, RejectReason)>,
    keep_steps: bool,
    emissions: Emissions,
    /// For each request: its number of rounds (steps with at least one verified draft token), and its numbers of
    /// drafted, verified and accepted tokens.
    rounds: Vec<Rounds>,
    /// For each request: on what its time so far was spent (waiting, prompt passes, drafting, …). Empty if the executor
    /// does not know what its device did.
    lives: Vec<Life>,
    /// Decides when the run may end early: once it is certain whether enough requests meet their latency bounds. `None`
    /// if the run goes on to its end.
    patience: Option<Patience>,
}

/// Of one request: its number of rounds (steps with at least one verified draft token), and its numbers of drafted,
/// verified and accepted tokens.
#[derive(Clone, Copy, Debug, Default)]
struct Rounds {
    /// Number of steps in which at least one draft token of the request was verified.
    rounds: u32,
    drafted: u32,
    verified: u32,
    accepted: u32,
}

impl Rounds {
    #[inline(always)]
    fn add(&mut self, drafted: u32, verified: u32, accepted: u32) {
        self.rounds += u32::from(verified > 0);
        self.drafted += drafted;
        self.verified += verified;
        self.accepted += accepted;
    }
}

impl Collector {
    /// An empty collector for a workload with `requests` requests.
    pub fn new(requests: usize, keep_steps: bool) -> Collector {
        Collector {
            records: RequestRecords::new(requests),
            totals: Totals::default(),
            series: Series::default(),
            steps: Vec::new(),
            rejected: Vec::new(),
            keep_steps,
            emissions: Emissions::new(requests),
            rounds: vec![Rounds::default(); requests],
            lives: Vec::new(),
            patience: None,
        }
    }

    /// Makes room for the records of `requests` requests, because the workload has grown.
    pub(super) fn make_room(&mut self, requests: usize) {
        if requests <= self.rounds.len() {
            return;
        }
        self.records.resize(requests);
        self.emissions.make_room(requests);
        self.rounds.resize(requests, Rounds::default());
    }

    /// Lets the run end once it is certain whether enough requests meet their latency bounds. `patience` has the
    /// bounds, and says which requests are judged by them.
    pub(crate) fn be_patient(&mut self, patience: Option<Patience>) {
        self.patience = patience;
    }

    /// Whether it is certain that enough requests meet their latency bounds, or that too few do, so that the run may
    /// end early.
    #[inline]
    pub(super) fn certain(&self) -> bool {
        self.patience.as_ref().is_some_and(Patience::certain)
    }

    /// Takes the counts of requests that met or missed their latency bounds out of the collector, after the run.
    /// Requests that have not ended are not counted. `None` if the run had no such bounds.
    pub(crate) fn patience(&mut self) -> Option<Patience> {
        self.patience.take()
    }

    /// Whether every step must be recorded. Then the engine may not compute several steps in one go (a stretch).
    pub fn wants_every_step(&self) -> bool {
        self.keep_steps
    }

    /// Begins the record of the step that the scheduler has decided: fills in what is known before the step runs.
    #[inline]
    pub(super) fn begin(scheduler: &Scheduler) -> StepRecord {
        let output = scheduler.output();
        StepRecord {
            step: output.step,
            batch_size: output.batch.len() as u32,
            chunks: output.prefill.chunks,
            chunk_tokens: output.prefill.tokens,
            context: output.batch.context_sum(),
            waiting: scheduler.num_waiting() as u32,
            used_blocks: scheduler.used_blocks(),
            preempted: output.preempted.len() as u32,
            ..StepRecord::default()
        }
    }

    /// Records the step whose output the scheduler has just applied. The caller has already put the step's times and
    /// the scheduler's decisions into `record`. This call adds the counts of draft tokens and of emitted tokens.
    #[inline]
    pub(super) fn step(&mut self, record: &mut StepRecord, scheduler: &Scheduler, spec: &SpecDecode) {
        let (output, result) = (scheduler.output(), scheduler.result());
        self.count_rounds(record, output.batch.ids(), &result.dropped, spec);
        record.emitted = result.emitted;
        self.emissions.step(output.batch.ids(), &result.dropped, record.end, &mut self.totals.gaps);
        for chunk in output.chunks.iter().filter(|chunk| chunk.last && !result.dropped.contains(&chunk.request)) {
            if self.emissions.after_prompt(chunk.request, &mut self.totals.gaps) {
                self.records.first_token[chunk.request as usize] = record.end;
            }
        }
        self.totals.step(record);
        self.series.step(record);
        if spec.drafts.wants.confidence && !spec.drafts.in_trees() {
            self.totals.calibration.step(&spec.drafts, &spec.accepted);
        }
        if self.keep_steps {
            self.steps.push(*record);
        }
    }

    /// Adds the draft tokens of each request of a step to the request's counts, and counts the requests by their
    /// numbers of verified and accepted draft tokens. Writes the step's sums of drafted, verified and accepted tokens
    /// into `record`.
    #[inline]
    fn count_rounds(&mut self, record: &mut StepRecord, ids: &[RequestId], dropped: &[RequestId], spec: &SpecDecode) {
        if spec.drafts.verify_len.is_empty() {
            // `verify_len` is empty: the step has no drafter or no decode request, so each decode request verified and
            // accepted 0 draft tokens. Requests in `dropped` had ended before the step's output came and are not
            // counted.
            let dropped = if dropped.is_empty() { 0 } else { ids.iter().filter(|id| dropped.contains(id)).count() };
            self.totals.verified_accepted[0][0] += (ids.len() - dropped) as u64;
        } else if dropped.is_empty() && !spec.drafts.in_trees() {
            self.count_chains(record, ids, spec);
        } else {
            self.count_others(record, ids, dropped, spec);
        }
    }

    /// Like `count_rounds`, for the frequent case, which is kept fast: all draft tokens form chains (one guess for each
    /// position), and no request of the step had ended before the step's output came.
    #[inline]
    fn count_chains(&mut self, record: &mut StepRecord, ids: &[RequestId], spec: &SpecDecode) {
        let n = ids.len();
        let (drafted, verified) = (&spec.drafts.draft_len[..n], &spec.drafts.verify_len[..n]);
        let accepted = &spec.accepted[..n];
        let table = &mut *self.totals.verified_accepted;
        if let Some((drafted, verified)) = spec.drafts.common_lens() {
            let (row, rounds) = (&mut table[verified as usize], u32::from(verified > 0));
            for (&id, &accepted) in ids.iter().zip(accepted) {
                row[accepted as usize] += 1;
                let counts = &mut self.rounds[id as usize];
                counts.rounds += rounds;
                counts.drafted += drafted;
                counts.verified += verified;
                counts.accepted += accepted;
            }
            (record.drafted, record.verified) = (n as u32 * drafted, n as u32 * verified);
        } else {
            for (((&id, &drafted), &verified), &accepted) in ids.iter().zip(drafted).zip(verified).zip(accepted) {
                table[verified as usize][accepted as usize] += 1;
                self.rounds[id as usize].add(drafted, verified, accepted);
            }
            (record.drafted, record.verified) = (drafted.iter().sum(), verified.iter().sum());
        }
        record.accepted = accepted.iter().sum();
    }

    fn count_others(&mut self, record: &mut StepRecord, ids: &[RequestId], dropped: &[RequestId], spec: &SpecDecode) {
        let mut sums = Rounds::default();
        for (i, &id) in ids.iter().enumerate().filter(|(_, id)| !dropped.contains(id)) {
            let ((drafted, verified), accepted) = (spec.drafts.tokens(i), spec.accepted[i]);
            let depth = spec.drafts.verify_len[i];
            self.totals.verified_accepted[depth as usize][accepted as usize] += 1;
            self.rounds[id as usize].add(drafted, verified, accepted);
            sums.add(drafted, verified, accepted);
        }
        (record.drafted, record.verified, record.accepted) = (sums.drafted, sums.verified, sums.accepted);
    }

    /// Records the first step of a stretch (decode steps that are computed in one go). The step gave each running
    /// request one token at time `end`.
    #[inline]
    pub(super) fn first_of_stretch(&mut self, scheduler: &Scheduler, end: Time) {
        self.emissions.running(scheduler.running().iter().map(|r| r.id), end, &mut self.totals.gaps);
    }

    /// Records a further step of a stretch (decode steps that are computed in one go). The step took the time `took`
    /// and gave each of the `requests` running requests one token.
    #[inline]
    pub(super) fn next_of_stretch(&mut self, requests: u32, took: Time) {
        self.totals.gaps.count(took, requests);
    }

    /// Ends a stretch (decode steps that are computed in one go): adds the gaps between the tokens of each request in
    /// the stretch's further steps to the sum of all gaps. The first step ended at `first_end`, the last step at `end`.
    pub(super) fn end_of_stretch(&mut self, first_end: Time, end: Time) {
        self.emissions.skip_to(end, first_end, &mut self.totals.gaps);
    }

    /// At the end of a stretch (decode steps that are computed in one go), before ended requests give their blocks
    /// back: raises the peak of used KV blocks to the number in use now.
    pub(super) fn note_blocks(&mut self, scheduler: &Scheduler) {
        self.totals.peak_blocks = self.totals.peak_blocks.max(scheduler.used_blocks());
    }

    /// Records that a request was admitted. `spent` has the device's time until `now` by part (decoding, prompts,
    /// drafting, …), if the executor knows it. Returns whether this is the request's first admission.
    pub(super) fn admit(&mut self, admission: Admission, now: Time, spent: Option<Spent>) -> bool {
        let i = admission.id as usize;
        let first = self.records.first_scheduled[i] == Time::MAX;
        if first {
            self.records.first_scheduled[i] = now;
            self.records.cached_tokens[i] = admission.num_cached_tokens;
        }
        if let Some(spent) = &spent {
            if self.lives.len() < self.records.len() {
                self.lives.resize(self.records.len(), Life::default());
            }
            self.lives[i].enter(spent, now, first);
        }
        first
    }

    /// Called when a request leaves the running list: records the number of tokens that it has emitted.
    pub(super) fn left(&mut self, r: &RunningRequest) {
        self.records.emitted[r.id as usize] = r.num_output_tokens;
    }

    /// At the end of the run: writes into each request's record its number of rounds (steps with at least one verified
    /// draft token), and its numbers of drafted, verified and accepted tokens.
    pub(super) fn close_all(&mut self) {
        (0..self.rounds.len() as RequestId).for_each(|id| self.close(id));
    }

    /// Writes into a request's record its number of rounds (steps with at least one verified draft token), and its
    /// numbers of drafted, verified and accepted tokens.
    pub(super) fn close(&mut self, id: RequestId) {
        let (i, counts) = (id as usize, self.rounds[id as usize]);
        self.records.rounds[i] = counts.rounds;
        self.records.drafted[i] = counts.drafted;
        self.records.verified[i] = counts.verified;
        self.records.accepted[i] = counts.accepted;
    }

    /// Forgets the record and the counts of a request that has ended, so that another request can take its id.
    pub(super) fn forget(&mut self, id: RequestId) {
        let i = id as usize;
        self.records.clear(i);
        self.emissions.forget(id);
        self.rounds[i] = Rounds::default();
        if let Some(life) = self.lives.get_mut(i) {
            *life = Life::default();
        }
    }

    /// Records that a running request was preempted at `now`, so that it lost its KV. `spent` has the device's time
    /// until `now` by part (decoding, prompts, drafting, …), if the executor knows it.
    pub(super) fn preempt(&mut self, r: &RunningRequest, now: Time, spent: Option<Spent>) {
        self.left(r);
        if let Some(spent) = &spent {
            self.lives[r.id as usize].lose(spent, now);
        }
        self.records.preemptions[r.id as usize] += 1;
    }

    /// Records that a request emitted its whole output at `now`. The caller must have recorded the request's last step
    /// before.
    pub(super) fn finish(&mut self, r: &RunningRequest, now: Time, spent: Option<Spent>) {
        self.left(r);
        if let Some(spent) = &spent {
            let i = r.id as usize;
            let (arrival, scheduled) = (self.records.arrival[i], self.records.first_scheduled[i]);
            let lives = self.totals.lives.get_or_insert_default();
            lives.add(self.lives[i], spent, now, now - arrival, scheduled - arrival);
        }
        self.emissions.ended(r.id);
        self.records.finish[r.id as usize] = now;
        self.records.outcome[r.id as usize] = Outcome::Finished;
        self.tell(r.id);
    }

    /// Records that this engine has computed the prompt of a request whose output another engine computes.
    pub(super) fn hand_over(&mut self, r: &RunningRequest, now: Time) {
        self.emissions.ended(r.id);
        self.records.finish[r.id as usize] = now;
        self.records.outcome[r.id as usize] = Outcome::Finished;
    }

    /// Records that a request was aborted after `emitted` tokens. The outcome in its record stays `InFlight`.
    pub(super) fn abort(&mut self, id: RequestId, emitted: u32) {
        self.records.emitted[id as usize] = emitted;
        self.emissions.ended(id);
    }

    /// Records that a request is rejected because it can never run to its end. `number` is the request's
    /// [number](crate::Workload::number).
    pub(super) fn reject(&mut self, (id, number): (RequestId, RequestId), now: Time, reason: RejectReason) {
        self.records.finish[id as usize] = now;
        self.records.outcome[id as usize] = Outcome::Rejected;
        self.rejected.push((number, reason));
        self.tell(id);
    }

    /// Records that a request ended without an output for its client.
    pub(super) fn end_with_nothing(&mut self, r: &RunningRequest, number: RequestId, now: Time, reason: RejectReason) {
        self.left(r);
        self.emissions.ended(r.id);
        self.reject((r.id, number), now, reason);
    }

    fn tell(&mut self, id: RequestId) {
        if let Some(patience) = &mut self.patience {
            patience.ended(&self.records, id);
        }
    }
}
