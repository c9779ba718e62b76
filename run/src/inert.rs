//! Settings that did nothing in a run, which the report names, so that no user tunes a setting in vain: swept keys and
//! seeds with which no number changed, and given keys that another setting of the experiment excludes. An unknown key
//! is an error before the run. No run is repeated here; a key that is swept on purpose shows whether it has an effect.

use crate::cells::Numbers;
use crate::plan::Plan;
use crate::setting::Setting;
use crate::spec::document::{Document, Path};
use crate::spec::experiment::Experiment;
use crate::spec::paper::Measure;
use crate::spec::problem::Result;
use foretoken_policies::PolicySpec;
use foretoken_profiler::hardware::LatencySpec;
use foretoken_sim::acceptance::Rates;
use foretoken_sim::{SpecPolicy, Wants};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Inert {
    /// Settings that changed no number of the run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub without_effect: Vec<WithoutEffect>,
}

/// A setting that changed no number of the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WithoutEffect {
    /// The path of the setting in the experiment, such as `engine.max_num_seqs`.
    pub path: String,
    /// The setting's value in the experiment, as TOML; absent if the setting was swept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Why the setting did nothing; absent for a swept setting if the reason is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// Settings that have no effect if no policy of the experiment drafts.
const OF_DRAFTS: [&str; 6] = [
    "acceptance", "belief", "engine.draft_prefill", "engine.draft_gap", "engine.max_draft_len", "engine.budget_charge",
];

/// Finds the settings of a finished run that did nothing. `numbers` has the digest of each run's results, in the order
/// of `plan`, which lists all runs.
pub fn look(plan: &Plan, numbers: &[Numbers]) -> Result<Inert> {
    let setting = Setting::new(&plan.variants[0], plan.seeds[0])?;
    let facts = Facts::new(plan, numbers, &setting);
    let mut inert = Inert::default();
    if seeds_agree(plan, numbers) {
        let why = Some("nothing in this experiment is random".to_owned());
        inert.without_effect.push(WithoutEffect { path: "seeds".to_owned(), value: None, why });
    }
    // A claim of a paper or a question may be computed from the acceptance without a run. Then `[acceptance]` has an
    // effect, although it changes no number of the run.
    let first = &plan.variants[0];
    let of_papers = first.experiment.paper.iter().flat_map(|paper| &paper.claims).map(|claim| &claim.measure);
    let of_questions = first.experiment.question.iter().flat_map(|asked| &asked.claims).map(|claim| &claim.measure);
    let estimates = of_papers.chain(of_questions).any(|measure| matches!(measure, Measure::Estimate(_)));
    let of_claims = |path: &str| estimates && path.starts_with("acceptance.");
    for (at, choice) in first.choices.iter().enumerate() {
        if !of_claims(&choice.path) && changes_nothing(plan, numbers, at) {
            let (path, why) = (choice.path.clone(), facts.excluded(&choice.path));
            inert.without_effect.push(WithoutEffect { path, value: None, why });
        }
    }
    // An experiment with a calibrated profile describes an observed server and its requests. What it says of them are
    // facts and not choices, apart from what the user gave with `--set`.
    let document = first.document();
    let described = |path: &Path| {
        let in_tables = ["engine", "workload", "acceptance"].iter().any(|top| path.is_below(&Path::of(top)));
        first.filled.calibrated && in_tables && !document.is_overridden(path)
    };
    let swept: Vec<Path> = first.choices.iter().map(|c| Path::of(&c.path)).collect();
    for path in document.leaves() {
        let filled = swept.iter().chain(&first.filled.keys).any(|other| path.is_below(other));
        let text = path.to_string();
        let Some(why) = facts.excluded(&text) else { continue };
        if !filled && !described(&path) && !of_claims(&text) && !is_default(plan, &path) {
            let value = document.value_at(&path).map(|value| value.to_string());
            inert.without_effect.push(WithoutEffect { path: text, value, why: Some(why) });
        }
    }
    Ok(inert)
}

