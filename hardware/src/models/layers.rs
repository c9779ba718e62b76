//! Equal layers of a model: what they attend to, and what their feed-forward blocks are.

use serde::{Deserialize, Serialize};

/// `count` equal decoder layers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LayerGroup {
    /// Number of layers.
    pub count: u32,
    /// What mixes the tokens.
    pub attention: Attention,
    /// What follows the attention.
    pub feed_forward: FeedForward,
}

/// How a layer mixes tokens. Norms, biases and position encodings are left out: they are under 0.1 % of a model.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Attention {
    /// Multi-head attention in which `heads / kv_heads` query heads share a key and a value.
    Grouped {
        /// Query heads.
        heads: u32,
        /// Key-value heads.
        kv_heads: u32,
        /// Numbers in a head.
        head_dim: u32,
        /// Numbers in a head's value; none: as in its key.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        value_dim: Option<u32>,
        /// Width of the layer's input; none: the hidden size (an EAGLE-3 head reads twice that).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        input: Option<u32>,
        /// Newest tokens that a token attends to; none: all.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        window: Option<u32>,
        /// Whether the output is gated by a projection as wide as the queries (Qwen3-Next).
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        gated: bool,
        /// Whether the values are the keys before their norm and rotation, without a projection of their own (Gemma 4).
        /// Both are kept.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        values_from_keys: bool,
        /// The tokens that a token attends to, where a layer chooses them; none: all, or the window.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        selection: Option<Selection>,
    },
    /// Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1): one compressed vector a token is kept
    /// for all heads.
    Latent {
        /// Query heads.
        heads: u32,
        /// Width of the compressed query; none: queries are not compressed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        query_rank: Option<u32>,
        /// Width of the compressed key and value.
        kv_rank: u32,
        /// Numbers of a head's key that are rotated; shared by the heads and kept beside the compressed vector.
        rope_dim: u32,
        /// Numbers of a head's key that are not rotated.
        nope_dim: u32,
        /// Numbers of a head's value.
        value_dim: u32,
        /// Whether the output is gated by a projection as wide as the values (Kimi K3).
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        gated: bool,
        /// The tokens that a token attends to, where a layer chooses them; none: all.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        selection: Option<Selection>,
    },
    /// Attention of one key-value head, whose key is the value, too, to the newest tokens and to entries that each
    /// compress `ratio` tokens (DeepSeek-V4; transformers' `DeepseekV4Attention`). The output projection is grouped: the
    /// heads of a group are projected to `output_rank` numbers, and all groups together to the hidden size.
    Compressed {
        /// Query heads.
        heads: u32,
        /// Numbers in a head, and in an entry.
        head_dim: u32,
        /// Width of the compressed query.
        query_rank: u32,
        /// Groups of the output projection.
        output_groups: u32,
        /// Width of a group's output.
        output_rank: u32,
        /// Newest tokens that a token attends to as they are. A request keeps no older ones.
        window: u32,
        /// Tokens that an entry compresses; 0: there are no entries.
        #[serde(default, skip_serializing_if = "is_none")]
        ratio: u32,
        /// The entries that a token attends to, where a layer chooses them; none: all. Entries then overlap: each is
        /// made of twice as many tokens.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        selection: Option<Selection>,
    },
    /// A layer that keeps a state of fixed size for each request (Mamba, gated delta rule, linear attention).
    Recurrent {
        /// Weights of the layer.
        parameters: f64,
        /// Bytes of the state of a request.
        state_bytes: f64,
    },
    /// No attention: the layer is a feed-forward block alone (hybrids of Nemotron's kind).
    None,
}

/// How a layer of sparse attention chooses tokens (DeepSeek-V3.2's indexer): each token scores all tokens before it
/// with small heads, and attends to the best.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Selection {
    /// Heads that score.
    pub heads: u32,
    /// Numbers in the key that is scored; one key a token (or an entry of several tokens) is kept.
    pub head_dim: u32,
    /// Bits of a number of that key.
    #[serde(default = "eight", skip_serializing_if = "is_eight")]
    pub key_bits: u32,
    /// Tokens (or entries) that are attended to.
    pub tokens: u32,
    /// Whether the layer takes the choice of a layer before it instead of scoring itself (GLM-5.2). It then has no
    /// heads that score and keeps no key for them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub taken: bool,
}

