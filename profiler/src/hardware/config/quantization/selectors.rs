//! Which modules of a decoder a file's selectors choose: names, and patterns that begin with `re:`.

use super::super::bad::BadConfig;
use super::parts::{Pair, Part};
use regex::bytes::{Regex, RegexBuilder};
use std::collections::HashMap;

/// Modules that have bits of their own, or are not quantised (`None`).
pub struct Chosen {
    pub key: String,
    /// A module's whole name, or `re:` and a regular expression that matches at the start of the name.
    pub selector: String,
    pub bits: Option<Pair>,
}

/// The names of the output head.
pub const HEAD: [&str; 3] = ["lm_head", "model.lm_head", "language_model.lm_head"];
pub const EMBEDDING: [&str; 3] =
    ["model.embed_tokens", "model.language_model.embed_tokens", "language_model.model.embed_tokens"];

/// What stands before the name of a module in a layer, in the files of the families.
const LAYERS: [&str; 7] = [
    "model.layers.", "model.language_model.layers.", "language_model.model.layers.", "backbone.layers.",
    "model.decoder.layers.", "transformer.layers.", "layers.",
];

/// A matrix of a part: its names in the families, and its size as a share of the part's largest matrix.
type Matrix = (&'static [&'static str], f64);

const ATTENTION: [Matrix; 4] = [
    (
        &[
            "self_attn.q_proj", "self_attn.qkv_proj", "self_attn.q_b_proj", "linear_attn.in_proj_qkv", "mixer.in_proj",
            "attn.q_proj",
        ],
        1.0,
    ),
    (&["self_attn.k_proj", "self_attn.qkv_proj", "self_attn.kv_a_proj_with_mqa", "linear_attn.in_proj_qkv"], 0.25),
    (&["self_attn.v_proj", "self_attn.qkv_proj", "self_attn.kv_b_proj", "linear_attn.in_proj_qkv"], 0.25),
    (&["self_attn.o_proj", "linear_attn.out_proj", "mixer.out_proj", "attn.o_proj"], 1.0),
];
const DENSE: [Matrix; 3] = [
    (
        &[
            "mlp.gate_proj", "mlp.gate_up_proj", "mlp.shared_experts.gate_proj", "mlp.shared_expert.gate_proj",
            "feed_forward.w1",
        ],
        1.0,
    ),
    (
        &[
            "mlp.up_proj", "mlp.gate_up_proj", "mlp.shared_experts.up_proj", "mlp.shared_expert.up_proj",
            "feed_forward.w3",
        ],
        1.0,
    ),
    (&["mlp.down_proj", "mlp.shared_experts.down_proj", "mlp.shared_expert.down_proj", "feed_forward.w2"], 1.0),
];
const EXPERTS: [Matrix; 3] = [
    (
        &[
            "mlp.experts.0.gate_proj", "mlp.experts.gate_up_proj", "mlp.experts", "mlp.switch_mlp.gate_proj",
            "block_sparse_moe.experts.0.w1", "mixer.experts.0.up_proj",
        ],
        1.0,
    ),
    (
        &[
            "mlp.experts.0.up_proj", "mlp.experts.gate_up_proj", "mlp.experts", "mlp.switch_mlp.up_proj",
            "block_sparse_moe.experts.0.w3", "mixer.experts.0.up_proj",
        ],
        1.0,
    ),
    (
        &[
            "mlp.experts.0.down_proj", "mlp.experts", "mlp.switch_mlp.down_proj", "block_sparse_moe.experts.0.w2",
            "mixer.experts.0.down_proj",
        ],
        1.0,
    ),
];

/// The selectors of a file, ready to be asked for modules.
pub struct Modules<'a> {
    layers: u32,
    names: HashMap<&'a str, (usize, Option<Pair>)>,
    patterns: Vec<(Regex, usize, Option<Pair>)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PartBits {
    /// The mean bits of a weight, and the bits of the activations of most weights.
    pub bits: Pair,
    /// Whether matrices of the part have different bits.
    pub several: bool,
}

