//! Golden acceptance lengths, read from `golden.json`: the mean number of tokens that a round emits, by draft length,
//! as SemiAnalysis' InferenceX published it for pairs of a model and a drafter. Each number is a run of its own on the
//! coding prompts of SPEED-Bench's qualitative split, with answers of up to 4,096 tokens, rounded to two decimals.

use foretoken_sim::acceptance::Lengths;
use serde::{Deserialize, Serialize};
use std::sync::LazyLock;

/// A published curve of mean lengths.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Golden {
    /// The curve's name: model and release, drafter, thinking mode.
    pub name: String,
    /// The checkpoint of the target.
    pub model: String,
    /// The drafter's method, as vLLM names it.
    pub method: String,
    /// Whether the target thought before its answers.
    pub thinking: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drafter: Option<String>,
    /// GPU, engine and sampling of the measurement.
    pub measured: String,
    /// `[K, tokens]`: the draft length, and the mean number of tokens of a round, the target's own counted. A length
    /// that was not measured is not listed.
    pub lengths: Vec<(u32, f64)>,
    /// The file and the run that have the numbers.
    pub source: String,
    /// The day on which the numbers were published.
    pub date: String,
}

static CURVES: LazyLock<Vec<Golden>> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../../golden.json")).unwrap_or_else(|e| panic!("golden.json: {e}"))
});

/// All curves, in the order of `golden.json`.
pub fn curves() -> &'static [Golden] {
    &CURVES
}

/// The curve with this name. A name without a thinking mode means the curve with thinking.
pub fn curve(name: &str) -> Option<&'static Golden> {
    let thinking = format!("{name}-thinking");
    CURVES.iter().find(|c| c.name == name || c.name == thinking)
}

/// The curve of a drafter's preset, with thinking.
pub fn of_drafter(preset: &str) -> Option<&'static Golden> {
    CURVES.iter().find(|c| c.thinking && c.drafter.as_deref() == Some(preset))
}

impl Golden {
    /// The curve as a setting of acceptance.
    pub fn lengths(&self) -> Lengths {
        Lengths { lengths: self.lengths.clone(), golden: Some(self.name.clone()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware::models::entry;
    use foretoken_sim::acceptance::{AcceptanceSpec, Rates};

    /// The numbers of each file of `golden_al_distribution/` in GitHub SemiAnalysisAI/InferenceX, typed in from it. The
    /// first nine files are all that commit 843c6254ff69 of 2026-08-21 has. `dsv41flash_dspark.yaml` is pull request
    /// 2964 of 2026-09-10, `qwen3.8next_mtp.yaml` is in the README of commit 9ca0af7c6089. That commit also lists
    /// `glm5.3_mtp.yaml`, which copies a number of GLM-5.2's and measures nothing.
    const PUBLISHED: [(&str, &str, &str); 17] = [
        ("dsv4_mtp.yaml", "on", "1.79 2.27 2.49 2.54 2.55 2.55 2.54 2.58"),
        ("dsv4_mtp.yaml", "off", "1.92 2.61 2.97 3.00 3.10 3.16 3.00 3.11"),
        ("dsv4-pro-0813-dspark.yaml", "on", "1.84 2.51 3.01 3.36 3.61 3.77 3.73 3.47"),
        ("glm5.2_mtp.yaml", "on", "1.84 2.50 2.99 3.33 3.61 3.78 3.91 4.06"),
        ("kimik2.5_eagle3.yaml", "on", "1.83 2.43 2.88 3.24 3.46 3.62 3.71 3.77"),
        ("kimik2.5_eagle3.yaml", "off", "1.80 2.33 2.75 3.06 3.25 3.43 3.46 3.51"),
        ("kimik3_dspark.yaml", "on", "1.84 2.45 2.87 3.22 3.44 3.54 3.78 3.88"),
        (
            "kimik3_dspark_probabilistic_sample_method_block_rejection_sample_method.yaml",
            "on",
            "1.85 2.51 3.00 3.36 3.62 3.75 3.84 4.00",
        ),
        ("minimaxm3_eagle3.yaml", "on", "1.78 2.38 2.83 3.11 3.35 3.45 3.53 3.74"),
        ("minimaxm3_eagle3.yaml", "off", "1.84 2.52 2.93 3.41 3.59 3.57 3.85 4.06"),
        ("minimaxm3_eagle3_gqa.yaml", "on", "1.79 2.39 2.78 3.02 3.21 3.30 3.52 3.51"),
        ("minimaxm3_eagle3_gqa.yaml", "off", "1.83 2.46 2.97 3.29 3.72 3.76 3.75 3.93"),
        ("qwen3.5_mtp.yaml", "on", "1.93 2.73 3.39 3.97 4.41 4.80 5.04 5.21"),
        ("qwen3.5_mtp.yaml", "off", "1.92 2.70 3.33 3.83 4.20 4.48 4.73 4.71"),
        ("qwen3.8next_mtp.yaml", "on", "1.65 2.06 2.32 2.47 2.59 2.66"),
        ("dsv41flash_dspark.yaml", "on", "1.81 2.43 2.90 3.26 3.51"),
        ("dsv41flash_dspark.yaml", "off", "1.88 2.62 3.27 3.73 4.07"),
    ];

    #[test]
    fn every_curve_has_the_numbers_of_its_file() {
        assert_eq!(curves().len(), PUBLISHED.len());
        for (curve, (file, thinking, numbers)) in curves().iter().zip(PUBLISHED) {
            assert!(curve.source.contains(&format!("golden_al_distribution/{file};")), "{}", curve.name);
            assert_eq!(curve.thinking, thinking == "on", "{}", curve.name);
            assert_eq!(curve.name.ends_with("-no-thinking"), !curve.thinking, "{}", curve.name);
            let numbers: Vec<(u32, f64)> = (1..).zip(numbers.split(' ').map(|n| n.parse().unwrap())).collect();
            assert_eq!(curve.lengths, numbers, "{}", curve.name);
            assert!(curve.source.contains("Actions run ") && curve.date.starts_with("2026-"), "{}", curve.name);
        }
    }

    #[test]
    fn every_curve_can_be_used_and_names_a_drafter_that_exists() {
        for curve in curves() {
            let spec = AcceptanceSpec { source: Rates::MeanLength(curve.lengths()), ..AcceptanceSpec::default() };
            spec.check().unwrap();
            if let Some(drafter) = &curve.drafter {
                assert!(entry(drafter).is_some(), "{drafter}");
                assert!(of_drafter(drafter).is_some(), "{drafter}");
            }
        }
        assert_eq!(curve("glm-5.2-mtp").unwrap().name, "glm-5.2-mtp-thinking");
        assert!(curve("glm-5.2").is_none() && of_drafter("deepseek-v3-mtp").is_none());
    }
}
