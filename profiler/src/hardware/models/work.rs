//! Computes from a model's shape how many bytes its passes move and how many FLOP they compute, summed over its layers.

use super::kernels::Kernels;
use super::layers::{Attention, LayerGroup, Selection};
use super::shape::ModelShape;
use serde::Serialize;

/// Bytes that a model's passes move and FLOP that they compute, summed over its layers. An `f64` holds the numbers
/// exactly if all weights have 8 or 16 bits.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Work {
    pub layers: f64,
    pub hidden: f64,
    /// Bytes of the weights that every pass reads, without the output head (`head_bytes`) and the feed-forward blocks
    /// (`blocks`).
    pub always_bytes: f64,
    /// The feed-forward blocks of all layers, in groups with equal numbers of experts.
    pub blocks: Vec<Blocks>,
    /// FLOP for one token by the precision of the activations: over all layers, and in the matrix that joins the
    /// embedding and the target's hidden state in a draft head. Attention over KV and the output head are not included.
    pub token_flops: FlopsByBits,
    /// Bytes of the output head's weights, which every pass reads.
    pub head_bytes: f64,
    /// FLOP of the output head for a token.
    pub head_flops: f64,
    /// Attention over KV. Layers form one entry if they are alike in three things: the number of tokens to which a
    /// token attends, the way in which these tokens are chosen, and the number of key-value heads. Layers that can
    /// expand compressed keys and values have entries of their own. A layer with an indexer or with compressed
    /// attention adds to several entries.
    pub attention: Vec<AttentionWork>,
    /// Bytes of the recurrent states of a request, over all layers.
    pub state_bytes: f64,
    /// Bytes that a request takes in memory whatever its number of tokens: the KV of windows that drop older tokens,
    /// and data of the tokens that wait to be compressed. Recurrent states are not included.
    pub request_bytes: f64,
    /// Bytes of all weights of the model, the embedding included.
    pub weight_bytes: f64,
    /// Number of layers with a mixture of experts.
    pub sparse_layers: f64,
    /// Number of routed experts that a token uses in a layer with a mixture of experts; the largest number of all
    /// layers.
    pub active_experts: f64,
    /// Width of an expert's input and output, the largest of all layers. A token sends this number of numbers to each
    /// of its experts, and gets as many back.
    pub expert_width: f64,
    /// The kernels of a pass, from which a roofline with floors computes times.
    pub kernels: Kernels,
}

/// Feed-forward blocks of the layers that have equal numbers of experts, in total and for a token. A dense block counts
/// as one expert that every token uses.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Blocks {
    /// Number of experts in a layer; 1 for a dense block.
    pub total: f64,
    /// Number of experts in a layer that a token uses.
    pub active: f64,
    /// Bytes of the weights of one expert in every layer of the group (one expert for each layer), summed over the
    /// layers.
    pub bytes: f64,
}

/// FLOP by the precision of the activations, which decides the GPU's peak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct FlopsByBits {
    /// FLOP of products whose activations have more than 8 bits.
    pub bf16: f64,
    /// FLOP of products whose activations have more than 4 and up to 8 bits.
    pub fp8: f64,
    /// FLOP of products whose activations have up to 4 bits.
    pub fp4: f64,
}

impl FlopsByBits {
    pub(super) fn add(&mut self, bits: f64, flops: f64) {
        match bits {
            b if b > 8.0 => self.bf16 += flops,
            b if b > 4.0 => self.fp8 += flops,
            _ => self.fp4 += flops,
        }
    }
}