/// The feed-forward block of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum FeedForward {
    /// One block, which every token uses.
    Dense {
        /// Its inner width.
        intermediate: u32,
        /// Whether it has a gate beside the up projection (three matrices); else two matrices.
        #[serde(default = "yes", skip_serializing_if = "is_true")]
        gated: bool,
    },
    /// A mixture of experts.
    Experts {
        /// Experts in the layer.
        total: u32,
        /// Experts that a token uses.
        active: u32,
        /// Inner width of an expert.
        intermediate: u32,
        /// Inner width of the block that every token uses beside its experts; 0: there is none.
        #[serde(default)]
        shared_intermediate: u32,
        /// Width of an expert's input and output; none: the hidden size. With it a projection into this width stands
        /// before the experts and one back behind them (Nemotron 3's latent experts).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        latent: Option<u32>,
        /// Whether the blocks have a gate beside the up projection (three matrices); else two matrices.
        #[serde(default = "yes", skip_serializing_if = "is_true")]
        gated: bool,
    },
    /// No feed-forward block.
    None,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_none(x: &u32) -> bool {
    *x == 0
}

fn eight() -> u32 {
    8
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_eight(x: &u32) -> bool {
    *x == 8
}

fn yes() -> bool {
    true
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_true(x: &bool) -> bool {
    *x
}

impl Attention {
    /// How the layer chooses tokens; `None` if it does not.
    pub fn selection(&self) -> Option<Selection> {
        match *self {
            Attention::Grouped { selection, .. }
            | Attention::Latent { selection, .. }
            | Attention::Compressed { selection, .. } => selection,
            Attention::Recurrent { .. } | Attention::None => None,
        }
    }

    /// The layer with an indexer of its own, or with the choice of a layer before it. A layer that attends to all
    /// tokens stays as it is.
    pub fn with_indexer(mut self, own: bool) -> Attention {
        if let Attention::Latent { selection: Some(selection), .. } = &mut self {
            selection.taken = !own;
        }
        self
    }

    /// The layer if it attends to the newest `tokens` only; one that is not of grouped heads stays as it is.
    pub fn to_newest(mut self, tokens: u32) -> Attention {
        if let Attention::Grouped { window, .. } = &mut self {
            *window = Some(tokens);
        }
        self
    }

    /// The layer if it attends to chosen tokens; `None` if it is not of grouped heads.
    pub fn to_blocks(mut self, chosen: Selection) -> Option<Attention> {
        let Attention::Grouped { selection, .. } = &mut self else { return None };
        *selection = Some(chosen);
        Some(self)
    }

    /// The layer as an MTP module has it: it chooses its tokens itself (GLM-5.2 and GLM-5 have modules of the same
    /// published size), and it attends to a window only where the model compresses (vLLM's `DeepseekV4Attention`).
    pub fn of_module(mut self) -> Attention {
        if let Attention::Compressed { ratio, selection, .. } = &mut self {
            (*ratio, *selection) = (0, None);
        }
        self.with_indexer(true)
    }

    /// Number of weights of a layer of a model that is `hidden` wide.
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
                // An indexer of heads that score and a key, both from the input.
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
                    // The indexer's queries come from the compressed query, its key and head weights from the input.
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
                // An entry is made by a projection and a gate, of twice the width where entries overlap.
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
    /// Number of weights of what every token uses: a dense block, or the shared block of a mixture and the projections
    /// around its experts.
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

    /// Number of weights of one expert; 0 for a dense block.
    pub fn expert_parameters(&self, hidden: u32) -> f64 {
        match *self {
            FeedForward::Experts { intermediate, gated, .. } => block(self.expert_width(hidden), intermediate, gated),
            FeedForward::Dense { .. } | FeedForward::None => 0.0,
        }
    }

    /// Width of what a token sends to an expert and gets back.
    pub fn expert_width(&self, hidden: u32) -> u32 {
        match *self {
            FeedForward::Experts { latent, .. } => latent.unwrap_or(hidden),
            FeedForward::Dense { .. } | FeedForward::None => hidden,
        }
    }

    /// (experts, experts that a token uses); (0, 0) for a dense block.
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
