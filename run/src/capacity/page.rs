//! The results of a capacity search as an HTML page: headlines, figures, tables, the question, and notes on the
//! numbers.

use crate::capacity::answer::{Answer, Capacity};
use crate::capacity::words::{spread_of, with_spread};
use crate::cells::Folder;
use crate::plan::Plan;
use crate::report::Portable;
use crate::scope;
use crate::spec::problem::Result;
use foretoken_report::html::{Page, Part, Row, Section, Table, Value};
use foretoken_report::{Figure, Mark};

/// The HTML page with the results of a capacity search. `figures` are shown between the table of capacities by swept
/// values and the table of all capacities.
pub fn page(answer: &Answer, plan: &Plan, folder: &Folder, figures: Vec<Figure>) -> Result<Page> {
    let mut capacity = Section::new("capacity", "What each policy carries");
    if let Some(matrix) = matrix(answer) {
        capacity.parts.push(Part::Table(matrix));
    }
    let mapped = !capacity.parts.is_empty();
    for figure in figures {
        let caption = match figure.file.as_str() {
            "capacity.svg" => "The highest rate at which enough requests keep their bounds and the server keeps up.",
            "capacity-over.svg" => {
                "The capacity at each swept value. A policy has no point at a value where some seed has no capacity."
            }
            _ => {
                "How many requests keep their bounds at each rate, of all requests that count: each point is a whole run. The \
                 dashed line is the share that is asked for."
            }
        };
        let drawn = Part::Figure { svg: figure.on_a_page(), caption: caption.into() };
        // The table of a sweep has the same numbers.
        capacity.parts.push(match mapped && figure.file == "capacity.svg" {
            true => Part::More { title: "The same with intervals".into(), parts: vec![drawn] },
            false => drawn,
        });
    }
    capacity.parts.push(Part::More { title: "All numbers".into(), parts: vec![Part::Table(table(answer, plan))] });
    let mut notes = Section::new("notes", "Notes on the numbers");
    notes.parts.push(Part::List(
        [format!(
            "A rate is carried if {} and the server keeps up. An overloaded server carries no rate, even if its bounds allow it.",
            answer.question()
        )]
        .into_iter()
        .chain(answer.notes())
        .collect(),
    ));
    let mut lead: Vec<Part> = match answer.headlines().as_slice() {
        [one] => vec![Part::Headline(one.clone())],
        all => {
            let overall = answer.overall().unwrap_or_else(|| format!("{}.", answer.question()));
            let each = Part::More { title: "Each setting in a sentence".into(), parts: vec![Part::List(all.to_vec())] };
            vec![Part::Headline(overall), each]
        }
    };
    lead.extend(answer.warnings.iter().cloned().map(Part::Warning));
    Ok(Page {
        title: format!("Capacity: {}", answer.name),
        kind: format!("Foretoken capacity · {}", answer.source),
        scope: format!("{} · {}", scope::of_any_rate(plan), answer.question()),
        lead,
        sections: vec![capacity, asked_of(answer.question(), plan, folder)?, notes],
        foot: format!("Made by Foretoken {}.", env!("CARGO_PKG_VERSION")),
        ..Page::default()
    })
}

/// The section "What was asked" of a page of results, with the whole experiment as TOML.
pub fn asked_of(question: String, plan: &Plan, folder: &Folder) -> Result<Section> {
    let mut section = Section::new("asked", "What was asked");
    let config = plan.resolved_for(folder.path())?;
    let portable = Portable::of(plan.inputs.keys().cloned(), &config);
    let mut facts = vec![
        ("question".to_owned(), question),
        ("policies".to_owned(), plan.policies.iter().map(|p| p.spec.label()).collect::<Vec<_>>().join(", ")),
        ("seeds".to_owned(), plan.seeds.iter().map(u64::to_string).collect::<Vec<_>>().join(", ")),
    ];
    facts.push(("digest of what was asked".to_owned(), plan.digest()));
    let input =
        |(path, digest): (&String, &String)| (format!("input {}", portable.text(path)), format!("blake3 {digest}"));
    facts.extend(plan.inputs.iter().map(input));
    section.parts.push(Part::Facts(facts));
    let text = portable.text(&config);
    section.parts.push(Part::Folded { title: "The experiment, with every default".into(), text });
    Ok(section)
}

