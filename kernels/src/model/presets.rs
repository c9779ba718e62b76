//! Model shapes by name. The sizes come from the presets of `foretoken_profiler::hardware`. Values that these presets
//! do not have come from the published `config.json` files. The shapes of the target and draft that ship with this
//! crate come from their own files.

use super::config::parse_config;
use super::{LlamaShape, RopeScaling};
use foretoken_profiler::hardware::models;
use std::path::Path;

pub use foretoken_profiler::hardware::models::SHIPPED;

const CONFIGS: [&[u8]; 2] =
    [include_bytes!("../../pair/target/config.json"), include_bytes!("../../pair/draft/config.json")];

/// The `rope_scaling` of Llama 3.1 and 3.2, which differ only in `factor`.
const fn llama3(factor: f64) -> RopeScaling {
    RopeScaling { factor, low_freq_factor: 1.0, high_freq_factor: 4.0, original_max_position_embeddings: 8192 }
}

/// Returns the shape of the model `name`: the target or draft that ships with this crate, or a preset that the forward
/// pass can run (no mixture of experts). `None` for other names.
pub fn preset(name: &str) -> Option<LlamaShape> {
    if let Some(at) = SHIPPED.iter().position(|shipped| *shipped == name) {
        return Some(parse_config(Path::new(name), CONFIGS[at]).expect("what is shipped can be read"));
    }
    let m = &models::entry(name)?.shape;
    let sizes = m.uniform()?;
    // Each arm gives (rms_norm_eps, rope_theta, rope_scaling, max_position_embeddings) of a model.
    let (rms_norm_eps, rope_theta, rope_scaling, max_positions) = match name {
        "vicuna-7b" | "llama-2-7b" | "llama-2-13b" | "llama-2-70b" => (1e-5, 1e4, None, 4096),
        "vicuna-33b" | "vicuna-68m" | "vicuna-160m" => (1e-6, 1e4, None, 2048),
        "llama-3.1-8b" | "llama-3.3-70b" => (1e-5, 5e5, Some(llama3(8.0)), 131_072),
        "llama-3.2-1b" => (1e-5, 5e5, Some(llama3(32.0)), 131_072),
        "mistral-7b" => (1e-5, 1e4, None, 32_768),
        "tinyllama-1.1b" => (1e-5, 1e4, None, 2048),
        "qwen3-0.6b" | "qwen3-8b" => (1e-6, 1e6, None, 40_960),
        _ => return None,
    };
    Some(LlamaShape {
        layers: sizes.layers,
        hidden: m.hidden,
        heads: sizes.heads,
        kv_heads: sizes.kv_heads,
        head_dim: sizes.head_dim,
        intermediate: sizes.intermediate,
        vocab: m.vocab,
        tied: m.tied,
        qk_norm: name.starts_with("qwen3"),
        rms_norm_eps,
        rope_theta,
        rope_scaling,
        max_positions,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::weights::tensors;

    #[test]
    fn presets_have_the_published_number_of_parameters() {
        let named: Vec<_> = models::catalog().iter().filter_map(|m| Some((m, preset(&m.name)?))).collect();
        assert!(named.len() >= 14, "{} models have kernels", named.len());
        for (m, shape) in named {
            assert_eq!(shape.check(), Ok(()), "{}", m.name);
            let parameters: u64 = tensors(&shape).iter().map(|t| t.len() as u64).sum();
            let ratio = parameters as f64 / m.published_parameters;
            assert!((ratio - 1.0).abs() < 0.01, "{}: {parameters} against {}", m.name, m.published_parameters);
        }
        assert_eq!(preset("gpt-2"), None);
    }
}
