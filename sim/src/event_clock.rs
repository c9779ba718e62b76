//! The simulated executor: predicts how long a pass takes and looks up what would be accepted.

use crate::executor::{DecisionTime, DraftPass, Executor, Moment, StepPlan};
use crate::luck::{Luck, Stream, mix};
use crate::tree::Growth;
use crate::{
    AcceptanceSource, BatchView, ContextReads, Drafting, Drafts, LatencyModel, PassShape, RequestId, RequestTruth,
    Time, Truth, TruthRow, Wants, shape,
};
use std::convert::Infallible;

const NO_ROW: u32 = u32::MAX;

/// The true world of a simulation.
#[derive(Clone, Copy)]
pub struct World<'a> {
    /// True time of a draft pass.
    pub draft: &'a dyn LatencyModel,
    /// True time of a target pass.
    pub target: &'a dyn LatencyModel,
    /// How the target reads context.
    pub context_reads: ContextReads,
    /// How the draft comes by its tokens.
    pub drafting: Drafting,
    /// What the draft gets right.
    pub acceptance: &'a dyn AcceptanceSource,
    /// Host time of a step.
    pub overhead: Time,
    /// Host time of a policy's decisions.
    pub decision_time: DecisionTime,
    /// Coefficient of variation of the residual noise; 0 is none.
    pub noise_cv: f64,
    /// Seed of the noise.
    pub seed: u64,
    /// Longest draft: how far beyond an output's end truth is needed.
    pub max_draft_len: u32,
}

/// An executor on a clock that jumps from event to event.
pub struct EventClock<'a> {
    world: World<'a>,
    now: Time,
    step: u64,
    noise: Option<Noise>,
    /// Truth of the requests in the system; rows are reused.
    rows: Vec<TruthRow>,
    requests: Vec<RequestTruth>,
    free_rows: Vec<u32>,
    row_of: Vec<u32>,
    /// Scratch for oracles.
    runs: Vec<u32>,
}

impl<'a> EventClock<'a> {
    /// A clock at zero for a workload of `requests` requests.
    pub fn new(world: World<'a>, requests: usize) -> EventClock<'a> {
        EventClock {
            world,
            now: Time::ZERO,
            step: 0,
            noise: (world.noise_cv > 0.0).then(|| Noise::new(world.noise_cv, world.seed)),
            rows: Vec::new(),
            requests: Vec::new(),
            free_rows: Vec::new(),
            row_of: vec![NO_ROW; requests],
            runs: Vec::new(),
        }
    }

    /// The hidden truth of a batch, for oracles alone.
    pub(crate) fn truth(&mut self, batch: &BatchView) -> Truth<'_> {
        self.runs.clear();
        for ((&id, &emitted), &limit) in batch.ids.iter().zip(batch.emitted).zip(batch.limit) {
            self.runs.push(self.rows[self.row_of[id as usize] as usize].run(emitted, limit));
        }
        Truth {
            run: &self.runs,
            draft: self.world.draft,
            target: self.world.target,
            context_reads: self.world.context_reads,
            drafting: self.world.drafting,
            overhead: self.world.overhead,
        }
    }

    #[inline]
    fn advance(&mut self, pass: Time, which: u64) {
        self.now += match &self.noise {
            None => pass,
            Some(noise) => noise.apply(pass, self.step, which),
        };
    }

    /// What the policy looks at of the tokens that pass `pass` drafted.
    fn reveal(&self, batch: &BatchView, pass: &DraftPass, out: &mut Drafts) {
        let (depth, acceptance) = (pass.pass - 1, self.world.acceptance);
        for i in (0..batch.len()).filter(|&i| pass.draft_len[i] >= pass.pass) {
            let row = self.row_of[batch.ids[i] as usize] as usize;
            let start = batch.emitted[i];
            let on_path = self.rows[row].run(start, depth) == depth;
            let right = on_path.then(|| self.rows[row].right(start + depth, depth));
            let c = acceptance.confidence(self.requests[row], start, depth, right, 0);
            out.set_confidence(i, depth as usize, c.into());
            if out.wants.entropy {
                out.set_entropy(i, depth as usize, acceptance.ranks().entropy(c.into()));
            }
        }
    }

