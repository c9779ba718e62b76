//! `true-cost`, `true-calibration` and `true-rates`: wrappers that give a policy the truth in place of one of its
//! beliefs (its assumptions about pass costs, confidences or acceptance rates). The policy decides by its own rule. The
//! gain over the policy without the wrapper is what the wrong belief costs (`foretoken ladder`). Wrappers can be
//! nested.

use crate::PolicySpec;
use crate::definition::{About, BadParameter, Beliefs, Check, Definition, PolicyContext};
use crate::goodput::smartspec::Smartspec;
use foretoken_sim::{Around, Shown, SpecPolicy, Speculation, Wants};
use serde::{Deserialize, Serialize};

/// Which belief of the policy (its assumption about costs, confidences or rates) is replaced by the truth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Right {
    /// The cost of passes: a policy that measures pass times before serving gets the true times, and a policy with a
    /// linear cost formula gets the line that fits the true times.
    #[default]
    Cost,
    /// The meaning of confidences: each confidence is replaced by the true probability that its token is right.
    Calibration,
    /// The acceptance rate of each request: the request's true rate replaces estimates, and is used in the
    /// probabilities that replace confidences.
    Rates,
}

/// Parameters of `true-cost`, `true-calibration` and `true-rates`, which run another policy with the truth in place of
/// one belief (an assumption about costs, confidences or rates).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TrueBelief {
    /// The policy that decides. It must be one that a server could run, and have the belief (assumption) that is
    /// replaced.
    pub policy: Box<PolicySpec>,
    /// Which belief of the policy (its assumption about costs, confidences or rates) is replaced by the truth.
    pub right: Right,
}

impl Default for TrueBelief {
    fn default() -> Self {
        TrueBelief::in_place_of(Right::Cost)
    }
}

impl TrueBelief {
    /// The default wrapper that replaces the belief `right` (an assumption about costs, confidences or rates) by the
    /// truth. It wraps `smartspec`, or `adaspec` if `right` is `Calibration`.
    pub fn in_place_of(right: Right) -> TrueBelief {
        let policy = match right {
            Right::Cost | Right::Rates => PolicySpec::Smartspec(Smartspec::default()),
            Right::Calibration => PolicySpec::Adaspec(crate::Adaspec::default()),
        };
        TrueBelief { policy: Box::new(policy), right }
    }

    fn name(&self) -> &'static str {
        match self.right {
            Right::Cost => "true-cost",
            Right::Calibration => "true-calibration",
            Right::Rates => "true-rates",
        }
    }

    fn inner(&self) -> &dyn Definition {
        self.policy.definition()
    }
}

impl Definition for TrueBelief {
    fn short_label(&self) -> Option<String> {
        Some(format!("{}({})", self.name(), self.policy.label()))
    }

    fn about(&self) -> About {
        About {
            summary: match self.right {
                Right::Cost => "a policy that believes the true cost of passes and is otherwise itself",
                Right::Calibration => "a policy that sees the true worth of each confidence and is otherwise itself",
                Right::Rates => "a policy that knows each request's own acceptance rate and is otherwise itself",
            },
            source: "our own: what a wrong belief costs (docs/model.md 12, 13)",
            sees: match self.right {
                Right::Cost => "what the policy sees, and the true cost of passes",
                Right::Calibration => "what the policy sees, with the true curve of confidences",
                Right::Rates => "what the policy sees, and each request's own acceptance rate",
            },
            differences: match self.right {
                Right::Cost => {
                    "a policy with a linear belief gets the line through the true costs: it cannot hold more. A \
                     policy that learns costs while it serves still learns them"
                }
                Right::Calibration => "entropies and the confidences of trees stay as they are",
                Right::Rates => {
                    "a request's rate is the constant one that accepts as many tokens of the longest draft as its \
                     law. A policy that counts accepted tokens and estimates no rate has nothing to put right"
                }
            },
        }
    }

