//! The page's section that says why each policy is slower or faster than plain (autoregressive) decoding.

use super::results::{swept_headings, swept_value};
use crate::figures::view::View;
use crate::html::{Part, Row, Section, Table, Value};
use crate::number::fixed;
use crate::why::{WORDS, Why};
use crate::{Report, Role};

/// If there are more sentences on why policies are slower or faster than this, their list is folded away.
const MOST_SAID: usize = 8;

/// The page's section on why each policy is slower or faster than plain decoding. `None` if there is no run of plain
/// decoding, or if the runs did not record the parts of each request's latency. Runs on a device do not record these
/// parts.
pub fn section(report: &Report, view: &View) -> Option<Section> {
    let baseline = report.cells.iter().find(|c| c.entry.role == Role::Baseline)?.key().policy.as_str();
    let mut columns = vec![("policy".to_owned(), String::new())];
    columns.extend(swept_headings(view));
    columns.push(("difference\nms".to_owned(), "mean E2E of the policy − mean E2E of autoregressive".to_owned()));
    columns.extend(WORDS.iter().map(|(_, heading, what, ..)| (heading.trim_end().to_owned(), (*what).to_owned())));
    let (mut rows, mut said) = (Vec::new(), Vec::new());
    for &combination in &view.combinations {
        let plain = view.cells(baseline, |s| s == combination);
        for &(policy, look) in view.policies.iter().filter(|(policy, _)| *policy != baseline) {
            let own = view.cells(policy, |s| s == combination);
            let Some(why) = Why::of(&own, &plain) else { continue };
            let ms = |s: f64| Value::number(s, fixed(s * 1e3, 1));
            let mut values = vec![Value::policy(policy, look)];
            values.extend(combination.iter().map(swept_value));
            values.push(ms(why.difference_s.mean));
            values.extend(WORDS.iter().map(|(key, ..)| ms(why.part_s(key))));
            rows.push(Row { values, apart: own.iter().any(|c| c.entry.role != Role::Contender) });
            said.extend((view.combinations.len() == 1).then_some(why.mostly));
        }
    }
    if rows.is_empty() {
        return None;
    }
    let mut section = Section::new("why", "Why is it slower or faster?");
    if said.len() > MOST_SAID {
        section.parts.push(Part::More { title: format!("{} policies", said.len()), parts: vec![Part::List(said)] });
    } else if !said.is_empty() {
        section.parts.push(Part::List(said));
    }
    let note = "Mean end-to-end latency of the policy less that of autoregressive on the same draws, split by what requests \
                spent it on. The parts of a row sum to its difference.";
    section.parts.push(Part::More {
        title: "The difference to plain decoding, in parts".into(),
        parts: vec![Part::Text(note.into()), Part::Table(Table { columns, rows, ..Table::default() })],
    });
    Some(section)
}
