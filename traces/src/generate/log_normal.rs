//! Log-normal lengths of prompts and outputs, drawn independently.

use super::normal;
use super::tables::tokens;
use crate::checks::not_negative;
use crate::error::TraceError;
use foretoken_sim::Draws;
use serde::{Deserialize, Serialize};

/// Largest allowed `sigma` of log-normal lengths. With it the mean is e^50 times the median, so the mean says nothing
/// about typical lengths.
const MOST_SIGMA: f64 = 10.0;

/// Log-normal distributions of prompt and output lengths.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LogNormalLengths {
    /// Distribution of the requests' prompt lengths, tokens.
    pub prompt: LogNormalLength,
    /// Distribution of the requests' output lengths, tokens.
    pub output: LogNormalLength,
}

/// A log-normal distribution of lengths, rounded to whole tokens. A length is at least 1 token.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LogNormalLength {
    /// Mean length before `max` limits it, tokens, ≥ 1. The median is this mean times exp(-`sigma`²/2).
    pub mean: f64,
    /// Standard deviation of the length's natural logarithm, 0 to 10. With 0 every request has the length `mean`.
    pub sigma: f64,
    /// Longest length, tokens, ≥ `mean`. A draw above `max` gets the length `max`.
    pub max: u32,
}

impl LogNormalLengths {
    pub(crate) fn check(&self, key: &str) -> Result<(), TraceError> {
        self.prompt.check(&format!("{key}.prompt"))?;
        self.output.check(&format!("{key}.output"))
    }

    /// Draws the prompt length and the output length of a request, tokens.
    pub(crate) fn draw(&self, draws: &mut Draws) -> (u32, u32) {
        let prompt = self.prompt.at(normal(draws));
        (prompt, self.output.at(normal(draws)))
    }
}

impl LogNormalLength {
    fn check(&self, key: &str) -> Result<(), TraceError> {
        let LogNormalLength { mean, sigma, max } = *self;
        if !(mean >= 1.0 && mean.is_finite()) {
            let what = format!("{mean:?} is not a number of at least 1");
            return Err(TraceError::spec(format!("{key}.mean"), what, "give the mean length in tokens"));
        }
        not_negative(&format!("{key}.sigma"), sigma)?;
        if sigma > MOST_SIGMA {
            let what = format!("{sigma:?} is out of range");
            let hint = "give the standard deviation of ln(length), from 0 to 10; lengths of chats have about 1";
            return Err(TraceError::spec(format!("{key}.sigma"), what, hint));
        }
        if f64::from(max) < mean {
            let what = format!("{max} is below the mean of {mean:?} tokens");
            return Err(TraceError::spec(format!("{key}.max"), what, "give the longest length, at least the mean"));
        }
        Ok(())
    }