impl Inert {
    /// The report's lines about settings that did nothing. Settings with the same reason share a line.
    pub fn lines(&self) -> Vec<String> {
        let mut groups: Vec<(Option<&String>, Vec<String>)> = Vec::new();
        for WithoutEffect { path, value, why } in &self.without_effect {
            let given = match value {
                Some(value) if value.len() < 60 => format!("{path} = {value}"),
                _ => path.clone(),
            };
            match groups.iter_mut().find(|group| why.is_some() && group.0 == why.as_ref()) {
                Some(group) => group.1.push(given),
                None => groups.push((why.as_ref(), vec![given])),
            }
        }
        let because = |why: Option<&String>| why.map(|why| format!(": {why}")).unwrap_or_default();
        groups.iter().map(|(why, all)| format!("{} changed no number{}", all.join(", "), because(*why))).collect()
    }
}

/// Facts about an experiment that say which of its settings exclude others.
struct Facts<'a> {
    plan: &'a Plan,
    numbers: &'a [Numbers],
    setting: &'a Setting,
    /// The experiment's policies that a server can run and that draft.
    policies: Vec<Box<dyn SpecPolicy>>,
    /// Does a policy see more than a server can? It may use every setting.
    sees_more: bool,
}

impl<'a> Facts<'a> {
    fn new(plan: &'a Plan, numbers: &'a [Numbers], setting: &'a Setting) -> Facts<'a> {
        let sees_more = |spec: &PolicySpec| spec.sees_hidden_truth() || !spec.definition().tries(1).is_empty();
        let servers = plan.policies.iter().map(|entrant| &entrant.spec).filter(|spec| !sees_more(spec));
        Facts {
            plan,
            numbers,
            setting,
            policies: servers.filter_map(|spec| setting.policy(spec)).collect(),
            sees_more: plan.policies.iter().any(|entrant| sees_more(&entrant.spec)),
        }
    }

    /// Which other settings keep the setting `path` from having an effect; `None` if it may have one. A replica of a
    /// fleet may have a policy and hardware of its own, so nothing is said of fleets.
    fn excluded(&self, path: &str) -> Option<String> {
        if !self.always(|e| e.fleet.is_none()) {
            return None;
        }
        let below = |above: &str| path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
        let none =
            |of: fn(&dyn SpecPolicy) -> bool| !self.sees_more && !self.policies.iter().any(|policy| of(&**policy));
        if OF_DRAFTS.into_iter().any(below) && none(|_| true) {
            return Some("no policy here drafts".into());
        }
        if below("acceptance.confidence") && none(|p| p.wants() != Wants::default()) {
            return Some("no policy here looks at confidences".into());
        }
        if below("acceptance.ranks") && none(|p| p.limits().tree_tokens > 0) {
            return Some("no policy here drafts trees".into());
        }
        if below("acceptance.source.mixture") {
            return self.of_the_mixture(path);
        }
        if below("workload.duration_s") && self.requests_are(|came, most| came == most) {
            return Some("workload.requests ends it first".into());
        }
        if below("workload.requests") && self.requests_are(|came, most| came < most) {
            return Some("workload.duration_s ends it first".into());
        }
        let (role, key) = path.strip_prefix("hardware.")?.split_once(".roofline.")?;
        let one = ["parallel_efficiency", "all_reduce_s"].contains(&key)
            && self.always(|e| {
                let spec = if role == "draft" { &e.hardware.draft } else { &e.hardware.target };
                matches!(spec, LatencySpec::Roofline(r)
                    if r.tensor_parallel == 1 && (key == "parallel_efficiency" || r.data_parallel == 1))
            });
        one.then(|| format!("hardware.{role}.roofline.tensor_parallel is 1"))
    }

    /// Is `fact` true with all combinations of swept values?
    fn always(&self, fact: impl Fn(&Experiment) -> bool) -> bool {
        self.plan.variants.iter().all(|variant| fact(&variant.experiment))
    }

    /// With a bound on requests and one on time: does `of` (requests that came, the bound) hold for all runs?
    fn requests_are(&self, of: fn(u64, u64) -> bool) -> bool {
        let cells = self.plan.seeds.len() * self.plan.policies.len();
        self.plan.variants.iter().zip(self.numbers.chunks(cells)).all(|(variant, numbers)| {
            let workload = &variant.experiment.workload;
            let most = workload.requests.filter(|_| workload.duration_s.is_some());
            most.is_some_and(|most| numbers.iter().all(|n| of(n.requests, u64::from(most))))
        })
    }

    fn of_the_mixture(&self, path: &str) -> Option<String> {
        // The requests of the first variant stand for all only if no sweep changes them.
        let swept = ["workload", "acceptance.source"];
        let choices = &self.plan.variants[0].choices;
        if choices.iter().any(|c| swept.iter().any(|top| Path::of(&c.path).is_below(&Path::of(top)))) {
            return None;
        }
        let Rates::Mixture(mixture) = &self.plan.variants[0].experiment.acceptance.source else { return None };
        let workload = &self.setting.workload;
        let mut used = vec![false; workload.categories.len()];
        workload.category.iter().filter_map(|&c| used.get_mut(usize::from(c)).map(|u| *u = true)).for_each(drop);
        let names: Vec<&str> =
            workload.categories.iter().zip(&used).filter(|(_, used)| **used).map(|(name, _)| name.as_str()).collect();
        let category = path.strip_prefix("acceptance.source.mixture.categories.");
        match category.and_then(|rest| rest.split('.').next()) {
            Some(_) if names.is_empty() => Some("the requests have no categories".into()),
            Some(name) if !names.contains(&name) => {
                Some(format!("no request has the category {name}; there are {}", names.join(", ")))
            }
            None if path.starts_with("acceptance.source.mixture.all")
                && !names.is_empty()
                && names.iter().all(|name| mixture.categories.contains_key(*name)) =>
            {
                Some(
                    "every category of the requests has a law of its own, in acceptance.source.mixture.categories"
                        .into(),
                )
            }
            _ => None,
        }
    }
}

/// Has the key its default value? Then the experiment without it is the same.
fn is_default(plan: &Plan, path: &Path) -> bool {
    let digest = |change: &dyn Fn(&mut Document)| {
        let altered = plan.altered(0, |document| {
            change(document);
            Ok(())
        });
        altered.map(|altered| altered.digest()).ok()
    };
    digest(&|document| document.remove(path)).is_some_and(|without| Some(without) == digest(&|_| ()))
}

/// Does the plan have several seeds, and do the runs with all seeds give the same numbers?
fn seeds_agree(plan: &Plan, numbers: &[Numbers]) -> bool {
    let policies = plan.policies.len();
    let digests = |row: &[Numbers]| row.iter().map(|n| n.digest).collect::<Vec<_>>();
    let mut variants = numbers.chunks(policies * plan.seeds.len());
    plan.seeds.len() > 1
        && variants.all(|seeds| seeds.chunks(policies).all(|row| digests(row) == digests(&seeds[..policies])))
}

/// Do all values of the swept key number `at` give the same results, at every combination of the other swept values?
fn changes_nothing(plan: &Plan, numbers: &[Numbers], at: usize) -> bool {
    let cells = plan.seeds.len() * plan.policies.len();
    let other_values = |v: usize| {
        let choices = plan.variants[v].choices.iter().enumerate();
        choices.filter(|(i, _)| *i != at).map(|(_, choice)| choice.value.as_str()).collect::<Vec<_>>()
    };
    let digests = |v: usize| numbers[v * cells..][..cells].iter().map(|n| n.digest).collect::<Vec<_>>();
    let pairs = (1..plan.variants.len()).map(|v| {
        let like = (0..v).find(|&other| other_values(other) == other_values(v));
        like.map(|other| digests(other) == digests(v))
    });
    let compared: Vec<bool> = pairs.flatten().collect();
    !compared.is_empty() && compared.into_iter().all(|same| same)
}

#[cfg(test)]
mod every_leaf_tests;
