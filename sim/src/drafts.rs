//! The draft tokens of a step: their lengths, their confidences, and how many of them are verified.

use crate::common_len::common;
use crate::tree::DraftTree;

/// The values that a policy reads of the draft tokens. Executors compute a value (and, on hardware, copy it to the
/// host) only if the policy wants it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wants {
    /// The draft model's probability of each token that it drafted.
    pub confidence: bool,
    /// The entropy, in nats, of the distribution from which each token was drafted.
    pub entropy: bool,
    /// KL(target ‖ draft), in nats, at each verified position up to the first rejected draft token. Known only after
    /// verification.
    pub divergence: bool,
    /// Which probability of a token the policy is shown as the token's confidence.
    pub shown: Shown,
}

/// Which probability of a token a policy is shown as the token's confidence. `Calibrated` and `OwnRate` need the
/// acceptance source's [law](crate::acceptance::Law), which only simulations have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Shown {
    /// The draft model's own probability of its token. This is what a real server has.
    #[default]
    Confidence,
    /// The probability that the token is right, given its confidence. It follows from the true calibration curve of the
    /// confidences.
    Calibrated,
    /// The probability that the token is right if all tokens before it in its draft round are right. It follows from
    /// the true calibration curve of the confidences and from the request's own acceptance rate.
    OwnRate,
}

impl Wants {
    /// The `Wants` of a policy that reads only the confidences of draft tokens.
    pub const CONFIDENCE: Wants = Wants { confidence: true, ..Wants::NOTHING };
    /// The `Wants` of a policy that reads only the entropies of the draft model's distributions.
    pub const ENTROPY: Wants = Wants { entropy: true, ..Wants::NOTHING };
    /// The `Wants` of a policy that reads only the divergences KL(target ‖ draft).
    pub const DIVERGENCE: Wants = Wants { divergence: true, ..Wants::NOTHING };

    const NOTHING: Wants = Wants { confidence: false, entropy: false, divergence: false, shown: Shown::Confidence };
}

/// The draft tokens of all requests in a step, and which of them are to be verified.
#[derive(Debug, Default)]
pub struct Drafts {
    /// Number of draft tokens that each request has so far in this step. For a tree: the depth of the tree.
    pub draft_len: Vec<u32>,
    /// Number of draft tokens of each request to verify. Equals `draft_len` until the policy's `select` lowers it. For
    /// a tree: the depth of the deepest node to verify; it follows from the nodes that the policy
    /// [keeps](DraftTree::keep).
    pub verify_len: Vec<u32>,
    /// The tree of each request, when [trees are drafted](Drafts::in_trees).
    pub trees: Vec<DraftTree>,
    /// The values that the policy reads of each draft token, such as its confidence. Other values are not computed.
    pub wants: Wants,
    /// Number of draft passes that this step has run so far.
    pub passes: u32,
    /// For each request: whether the policy ended its drafting in this step before the planned length
    /// ([`stop`](Drafts::stop)).
    stopped: Vec<bool>,
    any_stopped: bool,
    confidence: Vec<f64>,
    entropy: Vec<f64>,
    divergence: Vec<f64>,
    stride: usize,
    in_trees: bool,
    undecided: bool,
    /// The number of drafted tokens and the number of verified tokens that all requests have (in trees: numbers of
    /// levels). `None` unless [`note_common`](Drafts::note_common) found that all requests have the same numbers.
    common: Option<(u32, u32)>,
    /// For each request's draft tree: number of drafted tokens, and number of tokens to verify.
    tree_tokens: Vec<(u32, u32)>,
}

/// Written by hand so that `clone_from` reuses the buffers: if policies learn a step's outcome some steps late, the
/// step's draft tokens are copied in every step.
impl Clone for Drafts {
    fn clone(&self) -> Drafts {
        let mut copy = Drafts::default();
        copy.clone_from(self);
        copy
    }

    fn clone_from(&mut self, from: &Drafts) {
        let Drafts { wants, passes, any_stopped, stride, in_trees, .. } = *from;
        self.draft_len.clone_from(&from.draft_len);
        self.verify_len.clone_from(&from.verify_len);
        self.trees.clone_from(&from.trees);
        self.stopped.clone_from(&from.stopped);
        self.confidence.clone_from(&from.confidence);
        self.entropy.clone_from(&from.entropy);
        self.divergence.clone_from(&from.divergence);
        self.tree_tokens.clone_from(&from.tree_tokens);
        (self.wants, self.passes, self.any_stopped) = (wants, passes, any_stopped);
        (self.stride, self.in_trees, self.common) = (stride, in_trees, from.common);
    }
}

