//! The report of a comparison of a server with its predictions, as text.

use super::cell::{Calibrated, Cell, JUDGED};
use super::comparison::{Replayed, ServerComparison};
use crate::compare::bounds::Tally;
use crate::compare::format::{or_dash, percent as unsigned};
use crate::compare::numbers::{E2E, THROUGHPUT, TPOT, TTFT};
use crate::compare::row::Row;
use foretoken_report::plain_table;
use foretoken_run::spec::validate::REPEATS_AGREE;

pub use foretoken_report::signed_percent as percent;

/// The short name of a quantity in tables and figures.
pub fn name_of(quantity: &str) -> &str {
    match quantity {
        TPOT => "mean TPOT",
        TTFT => "mean TTFT",
        E2E => "mean E2E latency",
        other => other,
    }
}

impl ServerComparison {
    /// The whole report as text: a summary; the errors of predicted means with their parts from acceptance, costs and
    /// schedule; the errors of percentiles; the verdict.
    pub fn in_words(&self) -> String {
        let verdict = self.verdict();
        format!("{}\n\n{}\n\n{}\n\n{verdict}", self.headline(), self.means(), self.percentiles())
    }

    /// A text with the share of held-out numbers (nothing was fitted to their runs) that are predicted well, and the
    /// number with the largest error.
    pub fn headline(&self) -> String {
        let h = &self.held_out;
        let Some(worst) = &h.worst else {
            return "No run is held out: the calibration was made from each of these.".to_owned();
        };
        format!(
            "{} of {} held-out numbers are predicted within 5 %, {} within 10 %. The largest error is {} of {} at \
             K = {}, {}: {} of acceptance, {} of cost, {} of schedule. {} of {} lie within the 95 % interval of their \
             prediction, which is ±{} in the median.",
            h.within_5_percent,
            h.numbers,
            h.within_10_percent,
            percent(worst.error),
            name_of(&worst.quantity),
            worst.k,
            worst.load,
            percent(worst.of_acceptance),
            percent(worst.of_cost),
            percent(worst.of_schedule),
            h.within_interval,
            h.numbers,
            or_dash(h.median_half_width, unsigned)
        )
    }

    fn means(&self) -> String {
        let header = [
            "K", "load", "metric", "observed", "repeats", "simulated", "error", "acceptance", "cost", "schedule",
            "interp.", "formula", "",
        ];
        plain_table(header, self.cells.iter().flat_map(mean_rows), ..0).to_string()
    }

    /// A table of the prediction errors of percentiles, of accepted draft tokens of a request per step, and of requests
    /// in flight over time.
    fn percentiles(&self) -> String {
        let names: Vec<String> = ["TTFT", "TPOT", "E2E"]
            .iter()
            .flat_map(|latency| ["P50", "P90", "P99"].map(|quantile| format!("{latency}, {quantile}")))
            .collect();
        let last = ["accepted a round", "simulated", "in flight"].map(str::to_owned);
        let header = ["K", "load"].map(str::to_owned).into_iter().chain(names.clone()).chain(last);
        let row = |cell: &Cell| {
            let accepted = |x: Option<f64>| or_dash(x, |x| format!("{x:.2}"));
            let errors = names.iter().map(|name| or_dash(cell.row(name), |r| percent(r.predicted.error)));
            let first = [cell.k.to_string(), cell.load.clone()];
            let last = [accepted(cell.accepted.0), accepted(cell.accepted.1), or_dash(cell.in_flight, unsigned)];
            first.into_iter().chain(errors).chain(last).collect::<Vec<_>>()
        };
        plain_table(header, self.cells.iter().map(row), ..0).to_string()
    }

    pub(super) fn verdict(&self) -> String {
        let mut text = String::new();
        let tally = Tally::of(self.held_out_checks());
        for mean in &self.mean_absolute {
            let errors: Vec<String> =
                mean.errors.iter().map(|(name, e)| format!("{} {}", name_of(name), unsigned(*e))).collect();
            let prediction = mean.prediction;
            text += &format!("mean absolute error on held-out cells, {prediction}: {}\n", errors.join(", "));
        }
        if tally.decided() > 0 {
            text += &format!(
                "decided (repeats within {:.0} % of each other): {} of {} held-out means, {} of these within their \
                 bounds\n",
                100.0 * REPEATS_AGREE,
                tally.decided(),
                tally.decided() + tally.undecided,
                tally.kept
            );
        }
        for o in &self.order {
            let words = |k: &[u32]| k.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
            text += &format!(
                "the fastest first at {}: K = {} observed, {} simulated; of {} pairs that repeats tell apart, {} in \
                 their order\n",
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
                "schedule made again: {} of {} runs equal in every step, round, piece and end; {} of {} steps, \
                 {} rounds, {} requests placed\n",
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
        for cell in &self.cells {
            let beyond: Vec<&Row<Calibrated>> =
                cell.beyond().into_iter().filter(|r| r.decided(REPEATS_AGREE)).collect();
            if let (Some(cause), false) = (cell.cause, beyond.is_empty()) {
                let names: Vec<&str> = beyond.iter().map(|r| name_of(&r.quantity)).collect();
                let (k, load) = (cell.k, &cell.load);
                text += &format!("beyond its bound: K = {k}, {load}: {} (mostly {cause})\n", names.join(", "));
            }
        }
        if tally.undecided > 0 {
            text += &format!(
                "footnote: {} of {} held-out means are undecided, as they were observed once or their repeats lie \
                 further than {:.0} % apart: observe again\n",
                tally.undecided,
                tally.decided() + tally.undecided,
                100.0 * REPEATS_AGREE
            );
        }
        text
    }
}

/// The rows for one cell in the table of means. Only the first row has the cell's name.
fn mean_rows(cell: &Cell) -> Vec<[String; 13]> {
    let row = |(i, &(quantity, bound)): (usize, &(&str, f64))| {
        let row = cell.row(quantity)?;
        let number = |x: f64| {
            if quantity == THROUGHPUT { format!("{x:.0} tok/s") } else { format!("{:.1} ms", 1e3 * x) }
        };
        let p = &row.predicted;
        let word = match (row.decided(REPEATS_AGREE), cell.fitted, p.error.abs() <= bound) {
            (false, ..) => "undecided",
            (true, true, true) => "fitted",
            (true, false, true) => "kept",
            (true, _, false) => "BEYOND",
        };
        let first = |text: String| if i == 0 { text } else { String::new() };
        Some([
            first(cell.k.to_string()),
            first(cell.load.clone()),
            name_of(quantity).to_owned(),
            number(row.reference()),
            format!("{} of {}", or_dash(row.spread, unsigned), row.observed.len()),
            number(p.predicted) + &p.half_width.map_or(String::new(), |half| format!(" ± {:.0} %", 100.0 * half)),
            percent(p.error),
            percent(p.of_acceptance),
            percent(p.of_cost),
            percent(p.of_schedule),
            or_dash(p.interpolated, percent),
            or_dash(p.formula, percent),
            word.to_owned(),
        ])
    };
    JUDGED.iter().enumerate().filter_map(row).collect()
}
