//! What was found: settings that did nothing, and how that is told.

use serde::{Deserialize, Serialize};

/// The settings that did nothing, and those that nothing is known of.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Inert {
    /// Settings that changed no number.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub without_effect: Vec<WithoutEffect>,
    /// Settings that were not tried.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_tried: Vec<NotTried>,
}

/// A setting that changed no number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WithoutEffect {
    /// Its key.
    pub path: String,
    /// What it was given, as TOML; absent when it was swept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// What was tried instead.
    pub tried: String,
    /// How much came out the same.
    pub evidence: Evidence,
    /// Why it did nothing, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// A setting that was not tried.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NotTried {
    /// Its key.
    pub path: String,
    /// Would `--check-settings always` try it? If not, it must be given and no other value is known to be valid.
    pub for_its_cost: bool,
}

/// How much of the run was run again without a setting, and came out the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Evidence {
    /// All of it.
    Whole,
    /// So many of its comparisons: swept values and seeds.
    Part {
        /// Those that came out the same.
        same: usize,
        /// All of them.
        of: usize,
    },
    /// The first requests of its first comparison.
    Start {
        /// How many.
        requests: usize,
    },
}

impl Inert {
    /// What a user should be told: a line for each reason with the settings that did nothing for it, one for each setting
    /// without a known reason, and one for those that were not tried for their cost.
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
                "whether these settings do anything was not tried, for what it costs (--check-settings always tries): {}",
                left.join(", ")
            ));
        }
        lines
    }
}

impl WithoutEffect {
    /// Did it come to nothing for the same reason, as far as is known?
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

/// One line for settings that are alike.
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
