//! The standings as text, Markdown, CSV and JSON. The text for the terminal is ASCII only.

use super::rank::{CAP, DRAWS};
use super::scenario::Part;
use super::standings::{Column, Standing, Standings};
use crate::spec::arena::ArenaSet;
use comfy_table::{CellAlignment, Table, presets};
use foretoken_sim::metrics::Interval;
use std::fmt::Write;

/// A table as a list of rows. A row has one text for each column; the first row has the headings.
type Grid = Vec<Vec<String>>;

/// The arena's standings as ASCII text for a terminal: the table of policies by rank, the table of scenarios, the
/// legend of the columns, and the scenarios that could not run.
pub fn render(s: &Standings) -> String {
    let mut text = headline(s) + "\n\n";
    text += &format!("{}\n\n{}\n{}\n", heading(s), plain(policies(s), &[1]), plain(scenarios(s), &[0, 1, 3, 5, 7, 8]));
    legend(s).iter().for_each(|line| text += &format!("{line}\n"));
    for (name, why) in &s.skipped {
        text += &format!("skipped: {name}: {why}\n");
    }
    crate::spec::shown::escape(&text).into_owned()
}

/// The arena's standings as Markdown: the table of policies by rank, the table of scenarios, the legend of the columns,
/// and the scenarios that could not run.
pub fn render_markdown(s: &Standings) -> String {
    let mut text = format!("# The arena\n\n{} {}.\n\n", headline(s), heading(s));
    for grid in [policies(s), scenarios(s)] {
        let row = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let (head, rows) = grid.split_first().expect("it has headings");
        text += &row(head);
        text += &format!("|{}\n", "---|".repeat(head.len()));
        rows.iter().for_each(|r| text += &row(r));
        text.push('\n');
    }
    legend(s).iter().for_each(|line| text += &format!("- {line}\n"));
    for (name, why) in &s.skipped {
        text += &format!("- Skipped: {name}: {why}\n");
    }
    text
}

/// The arena's standings as CSV: a line of headings, then one line for each policy in each scenario in which it ran.
pub fn render_csv(s: &Standings) -> String {
    let mut text = String::from(
        "scenario,set,overload,policy,part,trees,seeds,loss,loss_half_width,to_best_fixed,to_best_fixed_half_width,\
         e2e_s,busy_tok_s,ttft_s,tpot_p99_s,slo_attainment\n",
    );
    let number = |x: Option<f64>| x.map(|x| format!("{x}")).unwrap_or_default();
    for row in &s.rows {
        for (column, field) in s.scenarios.iter().zip(&row.fields) {
            let Some(f) = field else { continue };
            let cells = [
                quoted(&column.name),
                column.set.name().to_owned(),
                column.overload.to_string(),
                quoted(&row.policy),
                part(row.part).to_owned(),
                row.trees.to_string(),
                column.seeds.to_string(),
                number(Some(f.loss.mean)),
                number(f.loss.half_width),
                number(Some(f.to_fixed.mean)),
                number(f.to_fixed.half_width),
                number(Some(f.mean.e2e_s)),
                number(Some(f.mean.busy_tok_s)),
                number(Some(f.mean.ttft_s)),
                number(f.mean.tpot_p99_s),
                number(f.mean.slo),
            ];
            text += &(cells.join(",") + "\n");
        }
    }
    text
}

pub fn render_json(s: &Standings) -> serde_json::Value {
    serde_json::to_value(s).expect("plain data always serialises")
}

/// A sentence on the policies with the first and the second rank: how much longer their requests take than the best
/// oracle's. If fewer than two policies have a rank, the sentence says so.
pub fn headline(s: &Standings) -> String {
    let longer = |row: &Standing| 100.0 * (row.score.exp() - 1.0);
    let mut ranked = s.rows.iter().filter(|row| row.rank.is_some());
    match (ranked.next(), ranked.next()) {
        (Some(first), Some(second)) => format!(
            "{}'s requests take {:.1} % longer than the best oracle's; those of the next policy, {}, {:.1} % (mean of scenarios, by \
             score).",
            first.policy,
            longer(first),
            second.policy,
            longer(second)
        ),
        _ => "No two policies ran in all scenarios.".to_owned(),
    }
}

