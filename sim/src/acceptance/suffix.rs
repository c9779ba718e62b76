//! `suffix`: a suffix tree over the request's text and earlier outputs finds an earlier place with the same newest
//! tokens, and proposes the tokens that followed there. The longer the match, the longer the proposal (SuffixDecoding,
//! arXiv 2411.04975; vLLM's method `suffix`).
//!
//! The source `prompt-lookup` has the law by which positions have matches and right tokens; `suffix` uses the same law.
//! In addition each position has a length of its match. This length is drawn where a stretch of repeated text begins,
//! and grows by one token with each position of the stretch. Long matches are therefore right more often than short
//! ones, because they lie inside repeated text.

use super::TruthRow;
use super::fault::{BadAcceptance, bad};
use super::prompt_lookup::{Lookups, PromptLookup};
use super::source::Bits;
use crate::executor::RequestTruth;
use crate::luck::{Luck, Stream};
use serde::{Deserialize, Serialize};

/// Suffix decoding: how often the tree finds a match, how long matches are, and vLLM's limits on the proposals. The
/// shares and means are assumed: no source gives them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Suffix {
    /// Share of output positions at which the tree finds a match, [0, 1].
    pub match_rate: f64,
    /// Share of matches whose first token is right, [0, 1].
    pub precision: f64,
    /// Mean number of right tokens in a row after a right first token, that token included, ≥ 1. The number is
    /// geometric.
    pub mean_run: f64,
    /// Mean length of a match where a stretch of repeated text begins, and of matches outside such stretches, tokens,
    /// ≥ 1. The length is geometric.
    pub mean_match: f64,
    /// Most tokens that are proposed for each token of the match (vLLM `suffix_decoding_max_spec_factor`), 0 to 1000.
    pub max_spec_factor: f64,
    /// Most tokens of a match and its proposal together (vLLM `suffix_decoding_max_tree_depth`), 1 to 1000.
    pub max_tree_depth: u32,
}

impl Default for Suffix {
    fn default() -> Self {
        Suffix {
            match_rate: 0.6,
            precision: 0.7,
            mean_run: 8.0,
            mean_match: 3.0,
            max_spec_factor: 1.0,
            max_tree_depth: 24,
        }
    }
}

impl Suffix {
    fn lookup(&self) -> PromptLookup {
        PromptLookup { match_rate: self.match_rate, precision: self.precision, mean_run: self.mean_run }
    }

    /// Checks the settings of the suffix tree. An error names the setting by its path below `acceptance`, which begins
    /// with `key`.
    pub(super) fn check(&self, key: &str) -> Result<(), BadAcceptance> {
        self.lookup().check(key)?;
        if !(self.mean_match >= 1.0 && self.mean_match.is_finite()) {
            return bad(&format!("{key}.mean_match"), format!("{} is not a number of tokens ≥ 1", self.mean_match));
        }
        if !(0.0..=1000.0).contains(&self.max_spec_factor) {
            let why = format!("{} is not a number from 0 to 1000", self.max_spec_factor);
            return bad(&format!("{key}.max_spec_factor"), why);
        }
        match (1..=1000).contains(&self.max_tree_depth) {
            true => Ok(()),
            false => bad(&format!("{key}.max_tree_depth"), format!("{} is not from 1 to 1000", self.max_tree_depth)),
        }
    }

    /// The most tokens that are proposed for matches of 0, 1, … tokens, up to the tree's depth. The tree also tries
    /// each shorter match and takes the longest proposal, so the numbers never fall.
    fn proposals(&self) -> Vec<u8> {
        let mut most = 0;
        let proposal = |matched: u32| {
            // Arctic Inference's tree adds 1e-6 before it rounds the number of proposed tokens down.
            let by_factor = (f64::from(matched) * self.max_spec_factor + 1e-6) as u32;
            by_factor.min(self.max_tree_depth - matched).min(u8::MAX.into()) as u8
        };
        (0..=self.max_tree_depth)
            .map(|matched| {
                most = most.max(proposal(matched));
                most
            })
            .collect()
    }
}

/// Draws where a suffix tree has a match, how long its proposals are, and which of the proposed tokens are right.
pub(super) struct SuffixTree {
    lookups: Lookups,
    /// Probability that a match ends at its next token, for matches whose length is drawn at random: 1 / mean length in
    /// tokens.
    ends: f64,
    /// The most tokens that are proposed, by the length of the match.
    proposals: Vec<u8>,
}

impl SuffixTree {
    pub fn new(spec: &Suffix, seed: u64) -> SuffixTree {
        let lookups = Lookups { spec: spec.lookup(), seed };
        SuffixTree { lookups, ends: 1.0 / spec.mean_match, proposals: spec.proposals() }
    }

    /// A geometrically distributed length of a match, from 1 to 1001 tokens, from the uniform draw `u`.
    fn length(&self, u: f64) -> usize {
        // The setting `max_tree_depth` allows no tree deeper than 1000 tokens.
        if self.ends >= 1.0 { 1 } else { 1 + (u.ln() / (1.0 - self.ends).ln()).min(1000.0) as usize }
    }
}

