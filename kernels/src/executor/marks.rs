//! Records a step for the tape, which is the log of a run on a device. The record says when each event of the step
//! happened, and which confidences, entropies and divergences the policy saw.

use super::clock::time;
use super::state::DeviceExecutor;
use crate::device::Device;
use foretoken_sim::executor::StepPlan;
use foretoken_sim::live::{Mark, MarkKind, Round, TracedNode};
use foretoken_sim::{Drafts, PassShape, Time};
use std::time::Duration;

impl<D: Device> DeviceExecutor<'_, D> {
    /// Reads the clock and records an event of the step that begins and ends at this time.
    pub(super) fn mark_instant(&mut self, kind: MarkKind) {
        let at = self.clock.read();
        self.mark_span(kind, at);
    }

    /// Records an event of the step that began at `begin` and ended at the clock's last reading. The function does not
    /// read the clock.
    pub(super) fn mark_span(&mut self, kind: MarkKind, begin: Time) {
        let end = self.clock.now();
        self.trace.marks.push(Mark { kind, begin, end, device: Time::ZERO, shape: PassShape::default() });
    }

    /// Reads the clock and records a pass that began at `begin` and ends at this reading. The device took the time
    /// `device` for the pass.
    pub(super) fn mark_pass(&mut self, kind: MarkKind, begin: Time, device: Duration, shape: PassShape) {
        let end = self.clock.read();
        self.trace.marks.push(Mark { kind, begin, end, device: time(device), shape });
    }

    /// Completes the record of the step and gives it to the recorder. The time that this recording took becomes the
    /// first event in the record of the next step.
    pub(super) fn record(&mut self, step: &StepPlan, drafts: &Drafts, accepted: &[u32]) {
        let begin = self.clock.peek();
        let (batch, trace) = (&step.batch, &mut self.trace);
        trace.step = batch.step;
        trace.num_running = batch.num_running;
        trace.num_waiting = batch.num_waiting;
        trace.chunks.extend_from_slice(step.chunks);
        for i in 0..batch.len() {
            let slot = self.requests.get(batch.ids[i]);
            let mut nodes = 0;
            if !accepted.is_empty() && drafts.in_trees() {
                let tree = &drafts.trees[i];
                nodes = tree.nodes().len() as u32;
                let traced = |(at, n): (usize, &foretoken_sim::tree::Node)| TracedNode {
                    parent: n.parent,
                    rank: n.rank,
                    confidence: n.confidence,
                    kept: n.kept,
                    accepted: tree.accepted_path().contains(&(at as u32)),
                };
                trace.nodes.extend(tree.nodes().iter().enumerate().map(traced));
            } else {
                trace.confidence.extend_from_slice(&slot.confidence);
                trace.entropy.extend_from_slice(&slot.entropy);
                trace.divergence.extend_from_slice(&slot.divergence);
            }
            trace.rounds.push(Round {
                request: batch.ids[i],
                start: batch.emitted[i],
                context: batch.context[i],
                drafted: drafts.draft_len.get(i).copied().unwrap_or(0),
                verified: drafts.verify_len.get(i).copied().unwrap_or(0),
                accepted: accepted.get(i).copied().unwrap_or(0),
                nodes,
            });
        }
        self.recorder.step(&self.trace);
        self.trace.clear();
        // Events from this point on belong to the next step. After the last step they belong to no step.
        self.trace.step = batch.step + 1;
        let end = self.clock.peek();
        self.trace.marks.push(Mark {
            kind: MarkKind::Recorded,
            begin,
            end,
            device: Time::ZERO,
            shape: PassShape::default(),
        });
    }
}
