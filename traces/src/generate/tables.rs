//! Length tables: quantiles of prompt and output lengths, calibrated on published traces.
//!
//! The percentages and quantiles of a table are rounded summaries of the trace. Between two percentages of a table,
//! quantiles are interpolated linearly (Kolmogorov-Smirnov distance to the data at most 0.034). Prompt and output are
//! drawn independently. The exception is mooncake-synth, for which a Gaussian copula keeps the rank correlation of
//! −0.52. The correlations of the other tables are within 0.07 of 0.

use super::normal;
use super::quantiles::{Quantiles, normal_cdf};
use foretoken_sim::Draws;
use serde::{Deserialize, Serialize};
use std::f64::consts::PI;

/// A table of prompt and output lengths, made from a public trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TableName {
    /// Lengths of conversations in the Azure LLM inference trace of 2023 (Patel et al., ISCA 2024).
    AzureConv,
    /// Lengths of code requests in the Azure LLM inference trace of 2023 (Patel et al., ISCA 2024).
    AzureCode,
    /// Lengths of conversations in Mooncake's FAST'25 trace (Qin et al., FAST 2025).
    MooncakeConv,
    /// Lengths of synthetic requests in Mooncake's FAST'25 trace (Qin et al., FAST 2025).
    MooncakeSynth,
    /// Lengths of ShareGPT's conversations under 8k tokens (Agrawal et al., Etalon, 2024).
    Sharegpt,
    /// Lengths of BurstGPT_1's first 60,000 rows, from published summaries (Wang et al., KDD 2025).
    Burstgpt,
}

/// The distributions of prompt and output lengths of one table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LengthTable {
    /// Quantiles of the prompt lengths, tokens.
    pub prompt: Quantiles,
    /// Quantiles of the output lengths, tokens.
    pub output: Quantiles,
    /// Spearman rank correlation of prompt and output lengths.
    pub spearman: f64,
}

impl TableName {
    /// The quantiles of the table with this name.
    pub fn table(self) -> &'static LengthTable {
        match self {
            TableName::AzureConv => &AZURE_CONV,
            TableName::AzureCode => &AZURE_CODE,
            TableName::MooncakeConv => &MOONCAKE_CONV,
            TableName::MooncakeSynth => &MOONCAKE_SYNTH,
            TableName::Sharegpt => &SHAREGPT,
            TableName::Burstgpt => &BURSTGPT,
        }
    }
}

impl LengthTable {
    /// Draws the prompt length and the output length of a request, at least 1 token each.
    pub(crate) fn draw(&self, draws: &mut Draws) -> (u32, u32) {
        let (u, v) = if self.spearman == 0.0 {
            (draws.unit(), draws.unit())
        } else {
            // Two normal variables with the correlation `rho` have the rank correlation `spearman` (Kruskal 1958).
            let rho = 2.0 * (PI * self.spearman / 6.0).sin();
            let (x, y) = (normal(draws), normal(draws));
            (normal_cdf(x), normal_cdf(rho * x + (1.0 - rho * rho).sqrt() * y))
        };
        (tokens(self.prompt.at(u)), tokens(self.output.at(v)))
    }
}

/// Rounds a length to whole tokens, at least 1.
pub(super) fn tokens(length: f64) -> u32 {
    length.round().max(1.0) as u32
}

const PERCENT: &[f64] = &[
    0.0, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0, 35.0, 40.0, 45.0, 50.0, 55.0, 60.0, 65.0, 70.0, 75.0, 80.0,
    85.0, 90.0, 95.0, 97.5, 99.0, 99.5, 100.0,
];

const fn quantiles(value: &'static [f64; 27]) -> Quantiles {
    Quantiles { percent: PERCENT, value }
}

static AZURE_CONV: LengthTable = LengthTable {
    prompt: quantiles(&[
        2.0, 17.0, 29.0, 120.0, 181.0, 207.0, 372.0, 387.0, 396.0, 403.0, 414.0, 703.0, 984.0, 1020.0, 1045.0, 1071.0,
        1097.0, 1130.0, 1189.0, 1315.0, 1876.0, 2734.0, 4083.0, 4092.0, 4142.0, 4831.0, 14050.0,
    ]),
    output: quantiles(&[
        7.0, 14.0, 16.0, 28.0, 41.0, 54.0, 67.0, 77.0, 85.0, 91.0, 96.0, 103.0, 113.0, 129.0, 151.0, 177.0, 217.0,
        384.0, 395.0, 400.0, 411.0, 424.0, 451.0, 522.0, 601.0, 643.0, 1000.0,
    ]),
    spearman: 0.0,
};

