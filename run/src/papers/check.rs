//! Checks the claims of a `[paper]` or `[question]` table: every policy, swept value and bound that a claim names must
//! be in the experiment.

use crate::plan::{Plan, choice, variants};
use crate::spec::document::Path;
use crate::spec::experiment::SloSpec;
use crate::spec::paper::{At, Claim, Measure, Metric, Stated};
use crate::spec::problem::{Problem, Result, nearest};

/// Checks the claims of a plan's `[paper]` table: they may name only policies, swept values and bounds of the
/// experiment. Does nothing without the table.
pub fn check(plan: &Plan) -> Result<()> {
    let Some(paper) = &plan.variants[0].experiment.paper else { return Ok(()) };
    check_claims(plan, &paper.claims, "paper")
}

/// Checks `claims`, which are in the table called `table` (`paper` or `question`).
pub fn check_claims(plan: &Plan, claims: &[Claim], table: &str) -> Result<()> {
    let labels = plan.policies.iter().map(|p| p.spec.label()).collect();
    let stated = if table == "question" { "reported" } else { "paper" };
    Check { plan, labels, stated }.claims(claims, &Path::of(&format!("{table}.claims")))
}

struct Check<'a> {
    plan: &'a Plan,
    labels: Vec<String>,
    /// The key under which a claim states the number that the paper or thread reports: `paper` in a `[paper]` table,
    /// `reported` in a `[question]` table.
    stated: &'static str,
}

