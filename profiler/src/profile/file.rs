//! Reads, checks and writes the TOML text of a profile.

use super::{ModelProfile, Profile};
use crate::hardware::LatencySpec;
use crate::shapes::Role;
use foretoken_traces::intact::seal::{self, Syntax, Unsealed};

/// The version of the format of measured profiles. Only this version is written and read. Version 2 changed the fitted
/// table of pass times: it has the cost of context at several context lengths.
pub const SCHEMA_VERSION: u32 = 2;

/// Why a text cannot be read as a profile.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ProfileError {
    /// A later version of Foretoken, with a newer file format, wrote the profile.
    #[error("schema_version is {found}, and this Foretoken reads {SCHEMA_VERSION}: update it, or profile again")]
    Newer {
        /// The `schema_version` that the file gives.
        found: i64,
    },
    /// An earlier version of Foretoken, with an older file format, wrote the profile.
    #[error("schema_version is {found}, and this Foretoken reads {SCHEMA_VERSION}: profile again")]
    Older {
        /// The `schema_version` that the file gives.
        found: i64,
    },
    /// The file has no `schema_version`, or its value is not an integer.
    #[error("no schema_version: this is not a profile; make one with `foretoken profile`")]
    NotAProfile,
    /// The text is not TOML, or a key is missing, unknown or of a wrong type.
    #[error("{0}")]
    Toml(String),
    /// A value of the profile is outside of its range.
    #[error("{key}: {why}")]
    Value {
        /// Path of the key, such as `target.noise_cv`.
        key: String,
        /// What is wrong with the value of the key.
        why: String,
    },
}

const HEAD: &str = "\
# Times of forward passes, measured by `foretoken profile`. Keys that end in _s are seconds; errors and spreads are shares
# (0.05 is 5 %). alpha, gamma, delta: seconds a token of context read, a batched token, a pass. `measured` has one row a
# shape: [kind, requests, new tokens of each, context of each, mean seconds, spread, samples, fold that held it out].
";

impl Profile {
    /// Reads the text of a profile and checks its values.
    pub fn parse(text: &str) -> Result<Profile, ProfileError> {
        let table: toml::Table = toml::from_str(text).map_err(toml_error)?;
        Profile::check_version(&table)?;
        let profile: Profile = toml::from_str(text).map_err(toml_error)?;
        profile.check()?;
        Ok(profile)
    }

    /// Checks that the file's `schema_version` is the version that this Foretoken reads. Callers do this before they
    /// read other keys.
    pub fn check_version(table: &toml::Table) -> Result<(), ProfileError> {
        match table.get("schema_version").and_then(toml::Value::as_integer) {
            None => Err(ProfileError::NotAProfile),
            Some(found) if found > i64::from(SCHEMA_VERSION) => Err(ProfileError::Newer { found }),
            Some(found) if found < 1 => Err(bad("schema_version", format!("{found} is no version"))),
            Some(found) if found < i64::from(SCHEMA_VERSION) => Err(ProfileError::Older { found }),
            Some(_) => Ok(()),
        }
    }

    /// Checks the linear costs, the table, the noise and the repeatability of the target and the draft model. Also
    /// checks that every measured time is above 0.
    pub fn check(&self) -> Result<(), ProfileError> {
        Role::BOTH.into_iter().try_for_each(|role| check_model(role.name(), self.of(role)))
    }

    /// Returns a warning if the text of a profile's file has no seal, or if the seal shows that the text was changed
    /// after it was written; otherwise `None`. A change is not an error, because users may edit a profile.
    pub fn changed(text: &str) -> Option<String> {
        match seal::check(Syntax::Toml, text) {
            Ok(()) => None,
            Err(Unsealed::Absent) => {
                Some("its last line is no seal, so an edit or damage since it was measured would not show".into())
            }
            Err(broken @ Unsealed::Broken { .. }) => {
                Some(format!("it was edited or damaged since it was measured: {broken}"))
            }
        }
    }

    /// Returns the text of the profile's file. Its last line is a seal, a checksum over the text before it.
    pub fn to_toml(&self) -> String {
        let text = toml::to_string(self).expect("plain data always serialises");
        let mut out = HEAD.to_owned();
        for line in text.lines() {
            // The keys in this list have arrays of arrays as values. Such a value is written with one inner array per
            // line. All brackets in the TOML line of such a key belong to these arrays.
            let table = ["measured = [[", "batched = [[", "pairs = [[", "context = [["]
                .iter()
                .any(|start| line.starts_with(start));
            match table {
                true => {
                    out.push_str(&line.replace("[[", "[\n    [").replace("], [", "],\n    [").replace("]]", "],\n]"))
                }
                false => out.push_str(line),
            }
            out.push('\n');
        }
        seal::seal(Syntax::Toml, &out)
    }
}

fn toml_error(e: toml::de::Error) -> ProfileError {
    ProfileError::Toml(e.to_string().trim_end().to_owned())
}

fn bad(key: impl Into<String>, why: impl Into<String>) -> ProfileError {
    ProfileError::Value { key: key.into(), why: why.into() }
}

fn check_model(name: &str, model: &ModelProfile) -> Result<(), ProfileError> {
    let latency =
        |key: &str, spec: LatencySpec| spec.check().map_err(|e| bad(format!("{name}.{key}.{}", e.key), e.why));
    latency("linear", LatencySpec::Linear(model.linear.coefficients()))?;
    latency("table", LatencySpec::Measured(model.table.clone()))?;
    for (key, value) in [("noise_cv", model.noise_cv), ("repeatability", model.repeatability)] {
        if !(value >= 0.0 && value.is_finite()) {
            return Err(bad(format!("{name}.{key}"), format!("{value} is not a finite number of at least 0")));
        }
    }
    match model.measured.iter().find(|m| !(m.seconds > 0.0 && m.seconds.is_finite())) {
        Some(m) => Err(bad(format!("{name}.measured"), format!("{} is not a time above 0 s", m.seconds))),
        None => Ok(()),
    }
}
