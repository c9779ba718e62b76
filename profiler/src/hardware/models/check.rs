//! Checks that a model's shape is possible.

use super::layers::{Attention, FeedForward};
use super::shape::ModelShape;
use crate::hardware::bad::{BadLatency, bad};

impl ModelShape {
    /// Checks the values that serde cannot check.
    pub fn check(&self) -> Result<(), BadLatency> {
        let sizes = [("hidden", self.hidden), ("vocab", self.vocab), ("layers", self.num_layers())];
        if let Some((key, _)) = sizes.into_iter().find(|(_, size)| *size == 0) {
            return Err(bad(&format!("model.{key}"), "must be at least 1"));
        }
        for (i, group) in self.layers.iter().enumerate() {
            let fault = |what: &str, why: String| Err(bad(&format!("model.layers[{i}].{what}"), why));
            match group.attention {
                Attention::Grouped { heads, kv_heads, head_dim, value_dim, window, selection, .. } => {
                    if [heads, kv_heads, head_dim].contains(&0) || value_dim == Some(0) || window == Some(0) {
                        let why = "heads, kv_heads, head_dim, value_dim and window must be at least 1";
                        return fault("attention", why.into());
                    }
                    if window.is_some() && selection.is_some() {
                        return fault("attention", "has a window and a selection; give one of them".into());
                    }
                    if !heads.is_multiple_of(kv_heads) {
                        let why = format!("{heads} query heads cannot share {kv_heads} key-value heads evenly");
                        return fault("attention", why);
                    }
                }
                Attention::Latent { heads, kv_rank, value_dim, .. } => {
                    if heads == 0 || kv_rank == 0 || value_dim == 0 {
                        return fault("attention", "heads, kv_rank and value_dim must be at least 1".into());
                    }
                }
                Attention::Compressed {
                    heads,
                    head_dim,
                    query_rank,
                    output_groups,
                    output_rank,
                    window,
                    ratio,
                    ..
                } => {
                    if [heads, head_dim, query_rank, output_groups, output_rank, window].contains(&0) {
                        let why =
                            "heads, head_dim, query_rank, output_groups, output_rank and window must be at least 1";
                        return fault("attention", why.into());
                    }
                    if !heads.is_multiple_of(output_groups) {
                        let why = format!("{heads} query heads do not fall into {output_groups} equal groups");
                        return fault("attention.output_groups", why);
                    }
                    if ratio == 0 && group.attention.selection().is_some() {
                        return fault("attention.selection", "there are no entries to choose from at ratio 0".into());
                    }
                }
                Attention::Recurrent { parameters, state_bytes } => {
                    if !(parameters > 0.0 && parameters.is_finite() && state_bytes >= 0.0 && state_bytes.is_finite()) {
                        return fault("attention", "parameters must be above 0 and state_bytes at least 0".into());
                    }
                }
                Attention::None => {}
            }
            match group.feed_forward {
                FeedForward::Dense { intermediate: 0, .. } | FeedForward::Experts { intermediate: 0, .. } => {
                    return fault("feed_forward.intermediate", "must be at least 1".into());
                }
                FeedForward::Experts { latent: Some(0), .. } => {
                    return fault("feed_forward.latent", "must be at least 1".into());
                }
                FeedForward::Experts { total, active, .. } if !(1..=total).contains(&active) => {
                    return fault("feed_forward", format!("{active} of {total} experts cannot be active"));
                }
                _ => {}
            }
        }
        let b = self.bits;
        let bits = [
            ("weights", b.weights),
            ("dense", b.dense.unwrap_or(b.weights)),
            ("experts", b.experts),
            ("head", b.head),
            ("embedding", b.embedding.unwrap_or(b.head)),
            ("kv", b.kv),
            ("activations", b.activations),
            ("dense_activations", b.dense_activations.unwrap_or(b.activations)),
            ("expert_activations", b.expert_activations),
        ];
        if !(self.joining_parameters >= 0.0 && self.joining_parameters.is_finite()) {
            return Err(bad("model.joining_parameters", "must be a number of at least 0"));
        }
        match bits.into_iter().find(|(_, x)| !(*x >= 1.0 && *x <= 32.0)) {
            Some((key, x)) => {
                Err(bad(&format!("model.bits.{key}"), format!("{x} is not a number of bits from 1 to 32")))
            }
            None => Ok(()),
        }
    }
}
