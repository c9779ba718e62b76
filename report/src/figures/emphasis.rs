//! Decides which policies a figure shows in colour: the policies that a page may advise the reader to run, the fastest
//! policies, policies as good as the fastest, plain decoding and the bound (an oracle that no server can run). Other
//! policies are grey until the reader points at them.

use super::view::View;
use crate::rank::{CLOSE, Ranking, for_all, rank};
use crate::{Report, Role};

/// A report with at most this number of policies shows all policies in colour.
const ALL: usize = 6;
/// The most policies in colour, not counting plain decoding and the bound (an oracle that no server can run).
const MOST: usize = 5;

/// The one or two policies that a page may advise the reader to run: the policy to run at all combinations of swept
/// values, and the policy to run at the first n of them, for the largest n at which this policy stays within [`CLOSE`]
/// of the fastest. n is at least 2 and does not cover all combinations. If there is no such n, there is no second
/// policy.
fn advised<'a>(report: &Report, rankings: &[&Ranking<'a>]) -> Vec<&'a str> {
    let close = (2..rankings.len()).rev().filter_map(|n| for_all(report, &rankings[..n]));
    let close = close.into_iter().find(|(behind, _)| *behind <= CLOSE);
    for_all(report, rankings).into_iter().chain(close).map(|(_, name)| name).collect()
}

/// Labels of the policies that figures show in grey. Empty if the report ranks no policies or has at most `ALL`
/// policies.
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
    for name in advised(report, &rankings.iter().collect::<Vec<_>>()).into_iter().chain(leaders).chain(ties) {
        if bright.len() < MOST && !bright.contains(&name) {
            bright.push(name);
        }
    }
    let reference = |name: &str| {
        report.cells.iter().any(|c| c.key().policy == name && matches!(c.entry.role, Role::Baseline | Role::Bound))
    };
    view.policies.iter().map(|p| p.0).filter(|name| !bright.contains(name) && !reference(name)).collect()
}
