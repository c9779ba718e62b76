//! The results of the search for the smallest fleet as an HTML page.

use super::answer::{Crossover, FleetAnswer, PolicyFleet};
use crate::capacity::answer::marks;
use crate::capacity::page::asked_of;
use crate::capacity::words::{digits, swept_in_words};
use crate::cells::Folder;
use crate::plan::Plan;
use crate::scope;
use crate::spec::problem::Result;
use foretoken_report::html::{Page, Part, Row, Section, Table, Value};
use foretoken_report::{Figure, GainAt, GainLine, GainOf, Mark, gain_figure, spread};

/// The HTML page with the results of the search for the smallest fleet. `figure`: the price of fleets against a
/// latency; `None` if it was not drawn.
pub fn page(answer: &FleetAnswer, plan: &Plan, folder: &Folder, figure: Option<Figure>) -> Result<Page> {
    let mut lead = Vec::new();
    let mut said = answer.headlines.iter().cloned();
    lead.extend(said.next().map(Part::Headline));
    let others: Vec<String> = said.collect();
    lead.extend((!others.is_empty()).then_some(Part::List(others)));
    lead.push(Part::Text(answer.load_in_words()));
    lead.extend(answer.warnings.iter().cloned().map(Part::Warning));
    let mut fleets = Section::new("fleets", "What each policy needs");
    if let Some(figure) = figure {
        let caption = "Each point is a fleet, from few replicas at the left to many. Grey fleets do not carry the \
                       load: too few requests keep every bound, or their queue grows. The dashed line is the bound on this latency.";
        fleets.parts.push(Part::Figure { svg: figure.on_a_page(), caption: caption.into() });
    }
    fleets.parts.push(Part::Table(needs(answer, plan)));
    let mut sections = vec![fleets];
    if !answer.ways.is_empty() {
        let mut ways = Section::new("ways", "The same GPUs, three ways");
        ways.parts.push(Part::Text(
            "The fewest replicas that drafting needs, without drafts and with them, and one replica more without drafts; over all \
             seeds."
                .into(),
        ));
        ways.parts.push(Part::Table(three_ways(answer)));
        sections.push(ways);
    }
    if !answer.crossovers.is_empty() {
        let mut crossover = Section::new("crossover", "Where drafts stop paying");
        let sentences = answer.crossovers.iter().map(|c| sentence(&c.in_words())).collect::<Vec<_>>();
        crossover.parts.push(match sentences.as_slice() {
            [one] => Part::Text(one.clone()),
            _ => Part::List(sentences),
        });
        crossover.parts.extend(answer.crossovers.iter().filter_map(|c| speedups(c, &answer.source)));
        sections.push(crossover);
    }
    sections.push(asked_of(answer.question(), plan, folder)?);
    let mut notes = Section::new("notes", "Notes on the numbers");
    notes.parts.push(Part::List(answer.notes().iter().map(|note| sentence(note)).collect()));
    sections.push(notes);
    Ok(Page {
        title: format!("Fewest GPUs: {}", answer.name),
        kind: format!("Foretoken fleet · {}", answer.source),
        scope: scope::of(plan),
        lead,
        sections,
        foot: format!("Made by Foretoken {}.", env!("CARGO_PKG_VERSION")),
        ..Page::default()
    })
}

/// Turns a note of the results into a sentence: with a capital letter at the start and a full stop at the end.
fn sentence(note: &str) -> String {
    let mut letters = note.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).chain(['.']).collect())
}

fn policy(f: &PolicyFleet, plan: &Plan) -> Value {
    let look = plan.policies.iter().find(|p| p.spec.label() == f.policy).map(|p| p.spec.look());
    let name = Mark::beside(&f.policy, marks(f.bound));
    look.map_or_else(|| Value::text(&name), |look| Value::policy(&name, look))
}

