//! Texts about a calibration from a table of benchmark results: its results, and which costs the table does not
//! determine.

use super::cell::{Cell, CellLoad};
use super::fit::{Quantity, Unsupported};
use super::law::Term;
use super::{ErrorsWithoutLoad, Judged, TableCalibration};
use foretoken_report::{plain_table, table_lines};
use std::collections::BTreeSet;
use std::fmt::Write;

/// The user gets a warning if the number of measured numbers is below this multiple of the number of fitted costs.
const FEW: usize = 2;

/// A text that says where the rows `cells` of benchmark results stand: `t.csv, lines 2 and 3` for rows of the table
/// `name`, `a.json, run 1; b.json, run 2` for runs of load generators' files.
fn places(name: &str, cells: &[&Cell]) -> String {
    let runs: Vec<&str> = cells.iter().filter_map(|c| c.from.as_deref()).collect();
    if !runs.is_empty() {
        return runs.join("; ");
    }
    let all: Vec<String> = cells.iter().map(|c| c.line.to_string()).collect();
    match all.as_slice() {
        [one] => format!("{name}, line {one}"),
        [most @ .., last] => format!("{name}, lines {} and {last}", most.join(", ")),
        [] => name.to_owned(),
    }
}

impl TableCalibration {
    /// Warnings about what the table of benchmark results does not determine; the most serious first.
    pub(super) fn cannot_tell(&self, fitted: &[Cell], draft_is_known: bool) -> Vec<String> {
        let mut all = Vec::new();
        let name = &self.name;
        let drafting: BTreeSet<u32> = fitted.iter().map(|c| c.k).filter(|&k| k > 0).collect();
        let plain: Vec<&Cell> = fitted.iter().filter(|c| c.k == 0).collect();
        let with_drafts: Vec<&Cell> = fitted.iter().filter(|c| c.k > 0).collect();
        if plain.is_empty() {
            all.push(format!(
                "{}: no row has k = 0, so that what speculation adds to a step is not known; measure K = 0 next",
                places(name, &with_drafts)
            ));
        }
        match drafting.len() {
            0 => all.push(format!(
                "{}: no row drafts, so that nothing that drafts can be predicted; measure K = 3 next",
                places(name, &plain)
            )),
            1 if !draft_is_known => all.push(format!(
                "{}: one draft length alone, and no experiment says what a draft pass costs: no other length can \
                 be predicted; measure a second length, or give --experiment with hardware.draft",
                places(name, &with_drafts)
            )),
            1 => all.push(
                "one draft length: what grows with K is taken from hardware.draft of the experiment, and is not measured"
                    .to_owned(),
            ),
            _ => {}
        }
        let without_plain: Vec<&Cell> =
            with_drafts.iter().copied().filter(|c| !plain.iter().any(|p| p.load == c.load)).collect();
        if !plain.is_empty() && !without_plain.is_empty() {
            all.push(format!("{}: no row of this load has k = 0", places(name, &without_plain)));
        }
        let solution = &self.fit.solution;
        if let Some(&Term::WithoutGraph(above)) = solution.terms.iter().find(|t| matches!(t, Term::WithoutGraph(_))) {
            let clients = |c: &&Cell| if let CellLoad::Clients(n) = c.load { Some(n) } else { None };
            let seen: BTreeSet<u32> = with_drafts.iter().filter_map(clients).collect();
            let (below, beyond) = (seen.range(..=above).next_back(), seen.range(above + 1..).next());
            if let (Some(below), Some(beyond)) = (below, beyond) {
                all.push(format!(
                    "captured graphs end somewhere from {below} to {beyond} requests, and {above} is taken: measure a load between"
                ));
            }
        }
        if solution.terms.contains(&Term::Token) && !self.base.given {
            all.push(
                "context is not told apart from tokens and passes: other lengths than the table's are a guess; give \
                 --experiment with the model and its GPU"
                    .to_owned(),
            );
        }
        let one_load = fitted.iter().all(|c| c.load == fitted[0].load);
        if one_load && solution.terms.contains(&Term::Token) {
            all.push(
                "one load: a request more is taken to cost its tokens, as lengths show them; measure other numbers of \
                 clients"
                    .to_owned(),
            );
        } else if one_load && solution.terms.contains(&Term::DraftPass) {
            all.push(
                "one load: a draft pass and a verified token are not told apart, so that other loads cannot be \
                 predicted; measure other numbers of clients, or give --experiment with hardware.draft"
                    .to_owned(),
            );
        } else if !solution.terms.contains(&Term::Token) {
            all.push("one load: what a request more costs is not known; measure other numbers of clients".to_owned());
        }
        if solution.measured < FEW * solution.numbers {
            let (rows, numbers) = (solution.measured, solution.numbers);
            all.push(format!("{numbers} numbers are fitted to {rows} measured ones: intervals are wide, or not known"));
        }
        let zero: Vec<String> = solution
            .terms
            .iter()
            .zip(&solution.values)
            .filter(|(_, x)| **x == 0.0)
            .map(|(term, _)| term.in_words(0.0).split("  ").next().unwrap_or_default().to_owned())
            .collect();
        if !zero.is_empty() {
            all.push(format!("nothing of the measured times is explained by: {}", zero.join("; ")));
        }
        all
    }

