//! Lengths like the first turns of Spec-Bench as Vicuna-7B-v1.3 answers them, category by category.
//!
//! Calibrated on Spec-Bench (Xia et al., Findings of ACL 2024). Prompt lengths are log-normal. The logarithm of an
//! output's length is a piecewise linear function of a standard normal draw: lines through five quantiles, continued at
//! both ends. Answers that reach the generation limit have the length of the limit. A Gaussian copula keeps each
//! category's rank correlation of prompt and output. The mean lengths are within 5 % of the means in the data.

use super::normal;
use super::quantiles::normal_cdf;
use super::tables::tokens;
use crate::error::TraceError;
use foretoken_sim::Draws;
use serde::{Deserialize, Serialize};
use std::f64::consts::PI;

/// Names of Spec-Bench's categories. The category of a request is stored as an index into this list.
pub(crate) const SPEC_BENCH_CATEGORIES: [&str; 6] =
    ["mt_bench", "translation", "summarization", "qa", "math_reasoning", "rag"];

/// The limit on generated tokens in Spec-Bench's answers, in tokens.
const GENERATION_CAP: f64 = 1024.0;

/// Quantiles of the standard normal distribution at 5, 25, 50, 75, 95 %.
const SCORES: [f64; 5] = [-1.644_854, -0.674_490, 0.0, 0.674_490, 1.644_854];

/// Lengths as in Spec-Bench, with limits. A draw outside the limits is repeated, category included, as if the data set
/// had been filtered. The defaults are AdaSpec's: prompts and outputs of 4 to 1024 tokens, together up to 2048 (Huang
/// et al., SoCC 2025, artifact; docs/model.md 2.1).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SpecBenchLengths {
    /// Shortest prompt and shortest output of a request, tokens.
    pub min_len: u32,
    /// Longest prompt of a request, tokens.
    pub max_prompt: u32,
    /// Longest output of a request, tokens.
    pub max_output: u32,
    /// Longest sum of a request's prompt and output, tokens.
    pub max_total: u32,
}

impl Default for SpecBenchLengths {
    fn default() -> Self {
        SpecBenchLengths { min_len: 4, max_prompt: 1024, max_output: 1024, max_total: 2048 }
    }
}

/// The distribution of the prompt and output lengths of one Spec-Bench category.
pub(super) struct Category {
    /// Mean and standard deviation of the natural logarithm of the category's prompt lengths in tokens.
    pub(super) prompt: (f64, f64),
    /// Quantiles of the category's output lengths at 5, 25, 50, 75, 95 %, tokens.
    pub(super) output: [f64; 5],
    /// Spearman rank correlation of the category's prompt and output lengths.
    pub(super) spearman: f64,
    /// Share of the category's 80 outputs that reached the generation limit. The longest drawn outputs, in this share,
    /// get the length of the limit.
    pub(super) to_cap: f64,
}

pub(super) const LAWS: [Category; 6] = [
    Category {
        prompt: (4.577, 0.543),
        output: [17.0, 110.0, 246.0, 359.0, 645.0],
        spearman: -0.32,
        to_cap: 1.0 / 80.0,
    },
    Category { prompt: (4.388, 0.221), output: [10.0, 19.0, 26.0, 38.0, 56.0], spearman: 0.96, to_cap: 0.0 },
    Category { prompt: (6.675, 0.462), output: [86.0, 138.0, 159.0, 202.0, 307.0], spearman: 0.53, to_cap: 0.0 },
    Category { prompt: (3.942, 0.043), output: [23.0, 59.0, 89.0, 161.0, 330.0], spearman: -0.12, to_cap: 2.0 / 80.0 },
    Category { prompt: (4.620, 0.223), output: [28.0, 92.0, 143.0, 221.0, 386.0], spearman: 0.22, to_cap: 1.0 / 80.0 },
    Category { prompt: (6.734, 0.070), output: [12.0, 24.0, 50.0, 114.0, 238.0], spearman: -0.17, to_cap: 1.0 / 80.0 },
];

impl Category {
    fn draw(&self, draws: &mut Draws) -> (u32, u32) {
        let rho = 2.0 * (PI * self.spearman / 6.0).sin();
        let (x, y) = (normal(draws), normal(draws));
        let z = rho * x + (1.0 - rho * rho).sqrt() * y;
        (tokens((self.prompt.0 + self.prompt.1 * x).exp()), tokens(self.output_at(z)))
    }

    /// The category's output length in tokens for `z`, a standard normal draw.
    fn output_at(&self, z: f64) -> f64 {
        if normal_cdf(z) > 1.0 - self.to_cap {
            return GENERATION_CAP;
        }
        let above = SCORES.partition_point(|&s| s <= z).clamp(1, SCORES.len() - 1);
        let (s, q) = (&SCORES[above - 1..=above], &self.output[above - 1..=above]);
        let slope = (q[1] / q[0]).ln() / (s[1] - s[0]);
        (q[0] * (slope * (z - s[0])).exp()).min(GENERATION_CAP)
    }
}

impl SpecBenchLengths {
    pub(crate) fn check(&self, key: &str) -> Result<(), TraceError> {
        // Each entry is (setting, its value, its least allowed value). With a smaller maximum, nearly every draw of
        // some Spec-Bench category would exceed the maximum and be repeated.
        let low = [
            ("max_prompt", self.max_prompt, 128),
            ("max_output", self.max_output, 64),
            ("max_total", self.max_total, 192),
        ];
        if let Some((name, value, least)) = low.iter().find(|(_, value, least)| value < least) {
            let what = format!("{value} would leave out nearly every Spec-Bench request");
            return Err(TraceError::spec(format!("{key}.{name}"), what, format!("give at least {least}")));
        }
        if self.min_len > 32 {
            let what = format!("{} would leave out nearly every translation", self.min_len);
            return Err(TraceError::spec(format!("{key}.min_len"), what, "give at most 32"));
        }
        Ok(())
    }

    /// Draws a request's Spec-Bench category (an index into the list of names), its prompt length and its output
    /// length.
    pub(crate) fn draw(&self, draws: &mut Draws) -> (u16, u32, u32) {
        loop {
            let category = (draws.unit() * LAWS.len() as f64) as usize;
            let (prompt, output) = LAWS[category].draw(draws);
            let long_enough = prompt.min(output) >= self.min_len;
            if long_enough
                && prompt <= self.max_prompt
                && output <= self.max_output
                && prompt + output <= self.max_total
            {
                return (category as u16, prompt, output);
            }
        }
    }
}