/// The work of attention over KV, summed over layers that are alike in three things: the number of tokens to which a
/// token attends, the way in which these tokens are chosen, and the number of key-value heads. Either all of these
/// layers can expand compressed keys and values (`unpacked`), or none of them can.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct AttentionWork {
    /// Bytes of KV that a pass reads for each token of context, summed over the layers of this [`AttentionWork`].
    pub bytes: f64,
    /// Bytes of KV that a token of context takes in memory, summed over the layers of this [`AttentionWork`]. 0 for the
    /// window of compressed attention, whose memory is in [`Work::request_bytes`]. The layers with another window take
    /// these bytes only for the tokens of the window (see [`Work::windows`]).
    pub kept_bytes: f64,
    /// FLOP of a query-key pair, summed over the layers of this [`AttentionWork`].
    pub pair_flops: f64,
    /// FLOP if latent attention to all tokens first expands its compressed keys and values. `None` for other kinds of
    /// attention, and for latent attention with a selection.
    pub unpacked: Option<Unpacked>,
    /// The most tokens that a token attends to: the size of the window or of the selection. `None`: a token attends to
    /// all tokens.
    pub window: Option<f64>,
    /// True: each token chooses its own tokens to attend to (sparse attention). False: the new tokens of a request
    /// share one window, the newest tokens of the request.
    pub by_token: bool,
    /// Number of key-value heads. Tensor parallelism splits the KV over at most this number of GPUs. With 1, each GPU
    /// holds all KV.
    pub split: f64,
}

/// FLOP of latent attention that first expands its compressed keys and values (DeepSeek-V2, arXiv 2405.04434, 2.1). A
/// query-key pair then needs fewer FLOP, but the expansion needs FLOP for each token of context.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Unpacked {
    /// FLOP of a query-key pair after the expansion.
    pub pair_flops: f64,
    /// FLOP to expand the key and value of a token.
    pub token_flops: f64,
}

impl AttentionWork {
    /// Attention work of layers that attend to all tokens and have one key-value head. They read `bytes` of KV for each
    /// token of context, and compute `pair_flops` for each query-key pair.
    fn whole(bytes: f64, pair_flops: f64) -> AttentionWork {
        AttentionWork {
            bytes,
            kept_bytes: bytes,
            pair_flops,
            unpacked: None,
            window: None,
            by_token: false,
            split: 1.0,
        }
    }

    /// Adds the attention work `more` of other layers. `more` must have the same `window` (most tokens that a token
    /// attends to), `split` (number of key-value heads) and `by_token` as this work. `unpacked` must be set in both or
    /// in neither.
    fn join(&mut self, more: &AttentionWork) {
        self.bytes += more.bytes;
        self.kept_bytes += more.kept_bytes;
        self.pair_flops += more.pair_flops;
        if let (Some(own), Some(more)) = (&mut self.unpacked, more.unpacked) {
            own.pair_flops += more.pair_flops;
            own.token_flops += more.token_flops;
        }
    }
}

impl ModelShape {
    /// Computes, from the shape, how many bytes the model's passes move and how many FLOP they compute.
    pub fn work(&self) -> Work {
        let head_bytes = self.bits.head / 8.0 * self.head_parameters();
        let mut work = Work {
            layers: f64::from(self.num_layers()),
            hidden: f64::from(self.hidden),
            always_bytes: 0.0,
            blocks: Vec::new(),
            token_flops: FlopsByBits::default(),
            head_bytes,
            head_flops: 2.0 * self.head_parameters(),
            attention: Vec::new(),
            state_bytes: 0.0,
            request_bytes: 0.0,
            weight_bytes: 0.0,
            sparse_layers: 0.0,
            active_experts: 0.0,
            expert_width: 0.0,
            kernels: self.kernels(),
        };
        work.always_bytes = self.bits.weights / 8.0 * self.joining_parameters;
        work.token_flops.add(self.bits.activations, 2.0 * self.joining_parameters);
        for group in &self.layers {
            self.add_feed_forward(&mut work, group);
            self.add_attention(&mut work, group);
        }
        let blocks: f64 = work.blocks.iter().map(|b| b.total * b.bytes).sum();
        let embedding_bytes = self.bits.embedding.unwrap_or(self.bits.head) / 8.0 * self.head_parameters();
        work.weight_bytes = work.always_bytes + blocks + head_bytes + if self.tied { 0.0 } else { embedding_bytes };
        work
    }

