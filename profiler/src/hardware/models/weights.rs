//! Counts the weights of a layer, and makes changed copies of a layer, for example with a window or for an MTP module.

use super::layers::{Attention, FeedForward, Selection};

impl Attention {
    /// How the layer chooses the tokens that it attends to (sparse attention); `None` if it does not choose.
    pub fn selection(&self) -> Option<Selection> {
        match *self {
            Attention::Grouped { selection, .. }
            | Attention::Latent { selection, .. }
            | Attention::Compressed { selection, .. } => selection,
            Attention::Recurrent { .. } | Attention::None => None,
        }
    }

    /// The layer with an indexer if `own` is true, else without an indexer: it then attends to the tokens that an
    /// earlier layer chose. Only latent attention with a selection is changed; other attention is returned as it is.
    pub fn with_indexer(mut self, own: bool) -> Attention {
        if let Attention::Latent { selection: Some(selection), .. } = &mut self {
            selection.taken = !own;
        }
        self
    }

    /// Gives the layer a window of the newest `tokens` tokens. Only grouped attention is changed; other attention is
    /// returned as it is.
    pub fn to_newest(mut self, tokens: u32) -> Attention {
        if let Attention::Grouped { window, .. } = &mut self {
            *window = Some(tokens);
        }
        self
    }

    /// Gives the layer the selection `chosen`, which says how it chooses the tokens to attend to. `None` if the layer
    /// has another kind than grouped attention.
    pub fn to_blocks(mut self, chosen: Selection) -> Option<Attention> {
        let Attention::Grouped { selection, .. } = &mut self else { return None };
        *selection = Some(chosen);
        Some(self)
    }

    /// This layer as it is in the model's MTP module. The module's layer always has its own indexer, also where the
    /// model's layer uses the choice of an earlier layer (the modules of GLM-5.2 and GLM-5 have equal published sizes).
    /// Compressed attention keeps only its window, and has no compressed KV entries (vLLM's `DeepseekV4Attention`).
    pub fn of_module(mut self) -> Attention {
        if let Attention::Compressed { ratio, selection, .. } = &mut self {
            (*ratio, *selection) = (0, None);
        }
        self.with_indexer(true)
    }

    /// Number of weights of this attention or recurrent layer, in a model of hidden size `hidden`.
    pub fn parameters(&self, hidden: u32) -> f64 {
        let hidden = f64::from(hidden);
        match *self {
            Attention::Grouped {
                heads,
                kv_heads,
                head_dim,
                value_dim,
                input,
                gated,
                values_from_keys,
                selection,
                ..
            } => {
                let (heads, kv_heads) = (f64::from(heads), f64::from(kv_heads));
                let (input, dim) = (input.map_or(hidden, f64::from), f64::from(head_dim));
                let value = value_dim.map_or(dim, f64::from);
                let values = if values_from_keys { 0.0 } else { kv_heads * value };
                let gate = if gated { heads * value } else { 0.0 };
                // The indexer projects the layer's input to the queries of its heads and to one key.
                let chooses = selection.map_or(0.0, |s| f64::from(s.head_dim) * (f64::from(s.heads) + 1.0));
                input * (heads * dim + kv_heads * dim + values + gate + chooses) + heads * value * hidden
            }
            Attention::Latent { heads, query_rank, kv_rank, rope_dim, nope_dim, value_dim, gated, selection } => {
                let (heads, kv_rank) = (f64::from(heads), f64::from(kv_rank));
                let (rope, nope, value) = (f64::from(rope_dim), f64::from(nope_dim), f64::from(value_dim));
                let queries = heads * (nope + rope);
                let query = match query_rank {
                    Some(rank) => f64::from(rank) * (hidden + queries),
                    None => hidden * queries,
                };
                let kv = hidden * (kv_rank + rope) + kv_rank * heads * (nope + value);
                let chooses = selection.filter(|s| !s.taken).map_or(0.0, |s| {
                    // The indexer projects the compressed query to the queries of its heads. It projects the layer's
                    // input to one key and to one weight for each head.
                    let (heads, dim) = (f64::from(s.heads), f64::from(s.head_dim));
                    query_rank.map_or(hidden, f64::from) * heads * dim + hidden * (dim + heads)
                });
                let outputs = if gated { 2.0 } else { 1.0 } * heads * value * hidden;
                query + kv + outputs + chooses
            }
            Attention::Compressed {
                heads, head_dim, query_rank, output_groups, output_rank, ratio, selection, ..
            } => {
                let dim = f64::from(head_dim);
                let (width, query_rank) = (f64::from(heads) * dim, f64::from(query_rank));
                let (groups, output_rank) = (f64::from(output_groups), f64::from(output_rank));
                let queries = query_rank * (hidden + width);
                let output = width * output_rank + groups * output_rank * hidden;
                // Two matrices, a projection and a gate, make the compressed KV entries. Both matrices are twice as
                // wide if the entries overlap.
                let series = if selection.is_some() { 2.0 } else { 1.0 };
                let compressor = |dim: f64| if ratio > 0 { 2.0 * series * hidden * dim } else { 0.0 };
                let chooses = selection.map_or(0.0, |s| {
                    let (heads, dim) = (f64::from(s.heads), f64::from(s.head_dim));
                    query_rank * heads * dim + hidden * heads + compressor(dim)
                });
                queries + hidden * dim + output + compressor(dim) + chooses
            }
            Attention::Recurrent { parameters, .. } => parameters,
            Attention::None => 0.0,
        }
    }
}

impl FeedForward {
    /// Number of weights of the block that every token uses: all of a dense block; in a mixture of experts, the shared
    /// experts and the projections to and from the latent width.
    pub fn dense_parameters(&self, hidden: u32) -> f64 {
        match *self {
            FeedForward::Dense { intermediate, gated } => block(hidden, intermediate, gated),
            FeedForward::Experts { shared_intermediate, latent, gated, .. } => {
                let projections = latent.map_or(0.0, |width| 2.0 * f64::from(hidden) * f64::from(width));
                block(hidden, shared_intermediate, gated) + projections
            }
            FeedForward::None => 0.0,
        }
    }

    /// Number of weights of one routed expert; 0 for a layer without routed experts.
    pub fn expert_parameters(&self, hidden: u32) -> f64 {
        match *self {
            FeedForward::Experts { intermediate, gated, .. } => block(self.expert_width(hidden), intermediate, gated),
            FeedForward::Dense { .. } | FeedForward::None => 0.0,
        }
    }

    /// Width of an expert's input and output: how many numbers of a token are sent to an expert, and sent back. It is
    /// `hidden` for a layer without experts.
    pub fn expert_width(&self, hidden: u32) -> u32 {
        match *self {
            FeedForward::Experts { latent, .. } => latent.unwrap_or(hidden),
            FeedForward::Dense { .. } | FeedForward::None => hidden,
        }
    }

    /// (number of routed experts of the layer, number of routed experts that a token uses); (0, 0) for a layer without
    /// routed experts.
    pub fn experts(&self) -> (u32, u32) {
        match *self {
            FeedForward::Experts { total, active, .. } => (total, active),
            FeedForward::Dense { .. } | FeedForward::None => (0, 0),
        }
    }
}

fn block(hidden: u32, intermediate: u32, gated: bool) -> f64 {
    (if gated { 3.0 } else { 2.0 }) * f64::from(hidden) * f64::from(intermediate)
}
