//! Acceptance sources decide which draft tokens are right. The truth of a request (which of its draft tokens are right)
//! is fixed before any policy acts (docs/model.md 13).

mod beside_model;
mod by_category;
mod by_depth;
mod by_length;
mod confidence;
mod counterfactual;
mod fault;
mod hidden;
mod independent;
mod law;
mod log_odds;
mod mixture;
mod plain_rows;
mod prompt_lookup;
mod ranks;
mod recorded;
mod source;
mod spec;
mod suffix;
mod truths;

pub use crate::executor::RequestTruth;
pub use beside_model::LookupBesideModel;
pub use by_category::{ByCategory, CategoryRates};
pub use by_length::Lengths;
pub use confidence::{Confidence, Curve, Misfit};
pub use counterfactual::{Counterfactual, Drafts};
pub use fault::BadAcceptance;
pub use hidden::Hidden;
pub use law::{Law, constant_rate};
pub use mixture::{Beta, Mixture};
pub use prompt_lookup::PromptLookup;
pub use ranks::RankLaw;
pub use spec::{AcceptanceSpec, Beyond, ProfileSource, Rates, TableSource};
pub use suffix::Suffix;
pub use truths::Truths;

/// Which draft tokens of a running request are right, hidden from policies: one or more bitmaps (rows) over output
/// positions.
///
/// Bit n of row j says whether the draft model's first guess at output position n is right if n is the (j+1)-th
/// position drafted since the last verification (depth j). Depths beyond the last row use the last row, so one row is
/// enough if the truth does not depend on the depth.
#[derive(Clone, Debug, Default)]
pub struct TruthRow {
    words: Vec<u64>,
    words_per_depth: usize,
    depths: usize,
    /// Bitmap of the positions where the drafter has a proposal, such as the match of a prompt lookup. Empty if the
    /// drafter always has a proposal.
    matched: Vec<u64>,
    /// The most tokens that a draft round may propose, by the output position where the round starts. Empty if the
    /// proposals have no such limits.
    proposed: Vec<u8>,
    /// Bitmaps with the layout of `words`: 1 where a real run revealed whether the draft token is right, 0 where
    /// `words` has an invented value. Empty if no value is invented.
    known: Vec<u64>,
    /// The log-odds of the probability that a draft token of the request is right, if the request has the same
    /// probability at all positions and depths. `None` if the probability differs between positions or depths, or if
    /// the acceptance source did not store it.
    rate_logit: Option<f64>,
}

impl TruthRow {
    /// Marks the draft tokens at all output positions as wrong, for `positions` output positions and `depths` distinct
    /// depths of a round. Reuses the buffers.
    pub fn reset(&mut self, positions: usize, depths: usize) {
        // Adds one spare word, so that `run` may read beyond the last position without a branch.
        self.words_per_depth = positions / 64 + 2;
        self.depths = depths;
        self.words.clear();
        self.words.resize(self.words_per_depth * depths, 0);
        self.matched.clear();
        self.proposed.clear();
        self.known.clear();
        self.rate_logit = None;
    }

    /// Marks for all draft tokens that no real run revealed whether they are right, so that the row has invented
    /// values. [`know`](TruthRow::know) marks single draft tokens as known.
    pub fn know_nothing(&mut self) {
        self.known.clear();
        self.known.resize(self.words.len(), 0);
    }

    /// Marks that a real run revealed whether the draft token at output position `n` and `depth` (from 0) of its round
    /// is right. Call [`know_nothing`](TruthRow::know_nothing) before.
    pub fn know(&mut self, depth: usize, n: usize) {
        self.known[depth * self.words_per_depth + n / 64] |= 1 << (n % 64);
    }

    /// True if no value of the row is invented. A row has invented values if it replays a real run that did not reveal
    /// for every draft token whether it is right.
    #[inline]
    pub fn is_all_known(&self) -> bool {
        self.known.is_empty()
    }

    /// Whether one bitmap says for all depths of a round which draft tokens are right, and none of its values is
    /// invented (not revealed by the replayed run).
    #[inline]
    fn is_plain(&self) -> bool {
        self.depths == 1 && self.known.is_empty()
    }

    /// False if the row's value for the draft token at output position `n` and `depth` of its round is invented,
    /// because no real run revealed whether the token is right.
    #[inline]
    pub fn is_known(&self, n: u32, depth: u32) -> bool {
        let (row, word) = ((depth as usize).min(self.depths - 1) * self.words_per_depth, n as usize / 64);
        self.known.is_empty() || word < self.words_per_depth && self.known[row + word] >> (n % 64) & 1 == 1
    }

