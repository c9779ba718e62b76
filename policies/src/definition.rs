//! The contract between a policy's file and the table: what a policy says about itself, what it is built with, and how
//! it refuses settings. Of the table it knows `PolicySpec` alone, which a clairvoyant has run in its place.

use crate::PolicySpec;
use crate::look::Look;
use crate::shared::belief::Belief;
use crate::shared::profile::PassTimes;
use foretoken_sim::{MAX_SPEC_LEN, Speculation};

/// What a policy is built with.
#[derive(Clone, Copy)]
pub struct PolicyContext<'a> {
    /// What it believes passes cost.
    pub belief: Belief,
    /// What it may time before serving starts: policies with cost tables fill them from it.
    pub profile: &'a dyn PassTimes,
    /// Most draft tokens a request in a step (`engine.max_draft_len`): longer settings are cut to it.
    pub max_draft_len: u32,
    /// Most requests in the running list (`engine.max_num_seqs`): tables reach so far.
    pub max_num_seqs: u32,
    /// Token budget of a step (`engine.max_num_batched_tokens`): tables reach so far.
    pub max_num_batched_tokens: u32,
    /// The run's seed, for policies that draw.
    pub seed: u64,
    /// Steps after which a policy learns what a step brought; 0 is at its end.
    pub staleness_steps: u32,
    /// What it is told instead of learning it (`foretoken decide`): no warm-up, no staleness of its own.
    pub told: Option<Told<'a>>,
}

/// What a policy is told instead of learning it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Told<'a> {
    /// The conditional acceptance rate a of E(a, k).
    pub acceptance_rate: f64,
    /// The confidence expected of a token.
    pub prev_confidence: f64,
    /// The context of each request of the state: tables by tokens alone are of passes over these, not over the made-up
    /// requests that engines time when they start.
    pub contexts: &'a [u32],
}

/// A parameter that serde accepts and the policy does not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{policy}.{key}: {why}")]
pub struct BadParameter {
    /// The policy's name.
    pub policy: &'static str,
    /// The parameter.
    pub key: &'static str,
    /// What is wrong, and what would be right.
    pub why: String,
}

/// What each policy's file says about it. Implemented by the policy's parameters; several presets may share them.
pub trait Definition {
    /// A label of its own, where the name and the changed settings do not read well (`fixed-3`).
    fn short_label(&self) -> Option<String> {
        None
    }

    /// What it does, in one line.
    fn summary(&self) -> &'static str;

    /// Paper and section, or engine and file.
    fn source(&self) -> &'static str;

    /// What it sees when it decides (docs/model.md 8).
    fn sees(&self) -> &'static str;

    /// In what it differs from the published artefact, and why.
    fn differences(&self) -> &'static str;

    /// How it looks in figures; `usual` is the table's.
    fn look(&self, usual: Look) -> Look {
        usual
    }

    /// Does it see the hidden truth? Then it is a bound, not a policy a server can run.
    fn sees_hidden_truth(&self) -> bool {
        false
    }

    /// Does it learn from accepted counts alone, so that a history of them is all it needs (`foretoken decide`)?
    fn learns_from_counts(&self) -> bool {
        false
    }

    /// Do its lengths depend on nothing that it sees? Then nothing is drawn of what it learnt.
    fn is_blind(&self) -> bool {
        false
    }

    /// Does it stop speculating where a step would be over the TPOT bound?
    fn stops_for_slo(&self) -> bool {
        false
    }

    /// A length that the user asks for by number, and its key: an engine that clips it would run another policy.
    fn asks_for(&self) -> Option<(&'static str, u32)> {
        None
    }

    /// Policies to run in its place, of which the best one is taken in hindsight; none for all but clairvoyants.
    fn tries(&self, _max_draft_len: u32) -> Vec<PolicySpec> {
        Vec::new()
    }

    /// Refuses settings it cannot work with.
    fn check(&self) -> Result<(), BadParameter>;

    /// Builds it. The settings have passed [`check`](Definition::check).
    fn build(&self, context: &PolicyContext) -> Speculation;
}

/// Checks of one policy's parameters, in the order of its fields: `Check("tetris").length("k", self.k)?`.
pub struct Check(pub &'static str);

impl Check {
    /// An error about `key` unless `ok`.
    ///
    /// # Errors
    /// The key and why.
    pub fn that(&self, key: &'static str, ok: bool, why: impl Fn() -> String) -> Result<(), BadParameter> {
        if ok { Ok(()) } else { Err(BadParameter { policy: self.0, key, why: why() }) }
    }

    /// A share from 0 to 1; NaN is none.
    ///
    /// # Errors
    /// The key and its value.
    pub fn share(&self, key: &'static str, value: f64) -> Result<(), BadParameter> {
        self.that(key, (0.0..=1.0).contains(&value), || format!("{value} is not a share from 0 to 1"))
    }

    /// A draft length of at least 1 that an engine can run.
    ///
    /// # Errors
    /// The key and its value.
    pub fn length(&self, key: &'static str, value: u32) -> Result<(), BadParameter> {
        self.that(key, (1..=MAX_SPEC_LEN).contains(&value), || {
            format!("{value} is not a draft length from 1 to {MAX_SPEC_LEN}")
        })
    }
}
