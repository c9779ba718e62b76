//! The result in words: the best policy of each setting, its interval, who is as good, and how far the oracle is.

use super::say;
use crate::figures::view::{View, count, distinct, words};
use crate::html::Part;
use crate::{Report, Role, Swept};
use foretoken_sim::metrics::Interval;

/// Settings beyond which the sentences are folded away.
const OPEN: usize = 8;

/// The sentences at the top of the page.
pub fn parts(report: &Report, view: &View) -> Vec<Part> {
    let said: Vec<(String, Option<Said>)> =
        view.combinations.iter().map(|&c| (words(c), best(report, view, c))).collect();
    if let [(_, said)] = said.as_slice() {
        let text = said.as_ref().map_or_else(nothing, |s| s.text.clone());
        return vec![Part::Headline(text)];
    }
    if said.is_empty() {
        return vec![Part::Headline(nothing())];
    }
    let leaders = distinct(said.iter().filter_map(|(_, s)| s.as_ref().map(|s| s.leader.as_str())), |a, b| a == b);
    let leads = |name: &str| said.iter().filter(|(_, s)| s.as_ref().is_some_and(|s| s.leader == name)).count();
    let mut shares: Vec<(usize, &str)> = leaders.into_iter().map(|name| (leads(name), name)).collect();
    shares.sort_by_key(|share| std::cmp::Reverse(share.0));
    let shares: Vec<String> = shares.iter().map(|(n, name)| format!("{name} in {n}")).collect();
    let headline = match shares.as_slice() {
        [] => nothing(),
        all => format!("Of {}, the fastest is {}.", count(said.len(), "setting"), all.join(", ")),
    };
    let list = said.iter().map(|(setting, s)| {
        let text = s.as_ref().map_or_else(nothing, |s| s.text.clone());
        format!("{setting}: {text}")
    });
    let list = Part::List(list.collect());
    let list = match said.len() {
        n if n > OPEN => Part::More { title: "Setting by setting".into(), parts: vec![list] },
        _ => list,
    };
    vec![Part::Headline(headline), list]
}

fn nothing() -> String {
    "No policy was compared with autoregressive here.".to_owned()
}

struct Said {
    leader: String,
    text: String,
}

/// The best policy of a combination in words; `None` when nothing has a speedup.
fn best(report: &Report, view: &View, combination: &[Swept]) -> Option<Said> {
    let is_contender =
        |name: &str| report.cells.iter().any(|c| c.key().policy == name && c.entry.role == Role::Contender);
    let names: Vec<&str> = view.policies.iter().map(|p| p.0).filter(|name| is_contender(name)).collect();
    let speedup = |name: &str| view.interval(name, |s| s == combination, |c| c.speedup);
    let mut ranked: Vec<(&str, Interval)> = names.into_iter().filter_map(|n| Some((n, speedup(n)?))).collect();
    ranked.sort_by(|a, b| b.1.mean.total_cmp(&a.1.mean));
    let (leader, own) = *ranked.first()?;
    let mut text = match own.mean {
        m if m < 1.0 => format!("No policy beats autoregressive on average: the best, {leader}, gets "),
        _ => format!("{leader} "),
    };
    text += &format!("{} over autoregressive", say::speedup(&own));
    if view.cells(leader, |s| s == combination).iter().any(|c| c.over_overload) {
        text += " (!), which was overloaded: how large this ratio is hangs on the length of the run";
    }
    let regret = view.interval(leader, |s| s == combination, |c| c.regret);
    if let Some(regret) = regret {
        let interval = regret.half_width.map_or(String::new(), |h| {
            format!(" [{:.1}, {:.1}]", (regret.mean - h) * 100.0, (regret.mean + h) * 100.0)
        });
        let (side, share) = if regret.mean < 0.0 { ("below", -regret.mean) } else { ("above", regret.mean) };
        let interval = if regret.mean < 0.0 { String::new() } else { interval };
        text += &format!("; its mean latency is {:.1}\u{a0}%{interval} {side} the oracle's", share * 100.0);
    }
    let alike: Vec<&str> =
        ranked[1..].iter().map(|r| r.0).filter(|name| !differs(view, combination, leader, name)).collect();
    text += &match (view.seeds.len(), alike.as_slice()) {
        (1, _) if ranked.len() < 2 => ". One seed: no interval.".to_owned(),
        (_, []) if ranked.len() < 2 => ".".to_owned(),
        (1, _) => ". One seed: no interval, and nothing is told apart.".to_owned(),
        (_, []) => format!(". The next, {}, is told apart.", ranked[1].0),
        (n, few) if few.len() <= 3 => format!(". Not told apart from it by {n} seeds: {}.", few.join(", ")),
        (n, many) => {
            format!(". Not told apart from it by {n} seeds: {} and {} more.", many[..3].join(", "), many.len() - 3)
        }
    };
    Some(Said { leader: leader.to_owned(), text })
}

/// Do the speedups of two policies differ, paired by seed?
fn differs(view: &View, combination: &[Swept], one: &str, other: &str) -> bool {
    let of = |name: &str| {
        let cells = view.cells(name, |s| s == combination);
        cells.into_iter().filter_map(|c| Some((c.key().seed, c.speedup?))).collect::<Vec<_>>()
    };
    let others = of(other);
    let pair = |(seed, a): (u64, f64)| others.iter().find(|o| o.0 == seed).map(|o| a - o.1);
    Interval::of(&of(one).into_iter().filter_map(pair).collect::<Vec<_>>()).is_some_and(|d| say::told_apart(&d))
}
