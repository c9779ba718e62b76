//! The folder of a comparison: JSON, the tables as text, a page and its figures.

use super::comparison::{Against, Cell, JUDGED};
use super::words::apart;
use crate::folder::{make, put};
use foretoken_report::html::{Page, Part, Row as Line, Section, Table, Value};
use foretoken_report::{PredictedCell, PredictedNumber, predicted_figure};
use foretoken_spec::problem::Result;
use std::path::Path;

impl Against {
    /// Writes `validation.json`, `validation.txt`, `validation.html` and `predicted.svg` into a folder, over those that are there.
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
                label: label(c),
                spread: r.spread,
                simulated: r.error,
                interpolated: r.interpolated,
                formula: r.formula,
            })
        };
        let number = |&(metric, bound): &(&str, f64)| PredictedNumber {
            title: metric.to_owned(),
            bound,
            cells: self.cells.iter().filter_map(|c| cell(c, metric)).collect(),
        };
        let numbers: Vec<PredictedNumber> = JUDGED.iter().map(number).collect();
        let source = format!("{}; grey: distance of repeats; dashed: bounds; *: fitted to, ?: undecided", self.source);
        Some(predicted_figure(&numbers, &source)?.svg)
    }

    fn page(&self) -> Page {
        let mut errors = Section::new("errors", "Errors");
        errors.parts.extend(self.figure().map(|svg| Part::Figure {
            svg,
            caption: "Each row is a draft length at a load. Blue is the simulation; orange and pink are the simpler predictions.".into(),
        }));
        errors.parts.push(Part::Table(self.table()));
        let mut verdict = Section::new("verdict", "What comes of it");
        verdict.parts.push(Part::List(self.verdict().lines().map(str::to_owned).collect()));
        Page {
            title: "Predictions against a server".into(),
            kind: format!("Foretoken validation · {}", self.source),
            lead: self.warnings.iter().cloned().map(Part::Warning).collect(),
            sections: vec![verdict, errors],
            foot: format!("Made by Foretoken {}.", env!("CARGO_PKG_VERSION")),
            ..Page::default()
        }
    }

    fn table(&self) -> Table {
        let columns = [
            ("cell", "* fitted to, ? undecided"),
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
        let share = |x: f64| Value::number(x, format!("{:+.1} %", 100.0 * x));
        for cell in &self.cells {
            for (metric, _) in JUDGED {
                let Some(r) = cell.row(metric) else { continue };
                let maybe = |x: Option<f64>| x.map_or_else(|| Value::text(""), share);
                table.rows.push(Line::of([
                    Value::text(label(cell)),
                    Value::text(metric),
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
}

fn label(c: &Cell) -> String {
    let sign = match (c.fitted, c.decided) {
        (true, true) => " *",
        (true, false) => " *?",
        (false, true) => "",
        (false, false) => " ?",
    };
    format!("K = {}, {}{sign}", c.k, c.load)
}
