//! `speculation-gate`: TensorRT-LLM's gate. Once the mean acceptance of the last batches falls below a threshold,
//! speculation ends for good.
//!
//! Source: NVIDIA/TensorRT-LLM `_torch/speculative/speculation_gate.py` (PR #7283, 2025; reworked by PR #12905,
//! 2026-04). The gate is off by default: it needs a window and a threshold. It can be combined with
//! `draft_len_schedule`.

use crate::definition::{About, BadParameter, Check, Definition, PolicyContext};
use crate::engines::draft_len_schedule::{check_schedule, ranges};
use crate::shared::by_batch_size::{ByBatchSize, Counted};
use foretoken_sim::{BatchView, DraftLimits, DraftPlan, SpecPolicy, Speculation, StepOutcome};
use serde::{Deserialize, Serialize};

/// Largest allowed window of the rolling mean of accepted draft tokens, in batches.
const LONGEST_WINDOW: u32 = 1 << 16;

/// Settings of the policy `speculation-gate`, which ends speculation for good once few draft tokens are accepted. As in
/// TensorRT-LLM, speculation never ends unless window and threshold are given.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SpeculationGate {
    /// Draft tokens per request (`max_draft_len`), 1 to 32, if `draft_len_schedule` is empty.
    pub k: u32,
    /// Number of newest batches over which the share of accepted draft tokens is averaged. Default: no gate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acceptance_rate_window_size: Option<u32>,
    /// Speculation ends for good once the mean share of accepted draft tokens falls below this threshold, [0, 1].
    /// Default: no gate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acceptance_rate_threshold: Option<f64>,
    /// `[largest batch size, draft length]` of each range of batch sizes, ascending, as in `draft-len-schedule`.
    /// Batches above the last size draft nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub draft_len_schedule: Vec<(u32, u32)>,
}

impl Default for SpeculationGate {
    fn default() -> Self {
        SpeculationGate {
            k: 3,
            acceptance_rate_window_size: None,
            acceptance_rate_threshold: None,
            draft_len_schedule: Vec::new(),
        }
    }
}

impl Definition for SpeculationGate {
    fn about(&self) -> About {
        About {
            summary: "one length, and none for good once the rolling mean of accepted shares has fallen below a \
                      threshold",
            source: "TensorRT-LLM _torch/speculative/speculation_gate.py (PRs #7283, #12905)",
            sees: "accepted and drafted counts of past batches; with a schedule the length of the running list",
            differences: "window, threshold and length have no default in TensorRT-LLM; without the first two the \
                          gate is off here too. The mean counts once the window is full; a batch that drafted \
                          nothing is no sample",
        }
    }

    fn asks_for(&self) -> Option<(&'static str, u32)> {
        match self.draft_len_schedule.iter().map(|s| s.1).max() {
            Some(longest) => Some(("draft_len_schedule", longest)),
            None => Some(("k", self.k)),
        }
    }

    fn check(&self) -> Result<(), BadParameter> {
        let check = Check("speculation-gate");
        check.length("k", self.k)?;
        let both = self.acceptance_rate_window_size.is_some() == self.acceptance_rate_threshold.is_some();
        let missing = match self.acceptance_rate_window_size {
            None => "acceptance_rate_window_size",
            Some(_) => "acceptance_rate_threshold",
        };
        check.that(missing, both, || "is missing: the gate needs a window and a threshold".into())?;
        if let Some(window) = self.acceptance_rate_window_size {
            check.that("acceptance_rate_window_size", (1..=LONGEST_WINDOW).contains(&window), || {
                format!("{window} is not a number of batches from 1 to {LONGEST_WINDOW}")
            })?;
        }
        if let Some(threshold) = self.acceptance_rate_threshold {
            check.share("acceptance_rate_threshold", threshold)?;
        }
        if self.draft_len_schedule.is_empty() { Ok(()) } else { check_schedule(&check, &self.draft_len_schedule) }
    }

    fn build(&self, context: &PolicyContext) -> Speculation {
        let window = self.acceptance_rate_window_size.unwrap_or(0) as usize;
        let lengths = match self.draft_len_schedule.is_empty() {
            true => vec![(1, self.k)],
            false => ranges(&self.draft_len_schedule, 0),
        };
        Speculation::Policy(Box::new(Gate {
            open: ByBatchSize::new(Counted::Running, lengths, context.max_draft_len),
            threshold: self.acceptance_rate_threshold.unwrap_or(0.0),
            samples: Vec::with_capacity(window),
            window,
            next: 0,
            closed: false,
        }))
    }
}

/// The policy `speculation-gate` while the engine runs: its settings, and what it keeps from step to step.
struct Gate {
    /// Chooses the draft lengths while the gate is open, that is, while speculation has not ended.
    open: ByBatchSize,
    threshold: f64,
    /// Shares of accepted draft tokens in the newest batches, one share a batch. Once there are `window` shares, the
    /// vector is a ring and `next` is the index of the oldest share.
    samples: Vec<f64>,
    window: usize,
    next: usize,
    closed: bool,
}

