//! A note on JSON output that does not name the draft model.

use foretoken_hardware::LatencySpec;
use foretoken_sim::Drafting;
use foretoken_spec::experiment::Hardware;

/// A note with an example, if the JSON lacks the draft's method or model; `None` if it has both.
pub fn no_draft(hardware: &Hardware, method: Option<&str>, model: Option<&str>) -> Option<String> {
    // vLLM's n-gram lookup has no model.
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