impl Check<'_> {
    fn claims(&self, claims: &[Claim], table: &Path) -> Result<()> {
        if claims.is_empty() {
            return Err(self.at(table, format!("{table} is empty: there is nothing to compare")));
        }
        for (i, claim) in claims.iter().enumerate() {
            let path = Path::of(&format!("{table}[{i}]"));
            if claims[..i].iter().any(|other| other.id == claim.id) {
                return Err(self.at(&path.key("id"), format!("{path}: another claim is called `{}` too", claim.id)));
            }
            self.claim(claim, &path)?;
        }
        Ok(())
    }

    fn claim(&self, claim: &Claim, path: &Path) -> Result<()> {
        let measure = path.key("measure");
        match &claim.measure {
            Measure::Value(m) => {
                let path = measure.key("value");
                self.policy(&m.policy, &path.key("policy"))?;
                self.metric(m.metric, &m.at, &path)?;
            }
            Measure::Gain(m) => {
                let path = measure.key("gain");
                self.policy(&m.policy, &path.key("policy"))?;
                self.policies(&m.over, &path.key("over"))?;
                self.metric(m.metric, &m.at, &path)?;
            }
            Measure::Increase(m) => {
                let path = measure.key("increase");
                self.policy(&m.policy, &path.key("policy"))?;
                self.policy(&m.over, &path.key("over"))?;
                self.metric(m.metric, &m.at, &path)?;
            }
            Measure::Best(m) => {
                let path = measure.key("best");
                self.policies(&m.among, &path.key("among"))?;
                self.metric(m.metric, &m.at, &path)?;
                if let Stated::Policies(names) = &claim.stated
                    && let Some(foreign) = names.iter().find(|name| !m.among.contains(name))
                {
                    let place = path.key(self.stated);
                    let message = format!("{place}: `{foreign}` is not among the policies that are compared");
                    return Err(self.at(&place, message));
                }
            }
            Measure::Crossing(m) => {
                let path = measure.key("crossing");
                self.policy(&m.policy, &path.key("policy"))?;
                self.policy(&m.over, &path.key("over"))?;
                self.metric(m.metric, &m.at, &path)?;
                self.along(&m.along, &m.at, &path, true)?;
            }
            Measure::Keeps(m) => {
                let path = measure.key("keeps");
                self.policy(&m.policy, &path.key("policy"))?;
                self.metric(m.metric, &m.at, &path)?;
                self.along(&m.along, &m.at, &path, true)?;
                self.above_0(m.bound, &path.key("bound"))?;
            }
            Measure::Change(m) => {
                let path = measure.key("change");
                self.policy(&m.policy, &path.key("policy"))?;
                self.metric(m.metric, &m.at, &path)?;
                self.along(&m.along, &m.at, &path, false)?;
            }
            Measure::Windows(m) => {
                let path = measure.key("windows");
                self.policy(&m.policy, &path.key("policy"))?;
                self.picked(&m.at, &path)?;
                self.above_0(m.seconds, &path.key("seconds"))?;
            }
            Measure::Estimate(m) => {
                let path = measure.key("estimate");
                self.picked(&m.at, &path)?;
                self.above_0(f64::from(m.length), &path.key("length"))?;
            }
            Measure::BeliefLength(m) => {
                let path = measure.key("belief-length");
                self.picked(&m.at, &path)?;
                self.above_0(f64::from(m.batch), &path.key("batch"))?;
                if !(0.0..=1.0).contains(&m.acceptance) {
                    let message = format!("{path}.acceptance: {} is not a probability in [0, 1]", m.acceptance);
                    return Err(self.at(&path.key("acceptance"), message));
                }
            }
            Measure::ImpliedLength(m) => {
                let path = measure.key("implied-length");
                self.picked(&m.at, &path)?;
                self.above_0(m.tokens_per_s, &path.key("tokens_per_s"))?;
            }
        }
        let fits = match &claim.stated {
            Stated::FigureOnly => true,
            Stated::Policies(_) => claim.measure.names_a_policy(),
            Stated::Number(_) | Stated::Range(..) => !claim.measure.names_a_policy(),
        };
        if fits {
            return Ok(());
        }
        let wanted = if claim.measure.names_a_policy() { "a list of policies" } else { "a number or a range" };
        let place = path.key(self.stated);
        let problem = self.at(&place, format!("{place} cannot be compared with what is measured"));
        Err(problem.help(format!("expected {wanted}, or \"figure only\"")))
    }

    fn policies(&self, labels: &[String], path: &Path) -> Result<()> {
        if labels.is_empty() {
            return Err(self.at(path, format!("{path} is empty")).help(self.all_policies()));
        }
        labels.iter().try_for_each(|label| self.policy(label, path))
    }

    fn policy(&self, label: &str, path: &Path) -> Result<()> {
        if self.labels.iter().any(|known| known == label) {
            return Ok(());
        }
        let problem = self.at(path, format!("{path}: no policy of this experiment is labelled `{label}`"));
        Err(match nearest(label, self.labels.iter().map(String::as_str)) {
            Some(near) => problem.help(format!("did you mean `{near}`? {}", self.all_policies())),
            None => problem.help(self.all_policies()),
        })
    }

    fn all_policies(&self) -> String {
        format!("labels here: {}", self.labels.join(", "))
    }

    /// `at` gives the swept values at which a claim is measured. Checks that every setting in `at` is swept and takes
    /// the value in `at`, and that the variants that `at` picks have the metric of the claim.
    fn metric(&self, metric: Metric, at: &At, path: &Path) -> Result<()> {
        self.picked(at, path)?;
        let unbounded = |v: usize| self.plan.variants[v].experiment.slo == SloSpec::default();
        if metric == Metric::SloAttainment && variants(self.plan, at).any(unbounded) {
            let problem = self.at(&path.key("metric"), format!("{path}.metric: there is no bound to attain"));
            return Err(problem.help("give the experiment an [slo], for example adaspec-scale = 1.0"));
        }
        Ok(())
    }

    /// Checks that every setting that a claim names in `at` is swept, and that its sweep takes the value in `at`.
    fn picked(&self, at: &At, path: &Path) -> Result<()> {
        for (swept, value) in at {
            let place = path.key("at").key(swept);
            self.swept(swept, &place)?;
            if variants(self.plan, &At::from([(swept.clone(), value.clone())])).next().is_none() {
                let problem = self.at(&place, format!("{path}.at: `{swept}` is never {value}"));
                return Err(problem.help(format!("it is swept over {}", self.values(swept))));
            }
        }
        Ok(())
    }

    fn swept(&self, swept: &str, place: &Path) -> Result<()> {
        if choice(&self.plan.variants[0], swept).is_some() {
            return Ok(());
        }
        let paths = self.plan.variants[0].choices.iter().map(|c| c.path.as_str());
        let help = match paths.clone().count() {
            0 => "the experiment has no sweep".to_owned(),
            _ => format!("swept here: {}", paths.collect::<Vec<_>>().join(", ")),
        };
        Err(self.at(place, format!("`{swept}` is not swept")).help(help))
    }

    fn values(&self, swept: &str) -> String {
        let mut values: Vec<&str> = Vec::new();
        for value in self.plan.variants.iter().filter_map(|v| choice(v, swept)).map(|c| c.value.as_str()) {
            if !values.contains(&value) {
                values.push(value);
            }
        }
        values.join(", ")
    }

    /// Checks that the swept setting `along` takes at least two values in the variants that `at` picks. `numbers`: must
    /// the values be numbers?
    fn along(&self, along: &str, at: &At, path: &Path, numbers: bool) -> Result<()> {
        let place = path.key("along");
        self.swept(along, &place)?;
        let mut values = Vec::new();
        for choice in variants(self.plan, at).filter_map(|v| choice(&self.plan.variants[v], along)) {
            if numbers && choice.number.is_none() {
                return Err(self.at(&place, format!("{place}: `{along}` is not swept over numbers")));
            }
            if !values.contains(&&choice.value) {
                values.push(&choice.value);
            }
        }
        match values.len() {
            0 | 1 => Err(self.at(&place, format!("{path}: at least two values of `{along}` are needed"))),
            _ => Ok(()),
        }
    }

    fn above_0(&self, value: f64, path: &Path) -> Result<()> {
        if value > 0.0 && value.is_finite() {
            return Ok(());
        }
        Err(self.at(path, format!("{path}: {value} is not a number above 0")))
    }

    fn at(&self, path: &Path, message: impl Into<String>) -> Box<Problem> {
        self.plan.variants[0].document().problem_at(path, message)
    }
}