    fn sees_hidden_truth(&self) -> bool {
        true
    }

    fn needs_law(&self) -> bool {
        self.right != Right::Cost || self.inner().needs_law()
    }

    fn wraps(&self) -> Option<&PolicySpec> {
        Some(&self.policy)
    }

    fn beliefs(&self) -> Beliefs {
        let inner = self.inner().beliefs();
        match self.right {
            Right::Cost => Beliefs { cost: false, ..inner },
            Right::Calibration => inner,
            Right::Rates => Beliefs { rate: false, ..inner },
        }
    }

    fn learns_from_counts(&self) -> bool {
        self.inner().learns_from_counts()
    }

    fn drafts_trees(&self) -> bool {
        self.inner().drafts_trees()
    }

    fn stops_for_slo(&self) -> bool {
        self.inner().stops_for_slo()
    }

    fn asks_for(&self) -> Option<(&'static str, u32)> {
        self.inner().asks_for()
    }

    fn names_categories(&self) -> Vec<&str> {
        self.inner().names_categories()
    }

    fn check(&self) -> Result<(), BadParameter> {
        let check = Check(self.name());
        self.policy.check().or_else(|e| check.that("policy", false, || e.to_string()))?;
        let label = || self.policy.label();
        let bound = self.policy.sees_hidden_truth() && self.inner().wraps().is_none();
        check.that("policy", !bound, || {
            format!("{} sees the truth already: name a policy that a server can run", label())
        })?;
        let Beliefs { cost, confidence, rate } = self.inner().beliefs();
        let (some, belief) = match self.right {
            Right::Cost => (cost, "the cost of passes"),
            Right::Calibration => (confidence, "confidences"),
            Right::Rates => (rate || confidence, "acceptance rates"),
        };
        check.that("policy", some, || format!("{} has no belief about {belief} that could be put right", label()))
    }

    /// Builds the inner policy with the truth in place of its belief (its assumption). The inner policy gets outcomes
    /// without delay, because `PolicySpec::build` delays the outcomes of the outer policy.
    fn build(&self, context: &PolicyContext) -> Speculation {
        let mut context = *context;
        if let Some(truths) = context.truths {
            match self.right {
                Right::Cost => (context.belief, context.profile) = (truths.line, truths.passes),
                Right::Calibration => {}
                Right::Rates => context.own_rates = truths.own_rates,
            }
        }
        let shown = match self.right {
            Right::Cost => Shown::Confidence,
            Right::Calibration => Shown::Calibrated,
            Right::Rates => Shown::OwnRate,
        };
        match self.inner().build(&context) {
            Speculation::Policy(policy) => Speculation::Policy(Box::new(Informed { policy, shown })),
            other => other,
        }
    }
}

/// A policy inside a wrapper (`true-cost`, `true-calibration` or `true-rates`). `shown` names the confidences that the
/// wrapper shows to the policy: the draft model's own, or true probabilities, which no server has.
struct Informed {
    policy: Box<dyn SpecPolicy>,
    shown: Shown,
}

impl Around for Informed {
    fn inner(&self) -> &dyn SpecPolicy {
        &*self.policy
    }

    fn inner_mut(&mut self) -> &mut dyn SpecPolicy {
        &mut *self.policy
    }

    /// Which confidences the wrapped policy sees. If wrappers (policies that give another policy the truth) are nested,
    /// these are the confidences of the wrapper that reveals the most.
    fn around_wants(&self) -> Wants {
        let wants = self.policy.wants();
        Wants { shown: wants.shown.max(self.shown), ..wants }
    }

    /// Whether ids of ended requests may be used again. With true rates they may not, because the rates are looked up
    /// by request id.
    fn around_ids_may_return(&self) -> bool {
        self.shown != Shown::OwnRate && self.policy.ids_may_return()
    }
}

#[cfg(test)]
#[path = "true_beliefs_tests.rs"]
mod tests;