/// The table of the smallest fleets, one row for each policy at each combination of swept values. Rows are in the order
/// of the sweep; rows with equal swept values ascend by price.
fn needs(answer: &FleetAnswer, plan: &Plan) -> Table {
    let mut columns = vec![
        ("policy", ""),
        ("GPUs", "replicas × tensor_parallel"),
        ("price of\nan hour", "GPUs × fleet.price_gpu_hour"),
        ("replicas", "the fewest that carry the load with every seed"),
        ("±", "95 % interval over seeds"),
        ("price of a\nmillion tokens", "output tokens, at this load"),
        ("one carries\nrequests/s", "one replica alone, mean over seeds"),
        ("by division\nat the peak", "the rate of the busiest window over what one replica carries"),
        ("by division\non average", "the same if the fleet followed the load without loss"),
        ("router", ""),
    ];
    let swept = answer.fleets.iter().any(|f| !f.sweep.is_empty());
    if swept {
        columns.insert(0, ("at", "the swept values"));
    }
    let mut table = Table::new("", &columns);
    for f in answer.sorted() {
        let whole = |n: Option<u32>| n.map_or_else(Value::none, |n| Value::number(f64::from(n), n.to_string()));
        let money = |x: Option<f64>| x.map_or_else(Value::none, |x| Value::number(x, format!("{x:.2}")));
        let replicas = match f.replicas {
            Some(_) => whole(f.replicas),
            None => Value { number: true, ..Value::text(format!("more than {}", answer.most_replicas)) },
        };
        let values = [
            policy(f, plan),
            whole(f.gpus),
            money(f.cost_hour),
            replicas,
            f.spread().map_or_else(
                || Value { text: String::new(), ..Value::none() },
                |(half, text)| Value::number(half, text),
            ),
            money(f.cost_mtok),
            f.one_req_s().map_or_else(Value::none, |i| Value::number(i.mean, digits(i.mean, i.mean))),
            whole(f.perfect().map(|p| p.peak)),
            f.perfect().map_or_else(Value::none, |p| Value::number(p.mean, format!("{:.1}", p.mean))),
            Value::text(f.router.clone()),
        ];
        let at = swept.then(|| Value::text(swept_in_words(&f.sweep)));
        table.rows.push(Row { apart: f.baseline || f.bound, ..Row::of(at.into_iter().chain(values)) });
    }
    table
}

fn three_ways(answer: &FleetAnswer) -> Table {
    let mut columns = vec![
        ("fleet", ""),
        ("price of\nan hour", "GPUs × fleet.price_gpu_hour"),
        ("kept\n%", "requests that kept every bound, mean over seeds"),
        ("±", "95 % interval over seeds"),
        ("p99 TTFT\nms", "mean over seeds"),
        ("p99 TPOT\nms", "mean over seeds"),
        ("mean E2E\ns", "mean over seeds"),
    ];
    let several = answer.ways.iter().any(|way| !way.at.is_empty());
    if several {
        columns.insert(0, ("at", "the swept values"));
    }
    let mut table = Table::new("", &columns);
    for way in &answer.ways {
        let of = |x: Option<f64>, by: f64| x.map_or_else(Value::none, |x| Value::number(x, digits(by * x, by * x)));
        let values = [
            Value::text(way.what.clone()),
            Value::number(way.cost_hour, format!("{:.2}", way.cost_hour)),
            Value::number(way.kept.mean, format!("{:.1}", 100.0 * way.kept.mean)),
            way.kept
                .half_width
                .zip(spread(&way.kept, 100.0, 1, ""))
                .map_or_else(Value::none, |(half, text)| Value::number(half, text)),
            of(way.ttft_p99_s, 1e3),
            of(way.tpot_p99_s, 1e3),
            of(way.e2e_mean_s, 1.0),
        ];
        table.rows.push(Row::of(several.then(|| Value::text(way.at.clone())).into_iter().chain(values)));
    }
    table
}

/// The figure of a comparison of fleets with and without drafting over the load, and what it compares.
fn speedups(c: &Crossover, source: &str) -> Option<Part> {
    let points: Vec<GainAt> = c.speedups.iter().map(|&(rate, times)| GainAt { rate, times, ends: None }).collect();
    let line = GainLine { name: c.policy.clone(), of: GainOf::Drafting, points };
    let figure = gain_figure(&[line], "no drafting", "no drafting", &format!("{source}; first seed"))?;
    let at = if c.at.is_empty() { String::new() } else { format!("{}: ", c.at) };
    let caption =
        format!("{at}Mean end-to-end latency without drafts over that with them, on {} replicas.", c.replicas);
    Some(Part::Figure { svg: figure.on_a_page(), caption })
}