    /// The length in tokens for `score`, a standard normal draw. The mean of ln(length) is ln(mean) - sigma²/2.
    fn at(&self, score: f64) -> u32 {
        tokens(self.mean * (self.sigma * score - self.sigma * self.sigma / 2.0).exp()).min(self.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use foretoken_sim::Stream;

    const FAR: u32 = u32::MAX;

    fn both(one: LogNormalLength) -> LogNormalLengths {
        LogNormalLengths { prompt: one, output: one }
    }

    fn drawn(law: &LogNormalLengths, requests: u64) -> Vec<(u32, u32)> {
        (0..requests).map(|i| law.draw(&mut Draws::new(7, Stream::Lengths, i))).collect()
    }

    fn moments(values: &[f64]) -> (f64, f64) {
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        (mean, (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0)).sqrt())
    }

    #[test]
    fn lengths_have_the_mean_and_the_scale() {
        let law = LogNormalLengths {
            prompt: LogNormalLength { mean: 2000.0, sigma: 0.8, max: FAR },
            output: LogNormalLength { mean: 700.0, sigma: 0.3, max: FAR },
        };
        let n = 200_000u64;
        let drawn = drawn(&law, n);
        let root = (n as f64).sqrt();
        let prompts: Vec<f64> = drawn.iter().map(|d| f64::from(d.0)).collect();
        let outputs: Vec<f64> = drawn.iter().map(|d| f64::from(d.1)).collect();
        for (lengths, law) in [(&prompts, law.prompt), (&outputs, law.output)] {
            // A log-normal length has the standard deviation mean·sqrt(e^(sigma²) - 1). The standard deviation of
            // ln(length) is sigma.
            let (mean, _) = moments(lengths);
            let error = law.mean * ((law.sigma * law.sigma).exp() - 1.0).sqrt() / root;
            assert!((mean - law.mean).abs() < 5.0 * error, "{mean} ± {error}");
            let (location, scale) = moments(&lengths.iter().map(|l| l.ln()).collect::<Vec<_>>());
            let mu = law.mean.ln() - law.sigma * law.sigma / 2.0;
            // Rounding to whole tokens moves the moments of the logarithm by less than 1e-5 at these lengths.
            assert!((location - mu).abs() < 5.0 * law.sigma / root + 1e-5, "{location} {mu}");
            assert!((scale - law.sigma).abs() < 5.0 * law.sigma / (2.0f64.sqrt() * root) + 1e-5, "{scale}");
        }
        // Prompt and output are independent: the sample correlation has a standard error of 1/sqrt(n).
        let ((p, sp), (o, so)) = (moments(&prompts), moments(&outputs));
        let covariance = drawn.iter().map(|d| (f64::from(d.0) - p) * (f64::from(d.1) - o)).sum::<f64>() / n as f64;
        assert!((covariance / (sp * so)).abs() < 5.0 / root, "{covariance}");
    }

    #[test]
    fn longer_draws_get_the_longest_length() {
        let far = both(LogNormalLength { mean: 100.0, sigma: 1.0, max: FAR });
        let near = both(LogNormalLength { mean: 100.0, sigma: 1.0, max: 150 });
        let (far, near) = (drawn(&far, 5000), drawn(&near, 5000));
        let cut: Vec<_> = far.iter().map(|&(p, o)| (p.min(150), o.min(150))).collect();
        assert_eq!(near, cut);
        let at_max = near.iter().filter(|d| d.0 == 150).count() as f64 / 5000.0;
        // The share of lengths at the limit of 150 tokens: P(length > 150) = P(Z > ln(1.5) + 1/2) = P(Z > 0.905) =
        // 0.183; five standard errors are 0.027.
        assert!((at_max - 0.183).abs() < 0.03, "{at_max}");
        // A draw of the log-normal length below half a token is raised to 1 token.
        assert_eq!(
            drawn(&both(LogNormalLength { mean: 1.0, sigma: 3.0, max: 9 }), 999).iter().map(|d| d.0).min(),
            Some(1)
        );
    }

    #[test]
    fn no_scale_gives_constants() {
        let law = LogNormalLengths {
            prompt: LogNormalLength { mean: 2.5, sigma: 0.0, max: 3 },
            output: LogNormalLength { mean: 4_294_967_295.0, sigma: 0.0, max: FAR },
        };
        law.check("lengths.log-normal").expect("good");
        assert!(drawn(&law, 50).iter().all(|d| *d == (3, FAR)));
    }

    #[test]
    fn bad_numbers_are_refused_by_key() {
        let good = LogNormalLength { mean: 100.0, sigma: 1.0, max: 1000 };
        for (law, key) in [
            (LogNormalLength { mean: 0.5, ..good }, "mean"),
            (LogNormalLength { mean: f64::NAN, ..good }, "mean"),
            (LogNormalLength { mean: f64::INFINITY, ..good }, "mean"),
            (LogNormalLength { sigma: -0.1, ..good }, "sigma"),
            (LogNormalLength { sigma: f64::NAN, ..good }, "sigma"),
            (LogNormalLength { sigma: 11.0, ..good }, "sigma"),
            (LogNormalLength { max: 99, ..good }, "max"),
            (LogNormalLength { max: 0, ..good }, "max"),
        ] {
            for (lengths, side) in [
                (LogNormalLengths { prompt: law, output: good }, "prompt"),
                (LogNormalLengths { prompt: good, output: law }, "output"),
            ] {
                let e = lengths.check("lengths.log-normal").expect_err("refused").to_string();
                assert!(e.starts_with(&format!("workload.lengths.log-normal.{side}.{key}: ")), "{e}");
            }
        }
    }
}
