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
  const fields = (list, least, most) => list.map(([key, label, usual]) => ({ key, label, usual, least, most }));
  const LINEAR = fields([
    ["ta", "Target α (ns a context token)", 20], ["tg", "Target γ (µs a token)", 40], ["td", "Target δ (ms a pass)", 10],
    ["da", "Draft α (ns a context token)", 1], ["dg", "Draft γ (µs a token)", 4], ["dd", "Draft δ (ms a pass)", 1],
  ], 0, 1e6);
  const GPU = fields([
    ["gb", "Memory bandwidth (GB/s)", 1000], ["gf", "Arithmetic in bf16 (TFLOP/s, dense)", 200],
    ["gm", "Memory (GiB)", 24], ["gl", "Link to another GPU, one direction (GB/s)", 32],
  ], 0.1, 1e6);
  const LOAD = [
    { key: "rate", label: "Requests a second (0: not given)", least: 0, most: 1e5, usual: 0 },
    { key: "out", label: "Output tokens of a request", least: 2, most: 131072, usual: 256 },
  ];
  const FIELDS = [...SLIDERS, ...LINEAR, ...GPU, ...LOAD];
  const OWN = "own"; // the GPU of four numbers
  const ofRun = presets.profile?.acceptance ? ["run"] : [];
  const CHOICES = {
    hw: [...Object.keys(presets.gpus).filter((name) => !presets.gpus[name].own), OWN, "linear", ...(presets.profile ? ["profile"] : [])],
    target: Object.keys(presets.models),
    draft: Object.keys(presets.models),
    tp: ["1", "2", "4", "8"],
    reads: ["once", "per-position"],
    drafting: ["autoregressive", "parallel"],
    acc: ["constant", "by-depth", ...ofRun, ...Object.keys(presets.acceptances)],
    host: ["constant", ...(presets.profile?.host ? ["profile"] : []), "measured"],
  };
  const USUAL = {
    hw: presets.profile ? "profile" : "h100", target: "llama-3.1-8b", draft: "llama-3.2-1b", tp: "1",
    reads: presets.profile?.context_reads ?? "once", drafting: presets.profile?.drafting ?? "autoregressive",
    acc: "constant", rates: "0.8, 0.7, 0.6", host: presets.profile?.host ? "profile" : "constant", models: "",
  };
  for (const s of FIELDS) USUAL[s.key] = s.usual;
  if (presets.profile) USUAL.over = presets.profile.step_overhead_s * 1e3;

  // Rates by place in the round, as they are typed; null if they are not rates.
  const ratesOf = (text) => {
    const rates = text.split(/[\s,;]+/).filter((word) => word !== "").map(Number);
    return rates.length > 0 && rates.length <= 32 && rates.every((r) => r >= 0 && r <= 1) ? rates : null;
  };

  // Models that were read from files of the user's. They are part of the link.
  const addModel = (shape) => {
    presets.models[shape.name] = Config.work(shape);
    presets.shapes[shape.name] = shape;
    for (const key of ["target", "draft"]) {
      if (CHOICES[key].includes(shape.name)) continue;
      CHOICES[key].push(shape.name);
      if (byId(key).options.length > 0) byId(key).append(option(shape.name, shape.name));
    }
  };
  const addModels = (text) => {
    let list = null;
    try { list = JSON.parse(text); } catch { return false; }
    const shapes = Array.isArray(list) ? list.map(Config.shapeOf) : [null];
    if (!shapes.every((shape) => shape?.name.startsWith(FILE))) return false;
    shapes.forEach(addModel);
    return true;
  };
  const FILE = "file ";

  // Reads the settings in a hash. Also returns a sentence for each setting that the page cannot use: its default is
  // used instead, or the nearest end of its range.
  const parse = (hash) => {
    const [state, wrong, given] = [{ ...USUAL }, [], [...new URLSearchParams(hash)]];
    // Models of files come first, because others name them.
    for (const [key, value] of given.sort(([a], [b]) => (b === "models") - (a === "models"))) {
      const slider = FIELDS.find((s) => s.key === key);
      const number = Number(value);
      if (slider && value.trim() !== "" && Number.isFinite(number)) {
        const inside = Math.min(Math.max(number, slider.least), slider.most);
        state[key] = ["k", "n", "c", "out"].includes(key) ? Math.round(inside) : inside;
        if (state[key] !== number) wrong.push(`${key} = ${value} becomes ${state[key]}.`);
      } else if (slider) {
        wrong.push(`${key} = "${value}" is not a number: it stays ${state[key]}.`);
      } else if (CHOICES[key]?.includes(value)) {
        state[key] = value;
      } else if (CHOICES[key]) {
        wrong.push(`${key} = "${value}" is not known here: it stays ${state[key]}. Known are ${CHOICES[key].join(", ")}.`);
      } else if (key === "rates") {
        if (ratesOf(value)) state.rates = value;
        else wrong.push(`rates = "${value}" are not numbers from 0 to 1, as in ${USUAL.rates}.`);
      } else if (key === "models") {
        if (value === "" || addModels(value)) state.models = value;
        else wrong.push("The link has a model that cannot be read: drop its config.json onto the page again.");
      } else if (key !== "check") {
        wrong.push(`There is no setting "${key}".`);
      }
    }
    return { state, wrong };
  };
  const write = (state) => {
    const said = Object.keys(USUAL).filter((key) => state[key] !== USUAL[key] || (key === "k" && presets.profile?.opens));
    return new URLSearchParams(said.map((key) => [key, state[key]])).toString();
  };

  const numbersOfGpu = (state) => ({
    bandwidth_bytes_s: state.gb * 1e9, bf16_flops: state.gf * 1e12, memory_bytes: state.gm * 2 ** 30, link_bytes_s: state.gl * 1e9,
    own: true, source: "the four numbers",
  });
  const acceptanceOf = (state) => {
    if (state.acc === "constant") return { rates: [state.a] };
    if (state.acc === "by-depth") return { rates: ratesOf(state.rates) };
    return state.acc === "run" ? presets.profile.acceptance : presets.acceptances[state.acc];
  };

  // Converts the page's settings to the model's input, in SI units.
  const pointOf = (state) => {
    presets.gpus[OWN] = numbersOfGpu(state);
    const specs = () => {
      if (state.hw === "profile") return { target: presets.profile.target, draft: presets.profile.draft };
      if (state.hw === "linear") {
        const of = (m) => ({ linear: { alpha_s: state[m + "a"] / 1e9, gamma_s: state[m + "g"] / 1e6, delta_s: state[m + "d"] / 1e3 } });
        return { target: of("t"), draft: of("d") };
      }
      const of = (model, n) => ({ roofline: { ...presets.roofline, gpu: state.hw, model, tensor_parallel: n } });
      return { target: of(state.target, Number(state.tp)), draft: of(state.draft, 1) };
    };
    const hardware = specs();
    const acceptance = acceptanceOf(state);
    // The page's lookups copy text: no draft model runs. A run's own lookup has the run's draft costs.
    const copies = acceptance.shares && state.acc !== "run";
    if (copies) hardware.draft = { linear: { alpha_s: 0, gamma_s: 0, delta_s: 0 } };
    const host = state.host === "measured" ? presets.host.law : state.host === "profile" ? presets.profile.host : null;
    // A roofline has no host time. If none is given, the answer may be another with the host time of a server.
    const leftOut = hardware.target.roofline && host === null && state.over === 0;
    return {
      ...hardware, draft_cost: state.cost, acceptance, length: state.k, batch: state.n, context: state.c,
      step_overhead_s: state.over / 1e3, host, band: leftOut ? presets.host.law : null, context_reads: state.reads,
      drafting: copies ? "parallel" : state.drafting, rate: state.rate, output: state.out,
    };
  };

  const { format, fixed } = Words;
  const option = (value, text) => Object.assign(document.createElement("option"), { value, textContent: text });
  Object.assign(USUAL, parse(presets.profile?.opens ?? "").state);
  // Reads the settings with which the page opens. If a run or an experiment gives the acceptance, and the link no
  // length, the length is the best one.
  const opened = () => {
    const hash = location.hash.slice(1);
    const { state, wrong } = parse(hash);
    if (presets.profile?.opens && !new URLSearchParams(hash).has("k")) {
      const point = pointOf(state);
      state.k = Model.server(point, presets).bestLength(state.n, state.c, LONGEST).length;
    }
    return { state, wrong };
  };
  let { state, wrong } = opened();
  let read = ""; // what was said of the last file

  // Twelve tiles, so that rows of two, three and four are full. A sentence and a warning say what the memory holds.
  const numbersOf = (p) => [
    ["expected_tokens", "Tokens a round, expected", p.expected_tokens, format.count],
    ["step_s", "Step with drafting", p.step_s, format.ms],
    ["draft_s", "in it: draft passes", p.draft_s, format.ms],
    ["verify_s", "in it: the verify pass", p.verify_s, format.ms],
    ["host_s", "in it: time of the host", p.host_s, format.ms],
    ["plain_step_s", "Step without drafting", p.plain_step_s, format.ms],
    ["token_goodput_tok_s", "Tokens a second, all requests", p.token_goodput_tok_s, (x) => fixed(x, 0)],
    ["speedup", "Speedup", p.speedup, format.speedup],
    ["best_length", "Best length here", p.best_length, (x) => `${x} (${format.speedup(p.best_speedup)})`],
    ["pays", "Pays at batch sizes", state.k === 0 ? null : p.pays, (x) => Words.pays(x, MOST)],
    ["break_even_acceptance", "Pays from acceptance", p.break_even_acceptance, (x) => fixed(x, 3)],
    ["break_even_length", "Pays up to length", p.break_even_length, (x) => (x === 0 ? "none pays" : x === LONGEST ? `${x} or more` : String(x))],
  ];
  const missing = () => (state.k === 0 ? "nothing is drafted" : "none: not even at 1");

  const batches = [];
  for (let i = 0; i <= 40; i++) {
    const b = Math.round(2 ** (i / 4));
    if (batches[batches.length - 1] !== b) batches.push(b);
  }
  const lengths = Array.from({ length: LONGEST }, (_, i) => i + 1);

  const draw = () => {
    const point = pointOf(state);
    const p = Model.at(point, presets, LONGEST, MOST);
    const room = Model.room(p.kv, state.c);
    const say = (id, text) => {
      byId(id).textContent = text;
      byId(id).hidden = text === "";
    };
    const nothing = Words.costsNothing(p);
    byId("headline").textContent = Words.headline(p, state.k, presets.host.source);
    byId("more").replaceChildren(...(nothing ? [] : Words.more(p, point, room, MOST, presets.host.source)).map((text) =>
      Object.assign(document.createElement("li"), { textContent: text })));
    say("warning", Words.overfull(p, point, room, `${state.hw === "profile" ? "this machine" : `${state.tp} × ${state.hw === OWN ? "your GPU" : state.hw}`}`));
    say("link", wrong.length === 0 ? "" : `The link does not fit this page. ${wrong.join(" ")}`);
    say("read", read);
    byId("computed").hidden = nothing;
    byId("use-rate").hidden = !(p.settled ?? p.settled_plain);
    byId("use-rate").dataset.n = String(Math.max(Math.round((state.k > 0 ? p.settled : p.settled_plain) ?? 1), 1));
    byId("use-rate").textContent = `Take ${byId("use-rate").dataset.n} as the batch size`;
    byId("toml").textContent = Experiment.text(point, presets, `explore.html#${write(state)}`);
    if (nothing) return;
    byId("numbers").replaceChildren(...numbersOf(p).map(([key, name, value, shown]) => {
      const box = document.createElement("div");
      const [dt, dd] = [document.createElement("dt"), document.createElement("dd")];
      dt.textContent = name;
      dd.textContent = value === null ? missing() : shown(value);
      dd.id = key;
      dd.dataset.value = value === null ? "" : String(value);
      box.append(dt, dd);
      return box;
    }));
    const passes = p.draft_s === 0 ? 0 : state.drafting === "parallel" ? 1 : state.k;
    Charts.steps(byId("steps"), { ...p, length: state.k, passes }, format);
    const server = Model.server(point, presets);
    const withHost = point.band && Model.server({ ...point, host: point.band }, presets);
    const columns = batches.map((batch) => {
      const speedups = lengths.map((k) => server.speedup(batch, state.c, k));
      const best = Model.bestOf(speedups);
      return { batch, speedups, best: best.length, bestSpeedup: best.speedup };
    });
    const rows = columns.map((c) => ({
      batch: c.batch, best: c.bestSpeedup, chosen: server.speedup(c.batch, state.c, state.k),
      banded: withHost && state.k > 0 ? withHost.speedup(c.batch, state.c, state.k) : null,
    }));
    const here = { batch: state.n, length: state.k, speedup: p.speedup };
    Charts.curve(byId("curve"), { rows, most: MOST, length: state.k, here, pays: p.pays, room }, format);
    Charts.map(byId("map"), { columns, lengths, here, room }, format, byId("under"), (n, k) => change({ n, k }));
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
    for (const part of [label, pair]) part.dataset.of = s.key;
    return [label, pair];
  };
  const SELECTS = {
    hardware: "hw", target: "target", draft: "draft", tp: "tp", reads: "reads", drafting: "drafting", acceptance: "acc", host: "host",
  };

  // Reads a config.json that was chosen or dropped, and takes its model as the target or the draft.
  const take = async (file, role) => {
    try {
      const name = `${FILE}${file.name.replace(/\.json$/, "")}`;
      const { shape, unread } = Config.read(await file.text(), name, presets.harmless);
      addModel(shape);
      const left = unread.length === 0 ? "" : ` Not modelled: ${unread.join(", ")}.`;
      read = `${file.name} is the ${role} now: ${fixed(presets.models[name].weight_bytes / 1e9, 1)} GB of weights.${left}`;
      const used = Object.values(presets.shapes).filter((s) => s.name.startsWith(FILE));
      change({ models: JSON.stringify(used), [role]: name, ...(["linear", "profile"].includes(state.hw) ? { hw: "h100" } : {}) }, true);
    } catch (error) {
      read = `${file.name} cannot be read. ${error.message}`;
      change({}, true);
    }
  };

  const build = () => {
    const words = { linear: "linear: coefficients of your own", profile: presets.profile?.name, [OWN]: "a GPU of your own: four numbers" };
    const named = (name) => words[name] ?? name;
    const rates = { constant: "constant: one chance for all", "by-depth": "by place in the round", run: "as this run has it" };
    byId("acceptance").append(...CHOICES.acc.map((name) => option(name, rates[name] ?? name)));
    const hosts = { constant: "constant (the slider)", profile: "as this machine has it", measured: `as measured: ${presets.host.source}` };
    byId("host").append(...CHOICES.host.map((name) => option(name, hosts[name])));
    byId("hardware").append(...CHOICES.hw.map((name) => option(name, named(name))));
    for (const id of ["target", "draft", "tp"]) byId(id).append(...CHOICES[id].map((name) => option(name, name)));
    byId("sliders").append(...SLIDERS.flatMap((s) => field(s, true)));
    byId("coefficients").append(...LINEAR.flatMap((s) => field(s, false)));
    byId("datasheet").append(...GPU.flatMap((s) => field(s, false)));
    byId("load").prepend(...LOAD.flatMap((s) => field(s, false)));
    byId("rates").addEventListener("change", () => change(ratesOf(byId("rates").value) ? { rates: byId("rates").value } : {}));
    byId("use-rate").addEventListener("click", () => change({ n: Math.min(Number(byId("use-rate").dataset.n), MOST) }));
    byId("copy").addEventListener("click", () => {
      byId("toml").select();
      navigator.clipboard?.writeText(byId("toml").value).then(() => { byId("copied").textContent = "Copied."; }, () => {});
    });
    for (const role of ["target", "draft"]) {
      byId(`${role}-file`).addEventListener("change", () => byId(`${role}-file`).files[0] && take(byId(`${role}-file`).files[0], role));
    }
    document.addEventListener("dragover", (event) => event.preventDefault());
    document.addEventListener("drop", (event) => {
      event.preventDefault();
      const [file] = event.dataTransfer.files;
      if (file) take(file, event.target.closest("#of-draft") ? "draft" : "target");
    });
    for (const [id, key] of Object.entries(SELECTS)) byId(id).addEventListener("change", () => change({ [key]: byId(id).value }));
    byId("reset").addEventListener("click", (event) => { event.preventDefault(); change({ ...USUAL }); });
    byId("controls").addEventListener("submit", (event) => event.preventDefault());
    byId("host-source").textContent = presets.host.source;
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
    byId("rates").value = state.rates;
    for (const s of FIELDS) {
      // A field is narrow, so it shows at most four digits of a fraction; the state keeps all.
      const shown = state[s.key];
      byId(s.key).value = Math.abs(shown) < 1000 ? Number(shown.toPrecision(4)) : Math.round(shown);
      const range = byId(`${s.key}-range`);
      if (range) range.value = toSlider(s, state[s.key]);
    }
    const kinds = ["linear", "profile"].includes(state.hw) ? [state.hw] : state.hw === OWN ? ["roofline", OWN] : ["roofline"];
    for (const part of document.querySelectorAll(".of")) part.hidden = !kinds.some((kind) => part.classList.contains(kind));
    const { note, shares } = acceptanceOf(state);
    byId("acceptance-note").textContent = `${note ?? ""}${shares && state.acc !== "run" ? " Drafts are copied from text: no draft model runs." : ""}`;
    byId("of-rates").hidden = state.acc !== "by-depth";
    for (const part of document.querySelectorAll("[data-of=a]")) part.hidden = state.acc !== "constant";
    if (!presets.profile?.measured) byId("measured").hidden = true;
    draw();
  };

  let drawing = 0;
  const change = (some, ofFile = false) => {
    [state, wrong] = [{ ...state, ...some }, []];
    if (!ofFile) read = "";
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
  window.addEventListener("hashchange", () => { ({ state, wrong } = opened()); show(); });

  // For tests: `#check=[hash, …]` writes every number and sentence of those states into the page.
  const check = new URLSearchParams(location.hash.slice(1)).get("check");
  if (check) {
    const all = JSON.parse(check).map((hash) => {
      const { state } = parse(hash);
      const point = pointOf(state);
      const p = Model.at(point, presets, LONGEST, MOST);
      const room = Model.room(p.kv, state.c);
      const said = [Words.headline(p, state.k, presets.host.source), ...Words.more(p, point, room, MOST, presets.host.source)];
      return { ...p, said, full: Words.overfull(p, point, room, "GPUs"), toml: Experiment.text(point, presets, `#${write(state)}`) };
    });
    document.body.append(Object.assign(document.createElement("pre"), { id: "checked", textContent: JSON.stringify(all) }));
  }
})();
