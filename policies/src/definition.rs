//! The contract between a policy's file and the table of policies: what a policy says about itself, what it is built
//! from, and how it refuses settings. Of the table it uses [`PolicySpec`] alone, because a clairvoyant names other
//! policies to run.

use crate::PolicySpec;
use crate::look::Look;
use crate::shared::belief::Belief;
use crate::shared::profile::PassTimes;
use foretoken_sim::{DraftAt, MAX_SPEC_LEN, Speculation};
use std::sync::Arc;

/// The inputs from which a policy is built.
#[derive(Clone, Copy)]
pub struct PolicyContext<'a> {
    /// What the policy believes passes cost.
    pub belief: Belief,
    /// Pass times that the policy may measure before serving starts. Policies with cost tables fill them from this.
    pub profile: &'a dyn PassTimes,
    /// Most draft tokens of a request in a step (`engine.max_draft_len`). Longer settings are cut to it.
    pub max_draft_len: u32,
    /// Most requests in the running list (`engine.max_num_seqs`); the size of tables by batch size.
    pub max_num_seqs: u32,
    /// Token budget of a step (`engine.max_num_batched_tokens`); the size of tables by tokens.
    pub max_num_batched_tokens: u32,
    /// The run's seed, for policies that draw at random.
    pub seed: u64,
    /// Number of steps after which a policy learns a step's outcome; 0 is at the end of the step.
    pub staleness_steps: u32,
    /// When the engine drafts: at the end of a step it runs the first draft pass also if nothing is drafted.
    pub draft_at: DraftAt,
    /// Names of the requests' categories ([`BatchView::category`](foretoken_sim::BatchView::category) is an index into
    /// them); empty if requests have none.
    pub categories: &'a [String],
    /// Values that the policy is given instead of learning them (`foretoken decide`): no warm-up, no staleness.
    pub told: Option<Told<'a>>,
    /// The truths that the wrappers `true-cost` and `true-rates` give to a policy; `None` without such a wrapper.
    pub truths: Option<Truths<'a>>,
    /// Each request's own acceptance rate by its id, which a policy takes in place of its own estimates; `None` in
    /// service.
    pub own_rates: Option<&'a Arc<[f64]>>,
}

/// The truths in place of a policy's beliefs.
#[derive(Clone, Copy)]
pub struct Truths<'a> {
    /// The line through the true cost of passes.
    pub line: Belief,
    /// The true times of passes.
    pub passes: &'a dyn PassTimes,
    /// Each request's own acceptance rate by its id; `None` if acceptance has no law.
    pub own_rates: Option<&'a Arc<[f64]>>,
}

/// The beliefs that a policy has, which a wrapper may put right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Beliefs {
    /// What passes cost, from [`belief`](PolicyContext::belief) or [`profile`](PolicyContext::profile).
    pub cost: bool,
    /// Confidences of chains.
    pub confidence: bool,
    /// An acceptance rate that it learns, for which it takes [`own_rates`](PolicyContext::own_rates).
    pub rate: bool,
}

/// Values that a policy is given instead of learning them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Told<'a> {
    /// The conditional acceptance rate a of E(a, k).
    pub acceptance_rate: f64,
    /// The confidence expected of a token.
    pub prev_confidence: f64,
    /// The context of each request of the state. Tables by tokens alone use passes over these contexts, not over the
    /// made-up requests that engines time at the start.
    pub contexts: &'a [u32],
}

/// A parameter value that serde accepts and the policy refuses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{policy}.{key}: {why}")]
pub struct BadParameter {
    /// The policy's name.
    pub policy: &'static str,
    /// The parameter's key.
    pub key: &'static str,
    /// What is wrong, and which values are right.
    pub why: String,
}

/// What a policy's file says about its policy. The parameters implement it; several presets may share them.
pub trait Definition {
    /// The policy's own label (`fixed-3`), for policies whose name and changed settings do not read well.
    fn short_label(&self) -> Option<String> {
        None
    }