impl Bits for SuffixTree {
    fn fill(&self, request: RequestTruth, positions: usize, out: &mut TruthRow) {
        self.lookups.fill(request, positions, out);
        let luck = Luck::new(self.lookups.seed, Stream::MatchLength, request.id.into());
        let mut matched = 0;
        out.propose_at_most(positions, |row, n| {
            let repeats = row.right(n, 0);
            matched = if matched > 0 && repeats { matched + 1 } else { self.length(luck.unit(n.into())) };
            let proposal = self.proposals[matched.min(self.proposals.len() - 1)];
            // Outside a stretch of repeated text the match does not grow at the next position.
            if !repeats {
                matched = 0;
            }
            proposal
        });
    }

    fn rate(&self, request: RequestTruth, position: u32, depth: u32) -> f64 {
        self.lookups.rate(request, position, depth)
    }

    fn may_lack_proposals(&self) -> bool {
        true
    }

    /// Returns false. The length of a proposal says how likely its tokens are right. The trait [`Law`](super::Law)
    /// cannot express this.
    fn has_law(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: RequestTruth = RequestTruth { id: 5, prompt_len: 9, output_len: 3000, category: 0, recording: None };

    fn filled(spec: &Suffix, id: u32) -> TruthRow {
        let mut row = TruthRow::default();
        SuffixTree::new(spec, 4).fill(RequestTruth { id, ..REQUEST }, 3032, &mut row);
        row
    }

    /// Compares the lengths of proposals with the lengths that `tests/arctic/record.py` recorded from Arctic Inference
    /// 0.3.0 (tree of depth 24): after a repeated text of 1, 2, … tokens, with `max_spec_factor` 1, 0.5 and 3.
    #[test]
    fn proposals_are_as_long_as_arctic_inference_makes_them() {
        let recorded: serde_json::Value = serde_json::from_str(include_str!("suffix_proposals.json")).unwrap();
        let cases = recorded["cases"].as_array().unwrap();
        assert!(cases.len() >= 9);
        for case in cases {
            let spec = Suffix {
                max_spec_factor: case["max_spec_factor"].as_f64().unwrap(),
                max_tree_depth: case["max_tree_depth"].as_u64().unwrap() as u32,
                ..Suffix::default()
            };
            let proposals = spec.proposals();
            for (at, proposed) in case["proposed"].as_array().unwrap().iter().enumerate() {
                let matched = (at + 1).min(proposals.len() - 1);
                assert_eq!(u64::from(proposals[matched]), proposed.as_u64().unwrap(), "{spec:?}, {} tokens", at + 1);
            }
        }
    }

    #[test]
    fn matches_are_those_of_a_lookup_and_grow_within_a_stretch() {
        let spec = Suffix::default();
        let row = filled(&spec, 5);
        let mut lookup = TruthRow::default();
        Lookups { spec: spec.lookup(), seed: 4 }.fill(REQUEST, 3032, &mut lookup);
        let mut grown = 0;
        for n in 1..3000 {
            assert_eq!((row.matched(n), row.right(n, 0)), (lookup.matched(n), lookup.right(n, 0)));
            if row.right(n - 1, 0) && row.right(n, 0) {
                assert!(row.proposed(n) >= row.proposed(n - 1));
                grown += u32::from(row.proposed(n) > row.proposed(n - 1));
            }
        }
        assert!(grown > 300, "{grown}");
    }

    #[test]
    fn long_proposals_are_right_more_often_than_short_ones() {
        let [mut short, mut long] = [(0, 0); 2];
        for id in 0..50 {
            let row = filled(&Suffix::default(), id);
            for n in (1..3000).filter(|&n| row.matched(n)) {
                let kind = if row.proposed(n) >= 6 { &mut long } else { &mut short };
                *kind = (kind.0 + u32::from(row.right(n, 0)), kind.1 + 1);
            }
        }
        let share = |(right, all): (u32, u32)| f64::from(right) / f64::from(all);
        assert!(share(long) > 0.9 && share(short) < 0.7, "{} {}", share(long), share(short));
    }

    /// Matches outside repeated text have the mean length of the setting `mean_match`.
    #[test]
    fn the_mean_of_match_lengths_is_what_was_asked() {
        let spec = Suffix { precision: 0.0, mean_match: 4.0, max_tree_depth: 200, ..Suffix::default() };
        let (mut sum, mut matches) = (0, 0);
        for id in 0..20 {
            let row = filled(&spec, id);
            for n in (0..3000).filter(|&n| row.matched(n)) {
                (sum, matches) = (sum + row.proposed(n), matches + 1);
            }
        }
        let mean = f64::from(sum) / f64::from(matches);
        assert!((mean - 4.0).abs() < 0.06, "{mean}");
    }

    #[test]
    fn bad_settings_are_named() {
        let key = |spec: Suffix| spec.check("source.suffix").map_err(|e| e.key);
        assert_eq!(key(Suffix::default()), Ok(()));
        for (bad, own) in [
            (Suffix { match_rate: 1.5, ..Suffix::default() }, "match_rate"),
            (Suffix { mean_match: 0.5, ..Suffix::default() }, "mean_match"),
            (Suffix { max_spec_factor: -1.0, ..Suffix::default() }, "max_spec_factor"),
            (Suffix { max_tree_depth: 0, ..Suffix::default() }, "max_tree_depth"),
        ] {
            assert_eq!(key(bad), Err(format!("source.suffix.{own}")));
        }
    }
}