impl Drafts {
    /// Removes all draft tokens, and begins a batch of `n` requests with at most `max_draft_len` draft tokens each.
    /// Reuses the buffers.
    #[inline]
    pub fn reset(&mut self, n: usize, max_draft_len: u32) {
        self.draft_len.clear();
        self.draft_len.resize(n, 0);
        self.verify_len.clear();
        self.passes = 0;
        self.in_trees = false;
        self.undecided = false;
        self.common = None;
        if self.any_stopped {
            self.stopped.fill(false);
            self.any_stopped = false;
        }
        if self.stopped.len() < n {
            self.stopped.resize(n, false);
        }
        self.stride = max_draft_len as usize;
        if self.confidence.len() < n * self.stride {
            self.confidence.resize(n * self.stride, 0.0);
        }
    }

    /// Begins a batch of `n` requests whose draft tokens will be copied from `from`, request by request. Reuses the
    /// buffers.
    pub(crate) fn begin_copy(&mut self, from: &Drafts, n: usize) {
        self.reset(n, from.stride as u32);
        if from.in_trees {
            self.plant(n);
        }
        self.want(from.wants);
        self.verify_len.resize(n, 0);
        self.passes = from.passes;
    }

    /// Moves the draft tokens of the request at index `row` of `from` to the request at index `i` of this batch. Does
    /// nothing if one batch has trees and the other has chains, or if the two batches allow different draft lengths.
    /// Divergences are not moved, because they are known only after verification.
    #[inline]
    pub(crate) fn copy_row(&mut self, i: usize, from: &mut Drafts, row: usize) {
        if self.in_trees != from.in_trees || self.stride != from.stride {
            return;
        }
        self.draft_len[i] = from.draft_len[row];
        self.verify_len[i] = from.verify_len[row];
        self.common = None;
        if self.in_trees || self.wants != Wants::default() {
            self.copy_values(i, from, row);
        }
    }

    /// The part of [`copy_row`](Drafts::copy_row) for trees, and for values that the policy wants.
    fn copy_values(&mut self, i: usize, from: &mut Drafts, row: usize) {
        let (to, at) = (i * self.stride, row * self.stride);
        let n = self.draft_len[i] as usize;
        if self.wants.confidence || self.wants.divergence {
            self.confidence[to..to + n].copy_from_slice(&from.confidence[at..at + n]);
        }
        if self.wants.entropy && from.wants.entropy {
            self.entropy[to..to + n].copy_from_slice(&from.entropy[at..at + n]);
        }
        if from.in_trees {
            std::mem::swap(&mut self.trees[i], &mut from.trees[row]);
        }
    }

    /// Adds a request to the batch, and moves to it the draft tokens of the request at index `row` of `from`.
    pub(crate) fn push_row(&mut self, from: &mut Drafts, row: usize) {
        let i = self.draft_len.len();
        self.draft_len.push(0);
        self.verify_len.push(0);
        self.common = None;
        if self.confidence.len() < (i + 1) * self.stride {
            self.confidence.resize((i + 1) * self.stride, 0.0);
        }
        if self.in_trees {
            self.trees.resize_with(i + 1, DraftTree::default);
            self.tree_tokens.resize(i + 1, (0, 0));
        }
        self.want(self.wants);
        self.copy_row(i, from, row);
    }

    /// Sets all draft tokens of all requests to be verified.
    pub(crate) fn verify_all(&mut self) {
        self.verify_len.clear();
        self.verify_len.extend_from_slice(&self.draft_len);
        self.common = None;
    }

    /// Before verification: lowers the number of draft tokens to verify to each request's `limit`. In a tree the first
    /// `limit` nodes in drafting order stay; the nodes after them are not verified.
    pub(crate) fn begin_verification(&mut self, limit: &[u32]) {
        self.common = None;
        if self.in_trees {
            self.trees.iter_mut().zip(limit).for_each(|(tree, &limit)| tree.keep_first(limit));
            self.measure_trees(limit);
            return;
        }
        self.verify_len.iter_mut().zip(limit).for_each(|(v, &limit)| *v = (*v).min(limit));
    }

