// The page's three drawings, as SVG elements. They draw numbers that model.js computes.
const Charts = (() => {
  const NS = "http://www.w3.org/2000/svg";

  const element = (parent, name, attributes, text) => {
    const made = document.createElementNS(NS, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    parent.appendChild(made);
    return made;
  };

  // An empty drawing, as wide as it is shown, so that letters keep their size on a phone.
  const begin = (svg, says) => {
    svg.replaceChildren();
    setSize(svg, Math.min(Math.max(svg.clientWidth, 320), 860), 10);
    svg.setAttribute("aria-label", says);
  };
  const setSize = (svg, width, height) => svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  const end = (svg, height) => setSize(svg, widthOf(svg), height);
  const widthOf = (svg) => svg.viewBox.baseVal.width;
  const LEFT = 58;
  const RIGHT = 16;
  const innerOf = (svg) => widthOf(svg) - LEFT - RIGHT;

  // Draws the legend below a drawing, in as many rows as needed. Each key is [width, draw(x, y), text]. Returns the
  // legend's bottom.
  const legend = (svg, top, keys) => {
    let [x, y] = [LEFT, top];
    for (const [width, draw, text] of keys) {
      const whole = width + 8 + text.length * 6.4;
      if (x > LEFT && x + whole > widthOf(svg)) [x, y] = [LEFT, y + 20];
      draw(x, y - 4);
      element(svg, "text", { x: x + width + 6, y }, text);
      x += whole + 14;
    }
    return y;
  };
  const lineKey = (svg, kind) => (x, y) => element(svg, "line", { x1: x, x2: x + 26, y1: y, y2: y, class: kind });
  const r = (x) => Math.round(x * 100) / 100;

  // Draws a step as a bar of its parts. A part's name is written if it fits.
  const bar = (svg, y, parts, scale) => {
    let x = LEFT + 70;
    for (const { width, fill, name } of parts) {
      const w = width * scale;
      element(svg, "rect", { x: r(x), y, width: r(Math.max(w, 0)), height: 24, style: `fill: ${fill}`, stroke: "var(--paper)" });
      if (w > name.length * 6.6 + 8) {
        element(svg, "text", { x: r(x + w / 2), y: y + 16, "text-anchor": "middle", style: "fill: #000; font-weight: 600" }, name);
      }
      x += w;
    }
  };

  // Draws one step with drafting, and below it the steps without drafting that give as many tokens.
  const steps = (svg, p, format) => {
    const plain = p.expected_tokens * p.plain_step_s;
    const says = `${format.count(p.expected_tokens)} tokens a request take ${format.ms(p.step_s)} with drafting and ${format.ms(plain)} without`;
    begin(svg, says);
    const narrow = widthOf(svg) < 560;
    const scale = (innerOf(svg) - 70) / Math.max(p.step_s, plain);
    const each = p.length > 0 ? p.draft_s / p.passes : 0;
    const drafts = Array.from({ length: p.passes }, () => ({ width: each, fill: "var(--draft)", name: "draft" }));
    const host = { width: p.host_s, fill: "var(--plain)", name: "host" };
    bar(svg, 6, [...drafts, { width: p.verify_s, fill: "var(--verify)", name: p.length > 0 ? "verify" : "target" }, host], scale);
    const whole = Math.floor(p.expected_tokens);
    const rest = p.expected_tokens - whole;
    const one = { width: p.plain_step_s, fill: "var(--plain)", name: "target" };
    bar(svg, 38, [...Array.from({ length: whole }, () => one), { ...one, width: rest * p.plain_step_s }], scale);
    element(svg, "text", { x: LEFT + 62, y: 22, "text-anchor": "end" }, "drafting");
    element(svg, "text", { x: LEFT + 62, y: 54, "text-anchor": "end" }, "without");
    const [first, second] = narrow ? [says.slice(0, says.indexOf(" and ")), says.slice(says.indexOf(" and ") + 1)] : [says, ""];
    element(svg, "text", { x: narrow ? 4 : LEFT + 70, y: 84, class: "soft" }, first);
    element(svg, "text", { x: 4, y: 102, class: "soft" }, second);
    end(svg, narrow ? 110 : 92);
  };

  const batchAxis = (svg, most, bottom, place) => {
    for (let b = 1; b <= most; b *= innerOf(svg) < 420 ? 4 : 2) {
      const x = r(place(b));
      element(svg, "line", { x1: x, x2: x, y1: bottom, y2: bottom + 5, class: "axis" });
      element(svg, "text", { x, y: bottom + 18, "text-anchor": "middle" }, String(b));
    }
    element(svg, "text", { x: LEFT + innerOf(svg) / 2, y: bottom + 36, "text-anchor": "middle", class: "soft" }, "batch size (requests)");
  };

  const path = (points) => points.map(([x, y], i) => `${i ? "L" : "M"}${r(x)} ${r(y)}`).join("");

  // Round values between 0 and `top`.
  const ticks = (top) => {
    const step = [0.1, 0.2, 0.5, 1, 2, 5, 10].find((s) => top / s <= 7) || top;
    const all = [];
    for (let i = 0; i * step <= top + 1e-9; i++) all.push(i * step);
    return all;
  };

  // Hatches what does not fit into memory.
  const hatch = (svg, x, width, top, bottom) => {
    if (width <= 0) return;
    const id = `${svg.id}-hatch`;
    const pattern = element(svg, "pattern", { id, width: 7, height: 7, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" });
    element(pattern, "line", { x1: 0, x2: 0, y1: 0, y2: 7, class: "hatch" });
    element(svg, "rect", { x: r(x), y: top, width: r(width), height: r(bottom - top), fill: `url(#${id})`, class: "full", "pointer-events": "none" });
  };
  const hatchKey = (svg) => (x, y) =>
    element(svg, "rect", { x, y: y - 7, width: 18, height: 14, fill: `url(#${svg.id}-hatch)`, stroke: "var(--line)" });

  // Speedup of the chosen length and of the best one against batch size. Batches of more than `room` requests do not
  // fit and are hatched. Rows with `banded` have the speedup with host time, too.
  const curve = (svg, data, format) => {
    const { rows, most, length, here, pays, room } = data;
    const [top, bottom] = [14, 230];
    const highest = Math.max(1.2, ...rows.map((row) => Math.max(row.chosen, row.best)));
    const y = (s) => bottom - ((bottom - top) * Math.min(s, highest)) / highest;
    const x = (b) => LEFT + (inner * Math.log(b)) / Math.log(most);
    const edges = length === 0 ? [] : pays.flatMap(([first, last]) => [first, last]).filter((b) => b > 1 && b < most);
    begin(svg, `Speedup against batch size: ${Words.paying(length, pays, most)}`);
    const inner = innerOf(svg);
    const points = (of) => rows.map((row) => [x(row.batch), y(of(row))]);
    element(svg, "rect", { x: LEFT, y: r(y(1)), width: inner, height: r(bottom - y(1)), class: "loses" });
    for (const t of ticks(highest)) {
      element(svg, "line", { x1: LEFT, x2: LEFT + inner, y1: r(y(t)), y2: r(y(t)), class: "axis", opacity: 0.5 });
      element(svg, "text", { x: LEFT - 8, y: r(y(t) + 4), "text-anchor": "end" }, `${format.short(t)}×`);
    }
    element(svg, "line", { x1: LEFT, x2: LEFT + inner, y1: r(y(1)), y2: r(y(1)), class: "even" });
    batchAxis(svg, most, bottom, x);
    const full = room < most ? x(Math.max(room, 1)) : LEFT + inner;
    hatch(svg, full, LEFT + inner - full, top, bottom);
    const band = rows.every((row) => row.banded !== null);
    if (band) {
      const around = [...points((row) => row.chosen), ...points((row) => row.banded).reverse()];
      element(svg, "path", { d: `${path(around)}Z`, class: "band" });
    }
    element(svg, "path", { d: path(points((row) => row.best)), class: "best" });
    element(svg, "path", { d: path(points((row) => row.chosen)), class: "chosen" });
    element(svg, "circle", { cx: r(x(here.batch)), cy: r(y(here.speedup)), r: 5, class: "here" });
    edges.slice(0, 6).forEach((b, i) => {
      const at = x(b);
      element(svg, "line", { x1: r(at), x2: r(at), y1: top, y2: bottom, class: "even" });
      const side = at > LEFT + inner * 0.7 ? "end" : "start";
      element(svg, "text", { x: r(at + (side === "end" ? -6 : 6)), y: top + 10 + 14 * (i % 3), "text-anchor": side }, pays.some(([first]) => first === b) ? `pays from ${b}` : `up to ${b}`);
    });
    end(svg, 8 + legend(svg, bottom + 56, [
      [26, lineKey(svg, "chosen"), `length ${length}`],
      [26, lineKey(svg, "best"), "best length at each batch size"],
      [10, (cx, cy) => element(svg, "circle", { cx: cx + 5, cy, r: 5, class: "here" }), "your settings"],
      ...(band ? [[18, (kx, ky) => element(svg, "rect", { x: kx, y: ky - 7, width: 18, height: 14, class: "band" }), "with a measured host time"]] : []),
      ...(room < most ? [[18, hatchKey(svg), "does not fit into memory"]] : []),
    ]));
  };

  // The colour of a speedup: none at 1, full at `full` times the speed and at 1 / `full` of it.
  const fill = (s, full) => {
    const strength = Math.round(Math.min(1, Math.abs(Math.log(s)) / Math.log(full)) * 100);
    return `color-mix(in srgb, var(${s >= 1 ? "--pays" : "--costs"}) ${strength}%, var(--even))`;
  };

  // Speedup over batch size and length, with the best length's line. `pick(batch, length)` follows a click.
  const map = (svg, data, format, under, pick) => {
    const { columns, lengths, here, room } = data;
    const [top, bottom] = [8, 8 + 17 * lengths.length];
    const highest = Math.max(...columns.flatMap((c) => c.speedups));
    const full = [1.5, 2, 3, 4, 6, 8].find((s) => s >= highest) || 8;
    const height = (bottom - top) / lengths.length;
    const says = columns.map((c) => `batch ${c.batch}: ${c.best}`).join(", ");
    begin(svg, `Best draft length by batch size: ${says}`);
    const inner = innerOf(svg);
    const width = inner / columns.length;
    const yOf = (length) => bottom - height * (length - lengths[0] + 0.5);
    columns.forEach((column, i) => {
      column.speedups.forEach((s, j) => {
        const cell = element(svg, "rect", {
          x: r(LEFT + i * width), y: r(yOf(lengths[j]) - height / 2), width: r(width + 0.3), height: r(height + 0.3),
          style: `fill: ${fill(s, full)}`, class: "cell",
        });
        const words = `batch ${column.batch}, length ${lengths[j]}: ${format.speedup(s)}${column.batch > room ? ", does not fit into memory" : ""}`;
        element(cell, "title", {}, words);
        cell.addEventListener("pointerenter", () => { under.textContent = words; });
        cell.addEventListener("click", () => pick(column.batch, lengths[j]));
      });
    });
    const fitting = columns.filter((c) => c.batch <= room).length;
    hatch(svg, LEFT + fitting * width, (columns.length - fitting) * width, top, bottom);
    const line = columns.map((c, i) => [LEFT + (i + 0.5) * width, yOf(Math.max(c.best, lengths[0] - 0.5))]);
    element(svg, "path", { d: path(line), class: "best", "pointer-events": "none" });
    for (const length of lengths) {
      if (length % 2 === 0 || length === 1) {
        element(svg, "text", { x: LEFT - 8, y: r(yOf(length) + 4), "text-anchor": "end" }, String(length));
      }
    }
    const middle = (top + bottom) / 2;
    element(svg, "text", { x: 14, y: middle, "text-anchor": "middle", class: "soft", transform: `rotate(-90 14 ${middle})` }, "draft length (tokens)");
    columns.forEach((column, i) => {
      if (Number.isInteger(Math.log2(column.batch) / (inner < 420 ? 2 : 1)) && (column.batch !== 2 || inner > 600)) {
        element(svg, "text", { x: r(LEFT + (i + 0.5) * width), y: bottom + 18, "text-anchor": "middle" }, String(column.batch));
      }
    });
    element(svg, "text", { x: LEFT + innerOf(svg) / 2, y: bottom + 36, "text-anchor": "middle", class: "soft" }, "batch size (requests)");
    const near = columns.reduce((a, c, i) => (Math.abs(Math.log(c.batch / here.batch)) < Math.abs(Math.log(columns[a].batch / here.batch)) ? i : a), 0);
    if (here.length >= lengths[0] && here.length <= lengths[lengths.length - 1]) {
      element(svg, "rect", {
        x: r(LEFT + near * width), y: r(yOf(here.length) - height / 2), width: r(width), height: r(height), class: "here", "pointer-events": "none",
      });
    }
    const swatch = (s) => (x, y) => {
      element(svg, "rect", { x, y: y - 8, width: 18, height: 14, style: `fill: ${fill(s, full)}`, stroke: "var(--line)" });
    };
    const keys = [1 / full, 1 / Math.sqrt(full), 1, Math.sqrt(full), full].map((s) => [18, swatch(s), `${format.short(s)}×`]);
    end(svg, 8 + legend(svg, bottom + 60, [...keys, [26, lineKey(svg, "best"), "best length (below 1: do not draft)"],
      ...(fitting < columns.length ? [[18, hatchKey(svg), "does not fit into memory"]] : [])]));
  };

  return { steps, curve, map };
})();