    /// The results of the calibration as text for the terminal: fitted costs, errors, predictions and verdict.
    pub fn in_words(&self) -> String {
        let mut text = String::new();
        let mut line = |words: String| writeln!(text, "{}", words.trim_end()).expect("a string grows");
        let fitted = self.judged.iter().filter(|j| j.fitted).count();
        let lengths: BTreeSet<u32> = self.judged.iter().filter(|j| j.fitted).map(|j| j.cell.k).collect();
        let lengths: Vec<String> = lengths.iter().map(u32::to_string).collect();
        let solution = &self.fit.solution;
        line(format!(
            "calibrated on {fitted} numbers of {}, K = {}: {} fitted numbers, none of them a row's own",
            self.name,
            lengths.join(", "),
            solution.numbers
        ));
        for (term, &x) in solution.terms.iter().zip(&solution.values) {
            line(term.in_words(x));
        }
        for Unsupported { term, ratio, needed } in &solution.unsupported {
            let name = term.name();
            line(format!("left out                {name}: F = {ratio:.1}, and {needed:.1} tells it from 0 (95 %)"));
        }
        let root = solution.root_mean_square();
        line(format!("error of fitted cells   {:.1} % (root mean square)", 100.0 * root));
        for ErrorsWithoutLoad { load, error, with_graphs } in &self.by_load {
            let known = match (error - with_graphs).abs() > 1e-3 {
                true => format!("; {:.1} % if it is known where graphs end", 100.0 * with_graphs),
                false => String::new(),
            };
            let name = load.in_words();
            line(format!("error at {name:<15}{:.1} % by the law fitted without it{known}", 100.0 * error));
        }
        if let Some((mean, largest)) = self.held_out() {
            line(format!("error of held-out cells {:.1} % (largest {:.1} %)", 100.0 * mean, 100.0 * largest));
        }
        line(self.table());
        line(self.verdict.in_words());
        text
    }

    /// A text table of every measured number, such as TPOT of a row, with its prediction and its interval.
    fn table(&self) -> String {
        let mut judged: Vec<&Judged> = self.judged.iter().collect();
        judged.sort_by_key(|j| j.cell.line);
        let rows = judged.into_iter().map(|j| {
            let shown = |s: f64| match j.quantity {
                Quantity::TokenTime => format!("{:.1} tok/s", 1.0 / s),
                Quantity::Ttft => format!("TTFT {:.1} ms", 1e3 * s),
                Quantity::Tpot => format!("TPOT {:.2} ms", 1e3 * s),
            };
            [
                j.cell.load.in_words(),
                j.cell.k.to_string(),
                shown(j.measured_s),
                shown(j.predicted_s),
                j.half_width.map_or_else(|| "–".to_owned(), |half| format!("± {:.1} %", 100.0 * half)),
                foretoken_report::signed_percent(j.measured_s / j.predicted_s - 1.0),
                if j.fitted { String::new() } else { "held out".to_owned() },
            ]
        });
        let head = ["load", "K", "measured", "predicted", "95 %", "error", ""];
        table_lines(&plain_table(head, rows, ..0)).trim_end().to_owned()
    }
}