/// A line above the arena's tables: the numbers of scenarios and of seeds, the version of Foretoken, and what a quick
/// (shortened) run left out.
pub fn heading(s: &Standings) -> String {
    let count = |set: ArenaSet| s.scenarios.iter().filter(|c| c.set == set).count();
    let seeds: Vec<usize> = s.scenarios.iter().map(|c| c.seeds).collect();
    let seeds = match (seeds.iter().min(), seeds.iter().max()) {
        (Some(a), Some(b)) if a == b => format!("{a} seeds each"),
        (Some(a), Some(b)) => format!("{a} to {b} seeds"),
        _ => "no seeds".to_owned(),
    };
    let quick = s.quick.as_ref().map(|what| format!("; quick: {what}")).unwrap_or_default();
    format!(
        "arena: {} scenarios ({}), {seeds}, simulated by Foretoken {}{quick}",
        s.scenarios.len(),
        ArenaSet::ALL.map(|set| format!("{} {}", count(set), set.name())).join(", "),
        env!("CARGO_PKG_VERSION")
    )
}

fn policies(s: &Standings) -> Grid {
    let mut grid = vec![
        [
            "rank", "policy", "score", "tuning", "seen", "held-out", "mean L", "worst L", "in", "behind fixed",
            "worst by", "tok/busy s %", "TTFT %", "p99 TPOT %", "SLO met %",
        ]
        .map(str::to_owned)
        .to_vec(),
    ];
    let signed = |x: f64| format!("{:.1}", 100.0 * x);
    for row in &s.rows {
        let by_set = |set: ArenaSet| row.score_by_set.get(set.name()).map_or("-".to_owned(), |x| signed(*x));
        let excess = |ratio: f64| format!("{:+.1}", 100.0 * (ratio - 1.0));
        grid.push(vec![
            row.rank.map_or("-".to_owned(), |r| format!("{} [{}, {}]", r.rank, r.low, r.high)),
            name(row, s),
            signed(row.score),
            by_set(ArenaSet::Tuning),
            by_set(ArenaSet::Seen),
            by_set(ArenaSet::HeldOut),
            signed(row.mean),
            signed(row.worst.0),
            short(&row.worst.1),
            match row.behind_fixed.len() {
                0 => "-".to_owned(),
                n => format!("in {n}"),
            },
            signed(row.worst_behind_fixed.0),
            excess(row.busy_tok),
            excess(row.ttft),
            row.tpot_p99.map_or("-".to_owned(), excess),
            row.slo.map_or("-".to_owned(), |x| format!("{:.1}", 100.0 * x)),
        ]);
    }
    grid
}

fn scenarios(s: &Standings) -> Grid {
    let mut grid = vec![
        [
            "scenario", "set", "requests", "best policy", "L", "best fixed", "L", "reference", "tree reference", "L",
            "plain L",
        ]
        .map(str::to_owned)
        .to_vec(),
    ];
    for (i, c) in s.scenarios.iter().enumerate() {
        let loss = |policy: &str| {
            let row = s.rows.iter().find(|row| row.policy == policy);
            row.and_then(|row| row.fields[i].as_ref()).map_or("-".to_owned(), |f| with_interval(f.loss))
        };
        grid.push(vec![
            short(&c.name) + if c.overload { " !" } else { "" },
            c.set.name().to_owned(),
            c.requests.to_string(),
            c.best.clone(),
            loss(&c.best),
            c.best_fixed.clone(),
            loss(&c.best_fixed),
            c.reference.clone(),
            c.tree_reference.as_ref().map_or("-".to_owned(), |t| t.policy.clone()),
            c.tree_reference.as_ref().map_or("-".to_owned(), |t| with_interval(t.to_chains)),
            loss("autoregressive"),
        ]);
    }
    grid
}

