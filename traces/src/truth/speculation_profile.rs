//! `speculation_profile.json`: how often a draft checkpoint is right, in the form that NVIDIA's Model-Optimizer writes
//! beside the checkpoint (its pull requests 2247, 2313 and 2315; schema 1.0). It has the same shares twice, as
//! conditional and as marginal rates, because a reader that takes one for the other gets a number that looks right.

use crate::error::TraceError;
use foretoken_sim::acceptance::{Lengths, Rates};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// Name of the file beside a draft checkpoint.
pub const SPECULATION_PROFILE: &str = "speculation_profile.json";
/// The version that is written. Files of any version are read, if they have the keys that are needed.
const SCHEMA: &str = "1.0";
/// By how much two statements of the mean length may differ, tokens. Model-Optimizer's own check has this bound.
const TOLERANCE: f64 = 0.02;
/// Methods whose draft of K tokens begins as their draft of K + 1 tokens does. Other methods plan a whole block anew.
const CHAINS: [&str; 6] = ["eagle", "eagle1", "eagle2", "eagle3", "draft_model", "mtp"];

/// The content of a `speculation_profile.json`. Keys that are not listed here are not read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SpeculationProfile {
    /// Version of the file's layout.
    pub schema_version: String,
    /// False for a placeholder: nothing was measured.
    pub measured: bool,
    /// The drafter's method, such as `eagle3`.
    pub method: Option<String>,
    /// The draft checkpoint, with its `path`.
    pub draft_checkpoint: Option<BTreeMap<String, serde_json::Value>>,
    /// The target model, with its `path`.
    pub target_model: Option<BTreeMap<String, serde_json::Value>>,
    /// The draft length of the measurement.
    pub num_speculative_tokens: u32,
    /// How drafts were verified: `longest_prefix` or `block`.
    pub verification_method: Option<String>,
    /// Of the rounds that accepted all drafts before this one, the share that accepted this one.
    pub conditional_accept_rates: Vec<f64>,
    /// Of all rounds, the share that accepted this draft (and all before it).
    pub marginal_accept_rates: Vec<f64>,
    /// Mean number of tokens that a round emitted, the target's own counted.
    pub mean_accept_length: Option<f64>,
    /// `chain_analytic` if the rates hold for shorter drafts too, else `measured_per_k`.
    pub accept_length_model: Option<String>,
    /// Mean number of tokens of a round, by draft length.
    pub accept_length_by_k: BTreeMap<String, f64>,
    /// Number of rounds by the number of tokens that they emitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acceptance_length_histogram: Option<BTreeMap<String, u64>>,
    /// Dataset, engine and GPU of the measurement.
    pub measurement_conditions: Option<serde_json::Value>,
}

impl SpeculationProfile {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// The file cannot be read, is no such profile, was not measured, or its conditional rates, marginal rates and mean
    /// contradict each other.
    pub fn read(path: &Path) -> Result<SpeculationProfile, TraceError> {
        let text = std::fs::read_to_string(path).map_err(|e| TraceError::io(path, &e))?;
        let wrong = |what: String, hint: &str| TraceError::file(path, what, hint);
        let profile: SpeculationProfile = serde_json::from_str(&text).map_err(|e| {
            wrong(format!("no speculation profile: {e}"), "expected the JSON that NVIDIA's Model-Optimizer writes")
        })?;
        profile.check().map_err(|(what, hint)| wrong(what, hint))?;
        Ok(profile)
    }

    /// What is wrong with the profile, and what the user can do.
    fn check(&self) -> Result<(), (String, &'static str)> {
        let (conditional, marginal) = (&self.conditional_accept_rates, &self.marginal_accept_rates);
        if !self.measured {
            return Err((
                "\"measured\" is not true: the file is a placeholder".into(),
                "measure the drafter, then read the file again",
            ));
        }
        for (name, rates) in [("conditional_accept_rates", conditional), ("marginal_accept_rates", marginal)] {
            if rates.len() != self.num_speculative_tokens as usize || rates.is_empty() {
                let what = format!(
                    "{name} has {} rates, num_speculative_tokens is {}",
                    rates.len(),
                    self.num_speculative_tokens
                );
                return Err((what, "each draft position has a rate of both kinds"));
            }
            if let Some(rate) = rates.iter().find(|rate| !(0.0..=1.0).contains(*rate)) {
                return Err((format!("{name}: {rate} is no share from 0 to 1"), "give shares, not per cent"));
            }
        }
        if let Some(i) = (1..marginal.len()).find(|&i| marginal[i] > marginal[i - 1] + 1e-6) {
            let what =
                format!("marginal_accept_rates rise from {} to {} at position {}", marginal[i - 1], marginal[i], i + 1);
            return Err((
                what,
                "a position cannot be reached more often than the one before: are these conditional rates?",
            ));
        }
        let said = [
            ("marginal_accept_rates", 1.0 + marginal.iter().sum::<f64>()),
            ("conditional_accept_rates", 1.0 + survivals(conditional).iter().sum::<f64>()),
        ];
        let mean = self.mean_accept_length.map(|mean| ("mean_accept_length", mean));
        for (name, tokens) in said[1..].iter().copied().chain(mean) {
            if (tokens - said[0].1).abs() > TOLERANCE {
                let what =
                    format!("{name} says {tokens:.2} tokens a round, and marginal_accept_rates {:.2}", said[0].1);
                return Err((what, "one of the lists holds the other kind of rate, or is cut off"));
            }
        }
        Ok(())
    }

