//! The table of policies: names, defaults, looks, checks and construction. It is the one place that lists them all, and
//! must hold no policy's logic.

use crate::look::{Colour, Dash, Look, Marker};
use crate::{
    Adaspec, Autoregressive, Belief, EmaTier, Fixed, OracleGoodput, OracleLength, Random, Smartspec, Threshold,
};
use foretoken_sim::{MAX_SPEC_LEN, Speculation};
use serde::{Deserialize, Serialize};

/// What a policy is built with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PolicyContext {
    /// What it believes passes cost.
    pub belief: Belief,
    /// Most draft tokens a request in a step (`engine.max_draft_len`): longer settings are cut to it.
    pub max_draft_len: u32,
    /// The run's seed, for policies that draw.
    pub seed: u64,
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

/// What each policy's file says about it. Implemented by the policy's parameters.
pub trait Definition {
    /// Unique display label: the name and every setting that is not the default.
    fn label(&self) -> String;

    /// What it does, in one line.
    fn summary(&self) -> &'static str;

    /// Paper and section, or engine and file.
    fn source(&self) -> &'static str;

    /// How it looks in figures.
    fn look(&self) -> Look;

    /// Does it see the hidden truth? Then it is a bound, not a policy a server can run.
    fn sees_hidden_truth(&self) -> bool {
        false
    }

    /// Refuses settings it cannot work with.
    fn check(&self) -> Result<(), BadParameter>;

    /// Builds it. The settings have passed [`check`](Definition::check).
    fn build(&self, context: &PolicyContext) -> Speculation;
}

macro_rules! policies {
    ($($policy:ident = $name:literal),* $(,)?) => {
        /// A policy and its settings, as an experiment gives them: `{ fixed = { k = 3 } }`, `{ adaspec = {} }`.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        pub enum PolicySpec {
            $(#[doc = concat!("`", $name, "`: see [`", stringify!($policy), "`].")]
            #[serde(rename = $name)]
            $policy($policy)),*
        }

        impl PolicySpec {
            /// The names of all policies, in the table's order.
            pub fn all_names() -> &'static [&'static str] {
                &[$($name),*]
            }

            /// All policies with their default settings, in the table's order.
            pub fn all() -> Vec<PolicySpec> {
                vec![$(PolicySpec::$policy($policy::default())),*]
            }

            /// The policy's name.
            pub fn name(&self) -> &'static str {
                match self { $(PolicySpec::$policy(_) => $name),* }
            }

            /// What the policy's file says about it.
            pub fn definition(&self) -> &dyn Definition {
                match self { $(PolicySpec::$policy(p) => p),* }
            }
        }
    };
}

policies! {
    Autoregressive = "autoregressive",
    Fixed = "fixed",
    EmaTier = "ema-tier",
    Smartspec = "smartspec",
    Adaspec = "adaspec",
    Threshold = "threshold",
    OracleGoodput = "oracle-goodput",
    OracleLength = "oracle-length",
    Random = "random",
}

impl PolicySpec {
    /// Unique display label: the name and every setting that is not the default.
    pub fn label(&self) -> String {
        self.definition().label()
    }

    /// What it does, in one line.
    pub fn summary(&self) -> &'static str {
        self.definition().summary()
    }

    /// Paper and section, or engine and file.
    pub fn source(&self) -> &'static str {
        self.definition().source()
    }

    /// Its colour in figures.
    pub fn colour(&self) -> Colour {
        self.definition().look().colour
    }

    /// The dash of its lines.
    pub fn dash(&self) -> Dash {
        self.definition().look().dash
    }

    /// The marker of its points.
    pub fn marker(&self) -> Marker {
        self.definition().look().marker
    }

    /// Does it see the hidden truth?
    pub fn sees_hidden_truth(&self) -> bool {
        self.definition().sees_hidden_truth()
    }

    /// Refuses settings it cannot work with, naming the key.
    pub fn check(&self) -> Result<(), BadParameter> {
        self.definition().check()
    }

    /// Builds it. Call [`check`](PolicySpec::check) first.
    pub fn build(&self, context: &PolicyContext) -> Speculation {
        self.definition().build(context)
    }
}

/// `stem`, and in brackets every setting in which `settings` differs from `usual`.
pub(crate) fn label<T: Serialize>(stem: &str, settings: &T, usual: &T) -> String {
    let plain = |t: &T| serde_json::to_value(t).expect("a policy's settings are plain values");
    let (settings, usual) = (plain(settings), plain(usual));
    let changed: Vec<String> = settings
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(key, value)| usual.get(key.as_str()) != Some(value))
        .map(|(key, value)| match value.as_str() {
            Some(word) => format!("{key}={word}"),
            None => format!("{key}={value}"),
        })
        .collect();
    match changed.is_empty() {
        true => stem.to_string(),
        false => format!("{stem}[{}]", changed.join(" ")),
    }
}

/// Checks of one policy's parameters, in the order of its fields.
pub(crate) struct Check(pub &'static str);

impl Check {
    /// An error about `key` unless `ok`.
    pub fn that(&self, key: &'static str, ok: bool, why: impl Fn() -> String) -> Result<(), BadParameter> {
        if ok { Ok(()) } else { Err(BadParameter { policy: self.0, key, why: why() }) }
    }

    /// A share from 0 to 1; NaN is none.
    pub fn share(&self, key: &'static str, value: f64) -> Result<(), BadParameter> {
        self.that(key, (0.0..=1.0).contains(&value), || format!("{value} is not a share from 0 to 1"))
    }

    /// A draft length of at least 1 that an engine can run.
    pub fn length(&self, key: &'static str, value: u32) -> Result<(), BadParameter> {
        self.that(key, (1..=MAX_SPEC_LEN).contains(&value), || {
            format!("{value} is not a draft length from 1 to {MAX_SPEC_LEN}")
        })
    }
}

#[cfg(test)]
#[path = "registry_tests.rs"]
mod tests;
