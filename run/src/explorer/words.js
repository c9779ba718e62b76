// The page's sentences, and how it writes numbers.
const Words = (() => {
  const fixed = (x, digits) => x.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  const format = {
    ms: (s) => (s >= 10 ? `${fixed(s, 1)} s` : s < 1e-3 ? `${fixed(s * 1e6, 0)} µs` : `${fixed(s * 1e3, s < 0.1 ? 2 : 1)} ms`),
    count: (x) => fixed(x, 2),
    short: (x) => String(Math.round(x * 100) / 100),
    speedup: (s) => `${fixed(s, s < 10 ? 2 : 1)}×`,
    gb: (b) => `${fixed(b / 1e9, 1)} GB`,
    requests: (n) => fixed(n, n < 10 ? 1 : 0),
  };
  const several = (n, one, many) => (n === 1 ? `1 ${one}` : `${n} ${many}`);
  const capital = (text) => text[0].toUpperCase() + text.slice(1);

  // Intervals of batch sizes, of those up to `most`: "1 to 8, 12 and 100 to 1024".
  const pays = (intervals, most) => {
    if (intervals.length === 0) return "none";
    if (intervals[0][0] === 1 && intervals[0][1] === most) return `all up to ${most}`;
    const [shown, left] = [intervals.slice(0, 3).map(([first, last]) => (first === last ? `${first}` : `${first} to ${last}`)), intervals.length - 3];
    if (left > 0) shown.push(several(left, "more interval", "more intervals"));
    return shown.length === 1 ? shown[0] : `${shown.slice(0, -1).join(", ")} and ${shown[shown.length - 1]}`;
  };
  const paying = (length, intervals, most) => {
    if (intervals.length === 0) return `length ${length} pays at no batch size up to ${most}`;
    const all = intervals[0][0] === 1 && intervals[0][1] === most;
    return `length ${length} pays at ${all ? `every batch size up to ${most}` : `batch size${intervals.length === 1 && intervals[0][0] === intervals[0][1] ? "" : "s"} ${pays(intervals, most)}`}`;
  };

  // Does the answer change within the band of host time? `p` is a point as `Model.at` gives it.
  const isUndecided = (p, length) => {
    if (!p.banded) return false;
    return length > 0 ? p.speedup > 1 !== p.banded.speedup > 1 : p.best_length > 0 !== p.banded.best_length > 0;
  };

  // If the target's passes take no time, ratios of times are 0 / 0 and nothing can be compared.
  const costsNothing = (p) => p.step_s === 0 || p.plain_step_s === 0;

  const headline = (p, length, source) => {
    if (costsNothing(p)) return "A step without drafting takes no time here, so there is nothing to compare. Give the target a cost.";
    const drafting = `rafting ${several(length || p.best_length, "token", "tokens")}`;
    if (isUndecided(p, length)) {
      const [without, counted] = length > 0 ? [p.speedup, p.banded.speedup] : [p.best_speedup, p.banded.best_speedup];
      return `Undecided: d${drafting} is ${format.speedup(without)} without host time, and ${length > 0 ? format.speedup(counted) : "does not pay"} with that of a measured server (${source}).`;
    }
    if (length === 0) {
      return p.best_length === 0
        ? "Nothing is drafted, and that is best here."
        : `Nothing is drafted. D${drafting} would be ${format.speedup(p.best_speedup)} as fast.`;
    }
    const turns = p.banded && p.best_length > 0 && p.banded.best_length === 0;
    const best = p.best_length === length ? "No other length is better."
      : p.speedup >= p.best_speedup ? `${p.best_length > 0 ? `${p.best_length} would be` : "Not drafting is"} as good.`
      : p.best_length === 0 ? "No length pays here."
        : `${p.best_length} would be best (${format.speedup(p.best_speedup)})${turns ? " without host time, and none with that of a measured server" : ""}.`;
    const says = p.speedup > 1 ? "pays" : "does not pay";
    return `D${drafting} ${says}: ${format.speedup(p.speedup)} the tokens a second of not drafting. ${best}`;
  };

  // The sentences below the headline. `point` is the model's input, `room` the most requests that the memory holds.
  const more = (p, point, room, most, source) => {
    const { length, batch, context } = point;
    const said = [];
    if (length > 0) said.push(`${capital(paying(length, p.pays, most))}.`);
    if (p.banded && !isUndecided(p, length)) {
      const counted = length > 0 ? p.banded.speedup : p.banded.best_speedup;
      said.push(`No host time is counted. With that of a measured server (${source}) the speedup is ${format.speedup(counted)}: the answer stays.`);
    }
    if (p.banded && length > 0 && JSON.stringify(p.banded.pays) !== JSON.stringify(p.pays)) {
      said.push(`With that host time ${paying(length, p.banded.pays, most)}.`);
    }
    if (point.rate > 0) {
      const at = (n) => (n === null ? "does not keep up" : `holds ${format.requests(n)} requests on average`);
      const drafts = length > 0 ? `with length ${length} the server ${at(p.settled)}, and without drafting it ${at(p.settled_plain)}` : `the server ${at(p.settled_plain)}`;
      said.push(`At ${format.short(point.rate)} requests a second ${drafts} (Little's law).`);
    }
    if (p.kv && room >= batch && room < most) said.push(`Memory holds ${several(room, "request", "requests")} of ${context} tokens.`);
    return said;
  };

  // What does not fit into memory; empty if all does.
  const overfull = (p, point, room, gpus) => {
    if (room >= point.batch) return "";
    const drafter = point.length > 0;
    if (p.kv.kv_bytes <= 0) return `The weights${drafter ? " of target and draft" : ""} do not fit on ${gpus}. Times are shown all the same.`;
    const wanted = point.batch * Model.kvOf(p.kv, point.context);
    return `This batch does not fit: its KV${drafter ? ", the draft's with it," : ""} takes ${format.gb(wanted)}, and ${format.gb(p.kv.kv_bytes)} are left beside the weights${drafter ? " of target and draft" : ""}. ${room === 0 ? "No request of this context fits" : `${capital(several(room, "request fits", "requests fit"))}`}; a server would queue or preempt.`;
  };

  return { format, fixed, pays, paying, isUndecided, costsNothing, headline, more, overfull };
})();
