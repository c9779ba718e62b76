//! `by-category`: the requests of each category (chat, code, documents, random text) have their own law of acceptance,
//! which says how probable it is that a draft token is right.

use super::TruthRow;
use super::by_depth::ByDepth;
use super::fault::{BadAcceptance, bad, check_points, check_rates};
use super::independent::{ByContext, Constant};
use super::prompt_lookup::{Lookups, PromptLookup};
use super::source::Bits;
use crate::executor::RequestTruth;
use crate::workload::Workload;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// For each category of requests (chat, code, …): the law that says how probable it is that a draft token is right.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ByCategory {
    /// For each category name: the law that says how probable it is that a draft token is right.
    pub categories: BTreeMap<String, CategoryRates>,
    /// The law of acceptance for requests whose category is not in `categories`. If it is not set, every request must
    /// have a category that is in `categories`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub otherwise: Option<CategoryRates>,
}

/// The law that decides which draft tokens of a category's requests are right.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum CategoryRates {
    /// Every draft token is right with the same probability, independently.
    Constant {
        /// Probability that a draft token is right, [0, 1].
        rate: f64,
    },
    /// The probability that a draft token is right depends on the number of tokens before it, as in the source
    /// `by-context`.
    ByContext {
        /// `[tokens, rate]`: tokens of context, rising, and the probability that a draft token is right, [0, 1].
        points: Vec<(u32, f64)>,
    },
    /// The probability that a draft token is right depends on its place in the draft round, as in the source
    /// `by-depth`.
    ByDepth {
        /// Probability, [0, 1], that the i-th draft token of a round is right if all before it are. The last rate holds
        /// for all deeper places.
        rates: Vec<f64>,
    },
    /// The drafter is a prompt lookup, which copies text from the context, as in the source `prompt-lookup`.
    PromptLookup(PromptLookup),
}

impl CategoryRates {
    /// Checks this law of acceptance: its rates must be in [0, 1], its points must have rising tokens, and the settings
    /// of its prompt lookup must be good. `key` is the law's path below `acceptance`; the error begins with it.
    fn check(&self, key: &str) -> Result<(), BadAcceptance> {
        match self {
            CategoryRates::Constant { rate } => check_rates(&format!("{key}.constant.rate"), &[*rate]),
            CategoryRates::ByContext { points } => check_points(&format!("{key}.by-context.points"), points),
            CategoryRates::ByDepth { rates } => check_rates(&format!("{key}.by-depth.rates"), rates),
            CategoryRates::PromptLookup(lookup) => lookup.check(&format!("{key}.prompt-lookup")),
        }
    }

    fn bits(&self, seed: u64) -> Box<dyn Bits> {
        match self {
            CategoryRates::Constant { rate } => Box::new(Constant { rate: *rate, seed }),
            CategoryRates::ByContext { points } => Box::new(ByContext { points: points.clone(), seed }),
            CategoryRates::ByDepth { rates } => Box::new(ByDepth { rates: rates.clone(), seed }),
            CategoryRates::PromptLookup(spec) => Box::new(Lookups { spec: *spec, seed }),
        }
    }
}

impl ByCategory {
    /// The number of draft depths with different rates: the largest number in any law, `otherwise` included. A law that
    /// does not depend on the depth counts as 1.
    pub fn depths(&self) -> usize {
        let depths = |law: &CategoryRates| if let CategoryRates::ByDepth { rates } = law { rates.len() } else { 1 };
        self.categories.values().chain(&self.otherwise).map(depths).max().unwrap_or(1)
    }

    /// Checks the laws of acceptance of all categories, and that there is at least one category.
    pub(super) fn check(&self) -> Result<(), BadAcceptance> {
        let key = "source.by-category";
        if self.categories.is_empty() {
            return bad(&format!("{key}.categories"), "needs at least one category, such as code = { constant = ... }");
        }
        for (name, law) in &self.categories {
            law.check(&format!("{key}.categories.{name}"))?;
        }
        self.otherwise.as_ref().map_or(Ok(()), |law| law.check(&format!("{key}.otherwise")))
    }

