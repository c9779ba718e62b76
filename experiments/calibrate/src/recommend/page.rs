//! A recommendation as a page.

use super::advice::{Advice, Verdict};
use super::words::pays;
use foretoken_report::html::{Page, Part, Row, Section, Table, Value};
use foretoken_report::{GainAt, gain_figure};

/// The page.
pub fn page(a: &Advice) -> Page {
    let mut lead = vec![Part::Headline(a.headline())];
    lead.extend(a.stops().map(|s| Part::Text(s + ".")));
    lead.extend(a.warnings.iter().cloned().map(Part::Warning));
    let sections = match a.verdict {
        Verdict::Unknown(_) if a.candidates.is_empty() => vec![],
        _ => vec![candidates(a), by_batch(a), by_load(a), starts(a)],
    };
    Page {
        title: "Recommendation".into(),
        kind: format!("Foretoken recommendation · {}", a.source),
        lead,
        sections,
        foot: format!("Made by Foretoken {}.", env!("CARGO_PKG_VERSION")),
        ..Page::default()
    }
}

fn percent(x: f64) -> Value {
    Value::number(x, format!("{:+.1} %", 100.0 * x))
}

fn candidates(a: &Advice) -> Section {
    let mut section = Section::new("candidates", "What was tried");
    let mut table = Table::new(
        "Candidates",
        &[
            ("policy", ""),
            ("gain", "1 − cost / cost of what runs now, mean over seeds"),
            ("±", "95 % interval over seeds"),
            ("accepted", "of drafted tokens"),
        ],
    );
    let none = || Value::text("");
    for c in &a.candidates {
        table.rows.push(Row::of([
            Value::text(&c.policy),
            c.gain.map_or_else(none, |g| percent(g.mean)),
            c.gain.and_then(|g| g.half_width).map_or_else(none, |h| Value::number(h, format!("{:.1} %", 100.0 * h))),
            c.acceptance_rate.map_or_else(none, |r| Value::number(r, format!("{:.1} %", 100.0 * r))),
        ]));
    }
    section.parts.push(Part::Table(table));
    section.parts.push(Part::Text(format!(
        "Cost is the {}, {}. Every candidate has the same requests and the same luck. Within 1 % of the best the shorter drafts are taken.",
        a.objective.in_words(),
        a.source
    )));
    section
}

fn by_batch(a: &Advice) -> Section {
    let mut section = Section::new("break-even", "When drafting pays");
    section.parts.push(Part::List(a.break_even.iter().map(pays).collect()));
    let ranges: Vec<String> =
        a.table.iter().map(|(first, last, k)| format!("{first} to {last} requests: K = {k}")).collect();
    section.parts.push(Part::Facts(vec![("best length by batch size".into(), ranges.join("; "))]));
    section
}

fn by_load(a: &Advice) -> Section {
    let mut section = Section::new("loads", "Gain over load");
    match figure(a) {
        Some(svg) => section.parts.push(Part::Figure {
            svg,
            caption: format!(
                "Mean E2E with drafts against plain decoding, requests that come by themselves: {}.",
                a.source
            ),
        }),
        None => section.parts.push(Part::Text("No load was tried.".into())),
    }
    section
}

fn starts(a: &Advice) -> Section {
    let mut section = Section::new("start", "What to start the engine with");
    for start in &a.starts {
        section.parts.push(Part::Facts(vec![(start.file.clone(), start.used.clone())]));
        section.parts.push(Part::Folded { title: start.file.clone(), text: start.text.clone() });
    }
    if a.starts.is_empty() {
        section.parts.push(Part::Text("Nothing: without speculation.".into()));
    }
    section
}

/// The gain over load.
pub fn figure(a: &Advice) -> Option<String> {
    let loads = a.loads.as_ref()?;
    let points: Vec<GainAt> = loads
        .points
        .iter()
        .filter_map(|l| l.gain.map(|g| GainAt { rate: l.rate, gain: g.mean, half_width: g.half_width }))
        .collect();
    let seeds = loads.points.iter().filter_map(|l| l.gain).map(|g| g.n).max()?;
    Some(gain_figure(loads.k, &points, &format!("{}; mean and 95 % interval over {seeds} seeds", a.source))?.svg)
}