impl SpecPolicy for Gate {
    fn limits(&self) -> DraftLimits<'_> {
        DraftLimits::chain(if self.closed { 0 } else { self.open.limits().depth }).up_to(self.open.limits().max_depth)
    }

    fn propose(&mut self, batch: &BatchView, plan: &mut DraftPlan) {
        match self.closed {
            true => plan.fill(0),
            false => self.open.propose(batch, plan),
        }
    }

    fn observe(&mut self, outcome: &StepOutcome) {
        let total = |column: &[u32]| column.iter().map(|&n| u64::from(n)).sum::<u64>();
        let drafted = total(outcome.verified);
        if self.closed || self.window == 0 || drafted == 0 {
            return;
        }
        let share = total(outcome.accepted) as f64 / drafted as f64;
        if self.samples.len() < self.window {
            self.samples.push(share);
        } else {
            self.samples[self.next] = share;
            self.next = (self.next + 1) % self.window;
        }
        // The mean share of accepted draft tokens is summed afresh, so that rounding errors do not build up over a long
        // run.
        let mean = self.samples.iter().sum::<f64>() / self.samples.len() as f64;
        self.closed = self.samples.len() == self.window && mean < self.threshold;
    }

    fn warnings(&self) -> Vec<String> {
        match self.closed {
            true => vec![format!("the gate closed: of the last {} batches' drafts too few were accepted", self.window)],
            false => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Batch, CONTEXT, Run};

    fn gate(window: u32, threshold: f64) -> SpeculationGate {
        SpeculationGate {
            k: 4,
            acceptance_rate_window_size: Some(window),
            acceptance_rate_threshold: Some(threshold),
            ..SpeculationGate::default()
        }
    }

    /// Draft lengths of two equal requests, step by step. `accepted` has the numbers of accepted draft tokens of both
    /// requests in each step.
    fn lengths(params: &SpeculationGate, accepted: &[[u32; 2]]) -> Vec<u32> {
        let mut run = Run::of(params, &CONTEXT);
        let mut step = |a: &[u32; 2]| run.step(&Batch::new(&[9; 2], &[8; 2]), |_, _| 0.5, a).draft_len[0];
        accepted.iter().map(&mut step).collect()
    }

    #[test]
    fn it_closes_for_good_once_a_full_window_is_below() {
        // The shares of accepted draft tokens are 0, 0, 1, 0.75, 0.125, 0 by step. Their means over three steps are
        // 1/3, 0.583, 0.625, 0.292.
        let accepted = [[0, 0], [0, 0], [4, 4], [4, 2], [1, 0], [0, 0], [4, 4], [4, 4], [4, 4]];
        assert_eq!(lengths(&gate(3, 0.3), &accepted), [4, 4, 4, 4, 4, 4, 0, 0, 0]);
        assert_eq!(lengths(&gate(3, 0.35), &accepted), [4, 4, 4, 0, 0, 0, 0, 0, 0]);
        // With a window of one batch, the mean is the batch's share of accepted draft tokens. A mean equal to the
        // threshold does not close the gate, so speculation goes on.
        assert_eq!(lengths(&gate(1, 0.5), &[[2, 2], [4, 0], [2, 1], [4, 4]]), [4, 4, 4, 0]);
    }

    #[test]
    fn without_its_settings_it_stays_open() {
        assert_eq!(lengths(&SpeculationGate::default(), &[[0, 0]; 20]), [3; 20]);
    }

    #[test]
    fn batches_without_drafts_are_no_samples() {
        let mut run = Run::of(&gate(2, 0.5), &CONTEXT);
        run.step(&Batch::new(&[9], &[8]), |_, _| 0.5, &[0]);
        for _ in 0..5 {
            run.step(&Batch::new(&[9], &[0]), |_, _| 0.5, &[0]);
        }
        assert_eq!(run.step(&Batch::new(&[9], &[8]), |_, _| 0.5, &[4]).draft_len, [4], "0 and then 1 is half");
    }

    #[test]
    fn a_schedule_says_the_length_while_it_is_open() {
        let params = SpeculationGate { draft_len_schedule: vec![(1, 5), (2, 2)], ..gate(2, 0.5) };
        assert_eq!(params.asks_for(), Some(("draft_len_schedule", 5)));
        let mut run = Run::of(&params, &CONTEXT);
        let mut length = |n: usize, accepted: u32| {
            run.step(&Batch::new(&vec![9; n], &vec![8; n]), |_, _| 0.5, &vec![accepted; n]).draft_len[0]
        };
        assert_eq!([length(1, 5), length(2, 1), length(3, 0), length(1, 0), length(1, 5)], [5, 2, 0, 5, 0]);
    }

    #[test]
    fn bad_settings_are_named() {
        for (params, key) in [
            (SpeculationGate { k: 0, ..gate(2, 0.5) }, "k"),
            (SpeculationGate { acceptance_rate_threshold: None, ..gate(2, 0.5) }, "acceptance_rate_threshold"),
            (SpeculationGate { acceptance_rate_window_size: None, ..gate(2, 0.5) }, "acceptance_rate_window_size"),
            (gate(0, 0.5), "acceptance_rate_window_size"),
            (gate(2, f64::NAN), "acceptance_rate_threshold"),
            (SpeculationGate { draft_len_schedule: vec![(4, 2), (3, 1)], ..gate(2, 0.5) }, "draft_len_schedule"),
        ] {
            assert_eq!(params.check().map_err(|e| e.key), Err(key));
        }
    }
}