    /// Which guess of the draft is the target's token at the depth (from 0) of a round of the request in `row`?
    fn rank(&self, row: usize, start: u32, depth: u32) -> u32 {
        match self.rows[row].right(start + depth, depth) {
            true => 1,
            false => self.world.acceptance.rank_if_wrong(self.requests[row], start + depth),
        }
    }

    /// Grows the trees of the requests in a pass by a level.
    fn grow_trees(&self, batch: &BatchView, pass: &DraftPass, growth: &Growth, out: &mut Drafts) {
        let depth = pass.pass - 1;
        for i in (0..batch.len()).filter(|&i| pass.draft_len[i] >= pass.pass) {
            let row = self.row_of[batch.ids[i] as usize] as usize;
            let start = batch.emitted[i];
            // Where the target goes, down to the parents of this level: a node is on the path when its ranks are the target's.
            let target = target_path((0..depth).map(|d| self.rank(row, start, d)));
            let right = self.rows[row].right(start + depth, depth);
            let confidence = |path: u64, on_path: bool| {
                let right = on_path.then_some(right);
                self.world.acceptance.confidence(self.requests[row], start, depth, right, path)
            };
            let ranks = self.world.acceptance.ranks();
            let mut first = (None, 0.0);
            out.trees[i].grow(growth, |parent, rank| {
                let path = parent.map_or(0, |n| n.path);
                if first.0 != Some(path) {
                    first = (Some(path), confidence(path, path == target));
                }
                (ranks.guess(first.1.into(), rank), path_below(path, depth, rank))
            });
        }
    }

    /// KL(target ‖ draft) at the verified positions up to the first rejected one; beyond it the target's distribution is
    /// off its own path, and nothing is said.
    fn reveal_divergences(&self, batch: &BatchView, accepted: &[u32], out: &mut Drafts) {
        let ranks = self.world.acceptance.ranks();
        for (i, &accepted) in accepted.iter().enumerate().take(batch.len()) {
            let row = self.row_of[batch.ids[i] as usize] as usize;
            for j in 0..out.verify_len[i].min(accepted + 1) {
                let first = out.confidence(i, j as usize);
                let nats = ranks.divergence(first, self.rank(row, batch.emitted[i], j));
                out.set_divergence(i, j as usize, nats);
            }
        }
    }
}

/// The key of a path after one more guess: 0 along first guesses.
fn path_below(path: u64, depth: u32, rank: u32) -> u64 {
    if path == 0 && rank == 1 { 0 } else { mix(path ^ (u64::from(depth) << 32 | u64::from(rank))) }
}

/// The key of the path of these ranks from the root on.
fn target_path(ranks: impl Iterator<Item = u32>) -> u64 {
    ranks.enumerate().fold(0, |path, (depth, rank)| path_below(path, depth as u32, rank))
}

