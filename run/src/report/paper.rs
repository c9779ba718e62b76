//! The figures of a results folder for a paper: each as an SVG of a column's width and its caption as text, and the
//! numbers of every run as CSV.

use super::Results;
use crate::cells::{make_folder, write_problem};
use crate::spec::problem::Result;
use foretoken_report::{Cell, Mark, Report, Staged, column_figures};
use std::path::Path;

const NUMBERS: &str = "numbers.csv";

/// A column of the CSV file [`NUMBERS`]: its heading and the function that reads its number from a run's results.
type Column = (&'static str, fn(&Cell) -> Option<f64>);

const COLUMNS: [Column; 12] = [
    ("speedup", |c| c.speedup),
    ("behind_fastest", |c| c.behind),
    ("regret", |c| c.regret),
    ("e2e_mean_s", Cell::e2e_mean_s),
    ("ttft_mean_s", |c| Some(c.summary.ttft?.mean)),
    ("ttft_p99_s", |c| Some(c.summary.ttft?.p99)),
    ("tpot_p50_s", |c| Some(c.summary.tpot?.p50)),
    ("tpot_p99_s", |c| Some(c.summary.tpot?.p99)),
    ("slo_attainment", |c| c.summary.slo_attainment),
    ("output_tok_s", |c| Some(c.summary.token_goodput_tok_s)),
    ("acceptance_rate", |c| c.summary.acceptance_rate),
    ("draft_length", |c| Some(c.summary.drafted_per_step)),
];

/// Writes the figures, their captions and the numbers into the folder `to`. Returns the names of the files.
pub fn paper(results: Results, to: &Path) -> Result<Vec<String>> {
    make_folder(to)?;
    let scope = crate::scope::of(&results.plan);
    let report = Report { name: results.manifest.name, source: results.source, cells: results.cells };
    let mut files = vec![(NUMBERS.to_owned(), numbers(&report.cells))];
    for figure in column_figures(&report) {
        let caption = format!("{}.txt", figure.file.trim_end_matches(".svg"));
        files.push((caption, format!("{} {scope}.\n", figure.caption())));
        files.push((figure.file, figure.svg));
    }
    for (name, text) in &files {
        Staged::write_all_to(&to.join(name), text.as_bytes()).map_err(write_problem)?;
    }
    Ok(files.into_iter().map(|(name, _)| name).collect())
}

/// The numbers of all runs as CSV: a row for each run, with its policy, swept values, seed and marks. A missing number
/// is empty.
fn numbers(cells: &[Cell]) -> String {
    let mut csv = csv::Writer::from_writer(Vec::new());
    let swept = cells.first().map_or(Vec::new(), |c| c.key().sweep.iter().map(|s| s.path.clone()).collect());
    let head = ["policy".to_owned()].into_iter().chain(swept).chain(["seed".to_owned()]);
    let write = "a line into memory";
    let marks = Mark::ALL.map(|mark| mark.key().to_owned());
    csv.write_record(head.chain(COLUMNS.iter().map(|c| c.0.to_owned())).chain(marks)).expect(write);
    for cell in cells {
        let key = cell.key();
        let name =
            [key.policy.clone()].into_iter().chain(key.sweep.iter().map(|s| s.shown())).chain([key.seed.to_string()]);
        let number =
            |column: &Column| (column.1)(cell).filter(|x| x.is_finite()).map_or(String::new(), |x| x.to_string());
        let marks = Mark::of(&[cell]);
        let marks = Mark::ALL.map(|mark| marks.contains(&mark).to_string());
        csv.write_record(name.chain(COLUMNS.iter().map(number)).chain(marks)).expect(write);
    }
    String::from_utf8(csv.into_inner().expect(write)).expect("texts and numbers are UTF-8")
}
