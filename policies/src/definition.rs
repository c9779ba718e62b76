//! The contract between a policy's file and the table of policies (`lib.rs`): what a policy says about itself, from
//! which inputs it is built, and how it refuses settings. This file uses only [`PolicySpec`] from the table, for two
//! reasons: `clairvoyant-static` names policies to run, and wrappers name the policy to which they give the truth.

use crate::PolicySpec;
use crate::look::Look;
use crate::shared::belief::Belief;
use crate::shared::profile::PassTimes;
use foretoken_sim::{DraftAt, MAX_SPEC_LEN, Speculation};
use std::sync::Arc;

/// The inputs from which a policy is built: its belief about costs (a cost formula), the engine's limits, and the seed.
#[derive(Clone, Copy)]
pub struct PolicyContext<'a> {
    /// The policy's belief, a linear model of pass times. It may differ from the true times.
    pub belief: Belief,
    /// Pass times that the policy may measure before serving starts. Policies with cost tables fill them from this.
    pub profile: &'a dyn PassTimes,
    /// Most draft tokens of a request in a step (`engine.max_draft_len`). A policy cuts settings of longer draft
    /// lengths to this length.
    pub max_draft_len: u32,
    /// Most requests in the running list (`engine.max_num_seqs`). A policy with a table by batch size makes the table
    /// this long.
    pub max_num_seqs: u32,
    /// Token budget of a step (`engine.max_num_batched_tokens`). A policy with a table by number of tokens makes the
    /// table this long.
    pub max_num_batched_tokens: u32,
    /// The run's seed, for policies that draw at random.
    pub seed: u64,
    /// Number of steps after which a policy learns a step's outcome. With 0 it learns the outcome at the end of the
    /// step.
    pub staleness_steps: u32,
    /// Whether the engine drafts at the start or at the end of a step. An engine that drafts at the end runs the first
    /// draft pass in every step, also if nothing is drafted.
    pub draft_at: DraftAt,
    /// Names of the requests' categories ([`BatchView::category`](foretoken_sim::BatchView::category) is an index into
    /// them); empty if requests have none.
    pub categories: &'a [String],
    /// Acceptance values that the command `foretoken decide` gives to the policy. The policy uses them in place of
    /// learned values, without warm-up and staleness. `None` in a run.
    pub told: Option<Told<'a>>,
    /// The true costs and rates that the wrappers `true-cost` and `true-rates` give to another policy; `None` without a
    /// wrapper.
    pub truths: Option<Truths<'a>>,
    /// The true acceptance rate of each request, by request id. A policy that gets them does not estimate rates. `None`
    /// unless the wrapper `true-rates` sets them.
    pub own_rates: Option<&'a Arc<[f64]>>,
}

/// The true pass costs and acceptance rates, for a policy that knows them in place of an estimate.
#[derive(Clone, Copy)]
pub struct Truths<'a> {
    /// The true pass times as a linear model (α, γ, δ), fitted if they are not linear.
    pub line: Belief,
    /// The true time of a pass, by its numbers of tokens, context tokens and query-key pairs.
    pub passes: &'a dyn PassTimes,
    /// The true acceptance rate of each request, by request id; `None` if acceptance is replayed from a recording,
    /// which has no rates.
    pub own_rates: Option<&'a Arc<[f64]>>,
}

/// Which beliefs (assumptions about costs, confidences or rates) a policy has. The wrappers `true-cost`,
/// `true-calibration` and `true-rates` replace a belief by the truth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Beliefs {
    /// True if the policy uses a cost model of passes, from [`belief`](PolicyContext::belief) or
    /// [`profile`](PolicyContext::profile).
    pub cost: bool,
    /// True if the policy decides by the confidences of the tokens of draft chains.
    pub confidence: bool,
    /// True if the policy learns an acceptance rate and can use [`own_rates`](PolicyContext::own_rates) in its place.
    pub rate: bool,
}

/// Values that the command `foretoken decide` gives to a policy. In a run the policy learns them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Told<'a> {
    /// Probability that a draft token is accepted if all draft tokens before it are: the a of E(a, k),
    /// [`expected_tokens`](crate::expected_tokens).
    pub acceptance_rate: f64,
    /// The confidence that the policy expects of a draft token before it is drafted.
    pub prev_confidence: f64,
    /// KV tokens of each request in the batch to decide on. A policy whose cost table depends on the number of tokens
    /// alone then measures passes over these requests. In a run it measures passes over made-up requests, as engines do
    /// at start-up.
    pub contexts: &'a [u32],
}

/// A parameter value that serde accepts and the policy refuses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{policy}.{key}: {why}")]
pub struct BadParameter {
    /// Name of the policy that refuses the value.
    pub policy: &'static str,
    /// Key of the refused parameter.
    pub key: &'static str,
    /// What is wrong with the parameter's value, and which values are right.
    pub why: String,
}

/// Texts for readers about a policy.
#[derive(Clone, Copy, Debug)]
pub struct About {
    /// What the policy does, in one line.
    pub summary: &'static str,
    /// Where it is from: paper and section, or engine and file.
    pub source: &'static str,
    /// What it sees when it decides (docs/model.md 8).
    pub sees: &'static str,
    /// How it differs from the published artefact, and why.
    pub differences: &'static str,
}

