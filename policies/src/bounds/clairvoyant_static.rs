//! `clairvoyant-static`: the best fixed length for a whole run, found by running all of them.
//!
//! It shows the most that a well-chosen `num_speculative_tokens` can bring without adapting (docs/model.md 7.12). It is
//! not a policy that decides in each step: the experiment runs every policy of [`tries`](Definition::tries) and keeps
//! the best result.

use crate::PolicySpec;
use crate::definition::{About, BadParameter, Check, Definition, PolicyContext};
use crate::plain::fixed::Fixed;
use foretoken_sim::{MAX_SPEC_LEN, Speculation};
use serde::{Deserialize, Serialize};

/// Settings of the bound `clairvoyant-static`, which runs every fixed draft length and keeps the best run. No server
/// can choose in hindsight.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ClairvoyantStatic {
    /// Draft lengths to try, each 0 to 32. Default: all from 0 to the engine's `max_draft_len`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lengths: Option<Vec<u32>>,
}

impl Definition for ClairvoyantStatic {
    fn about(&self) -> About {
        About {
            summary: "the fixed length that turns out best for the whole run: least mean E2E, or most goodput in a \
                      closed loop",
            source: "hindsight on the whole run; not a policy a server can run",
            sees: "the outcome of the run under every fixed length",
            differences: "none; with several seeds each has its own best length",
        }
    }

    fn sees_hidden_truth(&self) -> bool {
        true
    }

    fn asks_for(&self) -> Option<(&'static str, u32)> {
        self.lengths.iter().flatten().max().map(|&longest| ("lengths", longest))
    }

    fn check(&self) -> Result<(), BadParameter> {
        let check = Check("clairvoyant-static");
        let fine = self.lengths.as_ref().is_none_or(|l| !l.is_empty() && l.iter().all(|&k| k <= MAX_SPEC_LEN));
        check.that("lengths", fine, || format!("give one or more draft lengths from 0 to {MAX_SPEC_LEN}"))
    }

    fn tries(&self, max_draft_len: u32) -> Vec<PolicySpec> {
        let all = || (0..=max_draft_len).collect();
        let lengths = self.lengths.clone().unwrap_or_else(all);
        lengths.into_iter().map(|k| PolicySpec::Fixed(Fixed { k })).collect()
    }

    /// Returns [`Speculation::Off`], an engine that drafts nothing. The experiment never uses it, because it runs the
    /// policies of [`tries`](Definition::tries) instead.
    fn build(&self, _: &PolicyContext) -> Speculation {
        Speculation::Off
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_tries_every_length_or_those_given() {
        let names = |p: ClairvoyantStatic| p.tries(3).iter().map(PolicySpec::label).collect::<Vec<_>>().join(" ");
        assert_eq!(names(ClairvoyantStatic::default()), "fixed-0 fixed-1 fixed-2 fixed-3");
        assert_eq!(names(ClairvoyantStatic { lengths: Some(vec![5, 1]) }), "fixed-5 fixed-1");
        let bad = |lengths: &[u32]| ClairvoyantStatic { lengths: Some(lengths.to_vec()) }.check().map_err(|e| e.key);
        assert_eq!((bad(&[]), bad(&[33]), bad(&[3])), (Err("lengths"), Err("lengths"), Ok(())));
    }
}
