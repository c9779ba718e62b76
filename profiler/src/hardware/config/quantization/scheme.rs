//! What a file says about quantisation.

use super::parts::{Pair, Part};
use super::selectors::Chosen;

/// What a file says about the bits of its weights and activations, and of the KV.
pub struct Scheme {
    /// Bits of the modules that no selector chooses; `None`: they are not quantised. Weights of a group have a common
    /// scale; the bits of a weight include its part of this scale.
    pub all: Option<Pair>,
    /// The modules that have bits of their own, or are not quantised (`None`). The first match decides.
    pub chosen: Vec<Chosen>,
    /// Bits of a number in the KV cache. `None`: the same as without quantisation, 16.
    pub kv: Option<f64>,
    /// Names or patterns of modules that the file excludes from quantisation.
    pub skipped: Vec<String>,
    /// Bits of the output head, and of the embedding, if they are quantised.
    pub head: Option<f64>,
    pub embedding: Option<f64>,
    /// The parts of the decoder that `quantized_layers` lists, with their bits.
    pub listed: Option<Vec<(Part, Pair)>>,
}

impl Scheme {
    /// All linear layers of the decoder have the bits `all`. The output head and the embedding are not quantised.
    pub fn all(all: Pair) -> Scheme {
        Scheme {
            all: Some(all),
            chosen: Vec::new(),
            kv: None,
            skipped: Vec::new(),
            head: None,
            embedding: None,
            listed: None,
        }
    }
}
