"use strict";
// A copy of the simulator's arithmetic of one step: the pass shapes of sim/src/shape.rs for a batch of equal requests,
// and the latency models of hardware/src. Times are whole picoseconds, rounded where the simulator rounds. A test
// compares every number with the library's, so a change in the library needs a change here.
const Model = (() => {
  const PS_PER_S = 1e12;
  const ps = (seconds) => Math.round(seconds * PS_PER_S);
  const seconds = (time) => time / PS_PER_S;

  // Draft pass `pass` (from 1) of n requests that hold `context` tokens each.
  const draftPass = (n, context, pass) => {
    const read = n * context + n * (pass - 1);
    return { requests: n, batched: n, context: read, pairs: read + n };
  };

  // The only draft pass where drafting is parallel: `length` tokens for each request at once.
  const draftBlock = (n, context, length) => ({
    requests: n,
    batched: n * length,
    context: n * context,
    pairs: n * (length * context + (length * (length + 1)) / 2),
  });

  // The target pass over `length` drafts and the newest token of each request.
  const verifyPass = (n, context, length, reads) => {
    const positions = n * ((length + 1) * context + (length * (length + 1)) / 2);
    const decodes = n * (length + 1);
    return {
      requests: n,
      batched: decodes,
      context: reads === "per-position" ? positions : n * context,
      pairs: positions + decodes,
    };
  };

  const linear = (c) => {
    const [alpha, gamma, delta] = [ps(c.alpha_s), ps(c.gamma_s), ps(c.delta_s)];
    return (shape) => alpha * shape.context + gamma * shape.batched + delta;
  };

  const staircase = (s) => {
    let highest = 0;
    const steps = s.steps.map(([tokens, time]) => {
      highest = Math.max(highest, time);
      return [tokens, ps(highest)];
    });
    const [alpha, gamma, delta] = [ps(s.alpha_s), ps(s.tail_gamma_s), ps(s.tail_delta_s)];
    return (shape) => {
      const step = steps.find(([tokens]) => tokens >= shape.batched);
      return (step ? step[1] : gamma * shape.batched + delta) + alpha * shape.context;
    };
  };

  // Interpolates between points of a rising curve; beyond its ends the nearest two points are extended. Whole
  // picoseconds, rounded down, as in the simulator.
  const lines = (points) => {
    const at = points.map(([x, time]) => [x, ps(time)]);
    return (x) => {
      if (at.length < 2) return at.length === 0 ? 0 : at[0][1];
      const right = Math.min(Math.max(at.findIndex((p) => p[0] >= x) + 1 || at.length, 2), at.length) - 1;
      const [[x0, t0], [x1, t1]] = [at[right - 1], at[right]];
      const rise = (run) => Number((BigInt(t1 - t0) * BigInt(run)) / BigInt(x1 - x0));
      return x >= x0 ? t0 + rise(x - x0) : Math.max(t0 - rise(x0 - x), 0);
    };
  };

  const measured = (s) => {
    const [batched, pairs, context] = [lines(s.batched), lines(s.pairs), lines(s.context)];
    return (shape) => batched(shape.batched) + pairs(shape.pairs) + context(shape.context);
  };

  // A roofline: `presets.models` has what the passes of a model move and compute (hardware/src/models/shape.rs), and
  // `presets.gpus` the numbers of datasheets.
  const roofline = (spec, presets) => {
    const gpu = presets.gpus[spec.gpu];
    const work = presets.models[spec.model];
    const n = spec.tensor_parallel;
    const speedup = n === 1 ? 1 : n * spec.parallel_efficiency;
    const bandwidth = gpu.bandwidth_bytes_s * spec.bandwidth_efficiency * speedup;
    const flops = (peak) => peak * spec.compute_efficiency * speedup;
    const bf16 = flops(gpu.bf16_flops);
    const sparse = spec.expert_parallel ? work.sparse_layers : 0;
    const reduces = n === 1 ? 0 : 2 * work.layers - sparse;
    const messages = n === 1 ? 0 : reduces + 2 * sparse;
    const reduceBytes = ((2 * (n - 1)) / n) * work.hidden * 2;
    const exchangeBytes = (((2 * (n - 1)) / n) * work.hidden * 2 * work.active_experts) / n;
    const linkBytes = n === 1 ? 0 : reduces * reduceBytes + sparse * exchangeBytes;
    const fixed = spec.pass_overhead_s + work.layers * spec.layer_overhead_s + messages * spec.all_reduce_s;
    // Where the GPU lacks the precision, engines multiply in bf16.
    const of = (work, peak) => (work === 0 ? 0 : work / flops(peak ?? gpu.bf16_flops));
    const tokenFlops =
      work.token_flops.bf16 / bf16 + of(work.token_flops.fp8, gpu.fp8_flops) + of(work.token_flops.fp4, gpu.fp4_flops);
    const headFlops = work.head_flops / bf16;
    const reuse = spec.expert_reuse || 0;
    const blocksTime = (tokens) => (sum, b) => {
      const miss = 1 - b.active / b.total;
      return sum + (b.total > 1 ? b.total * (1 - Math.pow(miss, tokens)) : 1) * (b.bytes / bandwidth);
    };
    const attentionTime = (shape) => (sum, a) => {
      let [read, pairs] = [shape.context + shape.batched, shape.pairs];
      if (a.window !== null) {
        const readers = a.by_token ? shape.batched : shape.requests;
        if (readers > 0) read = Math.min(read, a.window * readers + (a.by_token ? 0 : shape.batched));
        pairs = Math.min(pairs, a.window * shape.batched);
      }
      const packed = (a.pair_flops / bf16) * pairs;
      const unpacked = a.unpacked && (a.unpacked.pair_flops / bf16) * pairs + (a.unpacked.token_flops / bf16) * read;
      const bytes = (a.bytes * Math.max(n / a.split, 1)) / bandwidth;
      return sum + Math.max(bytes * read, a.unpacked ? Math.min(packed, unpacked) : packed);
    };
    return (shape) => {
      const tokens = shape.batched;
      const choosers = tokens - Math.max(tokens - 1, 0) * reuse;
      const read = work.blocks.reduce(blocksTime(choosers), work.always_bytes / bandwidth);
      const weights = Math.max(read, tokenFlops * tokens);
      const attended = work.attention.reduce(attentionTime(shape), 0);
      const sampled = Math.max(work.head_bytes / bandwidth, headFlops * tokens);
      const states = ((2 * work.state_bytes) / bandwidth) * shape.requests;
      return ps(fixed + weights + attended + sampled + (linkBytes / gpu.link_bytes_s) * tokens + states);
    };
  };

  // A latency model as an experiment's [hardware] gives it: the time of a pass, in picoseconds, from its shape.
  const latency = (spec, presets) => {
    if (spec.linear) return linear(spec.linear);
    if (spec.staircase) return staircase(spec.staircase);
    if (spec.measured) return measured(spec.measured);
    if (spec.roofline) return roofline(spec.roofline, presets);
    throw new Error(`no latency model is called ${Object.keys(spec)}`);
  };

  // Bytes of KV that fit beside the weights, and bytes a token takes; null where the model does not say.
  const memory = (spec, presets) => {
    if (!spec.roofline) return null;
    const r = spec.roofline;
    const gpu = presets.gpus[r.gpu];
    const work = presets.models[r.model];
    const room = r.tensor_parallel * (gpu.memory_bytes * r.memory_utilization - r.activation_bytes);
    const token = (sum, a) => sum + a.bytes * Math.max(r.tensor_parallel / a.split, 1);
    return { kv_bytes: room - work.weight_bytes, kv_bytes_token: work.attention.reduce(token, 0) };
  };

  // E(a, k) = 1 + a + … + a^k: tokens of a round, the target's own one included.
  const expectedTokens = (a, k) => {
    let sum = 0;
    for (let j = 0, power = 1; j <= k; j++, power *= a) sum += power;
    return sum;
  };

  // Functions for a server: time and speedup of a decode step of `batch` requests with `context` tokens each.
  const server = (hardware, presets) => {
    const target = latency(hardware.target, presets);
    const bareDraft = latency(hardware.draft, presets);
    const factor = hardware.draft_cost;
    const draft = factor === 1 ? bareDraft : (shape) => ps(seconds(bareDraft(shape)) * factor);
    const overhead = ps(hardware.step_overhead_s);
    const parallel = hardware.drafting === "parallel";

    const draftTime = (batch, context, length) => {
      if (length === 0) return 0;
      if (parallel) return draft(draftBlock(batch, context, length));
      let sum = 0;
      for (let pass = 1; pass <= length; pass++) sum += draft(draftPass(batch, context, pass));
      return sum;
    };
    const verifyTime = (batch, context, length) =>
      target(verifyPass(batch, context, length, hardware.context_reads));
    const stepTime = (batch, context, length) =>
      draftTime(batch, context, length) + verifyTime(batch, context, length) + overhead;
    const speedup = (a, batch, context, length) =>
      (expectedTokens(a, length) * stepTime(batch, context, 0)) / stepTime(batch, context, length);

    // The length, from 0, with the most expected tokens a second; the shortest one if several are equal.
    const bestLength = (a, batch, context, longest) => {
      let best = { length: 0, speedup: 1 };
      for (let length = 1; length <= longest; length++) {
        const s = speedup(a, batch, context, length);
        if (s > best.speedup) best = { length, speedup: s };
      }
      return best;
    };

    // The least acceptance at which drafting `length` tokens is no slower than not drafting; null: not even at 1.
    const breakEvenAcceptance = (batch, context, length) => {
      if (length === 0 || speedup(1, batch, context, length) < 1) return null;
      if (speedup(0, batch, context, length) >= 1) return 0;
      let [low, high] = [0, 1];
      for (let i = 0; i < 60; i++) {
        const middle = (low + high) / 2;
        if (speedup(middle, batch, context, length) >= 1) high = middle;
        else low = middle;
      }
      return high;
    };

    // The batch size from which drafting `length` tokens never pays, up to `most`: 1 if it pays at none; null if it
    // pays at `most`. With several experts drafting may pay at 8 requests though it does not at 1.
    const breakEvenBatch = (a, context, length, most) => {
      if (speedup(a, most, context, length) > 1) return null;
      let batch = most;
      while (batch > 1 && speedup(a, batch - 1, context, length) <= 1) batch--;
      return batch;
    };

    // The longest draft with a speedup above 1; 0 if there is none.
    const breakEvenLength = (a, batch, context, longest) => {
      for (let length = longest; length > 0; length--) {
        if (speedup(a, batch, context, length) > 1) return length;
      }
      return 0;
    };

    return {
      draftTime, verifyTime, stepTime, speedup, bestLength, breakEvenAcceptance, breakEvenBatch, breakEvenLength,
    };
  };

  // Every number of a point, in seconds and tokens, under the names of the page and of the test.
  const at = (point, presets, longest, most) => {
    const s = server(point, presets);
    const { acceptance: a, batch, context, length } = point;
    const expected = expectedTokens(a, length);
    const step = s.stepTime(batch, context, length);
    const best = s.bestLength(a, batch, context, longest);
    return {
      expected_tokens: expected,
      draft_s: seconds(s.draftTime(batch, context, length)),
      verify_s: seconds(s.verifyTime(batch, context, length)),
      step_s: seconds(step),
      plain_step_s: seconds(s.stepTime(batch, context, 0)),
      token_goodput_tok_s: (batch * expected) / seconds(step),
      speedup: s.speedup(a, batch, context, length),
      best_length: best.length,
      best_speedup: best.speedup,
      break_even_acceptance: s.breakEvenAcceptance(batch, context, length),
      break_even_batch: length === 0 ? null : s.breakEvenBatch(a, context, length, most),
      break_even_length: s.breakEvenLength(a, batch, context, longest),
      kv: memory(point.target, presets),
    };
  };

  return { at, server, memory, expectedTokens, seconds };
})();
