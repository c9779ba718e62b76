//! A comparison in words.

use super::comparison::{Against, Cell, DECIDED, JUDGED};
use crate::replay::Replayed;

/// A share as a percentage with its sign.
pub fn percent(x: f64) -> String {
    // Without this a small negative share reads "-0.0 %".
    let x = if x.abs() < 5e-4 { 0.0 } else { x };
    format!("{:+.1} %", 100.0 * x)
}

/// A number as tables and figures call it.
pub fn name_of(metric: &str) -> &str {
    match metric {
        "tpot mean" => "mean TPOT",
        "ttft mean" => "mean TTFT",
        "e2e mean" => "mean E2E latency",
        other => other,
    }
}

/// How far apart repeats are; nothing for one of them.
pub fn apart(spread: f64) -> String {
    if spread.is_finite() { format!("{:.1} %", 100.0 * spread) } else { "-".to_owned() }
}

impl Against {
    /// The comparison in words: how good it is, means and whose their errors are, percentiles, and what comes of it.
    pub fn in_words(&self) -> String {
        let verdict = self.verdict();
        format!("{}\n\n{}\n\n{}\n\n{verdict}", self.headline(), self.means(), self.percentiles())
    }

    /// How many held-out numbers are predicted well, and where and why the worst one is not.
    pub fn headline(&self) -> String {
        let h = &self.held_out;
        let Some(worst) = &h.worst else {
            return "No run is held out: the calibration was made from each of these.".to_owned();
        };
        format!(
            "{} of {} held-out numbers are predicted within 5 %, {} within 10 %. The largest error is {} of {} at K = {}, {}: {} of \
             acceptance, {} of cost, {} of schedule.",
            h.within_5_percent,
            h.numbers,
            h.within_10_percent,
            percent(worst.error),
            name_of(&worst.metric),
            worst.k,
            worst.load,
            percent(worst.of_acceptance),
            percent(worst.of_cost),
            percent(worst.of_schedule)
        )
    }

    fn means(&self) -> comfy_table::Table {
        let mut table = comfy_table::Table::new();
        table.load_style(comfy_table::presets::NOTHING);
        table.set_header([
            "K",
            "load",
            "metric",
            "observed",
            "repeats",
            "simulated",
            "error",
            "acceptance",
            "cost",
            "schedule",
            "interp.",
            "formula",
            "",
        ]);
        for cell in &self.cells {
            for (i, (metric, bound)) in JUDGED.iter().enumerate() {
                let Some(r) = cell.row(metric) else { continue };
                let number = |x: f64| {
                    if *metric == "throughput" { format!("{x:.0} tok/s") } else { format!("{:.1} ms", 1e3 * x) }
                };
                let word = match (cell.decided, cell.fitted, r.error.abs() <= *bound) {
                    (false, ..) => "undecided",
                    (true, true, true) => "fitted",
                    (true, false, true) => "kept",
                    (true, _, false) => "BEYOND",
                };
                let maybe = |x: Option<f64>| x.map_or("-".to_owned(), percent);
                table.add_row([
                    if i == 0 { cell.k.to_string() } else { String::new() },
                    if i == 0 { cell.load.clone() } else { String::new() },
                    name_of(metric).to_owned(),
                    number(r.median()),
                    format!("{} of {}", apart(r.spread), r.observed.len()),
                    number(r.predicted),
                    percent(r.error),
                    percent(r.of_acceptance),
                    percent(r.of_cost),
                    percent(r.of_schedule),
                    maybe(r.interpolated),
                    maybe(r.formula),
                    word.to_owned(),
                ]);
            }
        }
        table
    }

    /// Errors of percentiles, of what was accepted a round and of the requests in flight over time.
    fn percentiles(&self) -> comfy_table::Table {
        let mut table = comfy_table::Table::new();
        table.load_style(comfy_table::presets::NOTHING);
        let names = ["ttft", "tpot", "e2e"].map(|of| ["p50", "p90", "p99"].map(|q| format!("{of} {q}")));
        let names: Vec<String> = names.into_iter().flatten().collect();
        let head = ["K", "load"].map(str::to_owned).into_iter().chain(names.clone());
        table.set_header(head.chain(["accepted a round", "simulated", "in flight"].map(str::to_owned)));
        for cell in &self.cells {
            let accepted = |x: Option<f64>| x.map_or("-".to_owned(), |x| format!("{x:.2}"));
            let errors = names.iter().map(|name| cell.row(name).map_or("-".to_owned(), |r| percent(r.error)));
            let lead = [cell.k.to_string(), cell.load.clone()];
            let apart = cell.in_flight.map_or("-".to_owned(), |x| format!("{:.1} %", 100.0 * x));
            let rest = [accepted(cell.accepted.0), accepted(cell.accepted.1), apart];
            table.add_row(lead.into_iter().chain(errors).chain(rest));
        }
        table
    }

    pub(super) fn verdict(&self) -> String {
        let mut text = String::new();
        let held: Vec<&Cell> = self.cells.iter().filter(|c| !c.fitted).collect();
        let decided = held.iter().filter(|c| c.decided).count();
        let kept = held.iter().filter(|c| c.decided && c.beyond().is_empty()).count();
        for (name, errors) in &self.mean_absolute {
            let words: Vec<String> =
                errors.iter().map(|(metric, e)| format!("{} {:.1} %", name_of(metric), 100.0 * e)).collect();
            text += &format!("mean absolute error on held-out cells, {name}: {}\n", words.join(", "));
        }
        if decided > 0 {
            text += &format!(
                "decided (repeats within {:.0} % of each other): {decided} of {} held-out cells, {kept} of these within all bounds\n",
                100.0 * DECIDED,
                held.len()
            );
        }
        for o in &self.order {
            let words = |k: &[u32]| k.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
            text += &format!(
                "the fastest first at {}: K = {} observed, {} simulated; of {} pairs that repeats tell apart, {} in their order\n",
                o.load,
                words(&o.observed),
                words(&o.predicted),
                o.told_apart,
                o.kept
            );
        }
        if !self.replayed.is_empty() {
            let sum = |of: fn(&Replayed) -> usize| self.replayed.iter().map(of).sum::<usize>();
            text += &format!(
                "schedule made again: {} of {} runs equal in every step, round, piece and end; {} of {} steps, {} rounds, {} requests placed\n",
                self.replayed.iter().filter(|r| r.difference.is_none()).count(),
                self.replayed.len(),
                sum(|r| r.equal_steps),
                sum(|r| r.steps),
                sum(|r| r.rounds),
                sum(|r| r.placed)
            );
            for r in &self.replayed {
                text += &r.difference.as_ref().map_or(String::new(), |d| format!("  {}: {d}\n", r.run));
            }
        }
        for cell in self.cells.iter().filter(|c| c.decided) {
            if let Some(cause) = cell.cause {
                let which: Vec<&str> = cell.beyond().iter().map(|r| name_of(&r.metric)).collect();
                text += &format!(
                    "beyond its bound: K = {}, {}: {} (mostly {cause})\n",
                    cell.k,
                    cell.load,
                    which.join(", ")
                );
            }
        }
        if decided < held.len() {
            text += &format!(
                "footnote: {} of {} held-out cells are undecided, as they were observed once or their repeats lie further than \
                 {:.0} % apart: observe again\n",
                held.len() - decided,
                held.len(),
                100.0 * DECIDED
            );
        }
        text
    }
}
