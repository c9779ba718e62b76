//! The page's table of results: one row per policy and combination of swept values.

use super::say;
use crate::figures::view::{Scale, View};
use crate::html::{Part, Row, Section, Table, Value};
use crate::number::fixed;
use crate::{Cell, Mark, Marked, Report, Swept};

/// The table of results is folded away if it has more rows than this.
const OPEN: usize = 60;

/// A column of the table of results: its heading and explanation, how it reads a number from a run, the factor to the
/// column's unit, the number of decimals, the kind of number, and whether its interval over seeds is shown.
struct Column {
    name: &'static str,
    meaning: &'static str,
    of: fn(&Cell) -> Option<f64>,
    unit: f64,
    decimals: usize,
    scale: Scale,
    interval: bool,
}

const fn column(
    name: &'static str,
    meaning: &'static str,
    of: fn(&Cell) -> Option<f64>,
    unit: f64,
    decimals: usize,
) -> Column {
    Column { name, meaning, of, unit, decimals, scale: Scale::Amount, interval: false }
}

/// The first ones are shown at once; a tick shows the others.
const COLUMNS: [Column; 18] = [
    Column {
        interval: true,
        scale: Scale::Ratio,
        ..column("speedup\n×", "mean E2E of autoregressive / mean E2E of the policy, same draws", |c| c.speedup, 1.0, 2)
    },
    column("E2E mean\ns", "mean end-to-end latency", |c| c.e2e_mean_s(), 1.0, 3),
    column("TTFT mean\nms", "mean time to first token", |c| c.summary.ttft.map(|q| q.mean), 1e3, 1),
    column(
        "TPOT p99\nms",
        "99th percentile of the time per output token after the first",
        |c| c.summary.tpot.map(|q| q.p99),
        1e3,
        2,
    ),
    column("SLO met\n%", "requests that met every bound", |c| c.summary.slo_attainment, 100.0, 1),
    column("accept\nlength", "1 + accepted / rounds", |c| c.summary.mean_acceptance_length, 1.0, 2),
    column("draft\nlength", "drafted tokens a request-step", |c| Some(c.summary.drafted_per_step), 1.0, 2),
    column(
        "regret\n%",
        "mean E2E over that of oracle-goodput, the bound for chains of drafts, less 1",
        |c| c.regret,
        100.0,
        1,
    ),
    column("TTFT p99\nms", "99th percentile of the time to first token", |c| c.summary.ttft.map(|q| q.p99), 1e3, 1),
    column("TPOT p50\nms", "median time per output token after the first", |c| c.summary.tpot.map(|q| q.p50), 1e3, 2),
    column("TPOT p90\nms", "90th percentile", |c| c.summary.tpot.map(|q| q.p90), 1e3, 2),
    column(
        "goodput\ntok/s",
        "output tokens of finished requests a second",
        |c| Some(c.summary.token_goodput_tok_s),
        1.0,
        0,
    ),
    column("accepted\n%", "accepted / drafted", |c| c.summary.acceptance_rate, 100.0, 1),
    column("batch\nsize", "decode batch size, weighted by time", |c| Some(c.summary.mean_batch_size), 1.0, 1),
    column("KV peak\n%", "most blocks in use at once", |c| Some(c.summary.kv_use_peak), 100.0, 0),
    column(
        "waiting\nat end",
        "requests waiting when the last one came, where that is an overload: the queue grew while requests came",
        |c| c.summary.overload.map(|o| o.waiting[2] as f64),
        1.0,
        0,
    ),
    column("preempted", "preemptions, mean over seeds", |c| Some(c.summary.preemptions as f64), 1.0, 1),
    column("rejected", "requests that could never fit, mean over seeds", |c| Some(c.summary.rejected as f64), 1.0, 1),
];