/// Lines that explain the columns of the tables of policies and of scenarios. The marks `!`, `^` and `(n)` are
/// explained only if they occur in the tables.
pub fn legend(s: &Standings) -> Vec<String> {
    let mut lines = vec![
        "L: 100 ln(mean E2E / mean E2E of the reference), paired by seed; the reference is the best oracle of a scenario; of a batch, the time until its last request ends".to_owned(),
        format!("score: mean over scenarios of L, each at most {:.0}; rank: by score, [ ] middle 95 % of {} draws of scenarios and seeds", 100.0 * CAP, DRAWS),
        "behind fixed: scenarios in which it loses to the best fixed length (0 included) for certain; worst by: its greatest L against that length".to_owned(),
        "tok/busy s, TTFT, p99 TPOT: geometric mean over scenarios against the reference".to_owned(),
    ];
    if s.scenarios.iter().any(|c| c.overload) {
        lines.push(
            "!: even the reference falls behind its arrivals; there tokens a busy second rank, not E2E".to_owned(),
        );
    }
    if s.rows.iter().any(|row| row.trees) {
        lines.push(match s.scenarios.iter().all(|c| c.tree_reference.is_some()) {
            true => {
                "^: drafts trees, and so does its reference; L of a tree reference: against the reference".to_owned()
            }
            false => "^: drafts trees; without a tree reference L is against chains, and may be below 0".to_owned(),
        });
    }
    if s.rows.iter().any(|row| row.fields.iter().any(Option::is_none)) {
        lines.push(
            "(n): ran in n scenarios only, so it has no rank: its length is above the longest of the others".to_owned(),
        );
    }
    lines
}

/// A policy's name in the arena's table, with its marks: ` ^` if it drafts trees, and ` (n)` if it ran in only n of the
/// scenarios.
pub fn name(row: &Standing, s: &Standings) -> String {
    let ran = row.fields.iter().flatten().count();
    let mut name = row.policy.clone();
    if row.trees {
        name += " ^";
    }
    if ran < s.scenarios.len() {
        write!(name, " ({ran})").expect("writing to a string cannot fail");
    }
    name
}

/// The name of an arena's scenario without its prefix `arena-`.
pub fn short(name: &str) -> String {
    name.strip_prefix("arena-").unwrap_or(name).to_owned()
}

fn with_interval(loss: Interval) -> String {
    match loss.half_width {
        Some(half) => format!("{:.1} +-{:.1}", 100.0 * loss.mean, 100.0 * half),
        None => format!("{:.1}", 100.0 * loss.mean),
    }
}

fn part(part: Part) -> &'static str {
    match part {
        Part::Reference => "reference",
        Part::Bound => "bound",
        Part::Fixed => "fixed",
        Part::Contender => "contender",
    }
}

fn quoted(text: &str) -> String {
    match text.contains([',', '"', '\n']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

/// A table as text. The columns whose indices are in `left` are aligned to the left, all others to the right.
fn plain(grid: Grid, left: &[usize]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let (head, rows) = grid.split_first().expect("it has headings");
    table.set_header(head);
    rows.iter().for_each(|row| {
        table.add_row(row);
    });
    for (i, column) in table.column_iter_mut().enumerate() {
        column.set_padding((1, 0));
        if !left.contains(&i) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.lines().fold(String::new(), |text, line| text + line.trim_end() + "\n")
}

/// The scenarios in which the policy of `row` is slower than the best fixed draft length (the 95 % interval of the loss
/// lies above 0), each as (short name, mean of ln(E2E / E2E of that length)). The greatest loss comes first.
pub fn losses(row: &Standing, columns: &[Column]) -> Vec<(String, f64)> {
    let mut all: Vec<(String, f64)> = columns
        .iter()
        .zip(&row.fields)
        .filter(|(c, _)| row.behind_fixed.contains(&c.name))
        .filter_map(|(c, f)| Some((short(&c.name), f.as_ref()?.to_fixed.mean)))
        .collect();
    all.sort_by(|a, b| b.1.total_cmp(&a.1));
    all
}
