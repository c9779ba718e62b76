//! Which figures of fleets a report has: the number of replicas over time if an autoscaling rule changes this number
//! during a run, and the requests on each replica of a few runs.

use super::replica_counts::replica_counts_figure;
use super::replicas::{ReplicaWords, replicas_figure};
use super::view::{View, joined, words};
use crate::rank::rank;
use crate::{Cell, Report, Role, Swept};
use foretoken_sim::metrics::Scaled;

/// The most figures of the requests on each replica that a report has, one for each of a few runs.
const MOST: usize = 6;
/// The most figures of the requests on each replica, if a fleet has more than [`MANY`] replicas: its figure is large.
const MOST_OF_MANY: usize = 2;
/// If a fleet has more replicas than this, fewer figures of its replicas are drawn, because each of them is large.
const MANY: usize = 16;

/// A drawn figure of a fleet: its name, its swept values, its policy (empty if it shows all policies), and the SVG.
pub type Drawn<'a> = (&'static str, &'a [Swept], &'a str, String);

/// Draws the figures of fleets: the number of replicas over time, and the requests on each replica. Draws none for a
/// single engine. Only the first seed is drawn.
pub fn draw<'a>(report: &Report, view: &View<'a>) -> Vec<Drawn<'a>> {
    let seed = match view.seeds.as_slice() {
        [] => return Vec::new(),
        [only] => format!("seed {only}"),
        seeds => format!("seed {} (first of {})", seeds[0], seeds.len()),
    };
    let source = format!("{} · {seed}", report.source);
    let mut figures: Vec<Drawn> = Vec::new();
    for &at in &view.combinations {
        figures.extend(counts(view, at, &source).map(|svg| ("replica-counts", at, "", svg)));
    }
    for cell in chosen(report, view) {
        let key = cell.key();
        let of = view.title(&format!("Requests on each replica, {}", run_in_words(cell)));
        let words = ReplicaWords { title: of, source: &source };
        let drawn = replicas_figure(cell, &words);
        figures.extend(drawn.map(|svg| ("replicas", key.sweep.as_slice(), key.policy.as_str(), svg)));
    }
    figures
}

/// The runs whose requests on each replica are drawn: first the fastest policy at each combination of swept values,
/// then plain decoding at each combination. Only the first seed of each is taken.
pub fn chosen<'a>(report: &Report, view: &View<'a>) -> Vec<&'a Cell> {
    let first = |policy: &str, at: &[Swept]| {
        view.cells(policy, |s| s == at).into_iter().next().filter(|cell| cell.fleet.is_some())
    };
    let mut cells: Vec<&Cell> = Vec::new();
    for &at in &view.combinations {
        let leader = rank(report, view, at).map(|ranking| ranking.leader);
        cells.extend(leader.or(view.policies.first().map(|p| p.0)).and_then(|policy| first(policy, at)));
    }
    let plain = |cell: &&Cell| cell.entry.role == Role::Baseline && cell.fleet.is_some();
    for &at in &view.combinations {
        let all = view.all(|s| s == at);
        cells.extend(all.into_iter().find(plain).filter(|cell| cells.iter().all(|c| c.key() != cell.key())));
    }
    // Runs whose fleets changed their number of replicas come first, because only the first few runs are drawn.
    cells.sort_by_key(|cell| cell.fleet.as_ref().is_none_or(|fleet| fleet.changes().is_none()));
    let most = cells.iter().filter_map(|cell| Some(cell.fleet.as_ref()?.most_at_a_time())).max().unwrap_or(0);
    cells.truncate(if most > MANY { MOST_OF_MANY } else { MOST });
    cells
}

fn counts(view: &View, at: &[Swept], source: &str) -> Option<String> {
    let first = |policy: &str| view.cells(policy, |s| s == at).into_iter().next();
    let scaled = |cell: &'_ Cell| cell.fleet.as_ref().and_then(|fleet| fleet.changes().cloned());
    let runs: Vec<(&str, Scaled)> =
        view.policies.iter().filter_map(|&(policy, _)| Some((policy, scaled(first(policy)?)?))).collect();
    let runs: Vec<(&str, &Scaled)> = runs.iter().map(|(policy, scaled)| (*policy, scaled)).collect();
    let title = view.title(&joined(["Replicas over time".to_owned(), words(at)]));
    replica_counts_figure(&runs, title, source)
}

/// The policy and the swept values of a run, as text. A swept list of replicas is described in words, such as `4
/// replicas`, if no replica has its own policy, engine or hardware.
pub fn run_in_words(cell: &Cell) -> String {
    let one = |swept: &Swept| match &cell.entry.fleet {
        Some(fleet) if is_count(swept) => fleet.in_words(),
        _ => words([swept]),
    };
    run(cell, one)
}

/// The policy and the swept values of a run, as text, without a swept number of replicas. The text is for sentences
/// that give the number of replicas elsewhere.
pub fn run_but_replicas(cell: &Cell) -> String {
    run(cell, |swept| if is_count(swept) { String::new() } else { words([swept]) })
}

fn run(cell: &Cell, one: impl Fn(&Swept) -> String) -> String {
    let key = cell.key();
    let all = std::iter::once(key.policy.clone()).chain(key.sweep.iter().map(one));
    all.filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ")
}

/// Is the swept setting the number of replicas, or a list of replicas none of which has its own policy, engine or
/// hardware?
fn is_count(swept: &Swept) -> bool {
    swept.path == "fleet.replicas" && !["policy", "engine", "hardware"].iter().any(|key| swept.value.contains(key))
}
