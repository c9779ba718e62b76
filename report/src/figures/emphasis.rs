//! Which policies a figure shows in colour: the fastest ones and those as good, plain decoding and the bound. The others
//! are grey until a reader brings them forward.

use super::view::View;
use crate::rank::{Ranking, rank};
use crate::{Report, Role};

/// Up to this number of policies, all are in colour.
const ALL: usize = 6;
/// The most policies in colour, without plain decoding and the bound.
const MOST: usize = 5;

/// Labels of the policies in grey; none if the report ranks no policies.
pub fn quiet<'a>(report: &'a Report, view: &View<'a>) -> Vec<&'a str> {
    let rankings: Vec<Ranking> = view.combinations.iter().filter_map(|&c| rank(report, view, c)).collect();
    if view.policies.len() <= ALL || rankings.is_empty() {
        return Vec::new();
    }
    let mut bright: Vec<&str> = Vec::new();
    let leads = |name: &str| rankings.iter().filter(|r| r.leader == name).count();
    let mut leaders: Vec<&str> = rankings.iter().map(|r| r.leader).collect();
    leaders.sort_by_key(|name| std::cmp::Reverse(leads(name)));
    let ties = rankings.iter().flat_map(Ranking::ties);
    for name in leaders.into_iter().chain(ties) {
        if bright.len() < MOST && !bright.contains(&name) {
            bright.push(name);
        }
    }
    let reference = |name: &str| {
        report.cells.iter().any(|c| c.key().policy == name && matches!(c.entry.role, Role::Baseline | Role::Bound))
    };
    view.policies.iter().map(|p| p.0).filter(|name| !bright.contains(name) && !reference(name)).collect()
}
