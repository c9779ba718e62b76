//! `lookup-beside-model`: two drafters in one run. If a prompt lookup finds a match where a round starts, the round's
//! draft tokens are the tokens that the lookup copies. Otherwise a draft model makes the round's draft tokens.
//!
//! For each drafter, the right tokens are drawn as if this drafter drafted alone. The position where a round starts
//! decides which of the two drafters drafts the round. So whether a token is right depends on the token's position and
//! on its depth in the round.

use super::TruthRow;
use super::by_depth::ByDepth;
use super::fault::{BadAcceptance, bad, check_rates};
use super::prompt_lookup::{Lookups, PromptLookup};
use super::source::Bits;
use crate::config::MAX_SPEC_LEN;
use crate::executor::RequestTruth;
use serde::{Deserialize, Serialize};

/// Two drafters: prompt lookup drafts a round if it finds a match, else a draft model drafts it. (llama.cpp
/// `--spec-type draft-mtp,ngram-mod`; vLLM PR #24344, `ngram-eagle`.)
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LookupBesideModel {
    /// How often the lookup finds a match, and how many of the copied tokens are right.
    #[serde(default)]
    pub lookup: PromptLookup,
    /// For rounds that the draft model drafts: probability, [0, 1], that the i-th draft token of the round is right if
    /// all before it are. The last rate holds for all deeper places.
    pub rates: Vec<f64>,
    /// Most tokens that the model drafts in a round, 1 to 32. A lookup drafts up to the draft length that the policy
    /// chooses.
    pub model_len: u32,
}

impl LookupBesideModel {
    /// Checks the settings. The draft model's acceptance rates, the lookup's match rate and its precision must be in
    /// [0, 1]. The lookup's mean number of right tokens in a row must be at least 1. With r = match rate · precision,
    /// the share of positions that repeat earlier text, r must be below 1 and this mean at least r / (1 − r).
    /// `model_len` must be from 1 to 32.
    pub(super) fn check(&self) -> Result<(), BadAcceptance> {
        let key = "source.lookup-beside-model";
        self.lookup.check(&format!("{key}.lookup"))?;
        check_rates(&format!("{key}.rates"), &self.rates)?;
        match (1..=MAX_SPEC_LEN).contains(&self.model_len) {
            true => Ok(()),
            false => bad(&format!("{key}.model_len"), format!("{} is not from 1 to {MAX_SPEC_LEN}", self.model_len)),
        }
    }
}

/// For a prompt lookup with a draft model beside it: draws which draft tokens are right, and where the lookup has a
/// match.
pub(super) struct Beside {
    model: ByDepth,
    lookups: Lookups,
    model_len: u32,
}

impl Beside {
    pub fn new(spec: &LookupBesideModel, seed: u64) -> Beside {
        let model = ByDepth { rates: spec.rates.clone(), seed };
        Beside { model, lookups: Lookups { spec: spec.lookup, seed }, model_len: spec.model_len }
    }
}

impl Bits for Beside {
    fn fill(&self, request: RequestTruth, positions: usize, out: &mut TruthRow) {
        let (mut model, mut copied) = (TruthRow::default(), TruthRow::default());
        self.model.fill(request, positions, &mut model);
        self.lookups.fill(request, positions, &mut copied);
        // `positions` is the output length plus the most draft tokens of a round. So `positions` minus the output
        // length is the number of depths.
        let depths = positions.saturating_sub(request.output_len as usize).max(1);
        out.reset(positions, depths);
        for depth in 0..depths as u32 {
            for n in depth..positions as u32 {
                let by_lookup = copied.matched(n - depth) && copied.right(n, 0);
                let by_model = !copied.matched(n - depth) && depth < self.model_len && model.right(n, depth);
                if by_lookup || by_model {
                    out.set(depth as usize, n as usize);
                }
            }
        }
        out.match_where(|w, _| copied.matches(w));
    }

    fn rate(&self, request: RequestTruth, position: u32, depth: u32) -> f64 {
        self.model.rate(request, position, depth)
    }

    fn may_lack_proposals(&self) -> bool {
        true
    }

    fn drafts_without_match(&self) -> u32 {
        self.model_len
    }

    /// Returns false. The position where a draft round starts decides which drafter makes the round's tokens. The trait
    /// [`Law`](super::Law) cannot express this.
    fn has_law(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: RequestTruth = RequestTruth { id: 5, prompt_len: 9, output_len: 3000, category: 0, recording: None };

    fn filled(bits: &dyn Bits) -> TruthRow {
        let mut row = TruthRow::default();
        bits.fill(REQUEST, 3008, &mut row);
        row
    }

    /// Draws which draft tokens are right three times: for both drafters together, for the lookup alone and for the
    /// draft model alone. Then compares a round that starts at each output position. With both drafters, a round has a
    /// match exactly where the lookup alone has one. With a match, the round has as many right draft tokens in a row as
    /// with the lookup alone. Without a match, it has as many as with the model alone (at most `model_len`).
    #[test]
    fn the_start_of_a_round_decides_who_drafts_it() {
        let lookup = PromptLookup { match_rate: 0.5, precision: 0.8, mean_run: 6.0 };
        let spec = LookupBesideModel { lookup, rates: vec![0.8, 0.6, 0.5], model_len: 2 };
        let both = filled(&Beside::new(&spec, 4));
        let model = filled(&ByDepth { rates: spec.rates.clone(), seed: 4 });
        let copied = filled(&Lookups { spec: lookup, seed: 4 });
        let mut long = [0; 2];
        for start in 1..3000 {
            let (matched, run) = (copied.matched(start), both.run(start, 8));
            assert_eq!(both.matched(start), matched);
            assert_eq!(run, if matched { copied.run(start, 8) } else { model.run(start, 2) }, "from {start}");
            long[usize::from(matched)] += u32::from(run > 1);
        }
        assert!(long[0] > 100 && long[1] > 100, "{long:?}");
    }

    #[test]
    fn bad_settings_are_named() {
        let good = LookupBesideModel { lookup: PromptLookup::default(), rates: vec![0.5], model_len: 2 };
        assert_eq!(good.check(), Ok(()));
        for (bad, key) in [
            (LookupBesideModel { rates: vec![], ..good.clone() }, "rates"),
            (LookupBesideModel { model_len: 0, ..good.clone() }, "model_len"),
            (LookupBesideModel { model_len: 33, ..good.clone() }, "model_len"),
            (
                LookupBesideModel { lookup: PromptLookup { precision: 2.0, ..good.lookup }, ..good.clone() },
                "lookup.precision",
            ),
        ] {
            let expected = format!("source.lookup-beside-model.{key}");
            assert_eq!(bad.check().map_err(|e| e.key), Err(expected));
        }
    }
}
