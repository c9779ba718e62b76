//! Settings of an experiment that did nothing, and the report's lines about them.

use serde::{Deserialize, Serialize};

/// The settings that did nothing in a run, and the settings that were not tried.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Inert {
    /// Settings that changed no number of the run when they were left out or changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub without_effect: Vec<WithoutEffect>,
    /// Settings that were not tried, for cost or because no other valid value is known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_tried: Vec<NotTried>,
}

/// A setting that changed no number of the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WithoutEffect {
    /// The path of the setting in the experiment, such as `engine.max_num_seqs`.
    pub path: String,
    /// The setting's value in the experiment, as TOML; absent if the setting was swept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// How the setting was changed on trial, such as `without it, with the default 256`.
    pub tried: String,
    /// How much of the run was repeated with the setting changed. All numbers of this part stayed the same.
    pub evidence: Evidence,
    /// Why the setting did nothing; absent if the reason is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// A setting of which it is not known whether it has an effect.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NotTried {
    /// The path of the setting in the experiment, such as `engine.max_num_seqs`.
    pub path: String,
    /// True if the setting was not tried because a trial would take too long; `--check-settings always` tries it. False
    /// if the setting cannot be tried: its key is required, and no other valid value is known.
    pub for_its_cost: bool,
}

/// How much of the run was repeated with a setting changed. All numbers stayed the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Evidence {
    /// The whole run was repeated with the setting changed.
    Whole,
    /// Some of the run's comparisons. A comparison is all policies with one combination of swept values and one seed.
    Part {
        /// Number of comparisons (all policies with one seed and one combination of swept values) that were repeated.
        same: usize,
        /// Number of all comparisons (all policies with one seed and one combination of swept values) of the run.
        of: usize,
    },
    /// Only the start of the run's first comparison (all policies with one seed) was repeated.
    Start {
        /// Number of requests, from the first on, that were run again with the setting changed.
        requests: usize,
    },
}

impl Inert {
    /// The report's lines about settings that did nothing. Settings share a line if they have the same reason and if
    /// the same part of the run was repeated for them. Settings without a known reason have a line each. A last line
    /// names the settings that were not tried because of the cost.
    pub fn lines(&self) -> Vec<String> {
        let mut groups: Vec<Vec<&WithoutEffect>> = Vec::new();
        for one in &self.without_effect {
            let like = |group: &&mut Vec<&WithoutEffect>| one.why.is_some() && group[0].like(one);
            match groups.iter_mut().find(like) {
                Some(group) => group.push(one),
                None => groups.push(vec![one]),
            }
        }
        let mut lines: Vec<String> = groups.iter().map(|group| line(group)).collect();
        let left: Vec<&str> = self.not_tried.iter().filter(|n| n.for_its_cost).map(|n| n.path.as_str()).collect();
        if !left.is_empty() {
            lines.push(format!(
                "it was not tried whether these settings have an effect, because that takes long (--check-settings always tries): {}",
                left.join(", ")
            ));
        }
        lines
    }
}

impl WithoutEffect {
    /// Do two settings that did nothing have the same reason, and was the same part of the run repeated for both? Then
    /// they share a line of the report.
    fn like(&self, other: &WithoutEffect) -> bool {
        (&self.why, self.evidence) == (&other.why, other.evidence)
    }

    fn given(&self) -> String {
        match &self.value {
            Some(value) if value.len() < 60 => format!("{} = {value}", self.path),
            _ => self.path.clone(),
        }
    }
}

/// The line of the report for settings that did nothing for the same reason.
fn line(group: &[&WithoutEffect]) -> String {
    let (first, given) = (group[0], group.iter().map(|one| one.given()).collect::<Vec<_>>().join(", "));
    let why = first.why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
    let tried = match group {
        [one] => one.tried.as_str(),
        _ => "without each, or with another value in its place",
    };
    match first.evidence {
        Evidence::Whole => format!("{given} changed no number{why}; every result is the same {tried}"),
        Evidence::Part { same, of } => format!(
            "{given} changed no number in {same} of {of} comparisons{why}; tried {tried}, and --check-settings always \
             tries all"
        ),
        Evidence::Start { requests } => format!(
            "{given} changed no number of the first {requests} requests{why}; tried {tried}, and --check-settings always \
             tries all"
        ),
    }
}
