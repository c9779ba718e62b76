//! The parts of a decoder that can be quantised differently, found by the names of their modules.

use std::collections::BTreeSet;

/// (bits of a weight, bits of an activation that is multiplied with it).
pub type Pair = (f64, f64);

/// A part of a decoder whose weights may have another number of bits than the other parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// The projections of attention layers and of recurrent layers are quantised alike, as one part.
    Attention,
    /// The dense feed-forward blocks and the shared experts are quantised alike, as one part.
    Dense,
    /// The routed experts are quantised alike, as one part.
    Experts,
}

impl Part {
    /// The name of this part of the decoder, for messages.
    pub fn words(self) -> &'static str {
        match self {
            Part::Attention => "attention",
            Part::Dense => "dense blocks and shared experts",
            Part::Experts => "experts",
        }
    }
}

/// The part that the module name or pattern `name` covers, and the layer number in `name` if there is one. Examples:
/// `model.layers.3.self_attn*`, `re:.*mlp\.(gate|up)_proj.*`, `*.ffn.experts`. The result is `None` for modules whose
/// weights are not counted (norms, routers, indexers), and for a name that covers only a share of a part, such as a key
/// projection.
pub fn of(name: &str) -> Option<(Part, Option<u32>)> {
    let name = name.strip_prefix("re:").unwrap_or(name);
    let words: Vec<&str> = name.split('.').map(|word| word.trim_matches(['*', '\\', '^', '$'])).collect();
    let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
    let last = *words.last()?;
    let has = |wanted: &[&str]| words.iter().any(|word| wanted.contains(word));
    let excepted = |word: &&str| word.contains("norm") || word.contains("index") || word.contains("conv1d");
    if words.iter().any(excepted) || last.contains("router") || ["gate", "shared_expert_gate"].contains(&last) {
        return None;
    }
    // A file may list several projections of the attention or of a feed-forward block. Only one of them decides how
    // many bits this part of the decoder has: the query projection for attention, the up projection for a feed-forward
    // block.
    let one = |part: &[&str], marks: &[&str]| part.contains(&last) || marks.iter().any(|mark| last.contains(mark));
    const ATTENTION: [&str; 5] = ["self_attn", "self_attention", "linear_attn", "attention", "attn"];
    const DENSE: [&str; 3] = ["mlp", "ffn", "feed_forward"];
    let part = if has(&["experts", "block_sparse_moe"]) && !words.iter().any(|w| w.starts_with("shared_expert")) {
        Part::Experts
    } else if words.iter().any(|word| word.starts_with("shared_expert")) {
        Part::Dense
    } else if has(&ATTENTION) && one(&ATTENTION, &["q_", "qkv", "(q"]) {
        Part::Attention
    } else if has(&DENSE) && one(&DENSE, &["up", "w3"]) {
        Part::Dense
    } else {
        return None;
    };
    // The first number in a module's name is its layer. The number of an expert may follow it.
    Some((part, words.iter().find_map(|word| word.parse().ok())))
}

/// Whether the module name or pattern `name` of a list of excluded modules covers a matrix with one of the names `of`.
pub fn names(name: &str, of: &[&str]) -> bool {
    let name = name.trim_matches('*');
    of.iter().any(|matrix| *matrix == name || matrix.rsplit('.').next() == Some(name))
}

/// How many of a model's layers a list of module names covers, for one part of the decoder (attention, dense blocks or
/// experts).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cover {
    /// The module names cover the part of the decoder (such as its attention) in no layer.
    None,
    /// The module names cover the part of the decoder (such as its attention) in this number of layers, which is less
    /// than half of all layers.
    Few(usize),
    /// The module names cover the part of the decoder (such as its attention) in at least half of all layers.
    Most,
}

/// In how many of a model's `layers` layers the module names `names` cover the part `part` of the decoder (attention,
/// dense blocks or experts). A name without a layer number covers all layers.
pub fn cover(names: &[String], part: Part, layers: u32) -> Cover {
    let found = names.iter().filter_map(|name| of(name)).filter(|(of, _)| *of == part);
    let numbers: Vec<Option<u32>> = found.map(|(_, layer)| layer).collect();
    let layers_named: BTreeSet<u32> = numbers.iter().flatten().copied().collect();
    match layers_named.len() {
        _ if numbers.contains(&None) => Cover::Most,
        0 => Cover::None,
        n if 2 * n >= layers as usize => Cover::Most,
        n => Cover::Few(n),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_published_files_are_understood() {
        for (name, wanted) in [
            ("model.layers.7.self_attn*", Some((Part::Attention, Some(7)))),
            ("*.attn.*", Some((Part::Attention, None))),
            ("re:.*self_attn.*", Some((Part::Attention, None))),
            ("model.language_model.layers.3.linear_attn.in_proj_qkv", Some((Part::Attention, Some(3)))),
            ("model.layers.3.self_attn.k_proj", None),
            ("model.layers.3.self_attn.indexers_proj", None),
            ("model.layers.3.post_attention_layernorm", None),
            ("model.layers.3.self_attn.q_a_layernorm", None),
            ("model.layers.3.mlp.gate", None),
            ("model.layers.3.mlp.shared_expert_gate", None),
            ("model.layers.3.mlp.shared_experts*", Some((Part::Dense, Some(3)))),
            ("re:.*shared_experts.*", Some((Part::Dense, None))),
            (r"re:.*mlp\.(gate|up|gate_up|down)_proj.*", Some((Part::Dense, None))),
            ("model.layers.3.mlp.experts", Some((Part::Experts, Some(3)))),
            ("layers.4.block_sparse_moe.experts.17.w1", Some((Part::Experts, Some(4)))),
            ("model.layers.4.block_sparse_moe.gate", None),
            ("lm_head", None),
        ] {
            assert_eq!(of(name), wanted, "{name}");
        }
    }

    #[test]
    fn a_few_layers_are_not_the_part() {
        let names: Vec<String> = (0..3).map(|i| format!("model.layers.{i}.self_attn*")).collect();
        assert_eq!(cover(&names, Part::Attention, 61), Cover::Few(3));
        assert_eq!(cover(&names, Part::Attention, 6), Cover::Most);
        assert_eq!(cover(&names, Part::Experts, 6), Cover::None);
    }
}
