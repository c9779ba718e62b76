//! The HTML page of a recommendation. It has the text of the terminal output, a figure, and the results of all
//! candidates.

use super::advice::Advice;
use super::answer::Verdict;
use super::at_load::AtLoad;
use super::break_even::BreakEven;
use super::gain::Gain;
use super::loads::Load;
use super::names::table_in_words;
use super::words::{DRAFTER_LOADED, IN_CLOSED_LOOPS, gain};
use foretoken_report::html::{COPY, Page, Part, Row, Section, Table, Value};
use foretoken_report::{Figure, GainAt, GainLine, GainOf, gain_figure, percent};

/// Makes the HTML page of the recommendation `a`.
pub fn page(a: &Advice) -> Page {
    let mut lead = vec![Part::Headline(format!("{} {}", a.headline(), a.holds()))];
    lead.extend(a.from_where().map(Part::Text));
    lead.extend(start(a));
    lead.push(Part::Text(format!("{}.", a.now_in_words())));
    let sections = match a.verdict {
        Verdict::Unknown(_) if a.at_loads.is_empty() => vec![warnings(a)],
        _ => vec![Some(over_load(a)), Some(by_load(a)), warnings(a), Some(by_batch(a)), Some(candidates(a))],
    };
    let sections = sections.into_iter().flatten().collect();
    Page {
        title: "Recommendation".into(),
        kind: format!("Foretoken recommendation · {}", a.source),
        scope: scope(a),
        lead,
        sections,
        foot: format!("Made by Foretoken {}.", env!("CARGO_PKG_VERSION")),
        // The first and the last column of tables may wrap, so that a reader reaches all columns on a phone. The
        // first column has the names of loads.
        style: "td:first-child,th:first-child{white-space:normal;min-width:7em;max-width:40vw}\
                td:last-child{white-space:normal;min-width:7em}\
                @media (max-width:600px){td:first-child,th:first-child{position:static}}"
            .into(),
        script: COPY.into(),
        ..Page::default()
    }
}

/// One line that says for which server, which loads and how many seeds the advice holds.
fn scope(a: &Advice) -> String {
    let loads: Vec<&str> = a.at_loads.iter().map(|at| at.load.as_str()).collect();
    let seeds = (a.subject.seeds > 0).then(|| match a.subject.seeds {
        1 => "1 seed".to_owned(),
        n => format!("{n} seeds"),
    });
    let loads = (!loads.is_empty()).then(|| loads.join(", "));
    [Some(a.subject.name.clone()), loads, seeds].into_iter().flatten().collect::<Vec<_>>().join(" · ")
}

fn gained(g: Option<Gain>) -> Value {
    g.map_or_else(Value::none, |g| Value::number(g.as_fast().0, gain(g)))
}

fn share(x: Option<f64>) -> Value {
    x.map_or_else(Value::none, |x| Value::number(x, percent(x)))
}

fn by_load(a: &Advice) -> Section {
    let mut section = Section::new("loads", "At each load");
    let seeds = "cost of what runs now / cost, mean and 95 % interval over seeds";
    let mut table = Table::new(
        "",
        &[
            ("load", ""),
            ("best", "of all that was tried; within 1 % what runs now, then the shorter drafts"),
            ("as fast\nas now", seeds),
            ("accepted", "of drafted tokens, by the best"),
        ],
    );
    let other = a.other_than_the_best();
    let overloaded = a.at_loads.iter().any(|at| at.overloaded().is_some());
    let observed = a.at_loads.iter().any(|at| !at.runs.is_empty());
    let mut column = |name: String, meaning: &str| table.columns.push((name, meaning.to_owned()));
    other.into_iter().for_each(|name| column(format!("{name}\nas fast"), seeds));
    observed.then(|| column("observed in".into(), ""));
    overloaded.then(|| column("note".into(), ""));
    for at in &a.at_loads {
        let mut row = vec![
            Value::text(&at.load),
            Value::text(at.best_name.clone().unwrap_or_else(|| "none keeps the limit".into())),
            gained(at.gain),
            share(at.accepted),
        ];
        row.extend(other.map(|_| gained(at.advised_gain)));
        row.extend(observed.then(|| Value::text(at.runs.join(", "))));
        row.extend(overloaded.then(|| Value::text(at.overloaded().unwrap_or_default())));
        table.rows.push(Row::of(row));
    }
    section.parts.push(Part::Table(table));
    section.parts.extend(a.losses().map(|words| Part::Text(format!("{words}."))));
    section.parts.push(Part::Text(format!(
        "Cost is the {}, {}. Every candidate has the same requests and the same luck.",
        a.objective.in_words(),
        a.source
    )));
    section
}

/// What to start the engine with: the flag to paste or the files, and the command that confirms it.
fn start(a: &Advice) -> Vec<Part> {
    let mut parts = Vec::new();
    parts.extend(a.paste.clone().map(Part::Command));
    parts.extend(a.lacks.clone().map(Part::Text));
    for start in &a.starts {
        if a.paste.is_none() {
            parts.push(Part::Facts(vec![(start.file.clone(), start.used.clone())]));
        }
        parts.push(Part::Folded { title: start.file.clone(), text: start.text.clone() });
    }
    if a.starts.is_empty() && !matches!(a.verdict, Verdict::Unknown(_)) {
        parts.push(Part::Text("Start the engine without speculation.".into()));
    }
    if let Some(confirm) = &a.confirm {
        parts.extend([Part::Text("Then confirm it:".into()), Part::Command(confirm.clone())]);
    }
    parts
}

