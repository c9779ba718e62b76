//! Finds the reason why a setting did nothing in a run, if the reason follows from the experiment's other settings.
//! `judge.rs` finds the settings that did nothing. The report names such a setting also if the reason is not known.

use crate::plan::Plan;
use crate::setting::Setting;
use crate::spec::experiment::Experiment;
use foretoken_policies::PolicySpec;
use foretoken_profiler::hardware::LatencySpec;
use foretoken_sim::acceptance::Rates;
use foretoken_sim::{SpecPolicy, Wants};

/// Facts about an experiment (its first combination of swept values, its requests and its policies) that explain why a
/// setting had no effect.
pub struct Facts<'a> {
    experiment: &'a Experiment,
    setting: &'a Setting,
    /// The experiment's policies that a server can run. Oracles and clairvoyant policies, which see the future, are
    /// left out: they are assumed to use every setting.
    policies: Vec<Box<dyn SpecPolicy>>,
    bounds: bool,
}

impl<'a> Facts<'a> {
    /// Collects the facts that explain settings without effect from a plan's first variant. `setting` is that variant
    /// with the first seed.
    pub fn new(plan: &'a Plan, setting: &'a Setting) -> Facts<'a> {
        let sees_more = |spec: &PolicySpec| spec.sees_hidden_truth() || !spec.definition().tries(1).is_empty();
        let servers = plan.policies.iter().map(|entrant| &entrant.spec).filter(|spec| !sees_more(spec));
        Facts {
            experiment: &plan.variants[0].experiment,
            setting,
            policies: servers.filter_map(|spec| setting.policy(spec)).collect(),
            bounds: plan.policies.iter().any(|entrant| sees_more(&entrant.spec)),
        }
    }

    /// A sentence that says why the setting `path` has no effect; `None` if the reason is not known.
    pub fn why(&self, path: &str) -> Option<String> {
        let below = |above: &str| path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
        let any = |of: fn(&dyn SpecPolicy) -> bool| self.policies.iter().any(|policy| of(&**policy));
        let of_a_draft = ["acceptance", "belief", "hardware.draft", "hardware.drafting", "engine.draft_kv"];
        if !self.bounds && self.policies.is_empty() && of_a_draft.into_iter().chain(OF_DRAFTS).any(below) {
            return Some("no policy here drafts".into());
        }
        if below("acceptance.source.mixture") {
            return self.of_the_mixture(path);
        }
        if below("acceptance.confidence") && !self.bounds && !any(|p| p.wants() != Wants::default()) {
            return Some("no policy here looks at confidences".into());
        }
        if below("acceptance.ranks") && !any(|p| p.limits().tree_tokens > 0) {
            return Some("no policy here drafts trees".into());
        }
        if below("belief") {
            return Some("it changes no decision of a policy here".into());
        }
        if below("workload.seed") {
            return Some("nothing in this workload is random".into());
        }
        if below("workload.duration_s") && self.experiment.workload.requests.is_some() {
            return Some("workload.requests ends it first".into());
        }
        if below("workload.requests") && self.experiment.workload.duration_s.is_some() {
            return Some("workload.duration_s ends it first".into());
        }
        if below("engine.skip_stretches") {
            return Some("it changes how fast the simulator is, and nothing else".into());
        }
        self.of_one_gpu(path)
    }

    fn of_the_mixture(&self, path: &str) -> Option<String> {
        let Rates::Mixture(mixture) = &self.experiment.acceptance.source else { return None };
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
            Some(_) => None,
            None if path.starts_with("acceptance.source.mixture.all")
                && !names.is_empty()
                && names.iter().all(|name| mixture.categories.contains_key(*name)) =>
            {
                Some(
                    "every category of the requests has a law of its own, in acceptance.source.mixture.categories"
                        .into(),
                )
            }
            None => None,
        }
    }

    fn of_one_gpu(&self, path: &str) -> Option<String> {
        let hardware = &self.experiment.hardware;
        let (role, key) = path.strip_prefix("hardware.")?.split_once(".roofline.")?;
        let spec = if role == "draft" { &hardware.draft } else { &hardware.target };
        let one = matches!(spec, LatencySpec::Roofline(r) if r.tensor_parallel == 1);
        (one && ["parallel_efficiency", "all_reduce_s"].contains(&key))
            .then(|| format!("hardware.{role}.roofline.tensor_parallel is 1"))
    }
}

/// Settings that have no effect if no policy of the experiment drafts. Whole tables of settings, such as `acceptance`,
/// are not in this list; `why` adds them.
const OF_DRAFTS: [&str; 6] = [
    "engine.draft_prefill",
    "engine.draft_gap",
    "engine.max_draft_len",
    "engine.budget_charge",
    "engine.decision_s",
    "hardware.truth",
];
