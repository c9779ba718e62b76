//! The page's section on the comparison of this run with other results. Two cells, one from each of the two results,
//! form a pair if their policy, swept values and seed are equal.

use super::results::{swept_headings, swept_value};
use super::say;
use crate::figures::view::{Mean, Scale, View, count, words};
use crate::html::{Part, Row, Section, Table, Value};
use crate::{Cell, Figure, Key, Report, Swept};
use foretoken_sim::Summary;

/// Other results (such as an earlier run's) that a report's runs are compared with.
#[derive(Clone, Debug, Default)]
pub struct Compared {
    pub name: String,
    /// The runs (policy, swept values and seed) that both results have.
    pub pairs: Vec<Pair>,
    /// Reasons why some runs are in only one of the two results.
    pub unpaired: Vec<String>,
    /// Settings in which the two experiments differ: (path, value in the other results, value in this report).
    pub differs: Vec<(String, String, String)>,
    /// Warnings that the comparison may mislead, for example because the two results have different requests.
    pub warnings: Vec<String>,
}

/// A run (policy, swept values and seed) that both results have.
#[derive(Clone, Debug)]
pub struct Pair {
    /// The policy, swept values and seed of the run, the same in both results.
    pub key: Key,
    /// The run's numbers in the other results.
    pub other: Summary,
}

/// A number of a run's summary to compare with other results: (heading, explanation, a function that gives its change
/// from the other run's summary to this run's summary, kind of the change).
type Measure = (&'static str, &'static str, fn(&Summary, &Summary) -> Option<f64>, Scale);

const MEASURES: [Measure; 6] = [
    change("E2E mean\n%", "change of the mean end-to-end latency", |a, b| relative(a.e2e?.mean, b.e2e?.mean)),
    change("TTFT mean\n%", "change of the mean time to first token", |a, b| relative(a.ttft?.mean, b.ttft?.mean)),
    change("TPOT p50\n%", "change of the median time per output token", |a, b| relative(a.tpot?.p50, b.tpot?.p50)),
    change("TPOT p99\n%", "change of its 99th percentile", |a, b| relative(a.tpot?.p99, b.tpot?.p99)),
    change("goodput\n%", "change of output tokens a second", |a, b| {
        relative(a.token_goodput_tok_s, b.token_goodput_tok_s)
    }),
    (
        "SLO met\npoints",
        "change of the share of requests that met every bound, percentage points",
        points,
        Scale::Difference,
    ),
];

const fn change(name: &'static str, meaning: &'static str, of: fn(&Summary, &Summary) -> Option<f64>) -> Measure {
    (name, meaning, of, Scale::Change)
}

fn relative(own: f64, other: f64) -> Option<f64> {
    Some((own / other - 1.0) * 100.0).filter(|x| x.is_finite())
}

fn points(own: &Summary, other: &Summary) -> Option<f64> {
    Some((own.slo_attainment? - other.slo_attainment?) * 100.0)
}

impl Compared {
    /// A paragraph that says what changed between the two results, and whether the change is larger than the noise of
    /// the seeds.
    pub fn sentence(&self, report: &Report) -> String {
        let view = View::new(report);
        let settings = match self.differs.as_slice() {
            [] => "the settings are the same".to_owned(),
            [(path, was, is)] => format!("{path} is {is} here and was {was}"),
            all => format!(
                "{} settings differ, {}",
                all.len(),
                say::few(&all.iter().map(|d| d.0.as_str()).collect::<Vec<_>>())
            ),
        };
        let mut changes: Vec<(&str, &[Swept], Mean)> = Vec::new();
        for &combination in &view.combinations {
            for &(policy, _) in &view.policies {
                let pairs = pairs_of(&view, self, policy, combination);
                let each: Vec<f64> = pairs.iter().filter_map(|(a, b)| relative(a.e2e?.mean, b.e2e?.mean)).collect();
                changes.extend(Scale::Change.mean(&each).map(|mean| (policy, combination, mean)));
            }
        }
        let start = format!("Against {}, {settings}.", self.name);
        let Some(largest) = changes.iter().max_by(|a, b| a.2.mean.abs().total_cmp(&b.2.mean.abs())) else {
            return start;
        };
        let named = |(policy, at, mean): &(&str, &[Swept], Mean)| {
            let at = if at.is_empty() { String::new() } else { format!(" at {}", words(*at)) };
            format!(
                "{policy}{at}, {}{}",
                if mean.mean > 0.0 { "+" } else { "" },
                say::with_interval(mean, "\u{a0}%", 1)
            )
        };
        if changes.iter().all(|c| c.2.mean == 0.0) {
            return format!("{start} No mean end-to-end latency changed.");
        }
        if changes.iter().all(|c| c.2.ends.is_none()) {
            return format!(
                "{start} The largest change of the mean end-to-end latency is that of {}; with one seed it cannot be said whether \
                 this is noise.",
                named(largest)
            );
        }
        let beyond = |sign: f64| {
            let one = move |m: &Mean| m.ends.is_some_and(|(low, high)| (low * sign).min(high * sign) > 0.0);
            changes.iter().filter(|c| one(&c.2)).count()
        };
        let (slower, faster, all) = (beyond(1.0), beyond(-1.0), changes.len());
        match slower + faster {
            0 => format!(
                "{start} No change of the {all} mean end-to-end latencies is more than the noise of the seeds; the largest is that \
                 of {}.",
                named(largest)
            ),
            _ => format!(
                "{start} Of {all} mean end-to-end latencies {slower} rose and {faster} fell by more than the noise of the seeds, \
                 and {} did not; the largest change is that of {}.",
                all - slower - faster,
                named(largest)
            ),
        }
    }

