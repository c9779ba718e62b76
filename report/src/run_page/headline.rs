//! The result in sentences: the fastest policy of each setting, the next one, the policies that are as good, and the
//! distance to the oracle.

use super::rank::{AS_GOOD, Ranking, rank};
use super::{balance, say};
use crate::figures::view::{Scale, View, count, distinct, words};
use crate::html::Part;
use crate::{Cell, Report, Swept};

/// The most settings whose sentences are not folded away.
const OPEN: usize = 8;

/// The sentences at the top of the page.
pub fn parts(report: &Report, view: &View) -> Vec<Part> {
    let ranked: Vec<(&[Swept], Option<Ranking>)> =
        view.combinations.iter().map(|&c| (c, rank(report, view, c))).collect();
    let said = |(c, r): &(&[Swept], Option<Ranking>)| r.as_ref().map_or_else(nothing, |r| sentence(view, c, r));
    let mut parts = match ranked.as_slice() {
        [] => vec![Part::Headline(nothing())],
        [one] => vec![Part::Headline(said(one))],
        all => {
            let list = all.iter().map(|one| format!("{}: {}", words(one.0), said(one)));
            let list = Part::List(list.collect());
            let list = match all.len() {
                n if n > OPEN => Part::More { title: "Setting by setting".into(), parts: vec![list] },
                _ => list,
            };
            vec![Part::Headline(over_settings(view, all)), list]
        }
    };
    parts.extend(balance::stops_for_slo(view).map(Part::Text));
    parts
}

fn nothing() -> String {
    "No policy was compared with autoregressive here.".to_owned()
}

/// Counts the settings that each policy leads, and names the policy that is never far behind.
fn over_settings(view: &View, ranked: &[(&[Swept], Option<Ranking>)]) -> String {
    let rankings: Vec<&Ranking> = ranked.iter().filter_map(|(_, r)| r.as_ref()).collect();
    let leaders = distinct(rankings.iter().map(|r| r.leader), |a, b| a == b);
    let leads = |name: &str| rankings.iter().filter(|r| r.leader == name).count();
    let mut shares: Vec<(usize, &str)> = leaders.into_iter().map(|name| (leads(name), name)).collect();
    shares.sort_by_key(|share| std::cmp::Reverse(share.0));
    let leads = match shares.as_slice() {
        [] => return nothing(),
        [(_, name)] => format!("Of {}, the fastest is {name} in all.", count(ranked.len(), "setting")),
        all => {
            let each: Vec<String> = all.iter().map(|(n, name)| format!("{name} in {n}")).collect();
            format!("Of {}, the fastest is {}.", count(ranked.len(), "setting"), each.join(", "))
        }
    };
    let worst = |name: &str| {
        let each: Option<Vec<f64>> = rankings.iter().map(|r| r.behind(name)).collect();
        each.map(|each| each.into_iter().fold(0.0, f64::max))
    };
    let mut all: Vec<(f64, &str)> = view.policies.iter().filter_map(|p| Some((worst(p.0)?, p.0))).collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    let slower = |behind: f64| format!("at most {:.1}\u{a0}% slower than the fastest", 100.0 * behind);
    match all.as_slice() {
        [] => leads,
        _ if shares.len() == 1 => leads,
        [(behind, name), ..] if *behind <= AS_GOOD => {
            format!("{leads} {name} is never far behind: {}.", slower(*behind))
        }
        [(behind, name), others @ ..] => {
            let next = others.first().map_or(String::new(), |(behind, name)| {
                format!("; the next is {name} with {:.1}\u{a0}%", 100.0 * behind)
            });
            format!("{leads} None is close in all: {name} comes closest, {}{next}.", slower(*behind))
        }
    }
}

/// Sentences on one setting: its fastest policy, the next one, ties, and policies that need more seeds.
fn sentence(view: &View, combination: &[Swept], ranking: &Ranking) -> String {
    let leader = ranking.leader;
    let here = |s: &[Swept]| s == combination;
    let cells = view.cells(leader, here);
    let speedup = view.mean(leader, here, |c| c.speedup, Scale::Ratio).expect("who is ranked has a speedup");
    let mut text = match speedup.mean {
        m if m < 1.0 => format!("No policy beats autoregressive on average: the best, {leader}, gets "),
        _ => format!("{leader} "),
    };
    text += &format!("{} over autoregressive", say::speedup(&speedup));
    if cells.iter().any(|c| c.over_overload) {
        text += " (!), which was overloaded: this ratio depends on the length of the run";
    }
    text += &bound(view, combination, leader, &cells);
    text += ".";
    let Some(next) = ranking.others.first() else {
        return text + if view.seeds.len() == 1 { " One seed: no interval." } else { "" };
    };
    text += &format!(" Next: {}, {} slower", next.policy, say::with_interval(&next.slower, "\u{a0}%", 1));
    if view.seeds.len() == 1 {
        return text + ". One seed: no interval, and nothing is told apart.";
    }
    let mut ties = ranking.ties();
    if ties.contains(&next.policy) {
        ties.retain(|name| *name != next.policy);
        text += &format!(", not told apart by {}", count(view.seeds.len(), "seed"));
    }
    text += ".";
    if !ties.is_empty() {
        let percent = 100.0 * AS_GOOD;
        text += &format!(" Not told apart either, and within {percent:.0}\u{a0}%: {}.", say::few(&ties));
    }
    let noisy = ranking.noisy();
    if !noisy.is_empty() {
        text += &format!(" Too noisy to say: {}; add seeds.", say::few(&noisy));
    }
    text
}

/// How far the fastest policy is from oracle-goodput, and what oracle-goodput bounds; empty if no oracle was run.
fn bound(view: &View, combination: &[Swept], leader: &str, cells: &[&Cell]) -> String {
    if cells.iter().any(|c| c.entry.trees) && cells.iter().any(|c| c.regret.is_some()) {
        return "; it drafts trees, which oracle-goodput, the bound for chains of drafts, does not bound".to_owned();
    }
    let regret = |c: &Cell| c.regret.map(|r| 100.0 * r);
    let Some(regret) = view.mean(leader, |s| s == combination, regret, Scale::Change) else { return String::new() };
    match regret.mean < 0.0 {
        false => format!(
            "; its mean latency is {} above that of oracle-goodput, the bound for chains of drafts",
            say::with_interval(&regret, "\u{a0}%", 1)
        ),
        true => format!(
            "; its mean latency is {:.1}\u{a0}% below that of oracle-goodput, which is best step by step and not over a whole run",
            -regret.mean
        ),
    }
}
