//! A draft pass: drafts the next token of each chain, or the next level of each tree. The first pass of a step also
//! runs the draft model over prompt chunks and over draft gaps (context tokens that the draft model has not run over
//! yet).

use super::acceptance::Acceptance;
use super::buffers::Drafting;
use super::error::LiveError;
use super::pair::Pair;
use super::requests::{NOT_RUN, ScratchIsDry, Slot};
use super::state::DeviceExecutor;
use crate::device::Device;
use crate::paged::Logits;
use foretoken_sim::executor::{DraftPass, StepPlan};
use foretoken_sim::luck::{Luck, Stream};
use foretoken_sim::tree::{Growth, path_below};
use foretoken_sim::{Drafts, Wants};
use std::time::{Duration, Instant};

/// What a draft pass must compute: how many guesses of the next token, and which of confidences, entropies and
/// divergences the policy wants.
#[derive(Clone, Copy)]
struct Question {
    /// Number of the draft pass in the step, from 1. It is 0 for a pass that drafts nothing and only fills the draft
    /// model's KV.
    pass: u32,
    /// Number of guesses below each node of a draft tree that the pass expands; 1 for chains. The guesses are the most
    /// likely tokens. With sampling, the one guess is a token that is drawn from the draft model's distribution.
    guesses: usize,
    in_trees: bool,
    wants: Wants,
}

