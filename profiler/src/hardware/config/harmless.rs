//! Keys of `config.json` that do not change how long a pass takes.

use serde::Serialize;

/// The keys that need no warning if the program does not read them. Some of them concern training, token ids,
/// positions, norms or the loading of the file. The others have a meaning only together with a second key; if a file
/// has this second key, the program reads both keys.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct HarmlessKeys {
    /// Keys with exactly these names are harmless: they do not change the time of a pass.
    pub names: &'static [&'static str],
    /// A key is harmless (it does not change the time of a pass) if its name ends with one of these texts.
    pub ends: &'static [&'static str],
    /// A key is harmless (it does not change the time of a pass) if its name starts with one of these texts.
    pub starts: &'static [&'static str],
}

/// The keys of `config.json` that do not change the time of a pass and so need no warning.
pub const HARMLESS_KEYS: HarmlessKeys = HarmlessKeys {
    names: &HARMLESS,
    ends: &["_token_id", "_token_index", "_dropout", "_pdrop", "_coef", "_version", "_eps", "_epsilon"],
    starts: &["rope_", "use_cache", "initializer", "router_", "_", "output_router", "vision_", "image_", "audio_"],
};

/// True if `key` does not change the time of a pass. The program then gives no warning if it has not read the key.
pub fn is_harmless(key: &str) -> bool {
    HARMLESS_KEYS.names.contains(&key)
        || HARMLESS_KEYS.ends.iter().any(|end| key.ends_with(end))
        || HARMLESS_KEYS.starts.iter().any(|start| key.starts_with(start))
}

const HARMLESS: [&str; 216] = [
    "activation_scheme", "activation_situ_beta", "activation_situ_linear_beta", "actorder", "add_cross_attention",
    "add_full_attention_sink_bias", "add_swa_attention_sink_bias", "amp", "architectures", "attention_bias",
    "attention_chunk_size", "attention_dropout", "attention_mode", "attention_multiplier", "attention_value_scale",
    "attn_implementation", "attn_logit_softcapping", "auto_map", "autoround_version", "aux_loss_alpha", "backend",
    "bad_words_ids", "batch_size", "block_name_to_quantize", "block_structure", "bnb_4bit_compute_dtype",
    "bnb_4bit_quant_storage", "bnb_4bit_quant_type", "bos_token_id", "cache_implementation", "checkpoint_format",
    "chunk_size", "chunk_size_feed_forward", "compress_rope_theta", "confidence_head_alpha",
    "confidence_head_with_markov", "damp_percent", "data_type", "dataset", "desc_act", "diversity_penalty",
    "do_sample", "dtype", "eagle_config", "early_stopping", "embed_requires_grad", "enable_confidence_head",
    "encoder_no_repeat_ngram_size", "eos_token_id", "ep_size", "expand", "experts_per_token",
    "final_logit_softcapping", "finetuning_task", "fmt", "format", "full_attention_interval", "gate_lower_bound",
    "global_compression_ratio", "hc_sinkhorn_iters", "hidden_act", "hidden_activation", "id2label", "ignore_index",
    "ignored_modules", "image_placeholder", "img_token_compression_config", "index_kpool_always_select_tail",
    "indexer_rope_interleave", "initial_context_length", "input_channels", "intermediate_size", "is_decoder",
    "is_encoder_decoder", "is_marlin_format", "iters", "label2id", "language_model_only", "latent_moe_use_norm",
    "length_penalty", "linear_lower_bound", "llm_int8_enable_fp32_cpu_offload", "llm_int8_has_fp16_weight",
    "llm_int8_threshold", "logits_scaling", "low_gpu_mem_usage", "mamba_hidden_act", "mamba_proj_bias",
    "mamba_ssm_cache_dtype", "mamba_ssm_dtype", "markov_head_type", "max_length", "max_position_embeddings",
    "max_sequence_length", "max_window_layers", "meta", "min_length", "mla_use_nope", "mlp_bias", "mlp_hidden_act",
    "mlp_only_layers", "model_max_length", "model_type", "moe_renormalize", "moe_router_activation_func",
    "moe_router_dtype", "moe_router_enable_expert_bias", "moe_shared_expert_overlap", "mtp_num_hidden_layers",
    "mtp_transformer_layers", "mtp_use_dedicated_embeddings", "multimodal_projector_bias", "n_group", "name_or_path",
    "no_repeat_ngram_size", "norm_before_fc", "norm_before_residual", "norm_topk_prob", "norm_type", "nsamples",
    "num_attention_layers", "num_beam_groups", "num_beams", "num_expert_group", "num_hash_layers",
    "num_logits_to_keep", "num_return_sequences", "num_reward_heads", "observer", "observer_kwargs",
    "original_max_position_embeddings", "output_activations", "output_attentions", "output_gate_type",
    "output_hidden_states", "output_scores", "pack_dtype", "packing_format", "partial_rotary_factor",
    "partial_rotary_factors", "pretraining_tp", "process_image_mode", "producer", "projector_hidden_act",
    "projector_hidden_size", "projector_type", "pruned_heads", "qk_norm", "qk_norm_type", "qkv_bias",
    "quantization_status", "query_pre_attn_scalar", "remove_invalid_values", "repetition_penalty",
    "rescale_prenorm_residual", "residual_in_fp32", "return_dict", "return_dict_in_generate", "rotary_dim",
    "rotary_emb_base", "routed_scaling_factor", "safe_gate", "scale_dtype", "scale_fmt", "scoring_func", "seq_aux",
    "seqlen", "sliding_window_size", "sparse_score_type", "sparsity_config", "speculators_config", "static_groups",
    "strategy", "swa_rope_theta", "swiglu_alpha", "swiglu_limit", "sym", "symmetric", "temperature", "tf_legacy_loss",
    "tie_encoder_decoder", "time_step_floor", "time_step_limit", "time_step_max", "time_step_min", "top_k", "top_p",
    "topk_group", "topk_method", "torch_dtype", "torchscript", "transformers_version", "true_sequential", "typical_p",
    "unsloth_fixed", "use_bfloat16", "use_bias", "use_bidirectional_attention", "use_conv_bias", "use_double_wide_mlp",
    "use_gemma_norm", "use_grouped_topk", "use_mamba_kernels", "use_mla", "use_mrope", "use_mtp", "use_qk_norm",
    "use_qkv_bias", "use_routing_bias", "use_unified_vision_chunk", "version", "video_placeholder",
    "vocab_size_per_layer_input", "weight_block_size", "zero_point", "zp_dtype",
];
