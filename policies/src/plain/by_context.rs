//! `by-context`: a draft length for each request by the tokens of its context. A length of 0 from some number of tokens
//! on switches speculation off for long contexts.

use crate::definition::{About, BadParameter, Check, Definition, PolicyContext};
use crate::shared::by_request::ByRequest;
use foretoken_sim::{BatchView, MAX_SPEC_LEN, Speculation};
use serde::{Deserialize, Serialize};

/// Settings of the policy `by-context`, which has a draft length for each range of context lengths. The default
/// threshold is an example.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ByContext {
    /// `[tokens of context, draft length]`, tokens rising, the first entry at 0 tokens. A draft length (0 to 32) holds
    /// for contexts from its number of tokens up to the number of the next entry.
    pub lengths: Vec<(u32, u32)>,
}

impl Default for ByContext {
    fn default() -> Self {
        ByContext { lengths: vec![(0, 3), (32_768, 0)] }
    }
}

impl Definition for ByContext {
    fn about(&self) -> About {
        About {
            summary: "drafts a length that depends on the request's context; by default none beyond 32,768 tokens",
            source: "vLLM v0 --speculative-max-model-len (no drafts beyond a length); vLLM PR #54801 \
                     num_speculative_tokens_per_seq_len (open); asked for in vLLM #47602 and #52258",
            sees: "tokens of context of each request",
            differences: "each request gets its own length; PR #54801 takes one for the step. V1 reads speculative \
                          max_model_len and uses it for no request (#52258). The token budget is charged as in the \
                          last step",
        }
    }

    fn asks_for(&self) -> Option<(&'static str, u32)> {
        self.lengths.iter().map(|&(_, k)| ("lengths", k)).max()
    }

    fn check(&self) -> Result<(), BadParameter> {
        let check = Check("by-context");
        let from_0 = self.lengths.first().is_some_and(|&(tokens, _)| tokens == 0);
        check.that("lengths", from_0, || "the first entry must be [0, draft length]".into())?;
        if let Some(w) = self.lengths.windows(2).find(|w| w[0].0 >= w[1].0) {
            let why = || format!("{} tokens come behind {}: tokens must rise", w[1].0, w[0].0);
            return check.that("lengths", false, why);
        }
        let long = self.lengths.iter().find(|&&(_, k)| k > MAX_SPEC_LEN);
        check.that("lengths", long.is_none(), || {
            format!("{} is not a draft length from 0 to {MAX_SPEC_LEN}", long.map_or(0, |&(_, k)| k))
        })?;
        let some = self.lengths.iter().any(|&(_, k)| k > 0);
        check.that("lengths", some, || "no context has a length above 0: use autoregressive".into())
    }

    fn build(&self, context: &PolicyContext) -> Speculation {
        let most = context.max_draft_len;
        let lengths: Vec<(u32, u32)> = self.lengths.iter().map(|&(tokens, k)| (tokens, k.min(most))).collect();
        let longest = lengths.iter().map(|&(_, k)| k).max().unwrap_or(0);
        ByRequest::build(longest, move |batch: &BatchView, i| {
            let beyond = lengths.partition_point(|&(tokens, _)| tokens <= batch.context[i]);
            lengths[beyond.saturating_sub(1)].1
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Batch, CONTEXT, Run};

    #[test]
    fn a_length_holds_up_to_the_next_number_of_tokens() {
        let policy = ByContext { lengths: vec![(0, 6), (1000, 2), (4000, 0)] };
        let mut run = Run::of(&policy, &CONTEXT);
        let step = run.step(&Batch::new(&[1, 999, 1000, 3999, 4000, 9000], &[8, 8, 8, 1, 8, 8]), |_, _| 0.9, &[8; 6]);
        assert_eq!(step.draft_len, [6, 6, 2, 1, 0, 0]);
    }

    #[test]
    fn bad_settings_are_named() {
        for (lengths, why) in [
            (vec![], "the first entry"),
            (vec![(1, 3)], "the first entry"),
            (vec![(0, 3), (5, 2), (5, 1)], "5 tokens come behind 5"),
            (vec![(0, 33)], "33 is not a draft length"),
            (vec![(0, 0)], "no context has a length above 0"),
        ] {
            let bad = ByContext { lengths }.check().expect_err("refused");
            assert!(bad.key == "lengths" && bad.why.contains(why), "{bad:?}");
        }
        assert_eq!(ByContext::default().check(), Ok(()));
    }
}
