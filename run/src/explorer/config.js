// Reads a Hugging Face `config.json` of a common family: dense models and mixtures of experts with grouped attention. A
// copy of a part of profiler/src/hardware/config and profiler/src/hardware/models. What it does not read it refuses:
// `foretoken models show` reads more.
const Config = (() => {
  const DENSE = ["llama", "mistral", "qwen2", "qwen3", "internlm2", "internlm3", "yi", "granite", "olmo2", "ernie4_5", "seed_oss", "smollm3", "phi3"];
  const EXPERTS = ["mixtral", "qwen2_moe", "qwen3_moe", "phimoe", "olmoe", "glm4_moe"];
  // What a file without a key has: the rows of profiler/src/hardware/config/defaults.json for these families.
  const DEFAULTS = {
    llama: { hidden_size: 4096, intermediate_size: 11008, num_attention_heads: 32, num_hidden_layers: 32, vocab_size: 32000 },
    mistral: { hidden_size: 4096, intermediate_size: 14336, num_attention_heads: 32, num_hidden_layers: 32, num_key_value_heads: 8, sliding_window: 4096, vocab_size: 32000 },
    qwen2: { hidden_size: 4096, intermediate_size: 22016, max_window_layers: 28, num_attention_heads: 32, num_hidden_layers: 32, num_key_value_heads: 32, sliding_window: 4096, use_sliding_window: false, vocab_size: 151936 },
    qwen3: { head_dim: 128, hidden_size: 4096, intermediate_size: 22016, max_window_layers: 28, num_attention_heads: 32, num_hidden_layers: 32, num_key_value_heads: 32, sliding_window: 4096, use_sliding_window: false, vocab_size: 151936 },
    internlm3: { head_dim: 128, hidden_size: 4096, intermediate_size: 10240, num_attention_heads: 32, num_hidden_layers: 48, num_key_value_heads: 2, vocab_size: 128512 },
    granite: { hidden_size: 4096, intermediate_size: 11008, num_attention_heads: 32, num_hidden_layers: 32, vocab_size: 32000 },
    olmo2: { hidden_size: 4096, intermediate_size: 11008, num_attention_heads: 32, num_hidden_layers: 32, vocab_size: 50304 },
    ernie4_5: { head_dim: 128, hidden_size: 1024, intermediate_size: 3072, num_attention_heads: 16, num_hidden_layers: 18, num_key_value_heads: 2, vocab_size: 103424 },
    seed_oss: { head_dim: 128, hidden_size: 4096, intermediate_size: 27648, num_attention_heads: 80, num_hidden_layers: 64, num_key_value_heads: 8, vocab_size: 155136 },
    smollm3: { hidden_size: 2048, intermediate_size: 11008, no_rope_layer_interval: 4, num_attention_heads: 16, num_hidden_layers: 36, num_key_value_heads: 4, use_sliding_window: false, vocab_size: 128256 },
    phi3: { hidden_size: 3072, intermediate_size: 8192, num_attention_heads: 32, num_hidden_layers: 32, vocab_size: 32064 },
    mixtral: { hidden_size: 4096, intermediate_size: 14336, num_attention_heads: 32, num_experts_per_tok: 2, num_hidden_layers: 32, num_key_value_heads: 8, num_local_experts: 8, vocab_size: 32000 },
    qwen2_moe: { decoder_sparse_step: 1, hidden_size: 2048, intermediate_size: 5632, max_window_layers: 28, moe_intermediate_size: 1408, num_attention_heads: 16, num_experts: 60, num_experts_per_tok: 4, num_hidden_layers: 24, num_key_value_heads: 16, shared_expert_intermediate_size: 5632, sliding_window: 4096, use_sliding_window: false, vocab_size: 151936 },
    qwen3_moe: { decoder_sparse_step: 1, hidden_size: 2048, intermediate_size: 6144, moe_intermediate_size: 768, num_attention_heads: 32, num_experts: 128, num_experts_per_tok: 8, num_hidden_layers: 24, num_key_value_heads: 4, sliding_window: 4096, use_sliding_window: false, vocab_size: 151936 },
    phimoe: { hidden_size: 4096, intermediate_size: 6400, num_attention_heads: 32, num_experts_per_tok: 2, num_hidden_layers: 32, num_key_value_heads: 8, num_local_experts: 16, vocab_size: 32064 },
    olmoe: { hidden_size: 2048, intermediate_size: 2048, num_attention_heads: 16, num_experts: 64, num_experts_per_tok: 8, num_hidden_layers: 16, vocab_size: 50304 },
    glm4_moe: { first_k_dense_replace: 1, hidden_size: 4096, intermediate_size: 10944, moe_intermediate_size: 1408, n_routed_experts: 128, n_shared_experts: 1, num_attention_heads: 96, num_experts_per_tok: 8, num_hidden_layers: 46, num_key_value_heads: 8, vocab_size: 151552 },
  };
  // Families whose `intermediate_size` is the width of an expert.
  const WIDE = ["mixtral", "phimoe", "olmoe"];
  const PROGRAM = "The program may know it: model = { config = \"config.json\" } in an experiment.";
  const fail = (key, why) => { throw new Error(`${key}: ${why}`); };

  // The shape of a model (profiler/src/hardware/models/shape.rs). `harmless` has the keys that change no pass. Also
  // returns the keys that are not modelled.
  const read = (text, name, harmless) => {
    let json;
    try { json = JSON.parse(text); } catch (error) { fail(name, `this is not JSON (${error.message})`); }
    if (json === null || typeof json !== "object" || Array.isArray(json)) fail(name, "a config.json is a JSON object, { \"model_type\": .. }");
    const known = new Set(["model_type", "tie_word_embeddings", "torch_dtype", "dtype"]);
    const defaults = DEFAULTS[json.model_type] ?? {};
    const given = (key) => { known.add(key); return json[key] ?? null; };
    const value = (key) => (key in json ? given(key) : defaults[key] ?? null);
    const number = (least) => (...keys) => {
      const values = [given, value].flatMap((of) => keys.map((key) => [key, of(key)]));
      const [key, x] = values.find(([, x]) => x !== null) ?? [null, null];
      if (x !== null && !(Number.isInteger(x) && x >= least && x <= 2 ** 30)) fail(key, `${JSON.stringify(x)} is not a whole number of at least ${least}`);
      return x;
    };
    const [size, count] = [number(1), number(0)];
    const needed = (...keys) => size(...keys) ?? fail(keys[0], "missing; the shape needs it");
    const flag = (key) => {
      const x = value(key);
      return x === null || typeof x === "boolean" ? x : fail(key, `${JSON.stringify(x)} is not true or false`);
    };
    const type = value("model_type") ?? fail("model_type", "missing; it says how to read the rest");
    const sparse = EXPERTS.includes(type);
    if (!sparse && !DENSE.includes(type)) fail("model_type", `this page does not read \`${type}\`, only ${[...DENSE, ...EXPERTS].join(", ")}. ${PROGRAM}`);
    for (const key of ["quantization_config", "quantization", "transformer_layer_config", "truncated_vocab_size", "kv_lora_rank", "layer_types", "text_config", "draft_vocab_size", "dflash_config", "target_layer_ids", "expert_dtype", "mlp_layer_types", "attn_type_list", "linear_attn_config", "full_attention_interval", "hybrid_layer_pattern", "block_configs", "layers_block_type", "sparse_attention_config", "index_n_heads", "num_kv_shared_layers", "hidden_size_per_layer_input", "attention_output_gate", "attn_output_gate", "moe_latent_size", "routed_expert_hidden_size", "enable_moe_block", "intermediate_size_mlp", "dense_intermediate_size"]) {
      const x = value(key);
      if (x === null || x === false || x === 0) continue;
      if (key === "layer_types" && Array.isArray(x) && x.every((kind) => kind === "full_attention")) continue;
      fail(key, `this page does not read it. ${PROGRAM}`);
    }
    for (const kind of Array.isArray(json.architectures) ? json.architectures : []) {
      const other = [...DENSE, ...EXPERTS].find((name) => name.replaceAll("_", "") === String(kind).split("For")[0].toLowerCase());
      if (other !== undefined && other !== type) fail("architectures", `\`${kind}\` is not a class of model_type \`${type}\``);
    }
    const dtype = value("torch_dtype") ?? value("dtype") ?? "bfloat16";
    const bits = { float32: 32, bfloat16: 16, float16: 16 }[dtype] ?? fail("torch_dtype", `this page does not read \`${dtype}\`. ${PROGRAM}`);
    const hidden = needed("hidden_size");
    const layers = needed("num_hidden_layers", "num_layers", "n_layer");
    if (layers > 10000) fail("num_hidden_layers", `${layers} layers are more than 10000, which no model has`);
    if ((value("layer_types")?.length ?? layers) !== layers) fail("layer_types", `lists ${value("layer_types").length} layers of ${layers}`);
    const heads = needed("num_attention_heads");
    const kvHeads = size("num_key_value_heads", "multi_query_group_num") ?? heads;
    const headDim = size("head_dim", "kv_channels", "attention_head_dim") ?? hidden / heads;
    if (!Number.isInteger(headDim)) fail("num_attention_heads", `${heads} heads do not divide hidden_size ${hidden}; give head_dim`);
    if (heads % kvHeads !== 0) fail("num_key_value_heads", `${kvHeads} does not divide num_attention_heads ${heads}`);
    const slides = flag("use_sliding_window") ?? true;
    const window = slides ? size("sliding_window", "attention_chunk_size") : (value("sliding_window"), null);
    if (window !== null && value("max_window_layers") !== null) fail("max_window_layers", `this page does not read layers with and without a window. ${PROGRAM}`);
    const attention = { grouped: { heads, kv_heads: kvHeads, head_dim: headDim, ...(window !== null && value("layer_types") === null ? { window } : {}) } };
    const feedForward = sparse || value("num_experts") || value("num_local_experts") || value("n_routed_experts")
      ? mixture(size, count, needed, value, WIDE.includes(type)) : [[layers, { dense: { intermediate: needed("intermediate_size", "ffn_hidden_size"), gated: true } }]];
    const shape = {
      name, hidden, vocab: needed("vocab_size"), tied: flag("tie_word_embeddings") ?? false,
      layers: feedForward.map(([n, block]) => ({ count: n, attention, feed_forward: block })),
      bits: { weights: bits, experts: bits, head: bits, kv: 16, activations: 16, expert_activations: 16 },
    };
    value("num_nextn_predict_layers");
    const isHarmless = (key) => harmless.names.includes(key)
      || harmless.ends.some((end) => key.endsWith(end)) || harmless.starts.some((start) => key.startsWith(start));
    const unread = Object.keys(json).filter((key) => json[key] !== null && !known.has(key) && !isHarmless(key));
    return { shape, unread };
  };

  // The feed-forward blocks of a mixture of experts, as [number of layers, block].
  const mixture = (size, count, needed, value, wide) => {
    const total = needed("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts");
    const active = needed("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_top_k", "moe_k", "num_selected_experts", "top_k_experts");
    if (active > total) fail("num_experts_per_tok", `${active} of ${total} experts cannot be active`);
    const intermediate = size("moe_intermediate_size", "expert_intermediate_size") ?? (wide ? needed("intermediate_size") : fail("moe_intermediate_size", "missing; the width of an expert"));
    const whole = ["shared_expert_intermediate_size", "moe_shared_expert_intermediate_size", "shared_intermediate_size"].find((key) => value(key) !== null);
    const number = count("n_shared_experts", "num_shared_experts", "num_shared_expert", "moe_num_shared_experts") ?? 0;
    const block = { experts: { total, active, intermediate, shared_intermediate: whole ? count(whole) : number * intermediate, gated: true } };
    const layers = needed("num_hidden_layers", "num_layers", "n_layer");
    const first = Math.min(count("first_k_dense_replace") ?? 0, layers);
    const only = value("mlp_only_layers") ?? [];
    const steps = ["decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_freq"].map((key) => (Array.isArray(value(key)) ? 0 : size(key) ?? 1));
    if (only.length > 0 || steps.some((step) => step !== 1)) fail("mlp_only_layers", `this page does not read which layers are dense. ${PROGRAM}`);
    if (first === 0) return [[layers, block]];
    const dense = { dense: { intermediate: needed("intermediate_size"), gated: true } };
    return [[first, dense], ...(layers > first ? [[layers - first, block]] : [])];
  };

  // What the passes of a shape move and compute (profiler/src/hardware/models/work.rs).
  const work = (shape) => {
    const { hidden, bits } = shape;
    const bytes = bits.weights / 8;
    const sum = (of) => shape.layers.reduce((total, group) => total + group.count * of(group), 0);
    const block = (inner) => 3 * hidden * inner;
    const grouped = ({ attention: { grouped: g } }) => hidden * g.head_dim * (2 * g.heads + 2 * g.kv_heads);
    const experts = shape.layers.find((group) => group.feed_forward.experts)?.feed_forward.experts;
    const dense = sum(({ feed_forward: f }) => block(f.dense ? f.dense.intermediate : f.experts.shared_intermediate));
    const expert = sum(({ feed_forward: f }) => (f.experts ? block(f.experts.intermediate) : 0));
    const { kv_heads, heads, head_dim, window } = shape.layers[0].attention.grouped;
    const layers = sum(() => 1);
    const kv = (layers * kv_heads * 2 * head_dim * bits.kv) / 8;
    const head = hidden * shape.vocab;
    const blocks = [
      ...(dense > 0 ? [{ total: 1, active: 1, bytes: bytes * dense }] : []),
      ...(experts ? [{ total: experts.total, active: experts.active, bytes: bytes * expert }] : []),
    ];
    const always = bytes * sum(grouped);
    const read = blocks.reduce((total, b) => total + b.total * b.bytes, 0);
    const kernels = kernelsOf(shape, layers);
    return {
      layers, hidden, always_bytes: always, blocks,
      token_flops: { bf16: 2 * (sum(grouped) + dense + (experts ? experts.active * expert : 0)), fp8: 0, fp4: 0 },
      head_bytes: bytes * head, head_flops: 2 * head,
      attention: [{
        bytes: kv, kept_bytes: kv, pair_flops: 4 * layers * heads * head_dim, unpacked: null, window: window ?? null,
        by_token: false, split: kv_heads,
      }],
      state_bytes: 0, request_bytes: 0,
      weight_bytes: always + read + bytes * head * (shape.tied ? 1 : 2),
      sparse_layers: sum(({ feed_forward: f }) => (f.experts ? 1 : 0)),
      active_experts: experts ? experts.active : 0, expert_width: experts ? hidden : 0, kernels,
    };
  };

  // The kernels of a shape's pass (profiler/src/hardware/models/kernels.rs).
  const kernelsOf = ({ hidden, bits, vocab, layers: groups }, layers) => {
    const products = [];
    const add = (count, parameters, weight, activations, split) => {
      if (parameters <= 0) return;
      const same = products.find((p) => p.bits === weight && p.activations === activations && p.split === split);
      if (!same) products.push({ count, parameters: count * parameters, bits: weight, activations, split });
      else [same.count, same.parameters] = [same.count + count, same.parameters + count * parameters];
    };
    const { heads, kv_heads, head_dim } = groups[0].attention.grouped;
    const experts = [];
    let activation = 0;
    for (const { count, feed_forward } of groups) {
      const inner = feed_forward.dense ? feed_forward.dense.intermediate : feed_forward.experts.shared_intermediate;
      const own = (parameters) => add(count, parameters, bits.weights, bits.activations, true);
      [hidden * head_dim * (heads + 2 * kv_heads), heads * head_dim * hidden, 2 * hidden * inner, inner * hidden].forEach(own);
      activation += count * 3 * inner * 2;
      const e = feed_forward.experts;
      if (!e) continue;
      add(count, hidden * e.total, 16, 16, false);
      experts.push({
        layers: count, total: e.total, active: e.active, parameters: count * 3 * hidden * e.intermediate,
        bits: bits.experts, activations: bits.expert_activations,
      });
    }
    add(1, hidden * vocab, bits.head, 16, true);
    return {
      products, experts, attentions: layers, attention_token_bytes: layers * (heads + kv_heads) * 2 * head_dim * 2,
      recurrences: 0, norm_bytes: layers * 8 * hidden * 2, activation_bytes: activation,
    };
  };

  // A shape that a link holds. Null if it is not one that `read` could have made.
  const shapeOf = (value) => {
    const whole = (x, least) => Number.isInteger(x) && x >= least && x < 2 ** 32;
    const grouped = (g) => g && [g.heads, g.kv_heads, g.head_dim, g.window ?? 1].every((x) => whole(x, 1));
    const feed = (f) => f && (f.dense ? whole(f.dense.intermediate, 1)
      : f.experts && [f.experts.total, f.experts.active, f.experts.intermediate].every((x) => whole(x, 1))
        && whole(f.experts.shared_intermediate, 0) && f.experts.active <= f.experts.total);
    const fine = value && typeof value.name === "string" && value.name !== "" && whole(value.hidden, 1) && whole(value.vocab, 1)
      && Array.isArray(value.layers) && value.layers.length > 0
      && value.layers.every((g) => whole(g.count, 1) && grouped(g.attention?.grouped) && feed(g.feed_forward))
      && value.layers.every((g) => JSON.stringify(g.attention) === JSON.stringify(value.layers[0].attention))
      && [16, 32].includes(value.bits?.weights) && value.bits.kv === 16;
    return fine ? value : null;
  };

  return { read, work, shapeOf };
})();