impl<'a> Modules<'a> {
    /// The selectors `chosen` of a model with `layers` layers.
    pub fn of(chosen: &'a [Chosen], layers: u32) -> Result<Modules<'a>, BadConfig> {
        let mut modules = Modules { layers, names: HashMap::new(), patterns: Vec::new() };
        for (i, Chosen { key, selector, bits }) in chosen.iter().enumerate() {
            let Some(pattern) = selector.strip_prefix("re:") else {
                modules.names.entry(selector).or_insert((i, *bits));
                continue;
            };
            // Python's `re.match`, which engines use, matches at the start of a name.
            let built = RegexBuilder::new(&format!("^(?:{pattern})")).unicode(false).build();
            let regex = built.map_err(|_| BadConfig {
                key: key.clone(),
                why: format!(
                    "the pattern `{pattern}` cannot be read; write it without look-around, or list the modules"
                ),
            })?;
            modules.patterns.push((regex, i, *bits));
        }
        Ok(modules)
    }

    /// The bits of the module `name` by the first selector that chooses it; `None` if no selector does.
    fn named(&self, name: &str) -> Option<Option<Pair>> {
        let exact = self.names.get(name).copied();
        // `switch_mlp` is MLX's name of the experts. MLX has no patterns, and patterns for `mlp` mean dense blocks.
        let patterns = if name.contains("switch_mlp") { &[][..] } else { &self.patterns };
        let by_pattern = patterns.iter().find(|(regex, ..)| regex.is_match(name.as_bytes()));
        let by_pattern = by_pattern.map(|(_, i, bits)| (*i, *bits));
        exact.into_iter().chain(by_pattern).min_by_key(|(i, _)| *i).map(|(_, bits)| bits)
    }

    /// The bits that selectors give the matrix with one of these names; `None` if no selector chooses it.
    pub fn matrix(&self, names: &[&str]) -> Option<Option<Pair>> {
        names.iter().find_map(|name| self.named(name))
    }

    /// The layers to ask for, each with the number of layers that are alike. A pattern without digits can tell layers
    /// apart by the length of their numbers only.
    fn numbers(&self) -> Vec<(u32, u32)> {
        let layers = self.layers.max(1);
        let by_number =
            |regex: &Regex| regex.as_str().contains(|c: char| c.is_ascii_digit()) || regex.as_str().contains("\\d");
        if !self.names.is_empty() || self.patterns.iter().any(|(regex, ..)| by_number(regex)) {
            return (0..layers).map(|layer| (layer, 1)).collect();
        }
        let first = [0, 10, 100, 1000].into_iter().filter(|first| *first < layers);
        first.map(|first| (first, layers.min(if first == 0 { 10 } else { 10 * first }) - first)).collect()
    }

    /// The bits of the part of all layers. A module that no selector chooses has the bits `all`. A module that is not
    /// quantised has the bits `unquantised`.
    pub fn bits(&self, part: Part, all: Option<Pair>, unquantised: Pair) -> PartBits {
        let rest = all.unwrap_or(unquantised);
        if self.names.is_empty() && self.patterns.is_empty() {
            return PartBits { bits: rest, several: false };
        }
        let matrices: &[Matrix] = match part {
            Part::Attention => &ATTENTION,
            Part::Dense => &DENSE,
            Part::Experts => &EXPERTS,
        };
        let mut shares: Vec<(Pair, f64)> = Vec::new();
        let mut name = String::new();
        for (layer, alike) in self.numbers() {
            for (names, size) in matrices {
                let mut found = None;
                for prefix in LAYERS {
                    for module in *names {
                        name.clear();
                        name.push_str(prefix);
                        name.push_str(&layer.to_string());
                        name.push('.');
                        name.push_str(module);
                        found = found.or_else(|| self.named(&name));
                    }
                }
                let bits = found.map_or(rest, |bits| bits.unwrap_or(unquantised));
                let size = size * f64::from(alike);
                match shares.iter_mut().find(|(same, _)| *same == bits) {
                    Some((_, share)) => *share += size,
                    None => shares.push((bits, size)),
                }
            }
        }
        let total: f64 = shares.iter().map(|(_, share)| share).sum();
        let mean = shares.iter().map(|((weights, _), share)| weights * share).sum::<f64>() / total;
        let most = shares.iter().max_by(|a, b| a.1.total_cmp(&b.1)).expect("a part has matrices").0;
        match shares.as_slice() {
            [(bits, _)] => PartBits { bits: *bits, several: false },
            _ => PartBits { bits: (mean, most.1), several: true },
        }
    }
}