impl<D: Device> DeviceExecutor<'_, D> {
    /// Runs one draft pass of the step. If its tokens do not fit one pass of the device, the function runs several
    /// device passes. It extends the draft trees in `out`, or writes the confidences and entropies of chains to `out`.
    /// Returns the time that the device took.
    pub(super) fn draft_pass(
        &mut self,
        step: &StepPlan,
        pass: &DraftPass,
        out: &mut Drafts,
    ) -> Result<Duration, LiveError<D::Error>> {
        let batch = &step.batch;
        let guesses = pass.growth.map_or(1, |growth| match growth {
            Growth::Expansion(children) => children[(pass.pass.max(1) as usize - 1).min(children.len() - 1)],
            Growth::Beam { topk } => *topk,
        });
        let vocab = self.pair.vocab();
        if guesses > vocab {
            return Err(LiveError::TooManyGuesses { asked: guesses, vocab });
        }
        let in_trees = pass.growth.is_some();
        let question = Question { pass: pass.pass, guesses: guesses as usize, in_trees, wants: out.wants };
        self.batch.clear();
        let mut device = Duration::ZERO;
        if pass.pass <= 1 {
            for chunk in step.chunks.iter().filter(|c| c.draft_tokens > 0) {
                let known = self.requests.get(chunk.request).tokens.len() as u32;
                let end = known.min(chunk.computed + chunk.tokens);
                let range = (end - chunk.draft_tokens) as usize..end as usize;
                self.feed(step, chunk.request, range, None, question, &mut device)?;
            }
        }
        for i in 0..batch.len() {
            let asks = pass.pass > 0 && pass.draft_len[i] >= pass.pass;
            let (id, context) = (batch.ids[i], batch.context[i] as usize);
            let gap = batch.draft_gap[i] as usize;
            match pass.pass {
                // In its first draft pass of a step, a request that drafts runs the draft model over its draft gap
                // (context tokens that the draft model has not run over yet) and then over its newest token.
                0 | 1 if asks => {
                    self.feed(step, id, context - gap..context + 1, Some(i as u32), question, &mut device)?;
                }
                0 | 1 if batch.always_extend && gap > 0 => {
                    self.feed(step, id, context - gap..context, None, question, &mut device)?;
                }
                n if asks && in_trees => {
                    self.feed_level(step, (i, n), out, question, &mut device)?;
                }
                n if asks => self.feed_drafted(step, (i, n), question, &mut device)?,
                _ => {}
            }
        }
        self.run_draft(step, question, &mut device)?;
        self.reveal(step, pass, out);
        Ok(device)
    }

    /// Adds the tokens `range` of the text of request `id` to the draft pass. If the tokens do not fit one pass of the
    /// device, the function runs each device pass that is full. `asker` is the request that gets the guesses after the
    /// last token, as an index in the step's batch; `None` if no guesses are needed.
    fn feed(
        &mut self,
        step: &StepPlan,
        id: u32,
        range: std::ops::Range<usize>,
        asker: Option<u32>,
        question: Question,
        device: &mut Duration,
    ) -> Result<(), LiveError<D::Error>> {
        let table = step.block_tables.draft(id);
        let mut from = range.start;
        while from < range.end {
            let room = self.drafting.room(&self.batch, asker.is_some());
            if room == 0 {
                self.run_draft(step, question, device)?;
                continue;
            }
            let to = range.end.min(from + room);
            let asks = asker.filter(|_| to == range.end);
            let slot = self.requests.get(id);
            let logits = if asks.is_some() { Logits::Last } else { Logits::Skip };
            self.batch.push_chain(&slot.tokens[from..to], from, table, logits);
            self.drafting.askers.extend(asks);
            from = to;
        }
        Ok(())
    }

    /// Adds a row to draft pass `pass` for request `i`, which drafts a chain. The row's token is the one that draft
    /// pass `pass − 1` drafted. If the present device pass is full, the function first runs it.
    fn feed_drafted(
        &mut self,
        step: &StepPlan,
        (i, pass): (usize, u32),
        question: Question,
        device: &mut Duration,
    ) -> Result<(), LiveError<D::Error>> {
        if self.drafting.room(&self.batch, true) == 0 {
            self.run_draft(step, question, device)?;
        }
        let id = step.batch.ids[i];
        let at = (step.batch.context[i] + pass - 1) as usize;
        let slot = self.requests.get(id);
        let newest = slot.drafted.len() - 1;
        self.batch.push_chain(&slot.drafted[newest..], at, step.block_tables.draft(id), Logits::Last);
        self.drafting.askers.push(i as u32);
        Ok(())
    }

    /// Adds the frontier of the draft tree of request `i` to the draft pass: the nodes whose children this pass drafts.
    /// If the request's own KV blocks have no room for the KV of these nodes, the function takes scratch blocks (KV
    /// blocks for draft trees only). If the nodes do not fit one pass of the device, the function runs each device pass
    /// that is full.
    fn feed_level(
        &mut self,
        step: &StepPlan,
        (i, _): (usize, u32),
        out: &Drafts,
        question: Question,
        device: &mut Duration,
    ) -> Result<(), LiveError<D::Error>> {
        let (id, context) = (step.batch.ids[i], step.batch.context[i] as usize);
        let tree = &out.trees[i];
        let first = context + tree.ran() as usize;
        let frontier = tree.frontier();
        let (slot, scratch) = self.requests.with_scratch(id);
        if slot.tree_table.is_empty() {
            slot.tree_table.extend_from_slice(step.block_tables.draft(id));
        }
        scratch.extend(&mut slot.tree_table, first + frontier.len()).map_err(too_wide)?;
        for (at, &node) in (first as u32..).zip(frontier) {
            slot.ran_at[node as usize] = at;
        }
        let mut from = 0;
        while from < frontier.len() {
            let askers_left = self.drafting.max_logit_rows - self.drafting.askers.len();
            let room = self.drafting.room(&self.batch, true).min(askers_left);
            if room == 0 {
                self.run_draft(step, question, device)?;
                continue;
            }
            let slot = self.requests.get(id);
            let level = &frontier[from..frontier.len().min(from + room)];
            self.drafting.frontier.clear();
            self.drafting.frontier.extend(level.iter().map(|&node| slot.drafted[node as usize]));
            let Slot { tree_table, ran_at, .. } = slot;
            self.batch.push_level(&self.drafting.frontier, context + 1, first + from, tree_table, |j, path| {
                let start = path.len();
                let mut above = tree.nodes()[level[j] as usize].parent;
                while let Some(node) = tree.nodes().get(above as usize) {
                    path.push(ran_at[above as usize]);
                    above = node.parent;
                }
                path[start..].reverse();
            });
            self.drafting.askers.extend(level.iter().map(|_| i as u32));
            from += level.len();
        }
        Ok(())
    }

    /// Runs the draft model over the collected batch, then empties the batch. Stores the guesses of the draft model in
    /// the requests that need them. If rejection sampling or the policy's divergences need the draft model's
    /// distributions, stores these too. Adds the device's time to `spent`.
    fn run_draft(
        &mut self,
        step: &StepPlan,
        question: Question,
        spent: &mut Duration,
    ) -> Result<(), LiveError<D::Error>> {
        if self.batch.rows() == 0 {
            return Ok(());
        }
        let begun = Instant::now();
        let device = &mut *self.device;
        device.start_timer()?;
        let Pair { draft, distributions, capacity, .. } = &mut *self.pair;
        let draft = draft.as_mut().expect("construction asked for a draft");
        draft.forward(device, &self.batch)?;
        let Drafting { askers, choices, entropies, uniforms, kept_rows, .. } = &mut self.drafting;
        choices.clear();
        entropies.clear();
        if !askers.is_empty() {
            let sampled = match self.acceptance {
                Acceptance::Sampled { temperature, seed } => Some((temperature, seed)),
                _ => None,
            };
            let declared = matches!(self.acceptance, Acceptance::Declared(_));
            let looks = !declared && !question.in_trees && (question.wants.entropy || question.wants.divergence);
            if let Some(d) = distributions.as_mut().filter(|_| looks || sampled.is_some()) {
                device.softmax(draft.logits(), sampled.map_or(1.0, |(t, _)| t), &mut d.draft)?;
                if question.wants.entropy {
                    device.entropy(&d.draft, askers.len(), entropies)?;
                }
                if question.wants.divergence || sampled.is_some() {
                    let kept_len = capacity.kept_len as u32;
                    kept_rows.clear();
                    kept_rows.extend(askers.iter().map(|&i| i * kept_len + question.pass - 1));
                    device.scatter(&d.draft, kept_rows, &mut d.kept)?;
                }
                if let Some((_, seed)) = sampled {
                    uniforms.clear();
                    uniforms.extend(askers.iter().map(|&i| {
                        let (id, start) = (step.batch.ids[i as usize], step.batch.emitted[i as usize]);
                        let luck = Luck::new(seed, Stream::DraftSample, id.into()).narrow(start.into());
                        luck.unit(u64::from(question.pass) - 1)
                    }));
                    device.sample(&d.draft, uniforms, choices)?;
                }
            }
            if sampled.is_none() {
                device.top_k(draft.logits(), question.guesses, choices)?;
            }
        }
        *spent += device.stop_timer()?.unwrap_or_else(|| begun.elapsed());
        for ((&i, guesses), row) in askers.iter().zip(choices.chunks_exact(question.guesses)).zip(0..) {
            let slot = self.requests.get(step.batch.ids[i as usize]);
            if question.in_trees {
                slot.guesses.extend_from_slice(guesses);
            } else {
                slot.drafted.push(guesses[0].token);
                slot.confidence.push(guesses[0].probability);
                slot.entropy.extend(entropies.get(row));
            }
        }
        self.batch.clear();
        askers.clear();
        Ok(())
    }

    /// Extends the draft trees by the draft model's guesses, and writes to `out` the confidences and entropies that the
    /// policy wants. If an acceptance source decides (`Acceptance::Declared`), the trees, confidences and entropies
    /// come from the source and not from the model.
    fn reveal(&mut self, step: &StepPlan, pass: &DraftPass, out: &mut Drafts) {
        if pass.pass == 0 {
            return;
        }
        if let Some(truths) = &self.truths {
            truths.reveal(&step.batch, pass, out);
        }
        let declared = self.truths.is_some();
        let depth = pass.pass - 1;
        for i in (0..step.batch.len()).filter(|&i| pass.draft_len[i] >= pass.pass) {
            let slot = self.requests.get(step.batch.ids[i]);
            let Some(growth) = pass.growth else {
                if declared {
                    // The recorder, which writes the log of the run, gets the confidence that the policy saw, which
                    // comes from the acceptance source. It does not get the draft model's confidence.
                    let at = depth as usize;
                    slot.confidence[at] = if out.wants.confidence { out.confidence(i, at) as f32 } else { f32::NAN };
                    slot.entropy.extend(out.wants.entropy.then(|| out.entropy(i, at)));
                } else {
                    out.set_confidence(i, depth as usize, slot.confidence[depth as usize].into());
                    if out.wants.entropy {
                        out.set_entropy(i, depth as usize, slot.entropy[depth as usize]);
                    }
                }
                continue;
            };
            if !declared {
                let mut guesses = slot.guesses.iter();
                out.trees[i].grow(growth, |parent, rank| {
                    let guess = guesses.next().expect("a guess for every child");
                    (guess.probability.into(), path_below(parent.map_or(0, |n| n.path), depth, rank))
                });
            }
            slot.drafted.extend(slot.guesses.drain(..).map(|g| g.token));
            slot.ran_at.resize(slot.drafted.len(), NOT_RUN);
        }
    }
}

fn too_wide<E: std::error::Error>(ScratchIsDry { needed, free }: ScratchIsDry) -> LiveError<E> {
    LiveError::TreeTooWide { needed, free }
}
