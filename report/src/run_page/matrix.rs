//! The page's section on a sweep: by how much each policy is slower than the fastest policy at each combination of
//! swept values, and its SLO attainment. The policy with the least loss where it loses most is first.

use crate::figures::view::{View, words};
use crate::html::{Part, Row, Section, Table, Value};
use crate::number::fixed;
use crate::rank::{baseline, rank};
use crate::{Report, Swept};
use foretoken_sim::metrics::Interval;

/// The most combinations of swept values that the table can hold, one column each.
const MOST: usize = 12;

/// The page's section on a sweep, a table with one column per combination of swept values. `None` if there is only one
/// combination, or if there are more than [`MOST`].
pub fn section(report: &Report, view: &View) -> Option<Section> {
    if !(2..=MOST).contains(&view.combinations.len()) {
        return None;
    }
    let rankings: Vec<_> = view.combinations.iter().map(|&c| rank(report, view, c)).collect();
    let mut columns = vec![("policy".to_owned(), String::new())];
    columns.extend(view.combinations.iter().map(|&c| (words(c), String::new())));
    columns.push(("at most\n%".to_owned(), "the largest number of the row".to_owned()));
    let mut rows: Vec<(f64, Row)> = Vec::new();
    // Plain decoding has a row also if the experiment does not list it.
    let unlisted = baseline(report).filter(|name| view.policies.iter().all(|p| p.0 != *name));
    let unlisted =
        unlisted.and_then(|name| Some((name, report.cells.iter().find(|c| c.key().policy == name)?.entry.look)));
    for (policy, look) in view.policies.iter().copied().chain(unlisted) {
        let behind: Vec<Option<f64>> = rankings.iter().map(|r| r.as_ref()?.behind(policy)).collect();
        let Some(worst) = behind.iter().flatten().copied().reduce(f64::max) else { continue };
        let mut values = vec![Value::policy(policy, look)];
        values.extend(view.combinations.iter().zip(&behind).map(|(&c, behind)| match behind {
            Some(share) => {
                let percent = fixed(100.0 * share, 1);
                Value::number(*share, percent.clone() + &met(view, policy, c)).shaded(Some(*share), percent)
            }
            None => Value::none(),
        }));
        let everywhere = behind.iter().all(Option::is_some);
        values.push(if everywhere { Value::number(worst, fixed(100.0 * worst, 1)) } else { Value::none() });
        rows.push((if everywhere { worst } else { f64::INFINITY }, Row::of(values)));
    }
    rows.sort_by(|a, b| a.0.total_cmp(&b.0));
    let rows = rows.into_iter().map(|(_, row)| row).collect();
    let mut section = Section::new("settings", "Setting by setting");
    section.parts.push(Part::Text(
        "How much longer the mean latency is than that of the fastest policy of the setting, %; in brackets the requests that met \
         every bound, %. Plain decoding is a row as every policy; the oracles are left out."
            .into(),
    ));
    section.parts.push(Part::Table(Table { columns, rows, shaded: true, ..Table::default() }));
    Some(section)
}

/// The share of requests that met every SLO bound, as text in brackets: mean over seeds, in %. Empty without bounds.
fn met(view: &View, policy: &str, combination: &[Swept]) -> String {
    let cells = view.cells(policy, |s| s == combination);
    let shares: Option<Vec<f64>> = cells.iter().map(|c| c.summary.slo_attainment).collect();
    let mean = shares.and_then(|s| Interval::of(&s));
    mean.map_or(String::new(), |m| format!(" ({})", fixed(100.0 * m.mean, 1)))
}
