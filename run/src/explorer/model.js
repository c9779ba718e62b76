"use strict";
// A copy of the simulator's arithmetic of one step: the pass shapes of sim/src/shape.rs for a batch of equal requests,
// and the latency models of profiler/src/hardware. Times are whole picoseconds, rounded where the simulator rounds. A
// test compares every number with the library's, so a change in the library needs a change here.
const Model = (() => {
  const PS_PER_S = 1e12;
  const ps = (seconds) => Math.round(seconds * PS_PER_S);
  const seconds = (time) => time / PS_PER_S;

  // Lengths whose steps give at most this share fewer tokens than the best one tie, as for `foretoken recommend`.
  const TIE = 0.01;
  // The best length by the speedups of the lengths 1, 2, …: the shortest of those that tie with the fastest. Length 0,
  // which does not draft, is among them.
  const bestOf = (speedups) => {
    const all = [1, ...speedups];
    const length = all.findIndex((s) => s * (1 + TIE) >= Math.max(...all));
    return { length, speedup: all[length] };
  };

  const sum = (list, of) => list.reduce((total, x, i) => total + of(x, i), 0);

  // The passes of a batch of `n` requests with `context` tokens each, of which `counts[j - 1]` have a j-th draft. Draft
  // pass `pass`, from 1, runs over `n` requests.
  const draftPass = (n, context, pass) => {
    const read = n * context + n * (pass - 1);
    return { requests: n, batched: n, context: read, pairs: read + n };
  };

  // The only draft pass where drafting is parallel: all tokens of each request at once.
  const draftBlock = (context, counts) => ({
    requests: counts[0],
    batched: sum(counts, (c) => c),
    context: counts[0] * context,
    pairs: sum(counts, (c, i) => c * (context + i + 1)),
  });

  // The target pass over the drafts and the newest token of each request.
  const verifyPass = (n, context, counts, reads) => {
    const positions = n * context + sum(counts, (c, i) => c * (context + i + 1));
    const batched = n + sum(counts, (c) => c);
    return {
      requests: n,
      batched,
      context: reads === "per-position" ? positions : n * context,
      pairs: positions + batched,
    };
  };

  // The same pass with a whole prompt of `tokens` tokens beside it.
  const withPrompt = (shape, tokens) => ({
    ...shape,
    requests: shape.requests + 1,
    batched: shape.batched + tokens,
    pairs: shape.pairs + (tokens * (tokens + 1)) / 2,
  });

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
    const [batched, pairs, context, requests] = [lines(s.batched), lines(s.pairs), lines(s.context), lines(s.requests ?? [])];
    return (shape) => batched(shape.batched) + pairs(shape.pairs) + context(shape.context) + requests(shape.requests);
  };

  // The counted distinct experts that a pass over `tokens` tokens reads; null where nothing was counted.
  const expertsRead = (points) => (tokens) => {
    if (points.length === 0) return null;
    const next = points.findIndex((p) => p[0] >= tokens);
    if (next <= 0) return points[next === 0 ? 0 : points.length - 1][1];
    const [[n0, e0], [n1, e1]] = [points[next - 1], points[next]];
    return e0 + ((e1 - e0) * (tokens - n0)) / (n1 - n0);
  };

  const lacksPeak = (gpu, work) =>
    (work.token_flops.fp8 > 0 && !gpu.fp8_flops) || (work.token_flops.fp4 > 0 && !gpu.fp4_flops);

  // (collective operations of a pass, bytes that a token moves over each link).
  const messagesOf = (spec, work) => {
    const n = spec.tensor_parallel;
    if (n === 1) return [0, 0];
    const sparse = spec.expert_parallel ? work.sparse_layers : 0;
    const reduces = 2 * work.layers - sparse;
    const reduceBytes = ((2 * (n - 1)) / n) * work.hidden * 2;
    const exchangeBytes = (((2 * (n - 1)) / n) * work.expert_width * 2 * work.active_experts) / n;
    return [reduces + 2 * sparse, reduces * reduceBytes + sparse * exchangeBytes];
  };

  // (seconds to read the KV, seconds to compute the pairs) of one kind of attention.
  const attentionParts = (a, shape, n, bandwidth, flops) => {
    let [read, pairs] = [shape.context + shape.batched, shape.pairs];
    if (a.window !== null) {
      const readers = a.by_token ? shape.batched : shape.requests;
      if (readers > 0) read = Math.min(read, a.window * readers + (a.by_token ? 0 : shape.batched));
      pairs = Math.min(pairs, a.window * shape.batched);
    }
    const packed = (a.pair_flops / flops) * pairs;
    const unpacked = a.unpacked && (a.unpacked.pair_flops / flops) * pairs + (a.unpacked.token_flops / flops) * read;
    const bytes = (a.bytes * Math.max(n / a.split, 1)) / bandwidth;
    return [bytes * read, a.unpacked ? Math.min(packed, unpacked) : packed];
  };

  // The measured GPU whose floors a GPU of four numbers has: of those with its precisions, the one of the nearest
  // bandwidth (profiler/src/hardware/floors.rs).
  const relative = (own, presets) => {
    const names = Object.keys(presets.floors);
    const has = (gpu) => `${Boolean(gpu.fp8_flops)} ${Boolean(gpu.fp4_flops)}`;
    const alike = names.filter((name) => has(presets.gpus[name]) === has(own));
    const distance = (name) => Math.abs(Math.log(presets.gpus[name].bandwidth_bytes_s / own.bandwidth_bytes_s));
    return (alike.length > 0 ? alike : names).reduce((a, b) => (distance(b) < distance(a) ? b : a));
  };

  // A roofline whose kernels have floors and shares of their own, in seconds
  // (profiler/src/hardware/roofline/kernel_times.rs).
  const floored = (spec, presets) => {
    const gpu = presets.gpus[spec.gpu];
    const work = presets.models[spec.model];
    const kernels = work.kernels;
    const fits = presets.floors[gpu.floors ?? relative(gpu, presets)];
    const n = spec.tensor_parallel;
    const speed = n === 1 ? 1 : spec.parallel_efficiency ?? 1;
    const bandwidth = (share) => gpu.bandwidth_bytes_s * speed * (spec.bandwidth_efficiency ?? share);
    // Where the GPU lacks a precision of the model, engines multiply in bf16.
    const lacking = lacksPeak(gpu, work);
    const bitsOf = (k) => (lacking ? 16 : k.activations);
    const peak = (bits) => (bits <= 4 ? gpu.fp4_flops : bits <= 8 ? gpu.fp8_flops : gpu.bf16_flops);
    const flops = (bits, share) => peak(bits) * speed * (spec.compute_efficiency ?? share);
    const fitOf = (kinds, k) =>
      bitsOf(k) <= 4 ? kinds.fp4 : bitsOf(k) <= 8 ? kinds.fp8 : k.bits <= 8.5 ? kinds.weight_only : kinds.bf16;
    const join = (fit, moved, computed) => (fit.join === "sum" ? moved + computed : Math.sqrt(moved * moved + computed * computed));
    const [messages, linkBytes] = messagesOf(spec, work);
    const products = kernels.products.map((p) => {
      const [fit, gpus] = [fitOf(fits.products, p), p.split ? n : 1];
      const moved = ((p.parameters / gpus) * p.bits) / 8 / bandwidth(fit.bandwidth);
      return { fit, floor: p.count * fit.floor_s, moved, computed: (2 * p.parameters) / gpus / flops(bitsOf(p), fit.flops) };
    });
    const experts = kernels.experts.map((e) => {
      const fit = fitOf(fits.experts, e);
      const numbers = (4 * e.active * e.layers * work.expert_width) / (spec.expert_parallel ? n : 1);
      return {
        fit, total: e.total, miss: 1 - e.active / e.total, floor: e.layers * fit.floor_s,
        token: numbers / bandwidth(fit.token_bandwidth),
        moved: ((e.parameters / n) * e.bits) / 8 / bandwidth(fit.bandwidth),
        computed: (2 * e.active * e.parameters) / n / flops(bitsOf(e), fit.flops),
      };
    });
    const floorsOf = (list) => sum(list, (k) => k.floor);
    const fixed = (spec.pass_overhead_s ?? presets.floors_pass_s)
      + work.layers * (spec.layer_overhead_s ?? presets.small_kernels * fits.small.floor_s)
      + messages * (spec.all_reduce_s ?? fits.all_reduce.floor_s)
      + kernels.attentions * fits.attention.floor_s + kernels.recurrences * fits.recurrent.floor_s
      + floorsOf(products) + floorsOf(experts);
    const perRequest = kernels.attentions * fits.attention.request_s
      + (2 * work.state_bytes) / n / bandwidth(fits.recurrent.bandwidth);
    const perToken = kernels.attention_token_bytes / n / bandwidth(fits.attention.token_bandwidth)
      + (kernels.norm_bytes + kernels.activation_bytes / n) / bandwidth(fits.small.bandwidth)
      + linkBytes / (gpu.link_bytes_s * fits.all_reduce.bandwidth) + sum(experts, (e) => e.token);
    const [attended, pairs] = [n * bandwidth(fits.attention.bandwidth), n * flops(16, fits.attention.flops)];
    const reuse = spec.expert_reuse || 0;
    const counted = expertsRead(spec.experts_read || []);
    return (shape) => {
      const tokens = shape.batched;
      const choosers = tokens - Math.max(tokens - 1, 0) * reuse;
      const read = (e) => counted(tokens) ?? e.total * (1 - Math.pow(e.miss, choosers));
      const multiplied = sum(products, (p) => join(p.fit, p.moved, p.computed * tokens));
      const chosen = sum(experts, (e) => join(e.fit, read(e) * e.moved, e.computed * tokens));
      const attention = sum(work.attention, (a) => join({}, ...attentionParts(a, shape, n, attended, pairs)));
      return fixed + multiplied + chosen + attention + perRequest * shape.requests + perToken * tokens;
    };
  };

  // A roofline without floors, in seconds: `presets.models` has what the passes of a model move and compute
  // (profiler/src/hardware/models/shape.rs), and `presets.gpus` the numbers of datasheets.
  const common = (given, presets) => {
    const spec = { ...presets.assumed, ...given };
    const gpu = presets.gpus[spec.gpu];
    const work = presets.models[spec.model];
    const n = spec.tensor_parallel;
    const speedup = n === 1 ? 1 : n * spec.parallel_efficiency;
    const bandwidth = gpu.bandwidth_bytes_s * spec.bandwidth_efficiency * speedup;
    const flops = (peak) => peak * spec.compute_efficiency * speedup;
    const bf16 = flops(gpu.bf16_flops);
    const [messages, linkBytes] = messagesOf(spec, work);
    const fixed = spec.pass_overhead_s + work.layers * spec.layer_overhead_s + messages * spec.all_reduce_s;
    // Where the GPU lacks a precision of the model, engines multiply in bf16.
    const lacking = lacksPeak(gpu, work);
    const of = (flop, peak) => (flop === 0 ? 0 : flop / flops(lacking ? gpu.bf16_flops : peak));
    const { bf16: wide, fp8, fp4 } = work.token_flops;
    const tokenFlops = wide / bf16 + of(fp8, gpu.fp8_flops) + of(fp4, gpu.fp4_flops);
    const headFlops = work.head_flops / bf16;
    const reuse = spec.expert_reuse || 0;
    const counted = expertsRead(spec.experts_read || []);
    const blocksTime = (choosers, tokens) => (sum, b) => {
      const chosen = () => counted(tokens) ?? b.total * (1 - Math.pow(1 - b.active / b.total, choosers));
      return sum + (b.total > 1 ? chosen() : 1) * (b.bytes / bandwidth);
    };
    const attentionTime = (shape) => (sum, a) => sum + Math.max(...attentionParts(a, shape, n, bandwidth, bf16));
    return (shape) => {
      const tokens = shape.batched;
      const choosers = tokens - Math.max(tokens - 1, 0) * reuse;
      const read = work.blocks.reduce(blocksTime(choosers, tokens), work.always_bytes / bandwidth);
      const weights = Math.max(read, tokenFlops * tokens);
      const attended = work.attention.reduce(attentionTime(shape), 0);
      const sampled = Math.max(work.head_bytes / bandwidth, headFlops * tokens);
      const states = ((2 * work.state_bytes) / bandwidth) * shape.requests;
      return fixed + weights + attended + sampled + (linkBytes / gpu.link_bytes_s) * tokens + states;
    };
  };

  const roofline = (spec, presets) => {
    const passSeconds = (spec.floors === false ? common : floored)(spec, presets);
    return (shape) => ps(passSeconds(shape) * (spec.time_factor ?? 1));
  };

  // A latency model as an experiment's [hardware] gives it: the time of a pass, in picoseconds, from its shape.
  const latency = (spec, presets) => {
    if (spec.linear) return linear(spec.linear);
    if (spec.staircase) return staircase(spec.staircase);
    if (spec.measured) return measured(spec.measured);
    if (spec.roofline) return roofline(spec.roofline, presets);
    throw new Error(`no latency model is called ${Object.keys(spec)}`);
  };

  // Memory of the target's GPUs, with or without a drafter on them: bytes left beside the weights, bytes of a token of
  // context, and of these the bytes that are kept only for the newest `window` tokens. Null where the latency model
  // does not know its memory.
  const memory = (hardware, presets, drafts) => {
    const [target, draft] = [hardware.target.roofline, hardware.draft.roofline];
    if (!target) return null;
    const gpu = presets.gpus[target.gpu];
    const work = (r) => presets.models[r.model];
    const ofToken = (r, layers) => sum(layers, (a) => a.kept_bytes * Math.max(r.tensor_parallel / a.split, 1));
    const layers = work(target).attention.filter((a) => a.kept_bytes > 0);
    const slide = layers.filter((a) => a.window !== null && !a.by_token);
    // If all layers have a window, an engine keeps every token in the memory of this model.
    const dropping = slide.length < layers.length ? slide : [];
    const room = target.tensor_parallel * (gpu.memory_bytes * target.memory_utilization - target.activation_bytes);
    const beside = drafts && draft;
    return {
      kv_bytes: room - work(target).weight_bytes - (beside ? work(draft).weight_bytes : 0),
      kv_bytes_token: ofToken(target, layers) + (beside ? ofToken(draft, work(draft).attention) : 0),
      window_bytes_token: ofToken(target, dropping),
      window: Math.max(0, ...dropping.map((a) => a.window)),
    };
  };

  // Bytes of KV of a request of `context` tokens.
  const kvOf = (kv, context) => kv.kv_bytes_token * context - kv.window_bytes_token * Math.max(context - kv.window, 0);

  // The most requests of `context` tokens that the memory holds; Infinity where the memory is not known.
  const room = (kv, context) => (kv === null ? Infinity : Math.max(Math.floor(kv.kv_bytes / kvOf(kv, context)), 0));

  // E(k) = 1 + r1 + r1 r2 + …: tokens of a round of k drafts, the target's own one included. Rates are by place in the
  // round; the last one holds for all deeper places.
  const expectedTokens = (rates, k) => {
    let total = 1;
    for (let j = 0, power = 1; j < k; j++) total += power *= rates[Math.min(j, rates.length - 1)];
    return total;
  };

  // Acceptance: `{ rates }`, or `{ tokens, shares }` of a source that the program drew: tokens of a round by the length
  // asked for, and the shares of rounds that get a first, second, … draft (null: all do).
  const tokensOf = (acceptance, k) => acceptance.tokens?.[k] ?? expectedTokens(acceptance.rates, k);
  const sharesOf = (acceptance, k) => acceptance.shares?.[k] ?? Array(k).fill(1);

  // The host's time of a step (sim/src/host.rs), of which the device hides nothing.
  const hostTime = (law, overhead_s) => (requests, drafts) => {
    if (!law) return ps(overhead_s);
    const [more, without] = [law.speculating, law.without_graph];
    let time = ps(overhead_s) + ps(law.request_s) * requests + ps(law.token_s) * (requests + drafts);
    if (drafts > 0) time += ps(more.step_s) + ps(more.request_s) * requests + ps(more.token_s) * drafts;
    return requests > without.above ? time + ps(drafts > 0 ? without.speculating_s : without.step_s) : time;
  };

  // Functions for a server: time and speedup of a decode step of `batch` requests with `context` tokens each.
  const server = (hardware, presets) => {
    const { acceptance } = hardware;
    const target = latency(hardware.target, presets);
    const bareDraft = latency(hardware.draft, presets);
    const factor = hardware.draft_cost;
    const draft = factor === 1 ? bareDraft : (shape) => ps(seconds(bareDraft(shape)) * factor);
    const host = hostTime(hardware.host, hardware.step_overhead_s);

    const countsOf = (batch, length, of = acceptance) => sharesOf(of, length).map((share) => Math.round(batch * share));
    const draftShapes = (context, counts) => {
      const passes = counts.filter((c) => c > 0);
      if (passes.length === 0) return [];
      if (hardware.drafting === "parallel") return [draftBlock(context, passes)];
      return passes.map((n, i) => draftPass(n, context, i + 1));
    };
    // The parts of a step, in picoseconds.
    const parts = (batch, context, length, of) => {
      const counts = countsOf(batch, length, of);
      const verified = verifyPass(batch, context, counts, hardware.context_reads);
      return {
        draft: sum(draftShapes(context, counts), draft),
        verify: target(verified),
        host: host(batch, verified.batched - batch),
      };
    };
    const stepTime = (batch, context, length, of) => {
      const { draft, verify, host } = parts(batch, context, length, of);
      return draft + verify + host;
    };
    const speedup = (batch, context, length, of = acceptance) =>
      (tokensOf(of, length) * stepTime(batch, context, 0)) / stepTime(batch, context, length, of);

    // The length, from 0, with the most expected tokens a second; the shortest one if several tie.
    const bestLength = (batch, context, longest) =>
      bestOf(Array.from({ length: longest }, (_, i) => speedup(batch, context, i + 1)));

    // The least constant acceptance at which drafting `length` tokens is no slower than not drafting; null: not even
    // at 1.
    const breakEvenAcceptance = (batch, context, length) => {
      const at = (rate) => speedup(batch, context, length, { rates: [rate] });
      if (length === 0 || at(1) < 1) return null;
      if (at(0) >= 1) return 0;
      let [low, high] = [0, 1];
      for (let i = 0; i < 60; i++) {
        const middle = (low + high) / 2;
        if (at(middle) >= 1) high = middle;
        else low = middle;
      }
      return high;
    };

    // The intervals [first, last] of batch sizes up to `most` at which drafting `length` tokens pays. With several
    // experts drafting may pay at 8 requests though it does not at 1.
    const pays = (context, length, most) => {
      const intervals = [];
      for (let batch = 1; batch <= most && length > 0; batch++) {
        if (speedup(batch, context, length) <= 1) continue;
        const last = intervals[intervals.length - 1];
        if (last && last[1] === batch - 1) last[1] = batch;
        else intervals.push([batch, batch]);
      }
      return intervals;
    };

    // The longest draft with a speedup above 1; 0 if there is none.
    const breakEvenLength = (batch, context, longest) => {
      for (let length = longest; length > 0; length--) {
        if (speedup(batch, context, length) > 1) return length;
      }
      return 0;
    };

    // The mean batch size at `rate` requests a second with `output` tokens each, by Little's law (docs/model.md 12.1).
    // A request lives for its rounds, one step for its prompt, and half a step of waiting. All prompts lengthen the
    // steps. Null: more than `most` requests, so that the server does not keep up.
    const settledBatch = (context, length, rate, output, most) => {
      const prompt = Math.max(Math.round(context - output / 2), 1);
      const steps = (output - 1) / tokensOf(acceptance, length) + 1.5;
      const life = (batch) => {
        const counts = countsOf(batch, length);
        const verified = verifyPass(batch, context, counts, hardware.context_reads);
        const first = draftShapes(context, counts)[0];
        const prompt_s = seconds(target(withPrompt(verified, prompt)) - target(verified)
          + (first ? draft(withPrompt(first, prompt)) - draft(first) : 0));
        const free = 1 - rate * prompt_s;
        return free > 0 ? (steps * seconds(stepTime(batch, context, length))) / free + prompt_s : Infinity;
      };
      const between = (n) => {
        const [low, share] = [Math.max(Math.floor(n), 1), n <= 1 ? 0 : n % 1];
        return share === 0 ? life(low) : (1 - share) * life(low) + share * life(low + 1);
      };
      let n = 0;
      for (let i = 0; i < 1000; i++) {
        const next = rate * between(n);
        if (!(next <= most)) return null;
        if (Math.abs(next - n) <= 1e-6 * next) return next;
        n = next;
      }
      return n;
    };

    return { parts, stepTime, speedup, bestLength, breakEvenAcceptance, pays, breakEvenLength, settledBatch };
  };

  // What the host time of a measured server (`point.band`) would make of a point that counts none; null without one.
  const banded = (point, presets, longest, most) => {
    if (!point.band) return null;
    const { batch, context, length } = point;
    const s = server({ ...point, host: point.band }, presets);
    const best = s.bestLength(batch, context, longest);
    return {
      speedup: s.speedup(batch, context, length), best_length: best.length, best_speedup: best.speedup,
      pays: s.pays(context, length, most),
    };
  };

  // Every number of a point, in seconds and tokens, under the names of the page and of the test.
  const at = (point, presets, longest, most) => {
    const s = server(point, presets);
    const { acceptance, batch, context, length } = point;
    const expected = tokensOf(acceptance, length);
    const parts = s.parts(batch, context, length);
    const step = s.stepTime(batch, context, length);
    const best = s.bestLength(batch, context, longest);
    return {
      expected_tokens: expected,
      draft_s: seconds(parts.draft),
      verify_s: seconds(parts.verify),
      host_s: seconds(parts.host),
      step_s: seconds(step),
      plain_step_s: seconds(s.stepTime(batch, context, 0)),
      token_goodput_tok_s: (batch * expected) / seconds(step),
      speedup: s.speedup(batch, context, length),
      best_length: best.length,
      best_speedup: best.speedup,
      pays: s.pays(context, length, most),
      break_even_acceptance: s.breakEvenAcceptance(batch, context, length),
      break_even_length: s.breakEvenLength(batch, context, longest),
      kv: memory(point, presets, length > 0),
      settled: point.rate > 0 ? s.settledBatch(context, length, point.rate, point.output, most) : null,
      settled_plain: point.rate > 0 ? s.settledBatch(context, 0, point.rate, point.output, most) : null,
      banded: banded(point, presets, longest, most),
    };
  };

  return { at, server, bestOf, memory, kvOf, room, lacksPeak, tokensOf, sharesOf, expectedTokens, seconds };
})();