    /// Builds the laws that say how probable it is that draft tokens of the workload's requests are right.
    ///
    /// # Errors
    /// A request has no law: `categories` does not name its category, and `otherwise` is not set.
    pub(super) fn build(&self, seed: u64, workload: &Workload) -> Result<Laws, BadAcceptance> {
        let laws: Vec<_> = self.categories.values().chain(&self.otherwise).map(|law| law.bits(seed)).collect();
        let otherwise = self.otherwise.as_ref().map(|_| laws.len() - 1);
        let law_of = |name: &String| self.categories.keys().position(|key| key == name).or(otherwise);
        let of: Vec<Option<usize>> = workload.categories.iter().map(law_of).collect();
        let law_at = |category: u16| of.get(usize::from(category)).copied().unwrap_or(otherwise);
        if let Some(i) = workload.category.iter().position(|&category| law_at(category).is_none()) {
            let named: Vec<&str> = self.categories.keys().map(String::as_str).collect();
            let category = match workload.categories.get(usize::from(workload.category[i])) {
                Some(name) => format!("is of the category {name}"),
                None => "has no category".to_owned(),
            };
            let why = format!(
                "request {i} {category}, and there are laws for {} alone: add its law, or add `otherwise`",
                named.join(", ")
            );
            return bad("source.by-category", why);
        }
        let fallback = otherwise.unwrap_or(0);
        Ok(Laws { laws, of: of.into_iter().map(|law| law.unwrap_or(fallback)).collect(), fallback })
    }
}

/// The laws of acceptance (how probable it is that a draft token is right) of all categories, and the index of the law
/// that each category of a workload has.
pub(super) struct Laws {
    laws: Vec<Box<dyn Bits>>,
    /// Index in `laws` of each category's law of acceptance.
    of: Vec<usize>,
    /// Index in `laws` of the law of acceptance for requests without a category: the law `otherwise`. 0 if `otherwise`
    /// is not set; no request uses it then.
    fallback: usize,
}

impl Laws {
    fn law(&self, request: RequestTruth) -> &dyn Bits {
        &*self.laws[self.of.get(usize::from(request.category)).copied().unwrap_or(self.fallback)]
    }
}

impl Bits for Laws {
    fn fill(&self, request: RequestTruth, positions: usize, out: &mut TruthRow) {
        self.law(request).fill(request, positions, out);
    }

    fn rate(&self, request: RequestTruth, position: u32, depth: u32) -> f64 {
        self.law(request).rate(request, position, depth)
    }

    fn may_lack_proposals(&self) -> bool {
        self.laws.iter().any(|law| law.may_lack_proposals())
    }

    /// False if any category uses prompt lookup. A [`Law`](super::Law) has a single probability of a lookup match for
    /// all requests (`proposes_if_wrong`). But the requests of a category without prompt lookup always have a proposal.
    fn has_law(&self) -> bool {
        self.laws.iter().all(|law| law.has_law() && !law.may_lack_proposals())
    }

    fn prior(&self, request: RequestTruth, weights: &mut Vec<f64>) {
        self.law(request).prior(request, weights);
    }

    fn rate_of_hypothesis(&self, request: RequestTruth, hypothesis: usize, position: u32, depth: u32) -> f64 {
        self.law(request).rate_of_hypothesis(request, hypothesis, position, depth)
    }

    fn right_after(&self, request: RequestTruth, hypothesis: usize, position: u32, depth: u32, before: bool) -> f64 {
        self.law(request).right_after(request, hypothesis, position, depth, before)
    }

    fn mean_rate(&self, request: RequestTruth, position: u32, depth: u32) -> f64 {
        self.law(request).mean_rate(request, position, depth)
    }

