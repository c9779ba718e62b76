// The page. The URL's hash holds the settings, controls change them, and numbers and drawings are computed from them.
(() => {
  const presets = JSON.parse(document.getElementById("presets").textContent);
  const LONGEST = 16; // draft tokens
  const MOST = 1024; // requests
  const byId = (id) => document.getElementById(id);

  // Sliders: key in the hash, label, least and greatest value, step, and whether the slider is logarithmic.
  const SLIDERS = [
    { key: "cost", label: "Draft cost (times the model's)", least: 0.05, most: 20, log: true, digits: 2, usual: 1 },
    { key: "a", label: "Acceptance (chance that the next draft token is right)", least: 0, most: 1, step: 0.01, digits: 3, usual: 0.7 },
    { key: "k", label: "Draft length (tokens)", least: 0, most: LONGEST, step: 1, usual: 4 },
    { key: "n", label: "Batch size (requests)", least: 1, most: MOST, log: true, digits: 0, usual: 8 },
    { key: "c", label: "Context (tokens a request)", least: 16, most: 131072, log: true, digits: 0, usual: 1024 },
    { key: "over", label: "Host time of a step (ms)", least: 0, most: 20, step: 0.1, digits: 2, usual: 0 },
  ];
  const LINEAR = [
    { key: "ta", label: "Target α (ns a context token)", usual: 20 },
    { key: "tg", label: "Target γ (µs a token)", usual: 40 },
    { key: "td", label: "Target δ (ms a pass)", usual: 10 },
    { key: "da", label: "Draft α (ns a context token)", usual: 1 },
    { key: "dg", label: "Draft γ (µs a token)", usual: 4 },
    { key: "dd", label: "Draft δ (ms a pass)", usual: 1 },
  ].map((s) => ({ ...s, least: 0, most: 1e6 }));
  const CHOICES = {
    hw: [...Object.keys(presets.gpus), "linear", ...(presets.profile ? ["profile"] : [])],
    target: Object.keys(presets.models),
    draft: Object.keys(presets.models),
    tp: ["1", "2", "4", "8"],
    reads: ["once", "per-position"],
    drafting: ["autoregressive", "parallel"],
  };
  const USUAL = {
    hw: presets.profile ? "profile" : "h100", target: "llama-3.1-8b", draft: "llama-3.2-1b", tp: "1",
    reads: presets.profile?.context_reads ?? "once", drafting: presets.profile?.drafting ?? "autoregressive",
  };
  for (const s of [...SLIDERS, ...LINEAR]) USUAL[s.key] = s.usual;
  if (presets.profile) USUAL.over = presets.profile.step_overhead_s * 1e3;

  // Reads the settings in a hash. Also returns a sentence for each setting that the page cannot use: its default is
  // used instead, or the nearest end of its range.
  const parse = (hash) => {
    const [state, wrong] = [{ ...USUAL }, []];
    for (const [key, value] of new URLSearchParams(hash)) {
      const slider = [...SLIDERS, ...LINEAR].find((s) => s.key === key);
      const number = Number(value);
      if (slider && value.trim() !== "" && Number.isFinite(number)) {
        const inside = Math.min(Math.max(number, slider.least), slider.most);
        state[key] = ["k", "n", "c"].includes(key) ? Math.round(inside) : inside;
        if (state[key] !== number) wrong.push(`${key} = ${value} becomes ${state[key]}.`);
      } else if (slider) {
        wrong.push(`${key} = "${value}" is not a number: it stays ${state[key]}.`);
      } else if (CHOICES[key]?.includes(value)) {
        state[key] = value;
      } else if (CHOICES[key]) {
        wrong.push(`${key} = "${value}" is not known here: it stays ${state[key]}. Known are ${CHOICES[key].join(", ")}.`);
      } else if (key !== "check") {
        wrong.push(`There is no setting "${key}".`);
      }
    }
    return { state, wrong };
  };
  const write = (state) => {
    const said = Object.keys(USUAL).filter((key) => state[key] !== USUAL[key]);
    return new URLSearchParams(said.map((key) => [key, state[key]])).toString();
  };

  // Converts the page's settings to the model's input, in SI units.
  const pointOf = (state) => {
    const specs = () => {
      if (state.hw === "profile") return { target: presets.profile.target, draft: presets.profile.draft };
      if (state.hw === "linear") {
        const of = (m) => ({ linear: { alpha_s: state[m + "a"] / 1e9, gamma_s: state[m + "g"] / 1e6, delta_s: state[m + "d"] / 1e3 } });
        return { target: of("t"), draft: of("d") };
      }
      const of = (model, n) => ({ roofline: { ...presets.roofline, gpu: state.hw, model, tensor_parallel: n } });
      return { target: of(state.target, Number(state.tp)), draft: of(state.draft, 1) };
    };
    return {
      ...specs(), draft_cost: state.cost, acceptance: state.a, length: state.k, batch: state.n, context: state.c,
      step_overhead_s: state.over / 1e3, context_reads: state.reads, drafting: state.drafting,
    };
  };

  const fixed = (x, digits) => x.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  const format = {
    ms: (s) => (s < 1e-3 ? `${fixed(s * 1e6, 0)} µs` : `${fixed(s * 1e3, s < 0.1 ? 2 : 1)} ms`),
    count: (x) => fixed(x, 2),
    short: (x) => String(Math.round(x * 100) / 100),
    speedup: (s) => `${fixed(s, s < 10 ? 2 : 1)}×`,
    gb: (b) => `${fixed(b / 1e9, 1)} GB`,
  };

  let { state, wrong } = parse(location.hash.slice(1));

  const numbersOf = (p) => [
    ["expected_tokens", "Tokens a round, expected", p.expected_tokens, format.count],
    ["step_s", "Step with drafting", p.step_s, format.ms],
    ["draft_s", "of it draft passes", p.draft_s, format.ms],
    ["verify_s", "of it the verify pass", p.verify_s, format.ms],
    ["plain_step_s", "Step without drafting", p.plain_step_s, format.ms],
    ["token_goodput_tok_s", "Tokens a second, all requests", p.token_goodput_tok_s, (x) => fixed(x, 0)],
    ["speedup", "Speedup", p.speedup, format.speedup],
    ["best_length", "Best length here", p.best_length, (x) => `${x} (${format.speedup(p.best_speedup)})`],
    ["break_even_batch", "Does not pay from batch size", p.break_even_batch, (x) => (x === 1 ? "1: never pays" : String(x))],
    ["break_even_acceptance", "Pays from acceptance", p.break_even_acceptance, (x) => fixed(x, 3)],
    ["break_even_length", "Pays up to length", p.break_even_length, (x) => (x === 0 ? "none pays" : x === LONGEST ? `${x} or more` : String(x))],
  ];
  const missing = (key) => {
    if (state.k === 0) return "nothing is drafted";
    return key === "break_even_batch" ? `pays at ${MOST}` : "none: not even at 1";
  };

  // If the target's passes take no time, ratios of times are 0 / 0 and nothing can be compared.
  const costsNothing = (p) => p.step_s === 0 || p.plain_step_s === 0;

  const headline = (p) => {
    if (costsNothing(p)) return "A step without drafting takes no time here, so there is nothing to compare. Give the target a cost.";
    if (state.k === 0) {
      return p.best_length === 0
        ? "Nothing is drafted, and that is best here."
        : `Nothing is drafted. Drafting ${p.best_length} tokens would be ${format.speedup(p.best_speedup)} as fast.`;
    }
    const tokens = state.k === 1 ? "1 token" : `${state.k} tokens`;
    const best = p.best_length === state.k ? "No other length is better."
      : p.best_length === 0 ? "No length pays here." : `${p.best_length} would be best (${format.speedup(p.best_speedup)}).`;
    const says = p.speedup > 1 ? "pays" : "does not pay";
    return `Drafting ${tokens} ${says}: ${format.speedup(p.speedup)} the tokens a second of not drafting. ${best}`;
  };

  const warningOf = (p) => {
    if (!p.kv) return "";
    const wanted = p.kv.kv_bytes_token * state.n * state.c;
    if (p.kv.kv_bytes <= 0) return `The target's weights do not fit on ${state.tp} × ${state.hw}. Times are shown all the same.`;
    if (wanted <= p.kv.kv_bytes) return "";
    return `KV of this batch takes ${format.gb(wanted)}; ${format.gb(p.kv.kv_bytes)} are left beside the weights. A server would preempt or queue.`;
  };

  const batches = [];
  for (let i = 0; i <= 40; i++) {
    const b = Math.round(2 ** (i / 4));
    if (batches[batches.length - 1] !== b) batches.push(b);
  }
  const lengths = Array.from({ length: LONGEST }, (_, i) => i + 1);

  const draw = () => {
    const point = pointOf(state);
    const p = Model.at(point, presets, LONGEST, MOST);
    byId("headline").textContent = headline(p);
    const warning = warningOf(p);
    byId("warning").textContent = warning;
    byId("warning").hidden = warning === "";
    byId("link").textContent = wrong.length === 0 ? "" : `The link does not fit this page. ${wrong.join(" ")}`;
    byId("link").hidden = wrong.length === 0;
    byId("computed").hidden = costsNothing(p);
    if (costsNothing(p)) return;
    byId("numbers").replaceChildren(...numbersOf(p).map(([key, name, value, shown]) => {
      const box = document.createElement("div");
      const [dt, dd] = [document.createElement("dt"), document.createElement("dd")];
      dt.textContent = name;
      dd.textContent = value === null ? missing(key) : shown(value);
      dd.id = key;
      dd.dataset.value = value === null ? "" : String(value);
      box.append(dt, dd);
      return box;
    }));
    const passes = state.k === 0 ? 0 : state.drafting === "parallel" ? 1 : state.k;
    Charts.steps(byId("steps"), { ...p, length: state.k, passes, overhead_s: point.step_overhead_s }, format);
    const server = Model.server(point, presets);
    const columns = batches.map((batch) => {
      const speedups = lengths.map((k) => server.speedup(state.a, batch, state.c, k));
      const best = speedups.reduce((b, s, i) => (s > b.s ? { k: i + 1, s } : b), { k: 0, s: 1 });
      return { batch, speedups, best: best.k, bestSpeedup: best.s };
    });
    const rows = columns.map((c) => ({ batch: c.batch, best: c.bestSpeedup, chosen: server.speedup(state.a, c.batch, state.c, state.k) }));
    const here = { batch: state.n, length: state.k, speedup: p.speedup };
    Charts.curve(byId("curve"), { rows, most: MOST, length: state.k, here, even: p.break_even_batch }, format);
    Charts.map(byId("map"), { columns, lengths, here }, format, byId("under"), (n, k) => change({ n, k }));
    byId("table").tBodies[0].replaceChildren(...columns.map((c, i) => {
      const needs = server.breakEvenAcceptance(c.batch, state.c, state.k);
      const row = document.createElement("tr");
      const cells = [c.batch, c.best, format.speedup(c.bestSpeedup), format.speedup(rows[i].chosen), needs === null ? "–" : fixed(needs, 3)];
      row.append(...cells.map((text) => Object.assign(document.createElement("td"), { textContent: text })));
      return row;
    }));
  };

  // The controls: conversion between values and slider positions, and the input fields.
  const toSlider = (s, value) => (s.log ? (Math.log(value / s.least) / Math.log(s.most / s.least)) * 1000 : value);
  const fromSlider = (s, at) => {
    if (!s.log) return Number(at);
    const value = s.least * (s.most / s.least) ** (at / 1000);
    return s.digits === 0 ? Math.round(value) : Number(value.toPrecision(3));
  };
  const option = (value, text) => Object.assign(document.createElement("option"), { value, textContent: text });
  const field = (s, ranged) => {
    const label = Object.assign(document.createElement("label"), { htmlFor: s.key, textContent: s.label });
    const number = Object.assign(document.createElement("input"), { type: "number", id: s.key, min: s.least, max: s.most, step: "any" });
    number.addEventListener("change", () => change(parse(write({ ...state, [s.key]: number.value })).state));
    if (!ranged) return [label, number];
    const range = Object.assign(document.createElement("input"), {
      type: "range", id: `${s.key}-range`, min: s.log ? 0 : s.least, max: s.log ? 1000 : s.most, step: s.log ? 1 : s.step,
    });
    range.setAttribute("aria-label", s.label);
    range.addEventListener("input", () => change({ [s.key]: fromSlider(s, range.value) }));
    const pair = Object.assign(document.createElement("div"), { className: "pair" });
    pair.append(range, number);
    return [label, pair];
  };
  const SELECTS = { hardware: "hw", target: "target", draft: "draft", tp: "tp", reads: "reads", drafting: "drafting" };

  const build = () => {
    const named = (name) => (name === "linear" ? "linear: coefficients of your own" : name === "profile" ? presets.profile.name : name);
    byId("hardware").append(...CHOICES.hw.map((name) => option(name, named(name))));
    for (const id of ["target", "draft", "tp"]) byId(id).append(...CHOICES[id].map((name) => option(name, name)));
    byId("sliders").append(...SLIDERS.flatMap((s) => field(s, true)));
    byId("coefficients").append(...LINEAR.flatMap((s) => field(s, false)));
    for (const [id, key] of Object.entries(SELECTS)) byId(id).addEventListener("change", () => change({ [key]: byId(id).value }));
    byId("reset").addEventListener("click", (event) => { event.preventDefault(); change({ ...USUAL }); });
    byId("controls").addEventListener("submit", (event) => event.preventDefault());
    byId("version").textContent = presets.version;
    byId("profile-note").textContent = presets.profile?.note ?? "";
    for (const gpu of Object.keys(presets.gpus)) {
      const [dt, dd] = [document.createElement("dt"), document.createElement("dd")];
      dt.textContent = gpu;
      dd.textContent = presets.gpus[gpu].source;
      byId("sources").append(dt, dd);
    }
  };

  const show = () => {
    for (const [id, key] of Object.entries(SELECTS)) byId(id).value = state[key];
    for (const s of [...SLIDERS, ...LINEAR]) {
      byId(s.key).value = state[s.key];
      const range = byId(`${s.key}-range`);
      if (range) range.value = toSlider(s, state[s.key]);
    }
    const kind = ["linear", "profile"].includes(state.hw) ? state.hw : "roofline";
    for (const part of document.querySelectorAll(".of")) part.hidden = !part.classList.contains(kind);
    if (!presets.profile?.measured) byId("measured").hidden = true;
    draw();
  };

  let drawing = 0;
  const change = (some) => {
    [state, wrong] = [{ ...state, ...some }, []];
    cancelAnimationFrame(drawing);
    drawing = requestAnimationFrame(() => {
      history.replaceState(null, "", `#${write(state)}`);
      show();
    });
  };

  build();
  show();
  let width = window.innerWidth;
  window.addEventListener("resize", () => {
    if (window.innerWidth !== width) draw();
    width = window.innerWidth;
  });
  window.addEventListener("hashchange", () => { ({ state, wrong } = parse(location.hash.slice(1))); show(); });

  // For tests: `#check=[hash, …]` writes every number of those states into the page.
  const check = new URLSearchParams(location.hash.slice(1)).get("check");
  if (check) {
    const all = JSON.parse(check).map((hash) => Model.at(pointOf(parse(hash).state), presets, LONGEST, MOST));
    document.body.append(Object.assign(document.createElement("pre"), { id: "checked", textContent: JSON.stringify(all) }));
  }
})();