    /// What the policy does, in one line.
    fn summary(&self) -> &'static str;

    /// What the preset `name` of the policy does, in one line, where two presets have the same parameters.
    fn summary_of(&self, _name: &str) -> &'static str {
        self.summary()
    }

    /// Paper and section, or engine and file.
    fn source(&self) -> &'static str;

    /// What the policy sees when it decides (docs/model.md 8).
    fn sees(&self) -> &'static str;

    /// How the policy differs from the published artefact, and why.
    fn differences(&self) -> &'static str;

    /// Colour and marker in figures: `usual`, from the table of policies, unless the policy's settings choose another.
    fn look(&self, usual: Look) -> Look {
        usual
    }

    /// True if the policy sees the hidden truth. It is then a bound, not a policy that a server can run.
    fn sees_hidden_truth(&self) -> bool {
        false
    }

    /// True if the policy needs the law of acceptance, which recordings do not have.
    fn needs_law(&self) -> bool {
        false
    }

    /// The beliefs of the policy that a wrapper may put right; none by default.
    fn beliefs(&self) -> Beliefs {
        Beliefs::default()
    }

    /// The policy in this one, for a wrapper.
    fn wraps(&self) -> Option<&PolicySpec> {
        None
    }

    /// True if the policy learns from accepted counts alone, so that `foretoken decide` can give it a history of them.
    fn learns_from_counts(&self) -> bool {
        false
    }

    /// True if the policy's lengths depend on nothing that it sees. Figures then show nothing learnt.
    fn is_blind(&self) -> bool {
        false
    }

    /// True if the policy drafts trees, which `oracle-goodput` does not bound: it drafts chains.
    fn drafts_trees(&self) -> bool {
        false
    }

    /// True if the policy stops speculating where a step would exceed the TPOT bound.
    fn stops_for_slo(&self) -> bool {
        false
    }

    /// A length that the user gave by number, with its key. An engine that cuts it would run another policy.
    fn asks_for(&self) -> Option<(&'static str, u32)> {
        None
    }

    /// The categories of requests that the user named in the settings. One that no request can have is an error.
    fn names_categories(&self) -> Vec<&str> {
        Vec::new()
    }

    /// Policies to run in place of this one; the best one is taken in hindsight. Empty for all but clairvoyants.
    fn tries(&self, _max_draft_len: u32) -> Vec<PolicySpec> {
        Vec::new()
    }

    /// Refuses settings that the policy cannot work with.
    fn check(&self) -> Result<(), BadParameter>;

    /// Builds the policy. The settings have passed [`check`](Definition::check).
    fn build(&self, context: &PolicyContext) -> Speculation;
}

/// Checks of one policy's parameters, in the order of the fields: `Check("tetris").length("k", self.k)?`.
pub struct Check(pub &'static str);

impl Check {
    /// Returns an error about `key` unless `ok`.
    ///
    /// # Errors
    /// The key and the result of `why`.
    pub fn that(&self, key: &'static str, ok: bool, why: impl Fn() -> String) -> Result<(), BadParameter> {
        if ok { Ok(()) } else { Err(BadParameter { policy: self.0, key, why: why() }) }
    }

    /// Checks that `value` is from 0 to 1; NaN is refused.
    ///
    /// # Errors
    /// The key and its value.
    pub fn share(&self, key: &'static str, value: f64) -> Result<(), BadParameter> {
        self.that(key, (0.0..=1.0).contains(&value), || format!("{value} is not a share from 0 to 1"))
    }

    /// Checks that `value` is a draft length from 1 to the longest that an engine can run.
    ///
    /// # Errors
    /// The key and its value.
    pub fn length(&self, key: &'static str, value: u32) -> Result<(), BadParameter> {
        self.that(key, (1..=MAX_SPEC_LEN).contains(&value), || {
            format!("{value} is not a draft length from 1 to {MAX_SPEC_LEN}")
        })
    }
}