    /// Sets `change`, the relative change in mean E2E from the other results, of every run that also exists in these
    /// results.
    pub fn set_changes(&self, cells: &mut [Cell]) {
        for cell in cells {
            let other = self.pairs.iter().find(|p| p.key == *cell.key()).map(|p| &p.other);
            cell.change = other.and_then(|o| relative(cell.e2e_mean_s()?, o.e2e?.mean)).map(|percent| percent / 100.0);
        }
    }
}

/// The page's section on the comparison of this run with other results.
pub fn section(report: &Report, compared: &Compared, figures: &[&Figure]) -> Section {
    let mut section = Section::new("compared", "Compared with other results");
    section.parts.extend(compared.warnings.iter().cloned().map(Part::Warning));
    let text = format!(
        "With {}: {} with the same policy, swept values and seed. A change is this run over that one, less 1; a latency \
        below zero is faster. Intervals are 95 %, Student t over the seeds' paired changes, of ratios over their logarithms.",
        compared.name,
        count(compared.pairs.len(), "pair"),
    );
    section.parts.push(Part::Text(text));
    section.parts.push(match compared.differs.as_slice() {
        [] => Part::Text("The settings of the two experiments are the same.".into()),
        all => {
            let mut table = Table::new("Where the experiments differ", &[("setting", ""), ("there", ""), ("here", "")]);
            table.rows = all.iter().map(|(p, was, is)| Row::of([p, was, is].map(Value::text))).collect();
            Part::Table(table)
        }
    });
    let caption = "Paired by seed.";
    section.parts.extend(figures.iter().map(|f| Part::Figure { svg: f.on_a_page(), caption: caption.into() }));
    section.parts.push(Part::Table(table(report, compared)));
    if !compared.unpaired.is_empty() {
        let title = format!("Not paired: {}", count(compared.unpaired.len(), "reason"));
        section.parts.push(Part::More { title, parts: vec![Part::List(compared.unpaired.clone())] });
    }
    section
}

fn table(report: &Report, compared: &Compared) -> Table {
    let view = View::new(report);
    let mut columns = vec![("policy".to_owned(), String::new())];
    columns.extend(swept_headings(&view));
    columns.extend(MEASURES.iter().map(|m| (m.0.to_owned(), m.1.to_owned())));
    columns.push(("pairs".to_owned(), "seeds in both".to_owned()));
    let mut table = Table { caption: "Changes".into(), columns, ..Table::default() };
    for &combination in &view.combinations {
        for &(policy, look) in &view.policies {
            let pairs = pairs_of(&view, compared, policy, combination);
            if pairs.is_empty() {
                continue;
            }
            let mut values = vec![Value::policy(policy, look)];
            values.extend(combination.iter().map(swept_value));
            values.extend(MEASURES.iter().map(|&(_, _, of, scale)| {
                let each: Option<Vec<f64>> = pairs.iter().map(|(own, other)| of(own, other)).collect();
                match each.and_then(|v| scale.mean(&v)) {
                    Some(mean) => Value::number(mean.mean, signed(&mean)),
                    None => Value::none(),
                }
            }));
            values.push(Value::number(pairs.len() as f64, pairs.len().to_string()));
            table.rows.push(Row::of(values));
        }
    }
    table
}

fn pairs_of<'a>(
    view: &View<'a>,
    compared: &'a Compared,
    policy: &str,
    combination: &[Swept],
) -> Vec<(&'a Summary, &'a Summary)> {
    let other = |cell: &Cell| compared.pairs.iter().find(|p| p.key == *cell.key()).map(|p| &p.other);
    let cells = view.cells(policy, |s| s == combination);
    cells.into_iter().filter_map(|cell| Some((&cell.summary, other(cell)?))).collect()
}

/// A change as text, with its interval over seeds, and with a plus sign if the change is positive.
fn signed(mean: &Mean) -> String {
    let sign = if mean.mean > 0.0 { "+" } else { "" };
    format!("{sign}{}", say::with_interval(mean, "", 1))
}