static AZURE_CODE: LengthTable = LengthTable {
    prompt: quantiles(&[
        3.0, 12.0, 17.0, 44.0, 75.0, 147.0, 232.0, 386.0, 578.0, 770.0, 939.0, 1075.0, 1261.0, 1469.0, 1690.0, 1909.0,
        2164.0, 2433.0, 2744.0, 3192.0, 3920.0, 5188.0, 7303.0, 7435.0, 7436.0, 7436.0, 7437.0,
    ]),
    output: quantiles(&[
        6.0, 6.0, 6.0, 6.0, 6.0, 7.0, 7.0, 8.0, 9.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 16.0, 18.0, 20.0, 24.0, 29.0,
        39.0, 55.0, 90.0, 145.0, 251.0, 359.0, 1899.0,
    ]),
    spearman: 0.0,
};

static MOONCAKE_CONV: LengthTable = LengthTable {
    prompt: quantiles(&[
        891.0, 893.0, 894.0, 896.0, 901.0, 964.0, 1261.0, 1662.0, 2306.0, 3263.0, 4251.0, 4993.0, 5870.0, 6909.0,
        8187.0, 9570.0, 11238.0, 13196.0, 15367.0, 17869.0, 21464.0, 27367.0, 39550.0, 58977.0, 85400.0, 100810.0,
        126195.0,
    ]),
    output: quantiles(&[
        1.0, 1.0, 3.0, 3.0, 10.0, 24.0, 46.0, 100.0, 156.0, 213.0, 256.0, 291.0, 322.0, 350.0, 375.0, 399.0, 423.0,
        447.0, 472.0, 504.0, 543.0, 597.0, 698.0, 835.0, 1119.0, 1568.0, 2000.0,
    ]),
    spearman: 0.0,
};

static MOONCAKE_SYNTH: LengthTable = LengthTable {
    prompt: quantiles(&[
        13.0, 13.0, 16.0, 19.0, 22.0, 30.0, 45.0, 88.0, 277.0, 913.0, 2777.0, 4365.0, 6657.0, 11587.0, 14724.0,
        16290.0, 17642.0, 19409.0, 23175.0, 28425.0, 34319.0, 38611.0, 48905.0, 55781.0, 66456.0, 76328.0, 191378.0,
    ]),
    output: quantiles(&[
        1.0, 2.0, 2.0, 2.0, 2.0, 4.0, 6.0, 8.0, 11.0, 16.0, 22.0, 32.0, 49.0, 69.0, 92.0, 126.0, 169.0, 210.0, 250.0,
        289.0, 332.0, 389.0, 519.0, 658.0, 768.0, 782.0, 893.0,
    ]),
    spearman: -0.52,
};

static SHAREGPT: LengthTable = LengthTable {
    prompt: quantiles(&[
        1.0, 9.0, 12.0, 18.0, 29.0, 74.0, 180.0, 382.0, 580.0, 777.0, 973.0, 1203.0, 1457.0, 1730.0, 2060.0, 2401.0,
        2799.0, 3235.0, 3734.0, 4278.0, 4918.0, 5696.0, 6563.0, 7056.0, 7434.0, 7622.0, 8141.0,
    ]),
    output: quantiles(&[
        2.0, 3.0, 6.0, 24.0, 44.0, 84.0, 130.0, 181.0, 228.0, 271.0, 312.0, 346.0, 381.0, 415.0, 453.0, 493.0, 534.0,
        581.0, 628.0, 683.0, 754.0, 834.0, 920.0, 965.0, 998.0, 1009.0, 1024.0,
    ]),
    spearman: 0.0,
};

/// Lengths of BurstGPT_1's first 60,000 rows. The quantiles at 50, 90, 95 and 99 % and the means (374 and 122 tokens)
/// are published. The smallest value is 1, and the largest is assumed. The value at 75 % is chosen so that the table's
/// mean is the published mean.
static BURSTGPT: LengthTable = LengthTable {
    prompt: Quantiles {
        percent: &[0.0, 50.0, 75.0, 90.0, 95.0, 99.0, 100.0],
        value: &[1.0, 74.0, 222.4, 1291.0, 1697.0, 3023.0, 4096.0],
    },
    output: Quantiles {
        percent: &[0.0, 50.0, 75.0, 90.0, 95.0, 99.0, 100.0],
        value: &[1.0, 14.0, 121.4, 401.0, 510.0, 757.0, 2048.0],
    },
    spearman: 0.0,
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn burstgpt_has_its_published_means() {
        assert!((BURSTGPT.prompt.mean() - 374.0).abs() < 0.1, "{}", BURSTGPT.prompt.mean());
        assert!((BURSTGPT.output.mean() - 122.0).abs() < 0.1, "{}", BURSTGPT.output.mean());
    }
}
