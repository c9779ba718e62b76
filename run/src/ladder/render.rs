//! Ladders (a policy's loss against the best oracle, split into rungs) as text, as JSON and as an HTML page.

use super::climb::{HIDDEN, Ladder, Ladders, RUNGS};
use foretoken_report::html::{Page, Part, Row, Section, Table, Value};
use foretoken_report::{LadderBar, ladder_figure, narrow, plain_table, table_lines};
use foretoken_sim::metrics::Interval;

pub fn render(ladders: &Ladders) -> String {
    let head = ["policy", "L"].into_iter().chain(RUNGS.map(|(name, _)| name));
    let rows = ladders.ladders.iter().map(|ladder| {
        let heights = ladder.rungs.iter().map(|rung| rung.height.map_or_else(|| "-".to_owned(), shown));
        [name(ladder), shown(ladder.as_is)].into_iter().chain(heights)
    });
    let table = table_lines(&narrow(plain_table(head, rows, 1..)));
    let mut text = headline(ladders).map_or(String::new(), |said| said + "\n\n");
    text += &format!("{}\n\n{table}\n", heading(ladders));
    legend(ladders).iter().for_each(|line| text += &format!("{line}\n"));
    crate::spec::shown::escape(&text).into_owned()
}

pub fn render_json(ladders: &Ladders) -> String {
    serde_json::to_string_pretty(ladders).expect("plain data always serialises") + "\n"
}

pub fn page(ladders: &Ladders) -> Page {
    let mut section = Section::new("ladder", "Rungs");
    let bar = |ladder: &Ladder| LadderBar {
        policy: name(ladder),
        heights: ladder.rungs.iter().map(|rung| rung.height.map(|h| 100.0 * h.mean)).collect(),
    };
    let bars: Vec<LadderBar> = ladders.ladders.iter().map(bar).collect();
    if let Some(figure) = ladder_figure(&RUNGS.map(|(name, _)| name), &bars, &heading(ladders)) {
        let caption = "Each part of a bar is what one more piece of knowledge takes off the loss, from the policy as it is (right) \
                       to the best oracle (0). Greys are what no server knows. Left of 0 stands what makes the run slower; the \
                       mark is then the policy's loss.";
        section.parts.push(Part::Figure { svg: figure.on_a_page(), caption: caption.to_owned() });
    }
    let columns: Vec<(&str, &str)> =
        [("policy", ""), ("L", "100 ln(E2E / E2E of the best oracle)")].into_iter().chain(RUNGS).collect();
    let mut table = Table::new("The loss that goes away on each rung", &columns);
    for ladder in &ladders.ladders {
        let height =
            |h: Option<Interval>| h.map_or_else(Value::none, |h| Value::number(h.mean, shown(h).replace("+-", "± ")));
        let values = [Value::text(name(ladder)), height(Some(ladder.as_is))];
        table.rows.push(Row::of(values.into_iter().chain(ladder.rungs.iter().map(|rung| height(rung.height)))));
    }
    section.parts.push(Part::Table(table));
    section.parts.push(Part::List(legend(ladders)));
    Page {
        title: format!("Ladder: {}", ladders.name),
        kind: "Foretoken ladder · simulated".to_owned(),
        scope: ladders.scope.clone(),
        lead: headline(ladders).into_iter().map(|said| Part::Headline(said.replace(" +-", " ± "))).collect(),
        sections: vec![section],
        foot: format!("Made by Foretoken {}.", env!("CARGO_PKG_VERSION")),
        ..Page::default()
    }
}

/// The ladder of the policy with the least loss against the best oracle, at any combination of swept values.
fn nearest(ladders: &Ladders) -> Option<&Ladder> {
    ladders.ladders.iter().min_by(|a, b| a.as_is.mean.total_cmp(&b.as_is.mean))
}

/// A sentence on the policy with the least loss: its loss, and the part that is knowledge which no server has. `None`
/// without ladders.
fn headline(ladders: &Ladders) -> Option<String> {
    let near = nearest(ladders)?;
    let hidden: f64 = near.rungs[HIDDEN..].iter().filter_map(|rung| Some(rung.height?.mean)).sum();
    let mean = 100.0 * near.as_is.mean;
    let interval = near.as_is.half_width.map_or(String::new(), |half| format!(" +-{:.1}", 100.0 * half));
    Some(format!(
        "{} loses {mean:.1}{interval} % to the best oracle, the least of all; {:.1} points are for knowledge that no server has.",
        name(near),
        100.0 * hidden
    ))
}

/// The label of the policy that the first sentence of the text names; `None` without ladders.
pub fn best(ladders: &Ladders) -> Option<&str> {
    nearest(ladders).map(|near| near.policy.as_str())
}

fn heading(ladders: &Ladders) -> String {
    let seeds = match ladders.seeds {
        1 => "one seed: no intervals".to_owned(),
        n => format!("+- are 95 % intervals over {n} seeds"),
    };
    format!("{}: what stands between each policy and the best oracle, simulated; {seeds}", ladders.name)
}

fn legend(ladders: &Ladders) -> Vec<String> {
    let mut lines =
        vec!["L: 100 ln(mean E2E / mean E2E of the best oracle), paired by seed; the rungs sum to it".to_owned()];
    lines.extend(RUNGS.map(|(name, gets)| format!("{name}: {gets}")));
    lines.push("-: nothing to correct there; a negative rung: knowing more made the run slower".to_owned());
    if ladders.ladders.iter().any(|ladder| ladder.trees) {
        lines.push("^: drafts trees; bounds and oracles draft chains".to_owned());
    }
    lines
}

fn name(ladder: &Ladder) -> String {
    let mark = if ladder.trees { " ^" } else { "" };
    let swept: Vec<String> = ladder.sweep.iter().map(|c| format!("{} = {}", c.path, c.value)).collect();
    match swept.is_empty() {
        true => format!("{}{mark}", ladder.policy),
        false => format!("{}{mark}, {}", ladder.policy, swept.join(", ")),
    }
}

fn shown(height: Interval) -> String {
    match height.half_width {
        Some(half) => format!("{:.1} +-{:.1}", 100.0 * height.mean, 100.0 * half),
        None => format!("{:.1}", 100.0 * height.mean),
    }
}
