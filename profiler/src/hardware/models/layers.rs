//! A group of equal layers of a model: their attention and their feed-forward block.

use serde::{Deserialize, Serialize};

/// A group of equal decoder layers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LayerGroup {
    /// Number of layers in the group.
    pub count: u32,
    /// The attention of each layer, or the recurrence in its place.
    pub attention: Attention,
    /// The feed-forward block of each layer, after the attention.
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
        /// Head dimension: numbers in a head's query and in a head's key.
        head_dim: u32,
        /// Value dimension: numbers in a head's value. Default: `head_dim`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        value_dim: Option<u32>,
        /// Width of the layer's input. Default: the hidden size. The input of an EAGLE-3 head is twice as wide.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        input: Option<u32>,
        /// Sliding window: number of newest tokens to which a token attends. Default: a token attends to all earlier
        /// tokens.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        window: Option<u32>,
        /// Whether the attention's output is multiplied by a gate, which a projection of the same width computes
        /// (Qwen3-Next). Default: false.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        gated: bool,
        /// Whether the layer has no value projection, and uses the keys before norm and rotation as values (Gemma 4).
        /// The KV cache then holds both keys and values. Default: false.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        values_from_keys: bool,
        /// Sparse attention: how the layer chooses the tokens to which a token attends. It cannot be combined with
        /// `window`. Default: the layer does not choose.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        selection: Option<Selection>,
    },
    /// Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1): the KV cache holds one compressed
    /// vector for each token, which all heads share.
    Latent {
        /// Number of query heads.
        heads: u32,
        /// Width of the compressed query, from which the heads' queries are projected. Default: queries are not
        /// compressed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        query_rank: Option<u32>,
        /// Width of the vector that holds the key and the value of a token in compressed form.
        kv_rank: u32,
        /// Number of a key's dimensions with rotary position encoding. All heads share these numbers, and the KV cache
        /// holds them beside the compressed vector.
        rope_dim: u32,
        /// Number of dimensions of a head's key without rotary position encoding.
        nope_dim: u32,
        /// Value dimension: numbers in a head's value.
        value_dim: u32,
        /// Whether the attention's output is multiplied by a gate, which a projection as wide as all heads' values
        /// computes (Kimi K3). Default: false.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        gated: bool,
        /// Sparse attention: how the layer chooses the tokens to which a token attends. Default: a token attends to all
        /// earlier tokens.
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
        /// Head dimension: numbers in a head's query, in a key and in a compressed KV entry.
        head_dim: u32,
        /// Width of the compressed query, from which the heads' queries are projected.
        query_rank: u32,
        /// Number of groups of the output projection; it must divide `heads`.
        output_groups: u32,
        /// Width of the vector to which the first part of the output projection reduces the heads of a group.
        output_rank: u32,
        /// Number of newest tokens to which a token attends without compression. Older tokens leave the KV cache.
        window: u32,
        /// Number of older tokens that each compressed KV entry stands for. Default: 0, there are no compressed
        /// entries.
        #[serde(default, skip_serializing_if = "is_zero")]
        ratio: u32,
        /// Sparse attention: how the layer chooses the compressed KV entries to which a token attends. In such a layer
        /// the entries overlap: each is made from 2 · `ratio` tokens. Default: a token attends to all entries, and
        /// entries do not overlap.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        selection: Option<Selection>,
    },
    /// A recurrent layer, with a state of fixed size for each request and no KV (Mamba, gated delta rule, linear
    /// attention).
    Recurrent {
        /// Number of weights of the layer.
        parameters: f64,
        /// Size of the state that the layer keeps for a request, bytes.
        state_bytes: f64,
    },
    /// No attention: the layer is only a feed-forward block (as in Nemotron-H).
    None,
}

/// How a layer of sparse attention chooses tokens (the indexer of DeepSeek-V3.2). For each token, small heads score all
/// earlier tokens. The token attends to the tokens with the best scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Selection {
    /// Number of the indexer's heads, which score tokens.
    pub heads: u32,
    /// Numbers in the indexer's key. The KV cache holds one such key for each token, or for each compressed KV entry if
    /// the attention is compressed.
    pub head_dim: u32,
    /// Bits of a number in the indexer's key. Default: 8.
    #[serde(default = "eight", skip_serializing_if = "is_eight")]
    pub key_bits: u32,
    /// Number of tokens to which a token attends. Number of compressed KV entries, if the attention is compressed.
    pub tokens: u32,
    /// Whether the layer takes over the choice of an earlier layer (GLM-5.2). The layer then has no indexer: no weights
    /// and no keys for scoring. Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub taken: bool,
}

/// The feed-forward block of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum FeedForward {
    /// A dense block, which every token uses.
    Dense {
        /// Inner width of the block (`intermediate_size`).
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
        /// Inner width of each routed expert.
        intermediate: u32,
        /// Inner width of all shared experts together. Every token uses the shared experts. Default: 0, there are none.
        #[serde(default)]
        shared_intermediate: u32,
        /// Width of the experts' inputs and outputs, if it is not the hidden size (latent experts of Nemotron 3). One
        /// projection leads to this width before the experts, and one leads back after them. Default: the hidden size,
        /// without projections.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        latent: Option<u32>,
        /// Whether experts have a gate beside the up projection: three matrices if true, two if false. Default: true.
        #[serde(default = "yes", skip_serializing_if = "is_true")]
        gated: bool,
    },
    /// The layer has no feed-forward block.
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
