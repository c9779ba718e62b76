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
    /// compress `ratio` tokens (DeepSeek-V4; transformers' `DeepseekV4Attention`). The output projection is grouped:
    /// the heads of a group are projected to `output_rank` numbers, and all groups together to the hidden size.
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
        #[serde(default, skip_serializing_if = "is_zero")]
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
fn is_zero(x: &u32) -> bool {
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
