// Writes the page's settings as an experiment that `foretoken run` accepts: as many clients as the batch has requests,
// and requests of one length whose mean context is the page's.
const Experiment = (() => {
  const SHORT = /^[A-Za-z0-9_-]+$/;
  // A value as inline TOML. TOML has no null: such keys are left out.
  const toml = (value) => {
    if (typeof value === "string") return JSON.stringify(value).replace(/\u007f/g, "\\u007f");
    if (Array.isArray(value)) return `[${value.map(toml).join(", ")}]`;
    if (value === null || typeof value !== "object") return String(value);
    const pairs = Object.entries(value).filter(([, x]) => x !== null && x !== undefined);
    if (pairs.length === 0) return "{}";
    return `{ ${pairs.map(([key, x]) => `${SHORT.test(key) ? key : JSON.stringify(key)} = ${toml(x)}`).join(", ")} }`;
  };

  // A latency model whose passes take `factor` times as long.
  const slower = (spec, factor) => {
    const times = (points) => points.map(([x, t]) => [x, t * factor]);
    if (factor === 1) return spec;
    const scaled = (keys, of, by) => Object.fromEntries(Object.entries(of).map(([key, x]) => [key, keys.includes(key) && x ? x * by : x]));
    if (spec.linear) return { linear: scaled(["alpha_s", "gamma_s", "delta_s"], spec.linear, factor) };
    if (spec.measured) return { measured: Object.fromEntries(Object.entries(spec.measured).map(([key, points]) => [key, times(points)])) };
    if (spec.staircase) return { staircase: { ...scaled(["alpha_s", "tail_gamma_s", "tail_delta_s"], spec.staircase, factor), steps: times(spec.staircase.steps) } };
    return { roofline: { ...spec.roofline, time_factor: (spec.roofline.time_factor ?? 1) * factor } };
  };

  const datasheet = ({ source, own, floors, ...numbers }) => numbers;

  // The experiment for a point of the page. GPUs and models that have no preset are written out.
  const text = (point, presets, link) => {
    const written = (spec, factor) => {
      if (!spec.roofline) return slower(spec, factor);
      const gpu = presets.gpus[spec.roofline.gpu];
      const own = {
        ...spec.roofline, gpu: gpu.own ? datasheet(gpu) : spec.roofline.gpu,
        model: presets.shapes[spec.roofline.model] ?? spec.roofline.model,
        ...(Model.lacksPeak(gpu, presets.models[spec.roofline.model]) ? { weight_only: true } : {}),
      };
      return slower({ roofline: own }, factor);
    };
    const { batch, context, length } = point;
    const output = Math.max(Math.min(256, context), 2);
    const prompt = Math.max(context - Math.floor(output / 2), 1);
    const blocks = batch * (Math.ceil((prompt + output + 64) / 16) + 1) + 2;
    const source = point.acceptance.source ?? (point.acceptance.rates.length === 1
      ? { constant: { rate: point.acceptance.rates[0] } } : { "by-depth": { rates: point.acceptance.rates } });
    const policies = [{ autoregressive: {} }, ...(length > 0 ? [{ fixed: { k: length } }] : [])];
    const host = point.host ? `host = ${toml(point.host)}\n` : "";
    const memory = point.target.roofline ? "" : `# The costs do not say how much memory there is. These blocks hold the batch.\nnum_gpu_blocks = ${blocks}\n`;
    return `# Made by the break-even explorer: ${link}
# Batches of ${batch} requests with ${context} tokens of context on average, and ${length} drafts a round. Drafts are made at
# the start of a step and steps do not overlap, as the explorer computes them: take the last two lines of [engine] away
# to get vLLM's order.
name = "explored"
seeds = [1]
policies = ${toml(policies)}

[hardware]
target = ${toml(written(point.target, 1))}
draft = ${toml(written(point.draft, point.draft_cost))}
context_reads = "${point.context_reads}"
drafting = "${point.drafting}"

[engine]
max_num_seqs = ${batch}
max_num_batched_tokens = ${Math.max(8192, batch * (length + 1) + prompt)}
max_draft_len = ${Math.max(length, 1)}
step_overhead_s = ${point.step_overhead_s}
${host}${memory}draft_at = "step-start"
async_scheduling = false

[workload]
arrivals = { closed-loop = ${batch} }
lengths = { fixed = { prompt = ${prompt}, output = ${output} } }
requests = ${Math.max(4 * batch, 40)}

[acceptance.source]
${Object.entries(source).map(([key, x]) => `${key} = ${toml(x)}`).join("\n")}

[output]
steps = true
`;
  };

  return { text };
})();