impl Executor for EventClock<'_> {
    type Error = Infallible;
    const SKIPS: bool = true;

    #[inline]
    fn now(&self) -> Time {
        self.now
    }

    fn wait_until(&mut self, at: Time) {
        self.now = self.now.max(at);
    }

    fn start(&mut self, request: RequestTruth) {
        let row = self.free_rows.pop().unwrap_or_else(|| {
            self.rows.push(TruthRow::default());
            self.requests.push(request);
            self.rows.len() as u32 - 1
        });
        self.requests[row as usize] = request;
        self.row_of[request.id as usize] = row;
        // Without a drafter nobody asks for the truth.
        if self.world.max_draft_len > 0 {
            self.world.acceptance.start(request, self.world.max_draft_len, &mut self.rows[row as usize]);
        }
    }

    fn end(&mut self, id: RequestId) {
        let row = std::mem::replace(&mut self.row_of[id as usize], NO_ROW);
        if row != NO_ROW {
            self.free_rows.push(row);
        }
    }

    fn proposable(&mut self, ids: &[RequestId], emitted: &[u32], limit: &mut [u32]) {
        if self.world.max_draft_len == 0 || !self.world.acceptance.may_lack_proposals() {
            return;
        }
        for ((&id, &emitted), limit) in ids.iter().zip(emitted).zip(limit) {
            if !self.rows[self.row_of[id as usize] as usize].matched(emitted) {
                *limit = 0;
            }
        }
    }

    fn drafts_in_parallel(&self) -> bool {
        self.world.drafting == Drafting::Parallel
    }

    fn deliberated(&mut self, moment: Moment) {
        self.now += self.world.decision_time.of(moment);
    }

    fn draft(&mut self, step: &StepPlan, pass: &DraftPass, out: &mut Drafts) -> Result<(), Infallible> {
        let batch = &step.batch;
        let shape = match (pass.pass, self.world.drafting) {
            (0, _) => Some(shape::draft_idle_pass(batch).unwrap_or_default()),
            (1, Drafting::Parallel) => Some(shape::draft_block(batch, pass.draft_len)),
            (_, Drafting::Parallel) => None,
            (n, _) if pass.growth.is_some() => Some(shape::draft_tree_pass(batch, pass.draft_len, n, &out.trees)),
            (n, _) if n <= pass.common_len => Some(shape::draft_pass_all(batch, n)),
            (n, _) => Some(shape::draft_pass(batch, pass.draft_len, n)),
        };
        if let Some(shape) = shape {
            let time = self.world.draft.pass(shape);
            self.advance(time, u64::from(pass.pass) + 1);
        }
        match pass.growth {
            Some(growth) if pass.pass > 0 => self.grow_trees(batch, pass, growth, out),
            None if pass.pass > 0 && out.wants != Wants::default() => self.reveal(batch, pass, out),
            _ => {}
        }
        Ok(())
    }

    fn verify(&mut self, step: &StepPlan, drafts: &mut Drafts, accepted: &mut [u32]) -> Result<(), Infallible> {
        if self.world.max_draft_len == 0 {
            self.plain_step(shape::plain_pass(&step.batch));
            return Ok(());
        }
        let reads = self.world.context_reads;
        if drafts.in_trees() {
            let trees = &mut drafts.trees[..step.batch.len()];
            self.plain_step(shape::verify_tree_pass(&step.batch, trees, reads));
            for (i, a) in accepted.iter_mut().enumerate().take(step.batch.len()) {
                let row = self.row_of[step.batch.ids[i] as usize] as usize;
                *a = trees[i].accepted(|depth| self.rank(row, step.batch.emitted[i], depth - 1));
            }
            return Ok(());
        }
        self.plain_step(shape::verify_pass(&step.batch, &drafts.verify_len, reads));
        let asked = step.batch.ids.iter().zip(step.batch.emitted).zip(&drafts.verify_len);
        for (((&id, &emitted), &v), a) in asked.zip(accepted.iter_mut()) {
            *a = if v == 0 { 0 } else { self.rows[self.row_of[id as usize] as usize].run(emitted, v) };
        }
        if drafts.wants.divergence {
            self.reveal_divergences(&step.batch, accepted, drafts);
        }
        Ok(())
    }

    #[inline]
    fn plain_step(&mut self, shape: PassShape) {
        let time = self.world.target.pass(shape);
        self.advance(time, 0);
        self.now += self.world.overhead;
        self.step += 1;
    }
}

/// Log-normal residual noise with mean 1, keyed by (seed, step, pass): policies that agree on a step share it.
struct Noise {
    sigma: f64,
    luck: Luck,
}

impl Noise {
    fn new(cv: f64, seed: u64) -> Noise {
        Noise { sigma: (1.0 + cv * cv).ln().sqrt(), luck: Luck::new(seed, Stream::Noise, 0) }
    }

    fn apply(&self, pass: Time, step: u64, which: u64) -> Time {
        let key = self.luck.narrow(step);
        // Box-Muller; the first uniform is kept off zero.
        let (u, v) = (1.0 - key.unit(2 * which), key.unit(2 * which + 1));
        let z = (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos();
        Time((pass.0 as f64 * (self.sigma * z - self.sigma * self.sigma / 2.0).exp()).round() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_has_mean_one_and_the_asked_spread() {
        let (noise, n) = (Noise::new(0.1, 7), 200_000u64);
        let x: Vec<f64> = (0..n).map(|s| noise.apply(Time(1 << 40), s, 0).0 as f64 / (1u64 << 40) as f64).collect();
        let mean = x.iter().sum::<f64>() / n as f64;
        let sd = (x.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n as f64).sqrt();
        assert!((mean - 1.0).abs() < 4.0 * 0.1 / (n as f64).sqrt(), "{mean}");
        assert!((sd - 0.1).abs() < 0.002, "{sd}");
    }
}
