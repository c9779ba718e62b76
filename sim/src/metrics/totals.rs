//! Counters of a whole run, updated once in each step. All numbers of a run that need no list of samples are computed
//! from these counters.

use super::{Calibration, Gaps, Lengths, Lives};
use crate::config::MAX_SPEC_LEN;
use crate::metrics::StepRecord;
use crate::time::Time;

const LENGTHS: usize = MAX_SPEC_LEN as usize + 1;

/// Sums over all steps of a run.
#[derive(Clone, Debug)]
pub struct Totals {
    /// Number of steps of the run.
    pub steps: u64,
    /// Number of request-steps (one request in one step): the sum over all steps of the number of decode requests.
    pub request_steps: u64,
    /// Total time inside the run's steps, host time included.
    pub busy: Time,
    /// Time of the run in draft passes and in the policy's decisions.
    pub draft_time: Time,
    /// Time of target passes and of the host's work other than the policy's decisions.
    pub verify_time: Time,
    /// Number of draft passes of the run.
    pub draft_passes: u64,
    /// Number of draft tokens drafted in the run.
    pub drafted: u64,
    /// Number of draft tokens verified in the run.
    pub verified: u64,
    /// Prompt tokens prefilled by the target (recomputation included).
    pub prefill_tokens: u64,
    /// Number of output tokens emitted in the run.
    pub emitted: u64,
    /// Number of preemptions in the run.
    pub preemptions: u64,
    /// Largest number of blocks of the target's KV pool that requests held at any time; in a fleet, in any one replica.
    pub peak_blocks: u32,
    /// Sum over the run's steps: number of decode requests times duration of the step, ps.
    pub batch_time: u128,
    /// Sum over the run's steps: tokens that the step's decode requests have in KV, times duration of the step, tokens
    /// × ps.
    pub context_time: u128,
    /// Gaps between consecutive emissions of a request, pooled over all requests.
    pub gaps: Gaps,
    /// `verified_accepted[v][a]`: number of request-steps that verified v draft tokens in a row (for a tree: to depth
    /// v) and accepted a of them.
    pub verified_accepted: Box<[[u64; LENGTHS]; LENGTHS]>,
    /// For each number of decode requests in a step: the draft lengths, with their accepted tokens and step times.
    pub lengths: Lengths,
    /// How often draft tokens of a given confidence were right, for policies that read confidences.
    pub calibration: Calibration,
    /// The parts of the latency of finished requests (waiting, prompts, draft passes, …); `None` if the executor does
    /// not know what its device did.
    pub lives: Option<Lives>,
}

impl Default for Totals {
    fn default() -> Self {
        Totals {
            steps: 0,
            request_steps: 0,
            busy: Time::ZERO,
            draft_time: Time::ZERO,
            verify_time: Time::ZERO,
            draft_passes: 0,
            drafted: 0,
            verified: 0,
            prefill_tokens: 0,
            emitted: 0,
            preemptions: 0,
            peak_blocks: 0,
            batch_time: 0,
            context_time: 0,
            gaps: Gaps::default(),
            verified_accepted: Box::new([[0; LENGTHS]; LENGTHS]),
            lengths: Lengths::default(),
            calibration: Calibration::default(),
            lives: None,
        }
    }
}

impl Totals {
    /// Adds a step to the counters that follow from its record: to all counters except `gaps`, `verified_accepted`,
    /// `calibration` and `lives`.
    #[inline]
    pub fn step(&mut self, s: &StepRecord) {
        let span = s.end - s.start;
        self.steps += 1;
        self.request_steps += u64::from(s.batch_size);
        self.busy += span;
        self.draft_time += s.draft_time;
        self.verify_time += s.verify_time;
        self.draft_passes += u64::from(s.draft_passes);
        self.drafted += u64::from(s.drafted);
        self.verified += u64::from(s.verified);
        self.prefill_tokens += s.chunk_tokens;
        self.emitted += u64::from(s.emitted);
        self.preemptions += u64::from(s.preempted);
        self.peak_blocks = self.peak_blocks.max(s.used_blocks);
        self.batch_time += u128::from(s.batch_size) * u128::from(span.0);
        self.context_time += u128::from(s.context) * u128::from(span.0);
        self.lengths.step(s);
    }

    /// Adds `steps` steps without draft tokens and without prompts, all with the same batch size. `busy` is their total
    /// time. `verify_time` and `context_time` are added to the fields of these names. Does not change `gaps`,
    /// `peak_blocks` and `lives`.
    pub fn plain_steps(&mut self, batch_size: u32, steps: u64, (busy, verify_time): (Time, Time), context_time: u128) {
        let n = u64::from(batch_size) * steps;
        self.steps += steps;
        self.request_steps += n;
        self.busy += busy;
        self.verify_time += verify_time;
        self.emitted += n;
        self.batch_time += u128::from(batch_size) * u128::from(busy.0);
        self.context_time += context_time;
        self.verified_accepted[0][0] += n;
        self.lengths.plain_steps(batch_size, steps, busy);
    }

    /// Adds the counters of another replica of a fleet. `peak_blocks` becomes the larger of the two replicas' values.
    pub fn merge(&mut self, other: &Totals) {
        self.steps += other.steps;
        self.request_steps += other.request_steps;
        self.busy += other.busy;
        self.draft_time += other.draft_time;
        self.verify_time += other.verify_time;
        self.draft_passes += other.draft_passes;
        self.drafted += other.drafted;
        self.verified += other.verified;
        self.prefill_tokens += other.prefill_tokens;
        self.emitted += other.emitted;
        self.preemptions += other.preemptions;
        self.peak_blocks = self.peak_blocks.max(other.peak_blocks);
        self.batch_time += other.batch_time;
        self.context_time += other.context_time;
        self.gaps.merge(&other.gaps);
        let mine = self.verified_accepted.iter_mut().flatten();
        mine.zip(other.verified_accepted.iter().flatten()).for_each(|(mine, theirs)| *mine += theirs);
        self.lengths.merge(&other.lengths);
        self.calibration.merge(&other.calibration);
        if let Some(theirs) = &other.lives {
            self.lives.get_or_insert_default().merge(theirs);
        }
    }

    /// Number of request-steps with at least one verified draft token ("drafts" in vLLM's counters).
    pub fn rounds(&self) -> u64 {
        self.verified_accepted[1..].iter().flatten().sum()
    }

    /// Number of accepted draft tokens. Accepted draft tokens beyond an output's end count too.
    pub fn accepted(&self) -> u64 {
        self.verified_accepted.iter().flat_map(|row| row.iter().enumerate().map(|(a, n)| a as u64 * n)).sum()
    }
}