/// What a policy says about itself. The type of its parameters implements this trait. Several presets (policies with
/// default settings under a name) may share the type.
pub trait Definition {
    /// A short label for reports (`fixed-3`). `None` gives the usual label: the name, then the settings that differ
    /// from the defaults.
    fn short_label(&self) -> Option<String> {
        None
    }

    /// What the policy says to readers about itself.
    fn about(&self) -> About;

    /// What the preset `name` of the policy (default settings under a name) does, in one line. It differs from
    /// [`About::summary`] only where two presets have the same parameters.
    fn summary_of(&self, _name: &str) -> &'static str {
        self.about().summary
    }

    /// Colour, dash and marker in figures: `usual`, from the table of policies, unless the policy's settings choose
    /// another.
    fn look(&self, usual: Look) -> Look {
        usual
    }

    /// True if the policy sees the hidden truth, which no server knows: true costs, true acceptance rates, or which
    /// draft tokens will be accepted. No server can run such a policy. It is there for comparison (a bound or an
    /// oracle), or it gives another policy the truth (a wrapper).
    fn sees_hidden_truth(&self) -> bool {
        false
    }

    /// True if the policy needs the probabilities by which draft tokens are accepted. Recorded acceptance does not have
    /// them.
    fn needs_law(&self) -> bool {
        false
    }

    /// The beliefs (assumptions about costs, confidences or rates) of the policy that a wrapper such as `true-cost` may
    /// replace by the truth; none by default.
    fn beliefs(&self) -> Beliefs {
        Beliefs::default()
    }

    /// The inner policy of a wrapper (a policy that gives another policy the truth); `None` for all other policies.
    fn wraps(&self) -> Option<&PolicySpec> {
        None
    }

    /// True if the policy learns from numbers of accepted draft tokens alone, so that `foretoken decide` can give it a
    /// history of such numbers.
    fn learns_from_counts(&self) -> bool {
        false
    }

    /// True if the policy's lengths depend on nothing that it observes. Its runs then get no warnings about the linear
    /// cost estimate (belief), which the policy does not use.
    fn is_blind(&self) -> bool {
        false
    }

    /// True if the policy drafts trees. Such a policy can be better than `oracle-goodput`, because that oracle drafts
    /// chains.
    fn drafts_trees(&self) -> bool {
        false
    }

    /// True if the policy stops speculating where a step would exceed the TPOT bound.
    fn stops_for_slo(&self) -> bool {
        false
    }

    /// The key of the setting that states the policy's longest draft length, and this length in tokens. An experiment
    /// is refused if `engine.max_draft_len` is shorter. `None` if no setting states a length.
    fn asks_for(&self) -> Option<(&'static str, u32)> {
        None
    }

    /// The categories of requests (labels such as chat or code) that the settings name. A category that no request can
    /// have is an error.
    fn names_categories(&self) -> Vec<&str> {
        Vec::new()
    }

    /// Policies that the experiment runs in place of this policy; it keeps the best result. Empty for all policies but
    /// `clairvoyant-static`.
    fn tries(&self, _max_draft_len: u32) -> Vec<PolicySpec> {
        Vec::new()
    }

    /// Refuses settings that the policy cannot work with.
    ///
    /// # Errors
    /// A setting has a bad value. The error has the key of the first bad setting, and says which values are right.
    fn check(&self) -> Result<(), BadParameter>;

    /// Builds the policy. The settings have passed [`check`](Definition::check).
    fn build(&self, context: &PolicyContext) -> Speculation;
}

/// Checks of the parameters of the policy with this name, in the order of the fields:
/// `Check("tetris").length("k", self.k)?`.
pub struct Check(pub &'static str);

impl Check {
    /// Returns an error about `key` unless `ok`.
    ///
    /// # Errors
    /// `ok` is false. The error has the key and the text that `why` makes.
    pub fn that(&self, key: &'static str, ok: bool, why: impl Fn() -> String) -> Result<(), BadParameter> {
        if ok { Ok(()) } else { Err(BadParameter { policy: self.0, key, why: why() }) }
    }

    /// Checks that the setting `value` is from 0 to 1; NaN is refused.
    ///
    /// # Errors
    /// `value` is outside this range. The error has the key and the value.
    pub fn share(&self, key: &'static str, value: f64) -> Result<(), BadParameter> {
        self.that(key, (0.0..=1.0).contains(&value), || format!("{value} is not a share from 0 to 1"))
    }

    /// Checks that the setting `value` is a draft length from 1 to the longest that an engine can run.
    ///
    /// # Errors
    /// `value` is outside this range. The error has the key and the value.
    pub fn length(&self, key: &'static str, value: u32) -> Result<(), BadParameter> {
        self.that(key, (1..=MAX_SPEC_LEN).contains(&value), || {
            format!("{value} is not a draft length from 1 to {MAX_SPEC_LEN}")
        })
    }
}