    /// Sets the positions where the lookup has a match, word by word. `matched(word, right)` gets the index of a 64-bit
    /// word and the bitmap of the word's positions that are right at depth 0. It returns the bitmap of the word's
    /// positions with a match. Call this only for drafters that may have nothing to propose.
    fn match_where(&mut self, matched: impl Fn(usize, u64) -> u64) {
        let right = self.words.iter().take(self.words_per_depth).enumerate();
        self.matched.extend(right.map(|(w, &right)| matched(w, right)));
    }

    /// Whether the drafter has a proposal for a draft round that starts at output position `n`. Always true if the
    /// drafter always has a proposal. Otherwise false for positions beyond the end of the bitmap `matched`.
    #[inline]
    pub fn matched(&self, n: u32) -> bool {
        let word = n as usize / 64;
        self.matched.is_empty() || word < self.matched.len() && self.matched[word] >> (n % 64) & 1 == 1
    }

    /// Sets the most tokens that a draft round may propose. `length(row, n)` returns the limit for a round that starts
    /// at output position `n`.
    fn propose_at_most(&mut self, positions: usize, mut length: impl FnMut(&TruthRow, u32) -> u8) {
        let mut proposed = std::mem::take(&mut self.proposed);
        proposed.clear();
        proposed.extend((0..positions as u32).map(|n| length(self, n)));
        self.proposed = proposed;
    }

    /// The most tokens that the lookup may propose if a round starts at output position `n`. 0 without a match, also if
    /// a draft model then drafts in its place; `u32::MAX` if there is no limit.
    #[inline]
    pub fn proposed(&self, n: u32) -> u32 {
        let limit = self.proposed.get(n as usize).map_or(u32::MAX, |&tokens| tokens.into());
        if self.matched(n) { limit } else { 0 }
    }

    /// The bitmap of the 64 output positions of word `word` at which the drafter has a match. 0 for words beyond the
    /// end of the bitmap. Also 0 if the drafter always has a proposal, because the bitmap is then empty.
    fn matches(&self, word: usize) -> u64 {
        self.matched.get(word).copied().unwrap_or(0)
    }

    /// The bitmaps that say which draft tokens are right, one for each depth, in order of depth. The last word of each
    /// bitmap is spare and zero.
    fn words(&self) -> &[u64] {
        &self.words
    }

    /// The bitmap that says which draft tokens at `depth` of a round are right, by output position. The last word is
    /// spare and must stay zero.
    pub fn depth_mut(&mut self, depth: usize) -> &mut [u64] {
        &mut self.words[depth * self.words_per_depth..][..self.words_per_depth]
    }

    /// Marks the draft token at output position `n` and `depth` (from 0) of its round as right.
    pub fn set(&mut self, depth: usize, n: usize) {
        self.depth_mut(depth)[n / 64] |= 1 << (n % 64);
    }

    /// Whether the draft token is right at position `n` when it is drafted at `depth` (0-based).
    #[inline]
    pub fn right(&self, n: u32, depth: u32) -> bool {
        let row = (depth as usize).min(self.depths - 1) * self.words_per_depth;
        let word = n as usize / 64;
        word < self.words_per_depth && self.words[row + word] >> (n % 64) & 1 == 1
    }

    /// Marks the draft token at output position `n` as right. Does this only at the depths at which a real run revealed
    /// whether the draft token at this position is right.
    fn set_known(&mut self, n: u32) {
        for depth in 0..self.depths {
            if self.is_known(n, depth as u32) {
                self.set(depth, n as usize);
            }
        }
    }

    /// Number of right draft tokens in a row among the next `len` (≤ 64) draft tokens from output position `n`.
    #[inline]
    pub fn run(&self, n: u32, len: u32) -> u32 {
        if self.depths > 1 { self.run_by_depth(n, len) } else { self.run_plain(n, len) }
    }

    /// Like [`run`](TruthRow::run), for a request whose right draft tokens are the same at every depth of a draft
    /// round. It reads only the bitmap of depth 0.
    #[inline]
    fn run_plain(&self, n: u32, len: u32) -> u32 {
        let (word, shift) = (n as usize / 64, n % 64);
        if word + 1 >= self.words.len() {
            return 0;
        }
        // The next word is shifted left by 64 − `shift` bits, in two shifts. If `shift` is 0, one shift by 64 bits
        // would overflow.
        let next = self.words[word] >> shift | self.words[word + 1] << 1 << (63 - shift);
        next.trailing_ones().min(len)
    }

    /// Like [`run`](TruthRow::run), for a request whose right draft tokens depend on the depth in the round. It is a
    /// function of its own, so that the more frequent case in `run` stays small enough to inline.
    fn run_by_depth(&self, n: u32, len: u32) -> u32 {
        (0..len).take_while(|&j| self.right(n + j, j)).count() as u32
    }
}