    /// The most tokens of a chain, or levels of a tree, that may be drafted for a request.
    pub(crate) fn max_draft_len(&self) -> u32 {
        self.stride as u32
    }

    /// Sets which values of the draft tokens (such as confidences) the policy reads in this step, and makes room for
    /// them.
    #[inline]
    pub fn want(&mut self, wants: Wants) {
        self.wants = wants;
        let room = self.draft_len.len() * self.stride;
        for (wanted, column) in [(wants.entropy, &mut self.entropy), (wants.divergence, &mut self.divergence)] {
            if wanted && column.len() < room {
                column.resize(room, 0.0);
            }
        }
    }

    /// The confidence in the (j+1)-th draft token of the request at batch index `i`. For chains only, because the nodes
    /// of a tree have their confidences in the tree.
    ///
    /// Only filled if the policy [wants](crate::SpecPolicy::wants) confidences.
    #[inline]
    pub fn confidence(&self, i: usize, j: usize) -> f64 {
        self.confidence[i * self.stride + j]
    }

    /// Stores `c`, the confidence in the (j+1)-th draft token of the request at batch index `i`. Called by executors.
    #[inline]
    pub fn set_confidence(&mut self, i: usize, j: usize, c: f64) {
        self.confidence[i * self.stride + j] = c;
    }

    /// The entropy, in nats, of the distribution from which the (j+1)-th draft token of the request at batch index `i`
    /// was drafted. For chains only, and only filled if the policy wants it.
    #[inline]
    pub fn entropy(&self, i: usize, j: usize) -> f64 {
        self.entropy[i * self.stride + j]
    }

    /// Stores the entropy of the distribution from which the (j+1)-th draft token of the request at batch index `i` was
    /// drafted. Called by executors.
    #[inline]
    pub fn set_entropy(&mut self, i: usize, j: usize, nats: f64) {
        self.entropy[i * self.stride + j] = nats;
    }

    /// KL(target ‖ draft), in nats, at the (j+1)-th draft position of the request at batch index `i`. For chains only.
    /// Known only after verification, and only for j up to the number of accepted tokens.
    #[inline]
    pub fn divergence(&self, i: usize, j: usize) -> f64 {
        self.divergence[i * self.stride + j]
    }

    /// Stores KL(target ‖ draft) at the (j+1)-th draft position of the request at batch index `i`. Called by executors.
    #[inline]
    pub fn set_divergence(&mut self, i: usize, j: usize, nats: f64) {
        self.divergence[i * self.stride + j] = nats;
    }

    /// Takes the request at batch index `i` out of the next draft passes of this step. The tokens that it has drafted
    /// stay.
    pub fn stop(&mut self, i: usize) {
        self.stopped[i] = true;
        self.any_stopped = true;
    }

    /// Says that the policy decided nothing in the hook that it runs now, so that the engine charges no decision time.
    /// The default implementations of `keep_drafting` (called between passes) and `select` (called before verification)
    /// call this. A policy that decides only in some steps calls it in the other steps.
    pub fn nothing_to_decide(&mut self) {
        self.undecided = true;
    }

    /// Whether the policy decided something: false if [`nothing_to_decide`](Drafts::nothing_to_decide) was called since
    /// the last call of this method.
    pub(crate) fn was_decided(&mut self) -> bool {
        !std::mem::take(&mut self.undecided)
    }

    /// Starts an empty tree for each of `n` requests. Reuses the buffers.
    pub(crate) fn plant(&mut self, n: usize) {
        if self.trees.len() < n {
            self.trees.resize_with(n, DraftTree::default);
        }
        self.trees.iter_mut().for_each(DraftTree::clear);
        self.tree_tokens.clear();
        self.tree_tokens.resize(n, (0, 0));
        self.in_trees = true;
    }

    /// Whether trees are drafted in this step.
    pub fn in_trees(&self) -> bool {
        self.in_trees
    }

