//! The arena as an HTML page: a figure of every policy's loss in every scenario, the table of policies by rank, and the
//! table of scenarios. The table of policies names the scenarios in which a policy is slower than the best fixed draft
//! length with 95 % certainty.

use super::render::{heading, headline, legend, losses, name, short};
use super::scenario::Part;
use super::standings::{Standing, Standings};
use foretoken_policies::PolicySpec;
use foretoken_report::html::{Page, Part as Of, Row, Section, Table, Value};
use foretoken_report::{ArenaMap, arena_figure};

/// The figure shows the policies up to this rank.
const RANKS: usize = 15;

/// The HTML page with the arena's table, which ranks all policies over all scenarios.
pub fn page(s: &Standings) -> Page {
    let mut whole = Section::new("arena", "All policies in all scenarios");
    if let Some(figure) = arena_figure(&map(s), &format!("{}; rows by rank", heading(s))) {
        let caption = format!(
            "Light is good. Shown are the first {RANKS} ranks and the best of each scenario; the table below has all policies and \
             the bounds, which see what no server sees."
        );
        whole.parts.push(Of::Figure { svg: figure.on_a_page(), caption });
    }
    let title = format!("All {} policies and bounds", s.rows.len());
    whole.parts.push(Of::More { title, parts: vec![Of::Table(policies(s))] });
    let mut each = Section::new("scenarios", "Scenarios");
    each.parts.push(Of::Table(scenarios(s)));
    let mut notes = Section::new("notes", "Notes on the numbers");
    notes.parts.push(Of::List(legend(s)));
    let mut lead = vec![Of::Headline(headline(s)), Of::Text(heading(s) + ".")];
    lead.extend(s.skipped.iter().map(|(name, why)| Of::Warning(format!("Skipped: {name}: {why}"))));
    Page {
        title: "The arena".to_owned(),
        kind: "Foretoken arena · simulated".to_owned(),
        lead,
        sections: vec![whole, each, notes],
        foot: format!("Made by Foretoken {}.", env!("CARGO_PKG_VERSION")),
        ..Page::default()
    }
}

/// The policies that the figure and the open table show: the first ranks, and the best of each scenario.
fn shown(row: &Standing, s: &Standings) -> bool {
    row.rank.as_ref().is_some_and(|r| r.rank <= RANKS) || s.scenarios.iter().any(|c| c.best == row.policy)
}

fn map(s: &Standings) -> ArenaMap {
    // The figure's columns are scenarios. The tuning scenarios (with which policies may be tuned) come first, the
    // held-out scenarios (which were run only after all tuning) last.
    let mut order: Vec<usize> = (0..s.scenarios.len()).collect();
    order.sort_by_key(|&i| s.scenarios[i].set);
    let column = |i: &usize| {
        let c = &s.scenarios[*i];
        let name = short(&c.name);
        let set = c.set.name();
        (name.strip_prefix(&format!("{set}-")).unwrap_or(&name).to_owned(), set.to_owned())
    };
    let losses = |row: &Standing| order.iter().map(|&i| row.fields[i].as_ref().map(|f| 100.0 * f.loss.mean)).collect();
    let rows = || s.rows.iter().filter(|row| shown(row, s));
    let best = |&i: &usize| rows().position(|row| row.policy == s.scenarios[i].best);
    ArenaMap {
        policies: rows().map(|row| name(row, s)).collect(),
        scenarios: order.iter().map(column).collect(),
        best: order.iter().map(best).collect(),
        losses: rows().map(losses).collect(),
    }
}

fn is_bound(row: &Standing) -> bool {
    matches!(row.part, Part::Reference | Part::Bound)
}

fn policies(s: &Standings) -> Table {
    let columns = [
        ("rank", "by score; in overload tokens a busy second count"),
        ("interval", "the middle 95 % of ranks when scenarios and seeds are drawn again"),
        ("policy", ""),
        ("score", "mean over scenarios of min(L, 30)"),
        ("mean L", "100 ln(E2E / E2E of the reference); of a batch, the time until its last request ends"),
        ("worst L", ""),
        ("in", "the scenario of the greatest loss"),
        ("behind the best fixed length", "scenarios in which it loses for certain, with L against that length"),
        ("tokens a busy second (%)", "against the reference"),
        ("TTFT (%)", "against the reference"),
        ("p99 TPOT (%)", "against the reference"),
        ("SLO met (%)", "mean share of requests"),
    ];
    let mut table = Table::new("Policies", &columns);
    let percent = |x: f64| Value::number(x, format!("{:.1}", 100.0 * x));
    let excess = |ratio: f64| Value::number(ratio, format!("{:+.1}", 100.0 * (ratio - 1.0)));
    for row in &s.rows {
        let look = PolicySpec::all().iter().find(|p| p.label() == row.policy).map(PolicySpec::look);
        let behind: Vec<String> =
            losses(row, &s.scenarios).iter().map(|(name, x)| format!("{name} {:.1}", 100.0 * x)).collect();
        table.rows.push(Row {
            values: vec![
                row.rank.map_or_else(Value::none, |r| Value::number(r.rank as f64, r.rank.to_string())),
                Value::text(row.rank.map_or_else(|| "–".to_owned(), |r| format!("{}–{}", r.low, r.high))),
                look.map_or_else(|| Value::text(name(row, s)), |look| Value::policy(name(row, s), look)),
                percent(row.score),
                percent(row.mean),
                percent(row.worst.0),
                Value::text(short(&row.worst.1)),
                Value::text(behind.join(", ")),
                excess(row.busy_tok),
                excess(row.ttft),
                row.tpot_p99.map_or_else(Value::none, excess),
                row.slo.map_or_else(Value::none, percent),
            ],
            apart: is_bound(row),
        });
    }
    table
}

fn scenarios(s: &Standings) -> Table {
    let columns = [
        ("scenario", ""),
        ("set", "tuning, or held out"),
        ("what sets it apart", ""),
        ("best policy", "with the least mean E2E of those that a server can run"),
        ("L", "its loss"),
        ("best fixed length", ""),
        ("L", "its loss"),
        ("plain L", "the loss of plain decoding"),
        ("reference", "the oracle of chains with the least mean E2E"),
        ("tree reference", "the oracle of trees with the least mean E2E"),
        ("L", "of the tree reference against the reference"),
    ];
    let mut table = Table::new("Scenarios", &columns);
    for (i, c) in s.scenarios.iter().enumerate() {
        let loss = |policy: &str| {
            let row = s.rows.iter().find(|row| row.policy == policy);
            let field = row.and_then(|row| row.fields[i].as_ref());
            field.map_or_else(Value::none, |f| Value::number(f.loss.mean, format!("{:.1}", 100.0 * f.loss.mean)))
        };
        let about = if c.overload { format!("{} (overload)", c.about) } else { c.about.clone() };
        table.rows.push(Row::of([
            Value::text(short(&c.name)),
            Value::text(c.set.name()),
            Value::text(about),
            Value::text(&c.best),
            loss(&c.best),
            Value::text(&c.best_fixed),
            loss(&c.best_fixed),
            loss("autoregressive"),
            Value::text(&c.reference),
            c.tree_reference.as_ref().map_or_else(Value::none, |t| Value::text(&t.policy)),
            c.tree_reference.as_ref().map_or_else(Value::none, |t| {
                Value::number(t.to_chains.mean, format!("{:.1}", 100.0 * t.to_chains.mean))
            }),
        ]));
    }
    table
}