/// The section with the table of results and an explanation of the marks in it.
pub fn section(report: &Report, view: &View) -> Section {
    let mut section = Section::new("results", "Results");
    let table = table(report, view);
    if table.rows.is_empty() {
        section.parts.push(Part::Missing("No run is finished.".into()));
        return section;
    }
    let rows = table.rows.len();
    let marks = view.combinations.iter().flat_map(|&at| view.policies.iter().map(move |p| (p.0, at)));
    let notes = Mark::notes(marks.map(|(policy, at)| Mark::of(&view.cells(policy, |s| s == at))));
    let marks: String = notes.iter().map(|note| format!(" {note}.")).collect();
    let note = "Means over seeds. A click on a heading sorts by it; its explanation appears when the pointer rests on it. Grey: \
    the baseline, and oracles, which see what will be accepted, so no server can run them.";
    section.parts.push(Part::Text(note.to_owned() + &marks));
    section.parts.push(match rows {
        n if n > OPEN => Part::More { title: format!("All {n} rows"), parts: vec![Part::Table(table)] },
        _ => Part::Table(table),
    });
    section
}

fn table(report: &Report, view: &View) -> Table {
    let some = |c: &&Column| report.cells.iter().any(|cell| (c.of)(cell).is_some());
    let columns: Vec<&Column> = COLUMNS.iter().filter(some).collect();
    let mut headings = vec![("policy".to_owned(), String::new())];
    headings.extend(swept_headings(view));
    headings.extend(columns.iter().map(|c| (c.name.to_owned(), c.meaning.to_owned())));
    headings.push(("seeds".to_owned(), "runs that the means are over".to_owned()));
    let mut rows = Vec::new();
    for &combination in &view.combinations {
        for &(policy, look) in &view.policies {
            let cells = view.cells(policy, |s| s == combination);
            let Some(first) = cells.first() else { continue };
            let mut values = vec![Value::policy(policy, look)];
            values.extend(combination.iter().map(swept_value));
            values.extend(columns.iter().map(|c| value(c, &cells)));
            mark(&mut values, &headings, &cells);
            values.push(Value::number(cells.len() as f64, cells.len().to_string()));
            let apart = first.entry.role != crate::Role::Contender;
            rows.push(Row { values, apart });
        }
    }
    Table { columns: headings, rows, ..Table::default() }
}

/// Appends the signs of a row's marks to its values; the page explains them below the table.
fn mark(values: &mut [Value], headings: &[(String, String)], cells: &[&Cell]) {
    let marks = Mark::of(cells);
    let marked = [
        ("policy", Marked::Policy),
        ("speedup", Marked::Speedup),
        ("regret", Marked::Regret),
        ("SLO met", Marked::Slo),
    ];
    for (value, (name, _)) in values.iter_mut().zip(headings) {
        let signs = marked.iter().filter(|(start, _)| name.starts_with(start)).map(|m| Mark::signs(&marks, m.1));
        signs.filter(|signs| !signs.is_empty()).for_each(|signs| value.text += &format!(" {signs}"));
    }
}

/// Column headings for the swept settings, as (heading, explanation). The explanation is the setting's path.
pub fn swept_headings(view: &View) -> Vec<(String, String)> {
    let unit = |s: &Swept| if s.unit.is_empty() { String::new() } else { format!("\n{}", s.unit) };
    let heading = |s: &Swept| (s.name.clone() + &unit(s), s.path.clone());
    view.combinations.first().map_or(Vec::new(), |c| c.iter().map(heading).collect())
}

/// A swept value for a table. A number sorts as a number, any other value as a text.
pub fn swept_value(swept: &Swept) -> Value {
    match swept.number {
        Some(n) => Value::number(n, swept.shown()),
        None => Value::text(swept.shown()),
    }
}

fn value(column: &Column, cells: &[&Cell]) -> Value {
    // There is no mean if some seed lacks the number, because means over different seeds cannot be compared.
    let each: Option<Vec<f64>> = cells.iter().map(|c| (column.of)(c).filter(|x| x.is_finite())).collect();
    match each.and_then(|v| column.scale.mean(&v)) {
        None => Value::none(),
        Some(m) if column.interval => Value::number(m.mean, say::with_interval(&m, "", column.decimals)),
        Some(m) => Value::number(m.mean, fixed(m.mean * column.unit, column.decimals)),
    }
}