    fn add_feed_forward(&self, work: &mut Work, group: &LayerGroup) {
        let count = f64::from(group.count);
        let (dense, expert) =
            (group.feed_forward.dense_parameters(self.hidden), group.feed_forward.expert_parameters(self.hidden));
        let (total, active) = group.feed_forward.experts();
        let (dense_bits, dense_activations) = (
            self.bits.dense.unwrap_or(self.bits.weights),
            self.bits.dense_activations.unwrap_or(self.bits.activations),
        );
        work.token_flops.add(dense_activations, 2.0 * count * dense);
        work.token_flops.add(self.bits.expert_activations, 2.0 * count * f64::from(active) * expert);
        let mut add = |total: f64, active: f64, bytes: f64| match work
            .blocks
            .iter_mut()
            .find(|b| (b.total, b.active) == (total, active))
        {
            Some(same) => same.bytes += bytes,
            None => work.blocks.push(Blocks { total, active, bytes }),
        };
        if dense > 0.0 {
            add(1.0, 1.0, dense_bits / 8.0 * count * dense);
        }
        if total > 0 {
            work.sparse_layers += count;
            work.active_experts = work.active_experts.max(f64::from(active));
            work.expert_width = work.expert_width.max(f64::from(group.feed_forward.expert_width(self.hidden)));
            add(f64::from(total), f64::from(active), self.bits.experts / 8.0 * count * expert);
        }
    }

    fn add_attention(&self, work: &mut Work, group: &LayerGroup) {
        let count = f64::from(group.count);
        let parameters = group.attention.parameters(self.hidden);
        work.always_bytes += self.bits.weights / 8.0 * count * parameters;
        work.token_flops.add(self.bits.activations, 2.0 * count * parameters);
        let kv = self.bits.kv / 8.0;
        let attention = &mut work.attention;
        let mut add = |new: AttentionWork| {
            let alike = |a: &AttentionWork| (a.window, a.by_token, a.split, a.unpacked.is_some());
            match attention.iter_mut().find(|a| alike(a) == alike(&new)) {
                Some(same) => same.join(&new),
                None => attention.push(new),
            }
        };
        // The work of an indexer: it reads one key for each `ratio` tokens of context, and each of its heads computes a
        // score with this key.
        let scored = |s: Selection, ratio: f64| {
            let (heads, dim, bytes) = (f64::from(s.heads), f64::from(s.head_dim), f64::from(s.key_bits) / 8.0);
            AttentionWork::whole(count * dim * bytes / ratio, 2.0 * count * heads * dim / ratio)
        };
        match group.attention {
            Attention::Grouped { heads, kv_heads, head_dim, value_dim, window, selection, .. } => {
                let (heads, kv_heads) = (f64::from(heads), f64::from(kv_heads));
                let both = f64::from(head_dim) + f64::from(value_dim.unwrap_or(head_dim));
                add(AttentionWork {
                    window: selection.map(|s| s.tokens).or(window).map(f64::from),
                    by_token: selection.is_some(),
                    split: kv_heads,
                    ..AttentionWork::whole(count * kv_heads * both * kv, 2.0 * count * heads * both)
                });
                if let Some(s) = selection {
                    add(scored(s, 1.0));
                }
            }
            Attention::Latent { heads, kv_rank, rope_dim, nope_dim, value_dim, selection, .. } => {
                let (heads, rank, rope) = (f64::from(heads), f64::from(kv_rank), f64::from(rope_dim));
                let (nope, value) = (f64::from(nope_dim), f64::from(value_dim));
                add(AttentionWork {
                    unpacked: selection.is_none().then_some(Unpacked {
                        pair_flops: 2.0 * count * heads * (nope + rope + value),
                        token_flops: 2.0 * count * rank * heads * (nope + value),
                    }),
                    window: selection.map(|s| f64::from(s.tokens)),
                    by_token: selection.is_some(),
                    ..AttentionWork::whole(count * (rank + rope) * kv, 2.0 * count * heads * (2.0 * rank + rope))
                });
                if let Some(s) = selection.filter(|s| !s.taken) {
                    add(scored(s, 1.0));
                }
            }
            Attention::Compressed { heads, head_dim, window, ratio, selection, .. } => {
                let (entry, window, ratio) = (f64::from(head_dim) * kv, f64::from(window), f64::from(ratio));
                let pair_flops = 4.0 * count * f64::from(heads) * f64::from(head_dim);
                let newest = AttentionWork::whole(count * entry, pair_flops);
                add(AttentionWork { window: Some(window), kept_bytes: 0.0, ..newest });
                work.request_bytes += count * window * entry;
                if ratio > 0.0 {
                    // Bytes and FLOP are per token of context. One compressed KV entry stands for `ratio` tokens, hence
                    // the division.
                    add(AttentionWork {
                        window: selection.map(|s| ratio * f64::from(s.tokens)),
                        by_token: selection.is_some(),
                        ..AttentionWork::whole(count * entry / ratio, pair_flops / ratio)
                    });
                    // The memory holds two vectors, a projection and a gate, for each token that is not compressed yet.
                    // A number has 4 bytes.
                    let series = if selection.is_some() { 2.0 } else { 1.0 };
                    let waiting = f64::from(head_dim) + selection.map_or(0.0, |s| f64::from(s.head_dim));
                    work.request_bytes += count * 2.0 * ratio * series * waiting * 4.0;
                }
                if let Some(s) = selection {
                    add(scored(s, ratio));
                }
            }
            Attention::Recurrent { state_bytes, .. } => {
                work.state_bytes += count * state_bytes;
                // The recurrent state has `state_bytes / 4` numbers of 4 bytes. For each token, each number of the
                // state is multiplied by the token's key and by its query, and is updated: 6 FLOP.
                work.token_flops.add(16.0, 6.0 * count * state_bytes / 4.0);
            }
            Attention::None => {}
        }
    }
}

