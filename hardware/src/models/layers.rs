//! A group of equal layers of a model: their attention and their feed-forward block.

use serde::{Deserialize, Serialize};

/// A group of equal decoder layers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LayerGroup {
    /// Number of layers in the group.
    pub count: u32,
    /// The attention or recurrent layer.
    pub attention: Attention,
    /// The feed-forward block after the attention.
    pub feed_forward: FeedForward,
}

/// The attention of a layer, or the recurrence in its place. Norms, biases and position encodings are not counted: they
/// are under 0.1 % of a model's weights.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Attention {
    /// Grouped-query attention: `heads / kv_heads` query heads share a key and a value.
    Grouped {
        /// Number of query heads.
        heads: u32,
        /// Number of key-value heads; it must divide `heads`.
        kv_heads: u32,
        /// Head dimension: numbers in a query and in a key.
        head_dim: u32,
        /// Numbers in a value. Default: `head_dim`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        value_dim: Option<u32>,
        /// Width of the layer's input. Default: the hidden size; an EAGLE-3 head has twice that.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        input: Option<u32>,
        /// Sliding window: number of newest tokens that a token attends to. Default: all tokens.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        window: Option<u32>,
        /// Whether a projection as wide as the attention's output gates it (Qwen3-Next).
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        gated: bool,
        /// Whether there is no value projection and the values are the keys before norm and rotation (Gemma 4). The KV
        /// cache holds both.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        values_from_keys: bool,
        /// How the layer chooses the tokens that a token attends to (sparse attention). Default: it does not choose. It
        /// cannot be combined with `window`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        selection: Option<Selection>,
    },
    /// Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1): the KV cache holds one compressed
    /// vector for each token, which all heads share.
    Latent {
        /// Number of query heads.
        heads: u32,
        /// Width of the compressed query. Default: queries are not compressed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        query_rank: Option<u32>,
        /// Width of the vector that holds key and value compressed.
        kv_rank: u32,
        /// Numbers of a key with rotary position encoding. All heads share them, and the KV cache holds them beside the
        /// compressed vector.
        rope_dim: u32,
        /// Numbers of a head's key without rotary position encoding.
        nope_dim: u32,
        /// Numbers in a head's value.
        value_dim: u32,
        /// Whether a projection as wide as all heads' values gates the output (Kimi K3).
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        gated: bool,
        /// How the layer chooses the tokens that a token attends to (sparse attention). Default: it attends to all
        /// tokens.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        selection: Option<Selection>,
    },
    /// Attention to the newest tokens and to entries that each compress `ratio` older tokens (DeepSeek-V4;
    /// transformers' `DeepseekV4Attention`). There is one key-value head, whose key is also the value. The output
    /// projection has two parts: the heads of each group are projected to `output_rank` numbers, and all groups
    /// together to the hidden size.
    Compressed {
        /// Number of query heads.
        heads: u32,
        /// Head dimension: numbers in a query, in a key and in an entry.
        head_dim: u32,
        /// Width of the compressed query.
        query_rank: u32,
        /// Number of groups of the output projection; it must divide `heads`.
        output_groups: u32,
        /// Numbers to which the heads of a group are projected.
        output_rank: u32,
        /// Number of newest tokens that a token attends to without compression. Older tokens leave the KV cache.
        window: u32,
        /// Number of tokens that an entry compresses. Default: 0, there are no entries.
        #[serde(default, skip_serializing_if = "is_zero")]
        ratio: u32,
        /// How the layer chooses the entries that a token attends to; its entries then overlap: each is made from 2 ·
        /// `ratio` tokens. Default: the layer attends to all entries, and they do not overlap.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        selection: Option<Selection>,
    },
    /// A recurrent layer, with a state of fixed size for each request and no KV (Mamba, gated delta rule, linear
    /// attention).
    Recurrent {
        /// Number of weights of the layer.
        parameters: f64,
        /// Size of a request's state in the layer, bytes.
        state_bytes: f64,
    },
    /// No attention: the layer is only a feed-forward block (as in Nemotron-H).
    None,
}

/// How a layer of sparse attention chooses tokens (DeepSeek-V3.2's indexer): for each token small heads score all
/// earlier tokens, and the token attends to those with the best scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Selection {
    /// Number of heads that score.
    pub heads: u32,
    /// Numbers in the indexer's key. The cache holds one such key for each token, or for each entry of compressed
    /// attention.
    pub head_dim: u32,
    /// Bits of a number in the indexer's key. Default: 8.
    #[serde(default = "eight", skip_serializing_if = "is_eight")]
    pub key_bits: u32,
    /// Number of tokens (or entries) that a token attends to.
    pub tokens: u32,
    /// Whether the layer has no indexer and uses the choice of an earlier layer (GLM-5.2). It then has no weights and
    /// no keys for scoring.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub taken: bool,
}

/// The feed-forward block of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum FeedForward {
    /// A dense block, which every token uses.
    Dense {
        /// Inner width of the block.
        intermediate: u32,
        /// Whether the block has a gate beside the up projection: three matrices if true, two if false. Default: true.
        #[serde(default = "yes", skip_serializing_if = "is_true")]
        gated: bool,
    },
    /// A mixture of experts.
    Experts {
        /// Number of routed experts in the layer.
        total: u32,
        /// Number of routed experts that a token uses, at most `total`.
        active: u32,
        /// Inner width of a routed expert.
        intermediate: u32,
        /// Inner width of the shared experts together, which every token uses. Default: 0, there are none.
        #[serde(default)]
        shared_intermediate: u32,
        /// Width of an expert's input and output (Nemotron 3's latent experts): one projection leads to this width
        /// before the experts and one back after them. Default: the hidden size, without projections.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        latent: Option<u32>,
        /// Whether experts have a gate beside the up projection: three matrices if true, two if false. Default: true.
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