    /// The profile as acceptance of an experiment: mean lengths if several draft lengths were measured, else the
    /// conditional rates. Drafts beyond the measured ones are never right.
    pub fn acceptance(&self) -> Rates {
        let mut lengths: Vec<(u32, f64)> =
            self.accept_length_by_k.iter().filter_map(|(k, &tokens)| Some((k.parse().ok()?, tokens))).collect();
        lengths.sort_unstable_by_key(|&(k, _)| k);
        if lengths.len() > 1 {
            return Rates::MeanLength(Lengths { lengths, golden: None });
        }
        Rates::ByDepth { rates: self.conditional_accept_rates.iter().copied().chain([0.0]).collect() }
    }

    /// The rounds of the measurement: (drafted tokens, accepted tokens, number of rounds). A file without a histogram
    /// says shares, and perhaps their number; else `unless_counted` is the number of all rounds.
    pub fn rounds(&self, unless_counted: u64) -> Vec<(u32, u32, u64)> {
        let k = self.num_speculative_tokens;
        if let Some(histogram) = &self.acceptance_length_histogram {
            let counted = histogram.iter().filter_map(|(tokens, &n)| Some((tokens.parse::<u32>().ok()?, n)));
            return counted.map(|(tokens, n)| (k, tokens.saturating_sub(1).min(k), n)).collect();
        }
        let said = self.measurement_conditions.as_ref().and_then(|c| c.get("rounds")?.as_u64());
        let all = said.unwrap_or(unless_counted) as f64;
        let share = |accepted: usize| match accepted {
            0 => 1.0,
            _ => self.marginal_accept_rates.get(accepted - 1).copied().unwrap_or(0.0),
        };
        let exactly = |n: usize| ((share(n) - share(n + 1)) * all).round().max(0.0) as u64;
        (0..=k).map(|accepted| (k, accepted, exactly(accepted as usize))).collect()
    }

    /// The target of the file, if it is another model than `ours`. Names count without their owners, and one may go on
    /// where the other ends (`-FP8`).
    pub fn other_target(&self, ours: &str) -> Option<&str> {
        let last = |name: &str| name.rsplit('/').next().unwrap_or(name).to_lowercase();
        let (theirs, own) = (last(self.target()?), last(ours));
        (!theirs.starts_with(&own) && !own.starts_with(&theirs)).then(|| self.target())?
    }

    /// Makes a profile from counts by draft position: how many rounds reached the position (with all drafts before it
    /// accepted), and how many of these accepted it. `None` if no round drafted.
    pub fn of_counts(counts: &[(u64, u64)], method: Option<&str>) -> Option<SpeculationProfile> {
        let seen: Vec<f64> = counts
            .iter()
            .take_while(|&&(reached, _)| reached > 0)
            .map(|&(reached, accepted)| accepted as f64 / reached as f64)
            .collect();
        if seen.is_empty() {
            return None;
        }
        let round = |rate: f64| (rate * 1e6).round() / 1e6;
        let marginal = survivals(&seen);
        let mean = round(1.0 + marginal.iter().sum::<f64>());
        let k = seen.len() as u32;
        let model = if method.is_some_and(|m| CHAINS.contains(&m)) { "chain_analytic" } else { "measured_per_k" };
        Some(SpeculationProfile {
            schema_version: SCHEMA.into(),
            measured: true,
            method: method.map(str::to_owned),
            num_speculative_tokens: k,
            verification_method: Some("longest_prefix".into()),
            conditional_accept_rates: seen.into_iter().map(round).collect(),
            marginal_accept_rates: marginal.into_iter().map(round).collect(),
            mean_accept_length: Some(mean),
            accept_length_model: Some(model.into()),
            accept_length_by_k: BTreeMap::from([(k.to_string(), mean)]),
            ..SpeculationProfile::default()
        })
    }

    /// The file's text.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("plain data always serialises") + "\n"
    }

    /// The target's name, `owner/model`, if the file says it.
    pub fn target(&self) -> Option<&str> {
        self.target_model.as_ref()?.get("path")?.as_str()
    }
}

