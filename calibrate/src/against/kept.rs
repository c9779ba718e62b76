//! The folder of a comparison: JSON, the tables as text, a page and its figures.

use super::comparison::{Against, Cell, JUDGED};
use super::words::{apart, name_of, percent};
use crate::folder::{make, put};
use foretoken_report::html::{Page, Part, Row as Line, Section, Table, Value};
use foretoken_report::{PREDICTED_EDGE as EDGE, PredictedCell, PredictedNumber, predicted_figure};
use foretoken_spec::problem::Result;
use std::path::Path;

/// Rows beyond which the table is folded away.
const OPEN: usize = 40;

impl Against {
    /// Writes `validation.json`, `validation.txt`, `validation.html` and `predicted.svg` into a folder, over those
    /// that are there.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, folder: &Path) -> Result<()> {
        make(folder)?;
        put(folder, "validation.json", self.to_json())?;
        put(folder, "validation.txt", self.in_words())?;
        if let Some(svg) = self.figure() {
            put(folder, "predicted.svg", svg)?;
        }
        put(folder, "validation.html", self.page().html())
    }

    /// All of it.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("plain data always serialises") + "\n"
    }

    /// Errors of what is judged, cell by cell.
    fn figure(&self) -> Option<String> {
        let cell = |c: &Cell, metric: &str| {
            c.row(metric).map(|r| PredictedCell {
                label: self.label(c),
                spread: r.spread,
                simulated: r.error,
                interpolated: r.interpolated,
                formula: r.formula,
            })
        };
        let number = |&(metric, bound): &(&str, f64)| PredictedNumber {
            title: name_of(metric).to_owned(),
            bound,
            cells: self.cells.iter().filter_map(|c| cell(c, metric)).collect(),
        };
        let numbers: Vec<PredictedNumber> = JUDGED.iter().map(number).collect();
        // The legend names what is drawn, and nothing else.
        let repeated = self.cells.iter().any(|c| c.repeats > 1);
        let beyond = numbers.iter().flat_map(|n| &n.cells).flat_map(|c| [Some(c.simulated), c.interpolated, c.formula]);
        let beyond = beyond.flatten().any(|error| 100.0 * error.abs() > EDGE);
        let legend = [
            (true, "dashed: bounds"),
            (repeated, "grey: distance of repeats"),
            (beyond, "arrowheads: beyond the edge"),
            (self.cells.iter().any(|c| c.fitted), "*: fitted to"),
            (self.marks_undecided(), "?: undecided"),
        ];
        let legend: Vec<&str> = legend.into_iter().filter_map(|(there, says)| there.then_some(says)).collect();
        let source = format!("{}; {}", self.source, legend.join("; "));
        Some(predicted_figure(&numbers, &source)?.svg)
    }

    fn page(&self) -> Page {
        let mut errors = Section::new("errors", "Errors");
        errors.parts.extend(self.figure().map(|svg| Part::Figure {
            svg,
            caption: "Each row is a draft length at a load. Blue is the simulation; orange and pink are the simpler predictions.".into(),
        }));
        let table = self.table();
        errors.parts.push(match table.rows.len() {
            n if n > OPEN => Part::More { title: format!("All {n} numbers"), parts: vec![Part::Table(table)] },
            _ => Part::Table(table),
        });
        let mut verdict = Section::new("verdict", "What comes of it");
        verdict.parts.push(Part::List(self.verdict().lines().map(str::to_owned).collect()));
        Page {
            title: "Predictions against a server".into(),
            kind: format!("Foretoken validation · {}", self.source),
            lead: std::iter::once(Part::Headline(self.headline()))
                .chain(self.warnings.iter().cloned().map(Part::Warning))
                .collect(),
            sections: vec![verdict, errors],
            foot: format!("Made by Foretoken {}.", env!("CARGO_PKG_VERSION")),
            ..Page::default()
        }
    }

    fn table(&self) -> Table {
        let columns = [
            ("cell", "* fitted to, ? undecided: observe again"),
            ("number", ""),
            ("repeats apart", "the least distance within which two thirds of them lie"),
            ("error", "simulated / observed − 1"),
            ("of acceptance", ""),
            ("of cost", ""),
            ("of schedule", ""),
            ("interpolated", "error of the line between two lengths"),
            ("formula", "error of (1 − a^(k+1)) / (1 − a) in the fitted time of a step"),
        ];
        let mut table = Table::new("Means", &columns);
        let share = |x: f64| Value::number(x, percent(x));
        for cell in &self.cells {
            for (metric, _) in JUDGED {
                let Some(r) = cell.row(metric) else { continue };
                let maybe = |x: Option<f64>| x.map_or_else(|| Value::text(""), share);
                table.rows.push(Line::of([
                    Value::text(self.label(cell)),
                    Value::text(name_of(metric)),
                    Value::number(r.spread, apart(r.spread)),
                    share(r.error),
                    share(r.of_acceptance),
                    share(r.of_cost),
                    share(r.of_schedule),
                    maybe(r.interpolated),
                    maybe(r.formula),
                ]));
            }
        }
        table
    }

    /// Are some cells decided and others not? Where none is, a mark on each would say nothing.
    fn marks_undecided(&self) -> bool {
        self.cells.iter().any(|c| c.decided) && self.cells.iter().any(|c| !c.decided)
    }

    fn label(&self, c: &Cell) -> String {
        let marks = [(c.fitted, "*"), (!c.decided && self.marks_undecided(), "?")];
        let marks: String = marks.into_iter().filter_map(|(there, mark)| there.then_some(mark)).collect();
        let marks = if marks.is_empty() { marks } else { format!(" {marks}") };
        format!("K = {}, {}{marks}", c.k, c.load)
    }
}
