//! The HTML page and the figure of a comparison of a server with its predictions.

use super::cell::{Cell, JUDGED};
use super::comparison::ServerComparison;
use super::text::{name_of, percent};
use crate::compare::format::{or_dash, percent as unsigned};
use foretoken_report::html::{Page, Part, Row as Line, Section, Table, Value};
use foretoken_report::{PREDICTED_EDGE as EDGE, PredictedCell, PredictedNumber, predicted_figure};

/// A table of the page with more rows than this is folded when the page opens.
const OPEN: usize = 40;

impl ServerComparison {
    /// The figure `predicted.svg`: the errors of the predicted numbers that have bounds, for each cell. `None` without
    /// cells.
    pub fn figure(&self) -> Option<String> {
        let cell = |c: &Cell, metric: &str| {
            c.row(metric).map(|r| PredictedCell {
                label: self.label(c),
                spread: r.spread.unwrap_or(f64::INFINITY),
                simulated: r.predicted.error,
                interpolated: r.predicted.interpolated,
                formula: r.predicted.formula,
            })
        };
        let number = |&(metric, bound): &(&str, f64)| PredictedNumber {
            title: name_of(metric).to_owned(),
            bound,
            cells: self.cells.iter().filter_map(|c| cell(c, metric)).collect(),
        };
        let numbers: Vec<PredictedNumber> = JUDGED.iter().map(number).collect();
        // The figure shows the distance between repeated runs in grey. The legend explains this only if a cell has
        // repeated runs.
        let repeated = self.cells.iter().any(|c| c.repeats > 1);
        let beyond = numbers.iter().flat_map(|n| &n.cells).flat_map(|c| [Some(c.simulated), c.interpolated, c.formula]);
        let beyond = beyond.flatten().any(|error| 100.0 * error.abs() > EDGE);
        let legend = [
            (true, "dashed: bounds"),
            (repeated, "grey: distance of repeats"),
            (beyond, "arrowheads: beyond the edge"),
            (self.cells.iter().any(|c| c.fitted), "*: fitted to"),
            (self.marks_undecided(), "?: not all means are decided"),
        ];
        let legend: Vec<&str> = legend.into_iter().filter_map(|(there, says)| there.then_some(says)).collect();
        let source = format!("{}; {}", self.source, legend.join("; "));
        Some(predicted_figure(&numbers, &source)?.svg)
    }

    /// One line that says which draft lengths and loads are compared, and how many of their combinations are held out
    /// (nothing was fitted to them).
    fn scope(&self) -> String {
        let mut lengths: Vec<u32> = self.cells.iter().map(|cell| cell.k).collect();
        lengths.sort_unstable();
        lengths.dedup();
        let lengths: Vec<String> = lengths.iter().map(u32::to_string).collect();
        let mut loads: Vec<&str> = Vec::new();
        for cell in &self.cells {
            if !loads.contains(&cell.load.as_str()) {
                loads.push(&cell.load);
            }
        }
        let held_out = self.cells.iter().filter(|cell| !cell.fitted).count();
        let cells = self.cells.len();
        let loads = if loads.len() > 6 { format!("{} loads", loads.len()) } else { loads.join(", ") };
        format!("K = {} · {loads} · {held_out} of {cells} cells held out", lengths.join(", "))
    }

    pub fn page(&self) -> Page {
        let mut errors = Section::new("errors", "Errors");
        errors.parts.extend(self.figure().map(|svg| {
            Part::Figure {
                svg,
                caption:
                    "Each row is a draft length at a load. Blue is the simulation. The simpler predictions: orange is the line \
                     between two observed lengths (interpolated), pink the formula for the tokens of a round in the fitted time \
                     of a step."
                        .into(),
            }
        }));
        let table = self.table();
        errors.parts.push(match table.rows.len() {
            n if n > OPEN => Part::More { title: format!("All {n} numbers"), parts: vec![Part::Table(table)] },
            _ => Part::Table(table),
        });
        let mut verdict = Section::new("verdict", "Verdict");
        verdict.parts.push(Part::List(self.verdict().lines().map(str::to_owned).collect()));
        Page {
            title: "Predictions against a server".into(),
            kind: format!("Foretoken validation · {}", self.source),
            scope: self.scope(),
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
            ("cell", "* fitted to, ? not all means are decided: observe again"),
            ("number", ""),
            ("repeats apart", "width of the narrowest window that holds two thirds of them"),
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
                let p = &r.predicted;
                table.rows.push(Line::of([
                    Value::text(self.label(cell)),
                    Value::text(name_of(metric)),
                    Value::number(r.spread.unwrap_or(f64::INFINITY), or_dash(r.spread, unsigned)),
                    share(p.error),
                    share(p.of_acceptance),
                    share(p.of_cost),
                    share(p.of_schedule),
                    maybe(p.interpolated),
                    maybe(p.formula),
                ]));
            }
        }
        table
    }

    /// True if the names of undecided cells get a question mark. They get one only if other cells are decided, because
    /// a mark on every cell would say nothing.
    fn marks_undecided(&self) -> bool {
        self.cells.iter().any(all_decided) && !self.cells.iter().all(all_decided)
    }

    fn label(&self, c: &Cell) -> String {
        let marks = [(c.fitted, "*"), (!all_decided(c) && self.marks_undecided(), "?")];
        let marks: String = marks.into_iter().filter_map(|(there, mark)| there.then_some(mark)).collect();
        let marks = if marks.is_empty() { marks } else { format!(" {marks}") };
        format!("K = {}, {}{marks}", c.k, c.load)
    }
}

/// True if all numbers of the cell that have a bound are decided (observed at least twice, with repeats that agree).
fn all_decided(cell: &Cell) -> bool {
    JUDGED.iter().all(|(quantity, _)| cell.decided(quantity))
}
