//! A note for the user, if the exported JSON does not name the drafting method or the draft model.

use foretoken_hardware::LatencySpec;
use foretoken_sim::Drafting;
use foretoken_spec::experiment::Hardware;

/// The note that the exported JSON does not name the draft model, with an example of the options to give. `None` if the
/// drafting `method` and the draft `model` are both known, or if the method is an n-gram lookup, which has no model.
pub fn no_draft(hardware: &Hardware, method: Option<&str>, model: Option<&str>) -> Option<String> {
    // vLLM's n-gram lookup drafts without a model.
    let wants_model = method.is_none_or(|m| !m.starts_with("ngram"));
    let missing: Vec<&str> = [("method", method.is_none()), ("model", model.is_none() && wants_model)]
        .into_iter()
        .filter_map(|(key, missing)| missing.then_some(key))
        .collect();
    if missing.is_empty() {
        return None;
    }
    let preset = match &hardware.draft {
        LatencySpec::Roofline(r) => format!(" (the experiment's draft is the preset {})", r.model),
        _ => String::new(),
    };
    let example = match (method, hardware.drafting) {
        (Some(_), _) => "--model ORG/DRAFT",
        (None, Drafting::Parallel) => "--method ngram, or --method medusa --model ORG/HEADS",
        (None, _) => "--method draft_model --model ORG/DRAFT, --method eagle3 --model ORG/HEAD, or --method ngram",
    };
    Some(format!(
        "note: the JSON names no {}{preset}: vLLM needs to know the draft. Give {example}",
        missing.join(" and no ")
    ))
}