/// The warnings, which stand behind the answer; `None` without warnings.
fn warnings(a: &Advice) -> Option<Section> {
    let mut section = Section::new("warnings", "Warnings");
    section.parts.extend(a.warnings.iter().map(|warning| Part::Warning(warning.replace(" +-", " ± "))));
    (!section.parts.is_empty()).then_some(section)
}

fn by_batch(a: &Advice) -> Section {
    let mut section = Section::new("break-even", "By batch size");
    section.parts.push(Part::Text(format!("Break-even: {IN_CLOSED_LOOPS}.")));
    let columns = [
        ("clients", "of the closed loop"),
        ("K", "draft length"),
        ("needs", "drafts accepted, to be as fast as plain decoding; above 100 %: it cannot pay"),
        ("has", "drafts accepted in the simulation"),
    ];
    let mut table = Table::new("", &columns);
    let whole = |x: f64| Value::number(x, format!("{:.0} %", 100.0 * x.max(0.0)));
    for BreakEven { batch, k, needs, has } in &a.break_even {
        let never = || Value { number: true, ..Value::text("cannot pay") };
        let needs = if needs.is_finite() { whole(*needs) } else { never() };
        let [batch, k] = [batch, k].map(|n| Value::number(f64::from(*n), n.to_string()));
        table.rows.push(Row::of([batch, k, needs, has.map_or_else(Value::none, whole)]));
    }
    section.parts.push(Part::Table(table));
    section.parts.push(Part::Text(format!("The table by batch size: {DRAFTER_LOADED}.")));
    section.parts.push(Part::Facts(vec![("best length".into(), table_in_words(&a.table))]));
    section
}

fn over_load(a: &Advice) -> Section {
    let mut section = Section::new("gain", "Gain over load");
    match figure(a) {
        Some(figure) => section.parts.push(Part::Figure { svg: figure.on_a_page(), caption: caption(a) }),
        None => {
            section.parts.push(Part::Text("No load was tried at which anything else than now was simulated.".into()))
        }
    }
    section.parts.extend(a.stops().map(|s| Part::Text(format!("{s}."))));
    section
}

fn caption(a: &Advice) -> String {
    let Some(loads) = &a.loads else { return String::new() };
    format!("Mean E2E against {}, as it runs now: {}; {}.", loads.now, loads.requests, a.source)
}

fn candidates(a: &Advice) -> Section {
    let mut section = Section::new("candidates", "What was tried");
    for at in &a.at_loads {
        section.parts.push(Part::More { title: format!("At {}", at.load), parts: vec![Part::Table(tried(at))] });
    }
    section
}

fn tried(at: &AtLoad) -> Table {
    let columns =
        [("policy", ""), ("as fast as now", "mean and 95 % interval over seeds"), ("accepted", "of drafted tokens")];
    let mut table = Table::new("", &columns);
    for c in &at.candidates {
        table.rows.push(Row::of([Value::text(&c.name), gained(c.gain), share(c.acceptance_rate)]));
    }
    table
}

/// The figure of gains in mean E2E over the server's policy, at each simulated request rate: of drafting, of plain
/// decoding, and of every other draft length that was tried. `None` if there is nothing to draw.
pub fn figure(a: &Advice) -> Option<Figure> {
    let loads = a.loads.as_ref()?;
    let line = |name: &str, of: GainOf, gain: &dyn Fn(&Load) -> Option<Gain>| {
        let point = |l: &Load| {
            let (times, ends) = gain(l)?.as_fast();
            Some(GainAt { rate: l.rate, times, ends })
        };
        GainLine { name: advised(a, name), of, points: loads.points.iter().filter_map(point).collect() }
    };
    let first = loads.points.first()?;
    let mut lines =
        vec![line(&loads.drafting, GainOf::Drafting, &|l| l.gain), line("plain decoding", GainOf::Plain, &|l| l.plain)];
    lines.extend(
        first
            .lengths
            .iter()
            .enumerate()
            .map(|(at, (k, _))| line(&format!("K = {k}"), GainOf::Length, &|l: &Load| l.lengths[at].1)),
    );
    lines.retain(|line| !line.points.is_empty());
    let seeds = loads.points.iter().filter_map(|l| l.gain.or(l.plain)).map(|g| g.n).max()?;
    let source = format!("{}; {}; mean and 95 % interval over {seeds} seeds", a.source, loads.requests);
    let here = if advised(a, &loads.now) == loads.now { "now" } else { "now, advised" };
    gain_figure(&lines, &loads.now, here, &source)
}

/// The name of a policy, which says so if the policy is advised.
fn advised(a: &Advice, name: &str) -> String {
    let advised = match a.verdict {
        Verdict::Change => a.best.as_ref().map(|best| best.name.as_str()),
        Verdict::Stay => Some(a.now.name.as_str()),
        Verdict::DoNotSpeculate => Some("plain decoding"),
        Verdict::Unknown(_) => None,
    };
    if advised == Some(name) { format!("{name}, advised") } else { name.to_owned() }
}
