//! Requests of several categories (chat, code, documents). Each category has its own share and its own lengths.

use super::log_normal::LogNormalLengths;
use super::tables::TableName;
use crate::checks::not_negative;
use crate::error::TraceError;
use foretoken_sim::Draws;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The most categories that a workload can have, because a category's index has 16 bits.
const MOST: usize = u16::MAX as usize;

/// The same prompt length and the same output length for every request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FixedLengths {
    /// Prompt tokens of each request.
    pub prompt: u32,
    /// Output tokens of each request.
    pub output: u32,
}

impl FixedLengths {
    pub(crate) fn check(&self, key: &str) -> Result<(), TraceError> {
        match self.prompt == 0 || self.output == 0 {
            true => Err(TraceError::spec(key, "prompt and output must be at least 1", "")),
            false => Ok(()),
        }
    }
}

/// A category of requests: how frequent it is, and its lengths.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CategoryLengths {
    /// Weight of this category, ≥ 0. The share of requests in the category is this weight over the sum of all
    /// categories' weights.
    pub share: f64,
    /// How long the prompts and outputs of the category's requests are.
    pub lengths: CategoryLaw,
}

/// How the prompt and output lengths of a category's requests are made: fixed, log-normal, or by a table.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum CategoryLaw {
    /// All requests of the category have the same prompt length and the same output length.
    Fixed(FixedLengths),
    /// The lengths are drawn from log-normal distributions, prompt and output independently.
    LogNormal(LogNormalLengths),
    /// The lengths are drawn from a table of quantiles that was made from a public trace.
    Table(TableName),
}

/// The categories of a workload, by name.
pub type Categories = BTreeMap<String, CategoryLengths>;

pub(crate) fn check(categories: &Categories, key: &str) -> Result<(), TraceError> {
    if categories.is_empty() || categories.len() > MOST {
        let what = format!("{} categories", categories.len());
        let hint = "give at least one, such as chat = { share = 1.0, lengths = { table = \"sharegpt\" } }";
        return Err(TraceError::spec(key, what, hint));
    }
    for (name, category) in categories {
        not_negative(&format!("{key}.{name}.share"), category.share)?;
        let key = format!("{key}.{name}.lengths");
        match &category.lengths {
            CategoryLaw::Fixed(fixed) => fixed.check(&format!("{key}.fixed"))?,
            CategoryLaw::LogNormal(law) => law.check(&format!("{key}.log-normal"))?,
            CategoryLaw::Table(_) => {}
        }
    }
    let sum: f64 = categories.values().map(|c| c.share).sum();
    if !(sum > 0.0 && sum.is_finite()) {
        return Err(TraceError::spec(key, format!("the shares sum to {sum}"), "give one category a share above 0"));
    }
    Ok(())
}

/// Draws the category (an index), the prompt length and the output length of a request. `categories` must have passed
/// [`check`].
pub(crate) fn draw(categories: &Categories, draws: &mut Draws) -> (u16, u32, u32) {
    let sum: f64 = categories.values().map(|c| c.share).sum();
    let mut left = draws.unit() * sum;
    let mut of = (0, None);
    for (index, category) in (0..).zip(categories.values()) {
        if category.share > 0.0 {
            of = (index, Some(category));
            if left < category.share {
                break;
            }
        }
        left -= category.share;
    }
    let (prompt, output) = match &of.1.expect("a category has a share above 0").lengths {
        CategoryLaw::Fixed(fixed) => (fixed.prompt, fixed.output),
        CategoryLaw::LogNormal(law) => law.draw(draws),
        CategoryLaw::Table(name) => name.table().draw(draws),
    };
    (of.0, prompt, output)
}

#[cfg(test)]
mod tests {
    use super::*;
    use foretoken_sim::Stream;

    fn category(share: f64, prompt: u32) -> CategoryLengths {
        CategoryLengths { share, lengths: CategoryLaw::Fixed(FixedLengths { prompt, output: 7 }) }
    }

    fn named(each: &[(&str, CategoryLengths)]) -> Categories {
        each.iter().map(|(name, category)| ((*name).to_owned(), *category)).collect()
    }

    #[test]
    fn categories_have_their_shares_and_their_lengths() {
        let categories =
            named(&[("chat", category(3.0, 100)), ("code", category(0.0, 200)), ("documents", category(1.0, 300))]);
        let n = 40_000u64;
        let drawn: Vec<_> = (0..n).map(|i| draw(&categories, &mut Draws::new(5, Stream::Lengths, i))).collect();
        assert!(drawn.iter().all(|&(c, prompt, output)| prompt == 100 * (u32::from(c) + 1) && output == 7));
        let share = |c: u16| drawn.iter().filter(|d| d.0 == c).count() as f64 / n as f64;
        // The tolerance for a category's share of 3/4 of the requests is five standard errors, 0.011.
        assert!((share(0) - 0.75).abs() < 0.011 && share(1) == 0.0, "{} {}", share(0), share(1));
    }

    #[test]
    fn bad_categories_are_refused_by_key() {
        for (of, key) in [
            (named(&[]), "lengths.categories: "),
            (named(&[("a", category(0.0, 1))]), "lengths.categories: "),
            (named(&[("a", category(-1.0, 1))]), "lengths.categories.a.share: "),
            (named(&[("a", category(f64::NAN, 1))]), "lengths.categories.a.share: "),
            (named(&[("a", category(1.0, 0))]), "lengths.categories.a.lengths.fixed: "),
        ] {
            let e = check(&of, "lengths.categories").expect_err("refused").to_string();
            assert!(e.starts_with(&format!("workload.{key}")), "{e}");
        }
    }
}