    /// Counts the tokens of each tree after selection: drafted tokens, tokens to verify, and the depth of the deepest
    /// token to verify. Does nothing for chains. Panics if a tree has more tokens to verify than its request's limit
    /// allows.
    pub(crate) fn measure_trees(&mut self, limit: &[u32]) {
        if !self.in_trees {
            return;
        }
        for (i, &limit) in limit.iter().enumerate() {
            let tree = &self.trees[i];
            let kept = tree.kept();
            assert!(kept <= limit, "a policy keeps {kept} tokens of a tree where {limit} are allowed");
            self.tree_tokens[i] = (tree.nodes().len() as u32, kept);
            self.verify_len[i] = tree.kept_depth();
        }
    }

    /// The number of tokens drafted and the number to verify for the request at batch index `i`.
    #[inline]
    pub(crate) fn tokens(&self, i: usize) -> (u32, u32) {
        if self.in_trees { self.tree_tokens[i] } else { (self.draft_len[i], self.verify_len[i]) }
    }

    /// For each request whose drafting the policy ended early ([`stop`](Drafts::stop)): lowers the request's planned
    /// draft length to the number of tokens that the request has. Returns whether there is such a request.
    #[inline]
    pub(crate) fn leave_stopped(&self, planned: &mut [u32]) -> bool {
        if !self.any_stopped {
            return false;
        }
        for ((plan, &have), &stopped) in planned.iter_mut().zip(&self.draft_len).zip(&self.stopped) {
            if stopped {
                *plan = have;
            }
        }
        true
    }

    /// If all requests have the same number of drafted tokens and the same number of verified tokens, stores these two
    /// numbers, so that later calls need not compare the requests again. Returns false if a request verifies more
    /// tokens than it drafted. Call this when the lengths are final; methods that change a length drop the stored
    /// numbers.
    pub(crate) fn note_common(&mut self) -> bool {
        self.common = common(&self.draft_len).zip(common(&self.verify_len));
        match self.common {
            Some((drafted, verified)) => verified <= drafted,
            // No request may verify more tokens than it drafted. A fold over all requests is faster than a search.
            None => self.verify_len.iter().zip(&self.draft_len).fold(true, |kept, (&v, &d)| kept & (v <= d)),
        }
    }

    /// If every request has a chain of `len` tokens, and all of them are verified, stores this and returns true. A
    /// policy may have changed lengths without a decision that takes time.
    pub(crate) fn note_even(&mut self, len: u32) -> bool {
        let even = self.draft_len.iter().chain(&self.verify_len).fold(true, |even, &own| even & (own == len));
        self.common = even.then_some((len, len)).or(self.common);
        even
    }

    /// The number of tokens that every request drafted, and the number that every request verifies (in trees: numbers
    /// of levels). `None` if requests differ, or if there are none.
    #[inline]
    pub(crate) fn common_lens(&self) -> Option<(u32, u32)> {
        self.common.or_else(|| common(&self.draft_len).zip(common(&self.verify_len)))
    }

    /// The number of tokens that every request verifies (in trees: of levels); `None` if requests differ, or if there
    /// are none.
    #[inline]
    pub(crate) fn common_verify_len(&self) -> Option<u32> {
        self.common.map(|(_, verified)| verified).or_else(|| common(&self.verify_len))
    }

    /// Whether the policy ended the drafting of the request at batch index `i` in this step before the request's
    /// planned draft length.
    #[inline]
    pub fn is_stopped(&self, i: usize) -> bool {
        self.any_stopped && self.stopped[i]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_lengths_are_forgotten_when_a_length_changes() {
        let mut drafts = Drafts::default();
        drafts.reset(3, 4);
        drafts.draft_len.fill(4);
        drafts.verify_all();
        assert!(drafts.note_common());
        assert_eq!((drafts.common_lens(), drafts.common_verify_len()), (Some((4, 4)), Some(4)));
        drafts.begin_verification(&[4, 2, 4]);
        assert_eq!((drafts.common_lens(), drafts.common_verify_len()), (None, None));
        drafts.begin_verification(&[2, 2, 2]);
        assert_eq!((drafts.common_lens(), drafts.common_verify_len()), (Some((4, 2)), Some(2)));
        assert!(drafts.note_common());
        drafts.verify_len[1] = 5;
        assert!(!drafts.note_common(), "five of four drafts are verified");
    }
}