    fn own_rate(&self, request: RequestTruth, position: u32, depth: u32) -> f64 {
        self.law(request).own_rate(request, position, depth)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acceptance::{AcceptanceSpec, Rates};
    use crate::time::Time;
    use crate::workload::Request;

    fn constant(rate: f64) -> CategoryRates {
        CategoryRates::Constant { rate }
    }

    fn laws(each: &[(&str, CategoryRates)], otherwise: Option<CategoryRates>) -> ByCategory {
        let categories = each.iter().map(|(name, law)| ((*name).to_owned(), law.clone())).collect();
        ByCategory { categories, otherwise }
    }

    /// A workload of 60 requests whose category indices are 0, 1, 2, 0, 1, …; `names` are the names of the categories.
    fn workload(names: &[&str]) -> Workload {
        let request = |i: u16| Request { category: i % 3, ..Request::new(Time::ZERO, 1000, 500) };
        let mut workload: Workload = (0..60).map(request).collect();
        workload.categories = names.iter().map(ToString::to_string).collect();
        workload
    }

    fn source(of: ByCategory) -> AcceptanceSpec {
        AcceptanceSpec { source: Rates::ByCategory(of), ..AcceptanceSpec::default() }
    }

    /// For each request of a workload: which of its draft tokens are right, as the acceptance source draws it.
    fn rows(spec: &AcceptanceSpec, workload: &Workload) -> Vec<TruthRow> {
        let source = spec.build(7, workload).expect("good");
        let request = |id: u32| RequestTruth {
            id,
            prompt_len: 1000,
            output_len: 500,
            category: workload.category[id as usize],
            recording: None,
        };
        let row = |id| {
            let mut row = TruthRow::default();
            source.start(request(id), 8, &mut row);
            row
        };
        (0..workload.len() as u32).map(row).collect()
    }

    /// The requests of a category have the same right draft tokens as in a run where their category's law is the law of
    /// all requests.
    #[test]
    fn a_category_has_the_truth_of_its_own_law() {
        let workload = workload(&["code", "chat", "documents"]);
        let depths = CategoryRates::ByDepth { rates: vec![0.9, 0.5] };
        let contexts = CategoryRates::ByContext { points: vec![(1000, 0.8), (2000, 0.2)] };
        let mixed = rows(&source(laws(&[("code", depths), ("chat", contexts)], Some(constant(0.1)))), &workload);
        let alone = [
            Rates::ByDepth { rates: vec![0.9, 0.5] },
            Rates::ByContext { points: vec![(1000, 0.8), (2000, 0.2)] },
            Rates::Constant { rate: 0.1 },
        ];
        for (category, law) in alone.into_iter().enumerate() {
            let alone = rows(&AcceptanceSpec { source: law, ..AcceptanceSpec::default() }, &workload);
            for id in (category..60).step_by(3) {
                let right = |row: &TruthRow| -> Vec<bool> { (0..1000).map(|n| row.right(n / 2, n % 2)).collect() };
                assert_eq!(right(&mixed[id]), right(&alone[id]), "request {id}");
            }
        }
    }

    #[test]
    fn a_category_without_lookups_always_has_a_proposal() {
        let workload = workload(&["edit", "chat", "chat 2"]);
        let lookup = CategoryRates::PromptLookup(PromptLookup { match_rate: 0.0, precision: 0.0, mean_run: 4.0 });
        let spec = source(laws(&[("edit", lookup)], Some(constant(0.5))));
        assert!(spec.build(7, &workload).expect("good").may_lack_proposals());
        let rows = rows(&spec, &workload);
        assert!((0..500).all(|n| !rows[0].matched(n) && rows[1].matched(n)));
    }

    #[test]
    fn each_request_needs_a_law() {
        let code = || laws(&[("code", constant(0.9)), ("chat", constant(0.5))], None);
        let error =
            |of: ByCategory, names: &[&str]| source(of).build(7, &workload(names)).err().expect("refused").to_string();
        let said = error(code(), &["code", "chat", "documents"]);
        assert!(
            said.contains("request 2 is of the category documents, and there are laws for chat, code alone"),
            "{said}"
        );
        assert!(error(code(), &[]).contains("request 0 has no category"), "{}", error(code(), &[]));
        let all = ByCategory { otherwise: Some(constant(0.2)), ..code() };
        assert!(source(all).build(7, &workload(&[])).is_ok());
    }

    #[test]
    fn bad_laws_are_named() {
        let good = constant(0.5);
        for (of, key) in [
            (laws(&[], None), "source.by-category.categories"),
            (laws(&[("a", constant(1.5))], None), "source.by-category.categories.a.constant.rate"),
            (laws(&[("a", good.clone())], Some(constant(f64::NAN))), "source.by-category.otherwise.constant.rate"),
            (
                laws(&[("a", CategoryRates::ByContext { points: vec![] })], None),
                "source.by-category.categories.a.by-context.points",
            ),
            (
                laws(&[("a", CategoryRates::ByDepth { rates: vec![] })], None),
                "source.by-category.categories.a.by-depth.rates",
            ),
            (
                laws(
                    &[("a", CategoryRates::PromptLookup(PromptLookup { mean_run: 0.0, ..PromptLookup::default() }))],
                    None,
                ),
                "source.by-category.categories.a.prompt-lookup.mean_run",
            ),
        ] {
            assert_eq!(source(of).check().map_err(|e| e.key), Err(key.to_owned()));
        }
    }
}