/// A table of capacities with a row for each policy and a column for each combination of swept values, with a colour
/// for the distance to the best that a server can run; `None` if nothing is swept.
fn matrix(answer: &Answer) -> Option<Table> {
    let by_value = answer.at_each_value();
    let (first, capacities) = by_value.first()?;
    if first.is_empty() {
        return None;
    }
    let heads: Vec<(&str, &str)> = [("policy", "")]
        .into_iter()
        .chain(by_value.iter().map(|(at, _)| (at.as_str(), "requests/s, mean ± 95 % interval")))
        .collect();
    let mut table = Table { shaded: true, ..Table::new("Requests a second by policy and swept value", &heads) };
    for c in capacities {
        let cell = |(_, at): &(String, Vec<&Capacity>)| {
            let Some(other) = at.iter().find(|other| other.policy == c.policy) else { return Value::none() };
            let best = at.iter().filter(|c| !c.bound).filter_map(|c| Some(c.req_s?.mean)).fold(0.0, f64::max);
            match other.req_s {
                Some(i) => {
                    let behind = (!other.bound).then_some(1.0 - i.mean / best);
                    Value::number(i.mean, with_spread(other)).shaded(behind, other.rate_in_words())
                }
                None => Value { number: true, ..Value::text(other.rate_in_words()) }.shaded(None, "–"),
            }
        };
        let values = [Value::text(Mark::beside(&c.policy, c.marks()))].into_iter().chain(by_value.iter().map(cell));
        table.rows.push(Row { apart: c.bound || c.baseline, ..Row::of(values) });
    }
    Some(table)
}

/// The table of all capacities (highest carried request rates). Rows are in the order of the sweep; rows with equal
/// swept values begin with the highest capacity.
fn table(answer: &Answer, plan: &Plan) -> Table {
    let swept = answer.capacities.iter().any(|c| !c.sweep.is_empty());
    let mut columns = vec![
        ("policy", ""),
        ("requests/s", "mean over seeds"),
        ("±", "95 % interval over seeds"),
        ("tokens/s a GPU", "output tokens of requests that come"),
        ("rates tried", "over all seeds"),
    ];
    if swept {
        columns.insert(0, ("at", "the swept values"));
    }
    let mut table = Table::new("", &columns);
    for c in answer.sorted() {
        let tried: usize = c.seeds.iter().map(|s| s.probes.len()).sum();
        let look = plan.policies.iter().find(|p| p.spec.label() == c.policy).map(|p| p.spec.look());
        let name = Mark::beside(&c.policy, c.marks());
        let policy = look.map_or_else(|| Value::text(&name), |look| Value::policy(&name, look));
        let rate = match c.req_s {
            Some(i) => Value::number(i.mean, c.rate_in_words()),
            None => Value { number: true, ..Value::text(c.rate_in_words()) },
        };
        let number = |x: Option<(f64, String)>| x.map_or_else(Value::none, |(x, text)| Value::number(x, text));
        let half = c.req_s.and_then(|i| i.half_width).zip(spread_of(c, ""));
        let values = [
            policy,
            rate,
            number(half),
            number(c.tok_s_gpu.map(|i| (i.mean, format!("{:.0}", i.mean)))),
            Value::number(tried as f64, tried.to_string()),
        ];
        let at = swept.then(|| Value::text(crate::capacity::words::values(c)));
        table.rows.push(Row { apart: c.bound || c.baseline, ..Row::of(at.into_iter().chain(values)) });
    }
    table
}
