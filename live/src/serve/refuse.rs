//! Checks, before the models are loaded, whether each policy of a plan can run on a device with the settings of every
//! variant. Computes the memory sizes with which every policy can run in every variant. An error names the setting or
//! the policy.

use super::machine::{Models, acceptance};
use foretoken_kernels::cpu::Cpu;
use foretoken_kernels::executor::{CannotServe, Capacity, Needs, Pair};
use foretoken_run::plan::{Plan, Variant};
use foretoken_run::setting::Setting;
use foretoken_run::spec::document::Path;
use foretoken_run::spec::live::{LiveAcceptance, LiveSpec};
use foretoken_run::spec::problem::{Problem, Result};
use foretoken_run::workload::refuse_sessions;
use foretoken_sim::{DraftAt, DraftDevice, Drafting};

/// Computes the capacity with which the models must be loaded so that all policies of `plan` (the list of all runs of
/// the experiment) can run with the settings of every variant.
pub fn check_all(plan: &Plan, live: &LiveSpec, models: &Models) -> Result<Capacity> {
    let mut room: Option<Capacity> = None;
    for variant in &plan.variants {
        let needed = check(plan, variant, &Setting::new(variant, plan.seeds[0])?, live, models)?;
        room = Some(room.map_or(needed, |room| room.or(&needed)));
    }
    Ok(room.expect("a plan has a variant"))
}

/// Computes the capacity with which the models must be loaded so that all policies of `plan` (the list of all runs of
/// the experiment) can run with the settings of one variant.
pub fn check(plan: &Plan, variant: &Variant, setting: &Setting, live: &LiveSpec, models: &Models) -> Result<Capacity> {
    let at = |path: &str, message: String| variant.document().problem_at(&Path::of(path), message);
    if variant.experiment.hardware.drafting == Drafting::Parallel {
        let message =
            "hardware.drafting = \"parallel\": a draft model drafts one token a pass, so no device can run it";
        return Err(at("hardware.drafting", message.into()).help("leave it out, or simulate with `foretoken run`"));
    }
    if live.acceptance == LiveAcceptance::Declared && setting.acceptance().may_lack_proposals() {
        return Err(at("acceptance.source", CannotServe::PromptLookup.to_string()).help("declare another source"));
    }
    refuse_sessions(variant, "a live run's prompts are not made of earlier answers")?;
    if let Some(late) = (0..plan.variants.len()).find(|&v| plan.bound_from(v).is_some_and(|from| from > v)) {
        let from = plan.bound_from(late).expect("it was found by it");
        let message = format!(
            "the bound of {} is scaled from {}, and live runs go in the order of the sweep",
            said(plan, late),
            said(plan, from)
        );
        let help = "put the reference's value first in its sweep, or write slo.reference = \"each-load\"";
        return Err(at("slo", message).help(help));
    }
    let engine = &variant.experiment.engine;
    let never = [
        (
            "draft_at",
            engine.draft_at == Some(DraftAt::StepEnd),
            "a device drafts at the start of the step that verifies",
        ),
        ("draft_device", engine.draft_device == DraftDevice::Own, "a live run's draft shares the target's device"),
        ("async_scheduling", engine.async_scheduling == Some(true), "a device runs one step at a time"),
    ];
    if let Some((key, _, why)) = never.into_iter().find(|(_, set, _)| *set) {
        let path = format!("engine.{key}");
        let message = format!("{path}: {why}");
        let help = "leave it out: live runs then do as devices do, and so does what is simulated beside them";
        return Err(at(&path, message).help(help));
    }
    let mut room: Option<Capacity> = None;
    for (i, entrant) in plan.policies.iter().enumerate() {
        let (label, path) = (entrant.spec.label(), format!("policies[{i}]"));
        if entrant.spec.sees_hidden_truth() || !entrant.spec.definition().tries(1).is_empty() {
            let message = format!("`{label}` sees what no server sees: it cannot run live");
            return Err(at(&path, message).help("remove it; `foretoken run` simulates it"));
        }
        let policy = setting.policy(&entrant.spec);
        let config = setting.engine(policy.is_some());
        let of = acceptance(live.acceptance, setting.acceptance(), 0);
        let needs =
            Needs::of(policy.as_deref(), &of).map_err(|e| at(&path, format!("`{label}` cannot run live: {e}")))?;
        let (target, draft) = (&models.target.shape, &models.draft.shape);
        Pair::<Cpu>::check_shapes(config, needs, target, Some(draft)).map_err(|e| refused(variant, live, &e))?;
        let needed = Capacity::of(config, needs);
        room = Some(room.map_or(needed, |room| room.or(&needed)));
    }
    room.ok_or_else(|| Problem::bad_input("no policy is left to run"))
}

/// The swept values of the variant with index `variant` as text, for messages.
fn said(plan: &Plan, variant: usize) -> String {
    let all = plan.variants[variant].choices.iter().map(|c| format!("{} = {}", c.name, c.value));
    all.collect::<Vec<_>>().join(", ")
}

/// Converts the executor's error `error` to a message about the setting of the experiment file that causes it.
pub fn refused(variant: &Variant, live: &LiveSpec, error: &CannotServe) -> Box<Problem> {
    let at = |path: &str, message: String| variant.document().problem_at(&Path::of(path), message);
    match error {
        CannotServe::Engine { key, .. } => at(&format!("engine.{key}"), format!("cannot run live: {error}")),
        CannotServe::Vocabulary { .. } => {
            let problem = at("live.draft", format!("{} and {}: {error}", live.target, live.draft));
            problem.help("take a draft that was made for this target: both must read the same tokens")
        }
        CannotServe::Prompt { .. } => at("live.prompts", format!("live.prompts: {error}")),
        _ => Problem::bad_input(format!("cannot run live: {error}")),
    }
}
