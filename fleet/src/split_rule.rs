//! The rules that decide whether the prompt of a request is computed on a prefill replica or on the request's decode
//! replica.

use serde::{Deserialize, Serialize};

/// The rule that decides whether a prefill replica computes the prompt of a request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SplitRule {
    /// A prefill replica computes every prompt.
    #[default]
    Always,
    /// No prompt is computed on a prefill replica: decode replicas compute all prompts.
    Never,
    /// llm-d's rule: a prefill replica computes the prompt if the decode replica has not cached enough of it.
    LlmD(LlmDSplit),
    /// Dynamo's rule (conditional disaggregation). The decode replica computes the prompt if the uncached part is
    /// short, or if the prefill replicas are busy.
    Dynamo(DynamoSplit),
    /// Dynamo's rule of 2025: a prefill replica computes the prompt if the part that the decode replica has not cached
    /// is long, and few prompts wait for prefill.
    DynamoQueue(DynamoQueue),
}

/// llm-d's decider `prefix-based-pd-decider` (llm-d-router,
/// `pkg/epp/framework/plugins/scheduling/profilehandler/disagg/prefix_based_pd_decider.go`, 2026). llm-d estimates the
/// length of a prompt at 4 characters a token; here the length is known.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LlmDSplit {
    /// A prefill replica computes the prompt if at least this number of its tokens are not cached on the decode
    /// replica; 0: no prefill replica computes a prompt.
    pub non_cached_tokens: u32,
    /// The shortest prompt that a prefill replica computes, tokens.
    pub prompt_tokens: u32,
}

impl Default for LlmDSplit {
    fn default() -> LlmDSplit {
        LlmDSplit { non_cached_tokens: 16, prompt_tokens: 0 }
    }
}

/// Dynamo's conditional disaggregation (`lib/kv-router/src/conditional_disagg.rs`, 2026: `IslBoundingPolicy` and
/// `PrefillLoadPolicy`). Dynamo looks at the load of the prefill worker that its router would choose. Here the rule
/// looks at the prefill replica with the fewest prompt tokens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DynamoSplit {
    /// A prompt is computed on the decode replica only if fewer tokens than this number are not cached there
    /// (`eff_isl`).
    pub eff_isl_threshold: u32,
    /// A prompt is computed on the decode replica only if the uncached tokens are less than this share of the prompt.
    pub eff_isl_ratio_threshold: f64,
    /// A prefill replica is busy if its prompt tokens in flight exceed this multiple of a step's token budget. If it is
    /// busy, the decode replica computes the prompt. Absent: prefill replicas never count as busy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefill_busy_threshold: Option<f64>,
}

impl Default for DynamoSplit {
    fn default() -> DynamoSplit {
        DynamoSplit { eff_isl_threshold: 2048, eff_isl_ratio_threshold: 0.7, prefill_busy_threshold: None }
    }
}

/// Dynamo's rule of 2025 (`examples/llm/components/disagg_router.py`, commit 02e16f7), in which all prefill workers
/// share one queue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DynamoQueue {
    /// A prefill replica computes the prompt only if more tokens than this number are not cached on the decode replica.
    pub max_local_prefill_length: u32,
    /// A prefill replica computes the prompt only if fewer prompts than this number wait. Waiting are the prompts that
    /// were sent and have not ended, less one for each prefill replica, because each replica works on one prompt.
    pub max_prefill_queue_size: u32,
}

impl Default for DynamoQueue {
    fn default() -> DynamoQueue {
        DynamoQueue { max_local_prefill_length: 1000, max_prefill_queue_size: 2 }
    }
}

/// What a rule for splitting knows about a prompt and about the prefill replicas.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Prompt {
    /// Number of tokens of the prompt.
    pub tokens: u32,
    /// Prompt tokens that the decode replica has cached, as far as the router knows.
    pub cached: u32,
    /// Number of prompts that wait for a prefill replica.
    pub queue: u32,
    /// Prompt tokens in flight on the prefill replica that has the fewest, as a multiple of a step's token budget.
    pub least_load: f64,
}

impl SplitRule {
    /// Does the rule depend on what the decode replica has cached? Then the decode replica must be chosen before the
    /// rule decides.
    pub(crate) fn reads_cache(&self) -> bool {
        !matches!(self, SplitRule::Always | SplitRule::Never)
    }