/// The shares of all rounds that accept each position.
fn survivals(conditional: &[f64]) -> Vec<f64> {
    let reach = |reached: &mut f64, rate: &f64| {
        *reached *= rate;
        Some(*reached)
    };
    conditional.iter().scan(1.0, reach).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MiniMax-M2.7 with DFlash, as pull request 2315 of NVIDIA/Model-Optimizer prints it.
    const DFLASH: &str = r#"{"schema_version": "1.0", "measured": true, "method": "dflash", "num_speculative_tokens": 3,
        "target_model": {"path": "MiniMaxAI/MiniMax-M2.7"}, "draft_checkpoint": null, "verification_method": "longest_prefix",
        "conditional_accept_rates": [0.816082, 0.776577, 0.749591], "marginal_accept_rates": [0.816082, 0.63375, 0.475053],
        "mean_accept_length": 2.924887, "accept_length_model": "measured_per_k", "accept_length_by_k": {"3": 2.924887},
        "acceptance_length_histogram": null, "per_category": null, "validation": {}}"#;

    fn read(text: &str) -> Result<SpeculationProfile, TraceError> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(SPECULATION_PROFILE);
        std::fs::write(&path, text).unwrap();
        SpeculationProfile::read(&path)
    }

    #[test]
    fn a_profile_of_model_optimizer_is_read() {
        let profile = read(DFLASH).unwrap();
        assert_eq!(profile.target(), Some("MiniMaxAI/MiniMax-M2.7"));
        assert_eq!(profile.acceptance(), Rates::ByDepth { rates: vec![0.816082, 0.776577, 0.749591, 0.0] });
        assert_eq!(profile.other_target("minimaxai/minimax-m2.7-fp8"), None);
        assert_eq!(profile.other_target("openai/gpt-oss-120b"), Some("MiniMaxAI/MiniMax-M2.7"));
        assert_eq!(profile.rounds(1000), [(3, 0, 184), (3, 1, 182), (3, 2, 159), (3, 3, 475)]);
        let counted = DFLASH.replace("histogram\": null", "histogram\": {\"1\": 2, \"4\": 5}");
        assert_eq!(read(&counted).unwrap().rounds(1000), [(3, 0, 2), (3, 3, 5)]);
        let two = DFLASH.replace(r#"{"3": 2.924887}"#, r#"{"3": 2.92, "1": 1.8, "12": 3.4}"#);
        let Rates::MeanLength(lengths) = read(&two).unwrap().acceptance() else { panic!("several lengths") };
        assert_eq!(lengths.lengths, [(1, 1.8), (3, 2.92), (12, 3.4)]);
    }

    #[test]
    fn rates_of_the_wrong_kind_are_refused_with_a_hint() {
        let marginal = "[0.816082, 0.63375, 0.475053]";
        let conditional = "[0.816082, 0.776577, 0.749591]";
        for (from, to, what, hint) in [
            ("true", "false", "placeholder", "measure the drafter"),
            (conditional, marginal, "conditional_accept_rates says 2.58 tokens a round", "the other kind of rate"),
            (
                marginal,
                conditional,
                "conditional_accept_rates says 2.92 tokens a round, and marginal_accept_rates 3.34",
                "kind",
            ),
            ("2.924887, \"accept", "2.5, \"accept", "mean_accept_length says 2.50", "cut off"),
            (marginal, "[0.5, 0.6, 0.4]", "rise from 0.5 to 0.6 at position 2", "conditional rates?"),
            (marginal, "[81.6, 63.4, 47.5]", "81.6 is no share", "not per cent"),
            (marginal, "[0.816082]", "marginal_accept_rates has 1 rates", "each draft position"),
            ("{\"schema", "{\"measured\": 3, \"schema", "no speculation profile", "Model-Optimizer"),
        ] {
            let wrong = read(&DFLASH.replace(from, to)).unwrap_err();
            assert!(wrong.to_string().contains(what) && wrong.hint().contains(hint), "{wrong} {}", wrong.hint());
        }
    }

    #[test]
    fn counts_become_a_profile_that_can_be_read() {
        let profile = SpeculationProfile::of_counts(&[(100, 60), (60, 30), (30, 0), (0, 0)], Some("eagle3")).unwrap();
        assert_eq!(profile.conditional_accept_rates, [0.6, 0.5, 0.0]);
        assert_eq!(profile.marginal_accept_rates, [0.6, 0.3, 0.0]);
        assert_eq!((profile.mean_accept_length, profile.num_speculative_tokens), (Some(1.9), 3));
        assert_eq!(read(&profile.to_json()).unwrap(), profile);
        assert_eq!(SpeculationProfile::of_counts(&[(0, 0)], None), None);
    }
}