/// Draws which draft tokens of requests are right, and the confidences that a draft model would report.
pub trait AcceptanceSource: Send + Sync {
    /// The source for a run whose policy drafts at most `_longest` tokens in a round, if runs differ by this number;
    /// `None` if this source serves all runs.
    fn of_run(&self, _longest: u32) -> Option<&dyn AcceptanceSource> {
        None
    }

    /// Fills in which draft tokens of `request` are right, for `output_len + max_draft_len` output positions. Called
    /// once, when the request starts.
    fn start(&self, request: RequestTruth, max_draft_len: u32, out: &mut TruthRow);

    /// The confidence (0, 1] that a policy sees for the draft token at `depth` (from 0) of the round that starts at
    /// output position `round_start`. It must be a pure function of its arguments. For chains it is called only if the
    /// policy reads confidences, entropies or divergences of draft tokens, or if a bound (a policy that knows more than
    /// a server can) asks.
    ///
    /// `right` says whether the token is right, if every earlier token of the draft round was right. Otherwise `right`
    /// is `None`, and `path` distinguishes the branches of a tree (0 along first guesses).
    fn confidence(&self, request: RequestTruth, round_start: u32, depth: u32, right: Option<bool>, path: u64) -> f32;

    /// The same value as [`confidence`](AcceptanceSource::confidence). `truth` is the row that
    /// [`start`](AcceptanceSource::start) filled in for this request. `start` may have stored in it the values from
    /// which confidences are drawn, so that they are computed only once for each request.
    fn confidence_with(
        &self,
        request: RequestTruth,
        _truth: &TruthRow,
        round_start: u32,
        depth: u32,
        right: Option<bool>,
        path: u64,
    ) -> f32 {
        self.confidence(request, round_start, depth, right, path)
    }

    /// The rank (from 2) of the target's token among the draft model's guesses at `position`, given that the first
    /// guess is wrong.
    fn rank_if_wrong(&self, request: RequestTruth, position: u32) -> u32;

    /// The probabilities of the ranks of the draft model's second and later guesses.
    fn ranks(&self) -> &RankLaw;

    /// The draft model's probability of its `rank`-th guess at `depth` of the draft round, below the tree node at
    /// `path`. `first` is the probability of the draft model's first guess there.
    fn guess(&self, _request: RequestTruth, _round_start: u32, _depth: u32, _path: u64, rank: u32, first: f32) -> f64 {
        self.ranks().guess(first.into(), rank)
    }

    /// The entropy, in nats, of the draft model's distribution over tokens at `depth` of the draft round. `first` is
    /// the probability of the draft model's first guess there.
    fn entropy(&self, _request: RequestTruth, _round_start: u32, _depth: u32, first: f32) -> f64 {
        self.ranks().entropy(first.into())
    }

    /// KL(target ‖ draft), in nats, at `depth` of the draft round, if the target picks the draft model's `rank`-th
    /// guess. `first` is the probability of the draft model's first guess.
    fn divergence(&self, _request: RequestTruth, _round_start: u32, _depth: u32, rank: u32, first: f64) -> f64 {
        self.ranks().divergence(first, rank)
    }

    /// Called when an invented value decided how many draft tokens of a round are accepted: the replayed run did not
    /// reveal whether the draft token at `_depth` is right ([`is_known`](TruthRow::is_known)).
    fn unknown_used(&self, _request: RequestTruth, _round_start: u32, _depth: u32) {}

    /// Whether the drafter may have nothing to propose ([`TruthRow::matched`]).
    fn may_lack_proposals(&self) -> bool {
        false
    }

    /// The probability law from which right draft tokens and confidences are drawn; `None` if there is none, as for
    /// recordings of a real run.
    fn law(&self) -> Option<&dyn Law> {
        None
    }

    /// The most tokens that the draft model beside the lookup drafts in a round without a match; 0 if there is no such
    /// model. If all rounds of a batch have a match, the draft model runs no pass.
    fn drafts_without_match(&self) -> u32 {
        0
    }
}

#[cfg(test)]
mod source_tests;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_cross_words_and_end_at_the_first_wrong_bit() {
        let mut row = TruthRow::default();
        row.reset(130, 1);
        for n in 60..70 {
            row.set(0, n);
        }
        assert_eq!(row.run(60, 20), 10);
        assert_eq!(row.run(60, 4), 4);
        assert_eq!(row.run(63, 20), 7);
        assert_eq!(row.run(59, 8), 0);
        assert_eq!(row.run(500, 8), 0);
        assert!(row.right(69, 5) && !row.right(70, 0));
    }

    #[test]
    fn depths_may_differ() {
        let mut row = TruthRow::default();
        row.reset(10, 3);
        for (depth, n) in [(0, 4), (1, 5), (0, 6), (2, 6)] {
            row.set(depth, n);
        }
        assert_eq!(row.run(4, 3), 3);
        assert_eq!(row.run(5, 3), 0);
        assert_eq!(row.run(6, 3), 1);
    }
}
