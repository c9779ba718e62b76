//! The target pass: verifies draft tokens, runs prefill chunks, and appends accepted and sampled tokens to requests'
//! texts.

use super::acceptance::Acceptance;
use super::buffers::Asker;
use super::error::LiveError;
use super::pair::Pair;
use super::state::DeviceExecutor;
use crate::accept::{Chain, Tree};
use crate::device::Device;
use crate::paged::{Logits, slot};
use foretoken_sim::executor::StepPlan;
use foretoken_sim::luck::{Luck, Stream};
use foretoken_sim::tree::ROOT;
use foretoken_sim::{Drafts, MAX_SPEC_LEN};
use std::time::{Duration, Instant};

/// The parents of the tokens of a chain, in which each token is the parent of the next one: [`ROOT`], 0, 1, and so on.
const CHAIN: [u32; MAX_SPEC_LEN as usize] = {
    let mut parents = [ROOT; MAX_SPEC_LEN as usize];
    let mut i = 1;
    while i < parents.len() {
        parents[i] = i as u32 - 1;
        i += 1;
    }
    parents
};

impl<D: Device> DeviceExecutor<'_, D> {
    /// Runs the target pass over the decode requests with their draft tokens, and over the prefill chunks. Writes the
    /// number of accepted draft tokens of each decode request to `accepted`, which is empty in a run without
    /// speculation. Appends the emitted tokens to the requests' texts. Returns the time that the device took.
    pub(super) fn verify_pass(
        &mut self,
        step: &StepPlan,
        drafts: &mut Drafts,
        accepted: &mut [u32],
    ) -> Result<Duration, LiveError<D::Error>> {
        let drafting = !accepted.is_empty();
        self.fill(step, drafts, drafting)?;
        let begun = Instant::now();
        self.device.start_timer()?;
        self.pair.target.forward(self.device, &self.batch)?;
        self.judge(drafts, drafting)?;
        let spent = self.device.stop_timer()?.unwrap_or_else(|| begun.elapsed());
        if let (Some(truths), true) = (&self.truths, drafting) {
            truths.accept(&step.batch, drafts, accepted);
        }
        self.commit(step, drafts, accepted)?;
        Ok(spent)
    }

    /// Fills the batch of the target pass: first the decode requests with the draft tokens to verify, in the step's
    /// order, then the prefill chunks.
    fn fill(&mut self, step: &StepPlan, drafts: &Drafts, drafting: bool) -> Result<(), LiveError<D::Error>> {
        let batch = &step.batch;
        let v = &mut self.verifying;
        self.batch.clear();
        v.askers.clear();
        v.tokens.clear();
        v.parents.clear();
        v.nodes.clear();
        for i in 0..batch.len() {
            let (request, context) = (batch.ids[i], batch.context[i] as usize);
            let state = self.requests.get(request);
            let checked = v.tokens.len();
            v.pass_tokens.clear();
            v.pass_tokens.push(state.tokens[context]);
            let in_trees = drafting && drafts.in_trees();
            if in_trees {
                v.pass_parents.clear();
                v.pass_parents.push(ROOT);
                v.kept.clear();
                for (at, node) in drafts.trees[i].nodes().iter().enumerate() {
                    v.kept.push((v.nodes.len() - checked) as u32);
                    if node.kept {
                        // In the target's pass the newest emitted token is node 0, so each node of the draft tree has
                        // an index that is higher by one.
                        let parent = if node.parent == ROOT { ROOT } else { v.kept[node.parent as usize] };
                        v.nodes.push(at as u32);
                        v.parents.push(parent);
                        v.pass_parents.push(parent.wrapping_add(1));
                        v.tokens.push(state.drafted[at]);
                    }
                }
            } else if drafting {
                let verified = drafts.verify_len[i] as usize;
                v.tokens.extend_from_slice(&state.drafted[..verified]);
                v.parents.extend_from_slice(&CHAIN[..verified]);
                v.nodes.extend(0..verified as u32);
            }
            v.pass_tokens.extend_from_slice(&v.tokens[checked..]);
            let table = step.block_tables.target(request);
            let first = match in_trees {
                true => self.batch.push_tree(&v.pass_tokens, &v.pass_parents, context, table, Logits::All),
                false => self.batch.push_chain(&v.pass_tokens, context, table, Logits::All),
            };
            v.askers.push(Asker { request, start: batch.emitted[i], first, checked: checked..v.tokens.len() });
        }
        for chunk in step.chunks {
            let (state, table) = (self.requests.get(chunk.request), step.block_tables.target(chunk.request));
            // A chunk may be longer than the rest of the request's text: the scheduler can pad a newly admitted request
            // with one token left to the length of a decode request with draft tokens. The target does not run over
            // this padding.
            let to = state.tokens.len().min((chunk.computed + chunk.tokens) as usize);
            let from = chunk.computed as usize;
            let logits = if chunk.last { Logits::Last } else { Logits::Skip };
            let first = self.batch.push_chain(&state.tokens[from..to], from, table, logits);
            if chunk.last {
                let (start, checked) = (state.emitted(), v.tokens.len()..v.tokens.len());
                v.askers.push(Asker { request: chunk.request, start, first, checked });
            }
        }
        Ok(())
    }

    /// Decides by the models' logits which draft tokens are accepted. There is one result for each request for which
    /// the pass samples a token. If an acceptance source decides instead (`Acceptance::Declared`), only the next token
    /// of each result is used. If the models decide and the policy wants divergences, the function also computes the
    /// divergences of chains.
    fn judge(&mut self, drafts: &Drafts, drafting: bool) -> Result<(), LiveError<D::Error>> {
        let v = &mut self.verifying;
        v.out.clear();
        v.divergences.clear();
        if v.askers.is_empty() {
            return Ok(());
        }
        let Pair { target, distributions, capacity, .. } = &mut *self.pair;
        let kept_len = capacity.kept_len;
        if let Acceptance::Sampled { temperature, seed } = self.acceptance {
            let d = distributions.as_mut().expect("construction asked for distributions");
            self.device.softmax(target.logits(), temperature, &mut d.target)?;
            let chain = |(i, a): (usize, &Asker)| Chain {
                target: a.first,
                draft: i * kept_len,
                tokens: &v.tokens[a.checked.clone()],
                luck: Luck::new(seed, Stream::Rejection, a.request.into()).narrow(a.start.into()),
            };
            let chains: Vec<Chain<'_>> = v.askers.iter().enumerate().map(chain).collect();
            self.device.accept_sampled(&d.target, &d.kept, &chains, &mut v.out)?;
        } else {
            let tree = |a: &Asker| Tree {
                first: a.first,
                tokens: &v.tokens[a.checked.clone()],
                parents: &v.parents[a.checked.clone()],
            };
            let trees: Vec<Tree<'_>> = v.askers.iter().map(tree).collect();
            self.device.accept_greedy(target.logits(), &trees, &mut v.out)?;
        }
        let looks = drafting && drafts.wants.divergence && !drafts.in_trees() && self.truths.is_none();
        if let Some(d) = distributions.as_mut().filter(|_| looks) {
            if !matches!(self.acceptance, Acceptance::Sampled { .. }) {
                self.device.softmax(target.logits(), 1.0, &mut d.target)?;
            }
            v.pairs.clear();
            for (i, (a, out)) in v.askers.iter().zip(&v.out).enumerate() {
                let said = a.checked.len().min(out.nodes.len() + 1);
                v.pairs.extend((0..said).map(|j| ((a.first + j) as u32, (i * kept_len + j) as u32)));
            }
            let width = target.shape().vocab as usize;
            self.device.divergence((&d.target, &d.kept), width, &v.pairs, &mut v.divergences)?;
        }
        Ok(())
    }

    /// Appends the accepted tokens and the next token to the requests' texts. In draft trees, the KV of an accepted
    /// node moves to the node's place in the context, for the target and the draft model. If the models decide which
    /// draft tokens are accepted, the function also writes the accepted counts to `accepted`, and the accepted paths
    /// and the divergences to `drafts`. If an acceptance source decides, these values were written before this call.
    /// Frees the scratch blocks (KV blocks for draft trees only) of the requests.
    fn commit(
        &mut self,
        step: &StepPlan,
        drafts: &mut Drafts,
        accepted: &mut [u32],
    ) -> Result<(), LiveError<D::Error>> {
        let v = &mut self.verifying;
        v.moves.clear();
        v.draft_moves.clear();
        let (decodes, drafting) = (step.batch.len(), !accepted.is_empty());
        let mut divergences = v.divergences.iter();
        for (i, (asker, out)) in v.askers.iter().zip(&v.out).enumerate() {
            let state = self.requests.get(asker.request);
            if i < decodes && drafting && drafts.in_trees() {
                let nodes = &v.nodes[asker.checked.clone()];
                let tree = &mut drafts.trees[i];
                if self.truths.is_none() {
                    tree.accept_path(out.nodes.iter().map(|&k| nodes[k as usize]));
                    accepted[i] = out.nodes.len() as u32;
                }
                let context = step.batch.context[i] as usize;
                let table = step.block_tables.target(asker.request);
                for (to, &node) in (context + 1..).zip(tree.accepted_path()) {
                    let at = nodes.iter().position(|&n| n == node).expect("accepted nodes were kept");
                    v.moves.push((slot(table, context + 1 + at), slot(table, to)));
                    let ran_at = state.ran_at[node as usize];
                    if ran_at != super::requests::NOT_RUN {
                        let from = slot(&state.tree_table, ran_at as usize);
                        v.draft_moves.push((from, slot(&state.tree_table, to)));
                    }
                    state.tokens.push(state.drafted[node as usize]);
                }
            } else if i < decodes && drafting {
                if self.truths.is_none() {
                    accepted[i] = out.nodes.len() as u32;
                    if drafts.wants.divergence {
                        for j in 0..asker.checked.len().min(out.nodes.len() + 1) {
                            let Some(&nats) = divergences.next() else { break };
                            drafts.set_divergence(i, j, nats);
                        }
                    }
                }
                if drafts.wants.divergence {
                    let said = drafts.verify_len[i].min(accepted[i] + 1) as usize;
                    state.divergence.extend((0..said).map(|j| drafts.divergence(i, j)));
                }
                state.tokens.extend_from_slice(&state.drafted[..accepted[i] as usize]);
            }
            state.tokens.push(out.next);
        }
        v.moves.retain(|(from, to)| from != to);
        v.draft_moves.retain(|(from, to)| from != to);
        if !v.moves.is_empty() {
            self.pair.target.move_kv(self.device, &v.moves)?;
        }
        if let Some(draft) = self.pair.draft.as_mut().filter(|_| !v.draft_moves.is_empty()) {
            draft.move_kv(self.device, &v.draft_moves)?;
        }
        if drafting && drafts.in_trees() {
            for &id in step.batch.ids {
                let own = step.block_tables.draft(id).len();
                let (state, scratch) = self.requests.with_scratch(id);
                scratch.take_back(&mut state.tree_table, own);
                state.tree_table.clear();
            }
        }
        Ok(())
    }
}