/// The layers with a sliding window of a model that also has layers without one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Windows {
    /// Number of newest tokens whose KV the layers keep; the largest of all windows.
    pub tokens: f64,
    /// Bytes of KV of one token in these layers, on all GPUs together.
    pub bytes_token: f64,
}

impl AttentionWork {
    /// Bytes that the KV of one token takes on all `gpus` GPUs of a tensor-parallel group together. If there are more
    /// GPUs than key-value heads, some GPUs hold copies, which count too.
    fn kept_on(&self, gpus: f64) -> f64 {
        self.kept_bytes * (gpus / self.split).max(1.0)
    }

    /// Whether the layers drop the KV of tokens before a window. A selection by token may need any of them.
    pub(in crate::hardware) fn slides(&self) -> bool {
        self.window.is_some() && !self.by_token && self.kept_bytes > 0.0
    }
}

impl Work {
    /// Bytes of KV that one token writes in all layers, on all `gpus` GPUs of a tensor-parallel group together.
    pub fn kv_bytes_token(&self, gpus: f64) -> f64 {
        self.attention.iter().map(|a| a.kept_on(gpus)).sum()
    }

    /// The layers that drop the KV of tokens before a window. `None` if there are none. Also `None` if all layers have
    /// a window: a serving engine then has one group of layers, and its KV is counted as if it kept every token.
    pub fn windows(&self, gpus: f64) -> Option<Windows> {
        let sliding = || self.attention.iter().filter(|a| a.slides());
        let tokens = sliding().filter_map(|a| a.window).max_by(f64::total_cmp)?;
        let bytes_token = sliding().map(|a| a.kept_on(gpus)).sum();
        (self.kv_bytes_token(gpus) > bytes_token).then_some(Windows { tokens, bytes_token })
    }
}