    /// Does the rule let a prefill replica compute the prompt?
    pub(crate) fn splits(&self, prompt: Prompt) -> bool {
        let new = prompt.tokens.saturating_sub(prompt.cached);
        match self {
            SplitRule::Always => true,
            SplitRule::Never => false,
            SplitRule::LlmD(rule) => {
                let least = rule.non_cached_tokens;
                least > 0 && prompt.tokens >= rule.prompt_tokens && new >= least
            }
            SplitRule::Dynamo(rule) => {
                let share = f64::from(new) / f64::from(prompt.tokens.max(1));
                let short = new < rule.eff_isl_threshold && share < rule.eff_isl_ratio_threshold;
                !short && rule.prefill_busy_threshold.is_none_or(|most| prompt.least_load <= most)
            }
            SplitRule::DynamoQueue(rule) => {
                new > rule.max_local_prefill_length && prompt.queue < rule.max_prefill_queue_size
            }
        }
    }

    /// Checks the numbers of the rule.
    ///
    /// # Errors
    /// A number is outside its range. The error is its key, and what is wrong.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        let SplitRule::Dynamo(rule) = self else { return Ok(()) };
        let share = rule.eff_isl_ratio_threshold;
        if !(share >= 0.0 && share.is_finite()) {
            return Err(("dynamo.eff_isl_ratio_threshold", format!("{share} is not a share of at least 0")));
        }
        match rule.prefill_busy_threshold.filter(|most| !(*most >= 0.0 && most.is_finite())) {
            Some(most) => Err(("dynamo.prefill_busy_threshold", format!("{most} is not a number of at least 0"))),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn splits(rule: &SplitRule, tokens: u32, cached: u32) -> bool {
        rule.splits(Prompt { tokens, cached, ..Prompt::default() })
    }

    #[test]
    fn llm_d_splits_from_the_uncached_tokens_on() {
        let rule = SplitRule::LlmD(LlmDSplit { non_cached_tokens: 100, prompt_tokens: 0 });
        assert_eq!([99, 100, 500].map(|n| splits(&rule, n, 0)), [false, true, true]);
        assert_eq!([400, 401].map(|cached| splits(&rule, 500, cached)), [true, false]);
        let off = SplitRule::LlmD(LlmDSplit { non_cached_tokens: 0, prompt_tokens: 0 });
        assert!(!splits(&off, 5000, 0), "0 switches llm-d's rule off");
        let long = SplitRule::LlmD(LlmDSplit { non_cached_tokens: 16, prompt_tokens: 200 });
        assert_eq!([199, 200].map(|n| splits(&long, n, 0)), [false, true]);
    }

    /// The cases come from Dynamo's own unit tests. Where Dynamo says that a prompt bypasses remote prefill, our rule
    /// must not split.
    #[test]
    fn dynamo_keeps_short_and_mostly_cached_prompts() {
        let rule = SplitRule::Dynamo(DynamoSplit::default());
        assert!(!splits(&rule, 1000, 14 * 64), "104 of 1000 tokens are new");
        assert!(splits(&rule, 100_000, 64_000), "36,000 tokens are new");
        assert!(splits(&rule, 200, 0), "all of the prompt is new");
        let wide = DynamoSplit { eff_isl_ratio_threshold: 1.01, ..DynamoSplit::default() };
        assert!(splits(&SplitRule::Dynamo(wide.clone()), 2048, 0), "2048 is not below the threshold");
        assert!(!splits(&SplitRule::Dynamo(wide), 2047, 0));
        assert!(!splits(&rule, 500, 640), "more cached than asked for");
    }

    #[test]
    fn dynamo_keeps_prompts_while_prefill_is_busy() {
        let rule = SplitRule::Dynamo(DynamoSplit { prefill_busy_threshold: Some(2.0), ..DynamoSplit::default() });
        let with = |least_load| rule.splits(Prompt { tokens: 9000, least_load, ..Prompt::default() });
        assert_eq!([0.0, 2.0, 2.1].map(with), [true, true, false]);
    }

    #[test]
    fn dynamo_of_2025_counts_the_queue() {
        let rule = SplitRule::DynamoQueue(DynamoQueue::default());
        let with = |tokens, queue| rule.splits(Prompt { tokens, queue, ..Prompt::default() });
        assert_eq!([with(1000, 0), with(1001, 0), with(1001, 1), with(1001, 2)], [false, true, true, false]);
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        let share = DynamoSplit { eff_isl_ratio_threshold: f64::NAN, ..DynamoSplit::default() };
        assert_eq!(SplitRule::Dynamo(share).check().unwrap_err().0, "dynamo.eff_isl_ratio_threshold");
        let busy = DynamoSplit { prefill_busy_threshold: Some(-1.0), ..DynamoSplit::default() };
        assert_eq!(SplitRule::Dynamo(busy).check().unwrap_err().0, "dynamo.prefill_busy_threshold");
        assert!(SplitRule::default().check().is_ok());
    }
}
