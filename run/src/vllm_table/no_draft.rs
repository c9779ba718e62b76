//! A note for the user, if the exported JSON does not name the drafting method or the draft model.

use crate::spec::experiment::Hardware;
use foretoken_sim::Drafting;
use foretoken_sim::config::DraftMethod;

/// Draft methods that need no separate draft model, in vLLM's words.
pub const WITHOUT_MODEL: [&str; 3] = ["mtp", "ngram", "suffix"];

/// The experiment's draft method in vLLM's words, such as `ngram`. `None` for the default method, a draft model, which
/// an experiment has also if it does not state a method.
pub fn stated_method(method: DraftMethod) -> Option<&'static str> {
    match method {
        DraftMethod::DraftModel => None,
        DraftMethod::Eagle => Some("eagle"),
        DraftMethod::Eagle3 => Some("eagle3"),
        DraftMethod::Mtp => Some("mtp"),
        DraftMethod::Dflash => Some("dflash"),
        DraftMethod::Dspark | DraftMethod::DsparkFillIn => Some("dspark"),
        DraftMethod::Ngram => Some("ngram"),
        DraftMethod::Suffix => Some("suffix"),
    }
}

/// The note that the exported JSON does not name the draft model, with an example of the options to give. `None` if the
/// drafting `method` and the draft `model` are both known, or if the method has no draft model.
pub fn no_draft(hardware: &Hardware, method: Option<&str>, model: Option<&str>) -> Option<String> {
    let wants_model = method.is_none_or(|m| !m.starts_with("ngram") && !WITHOUT_MODEL.contains(&m));
    let missing: Vec<&str> = [("method", method.is_none()), ("model", model.is_none() && wants_model)]
        .into_iter()
        .filter_map(|(key, missing)| missing.then_some(key))
        .collect();
    if missing.is_empty() {
        return None;
    }
    let preset = hardware.draft.machine();
    let preset =
        preset.map_or(String::new(), |draft| format!(" (the experiment's draft is the preset {})", draft.model));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stated_method_is_not_asked_for_and_another_one_is_not_suggested() {
        let hardware: Hardware = toml::from_str(
            "target = { linear = { alpha_s = 0.0, gamma_s = 0.0, delta_s = 0.01 } }\n\
             draft = { linear = { alpha_s = 0.0, gamma_s = 0.0, delta_s = 0.01 } }",
        )
        .unwrap();
        let note = |method: DraftMethod| no_draft(&hardware, stated_method(method), None);
        let said = note(DraftMethod::Dflash).unwrap();
        assert!(said.contains("names no model") && said.ends_with("Give --model ORG/DRAFT"), "{said}");
        assert_eq!(note(DraftMethod::Ngram), None);
        assert_eq!(note(DraftMethod::Mtp), None);
        assert!(note(DraftMethod::DraftModel).unwrap().contains("names no method and no model"));
    }
}
