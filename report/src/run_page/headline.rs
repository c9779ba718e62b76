//! The results in sentences: which policy to run, which policies are as good, which policy comes next, and how much
//! slower the best policy is than the oracle, which sees which draft tokens will be accepted.

use super::{balance, say};
use crate::figures::view::{Scale, View, count, distinct, words};
use crate::html::Part;
use crate::rank::{CLOSE, Ranking, baseline, fixed_length, for_all, rank};
use crate::which::AS_GOOD;
use crate::{Cell, Report, Source, Swept};

/// One combination of swept values, and the ranking of the policies there; `None` if no policy can be ranked.
type Ranked<'r, 'v> = (&'r [Swept], Option<Ranking<'v>>);

/// The main result in one paragraph. This paragraph heads the page, and the table that the program prints in a
/// terminal.
pub fn headline(report: &Report) -> String {
    let view = View::new(report);
    answer(report, &view, &ranked(report, &view))
}

/// The page's headline. If settings were swept, a sentence on each combination of swept values follows, folded. If
/// some policies stop drafting for a TPOT bound, a text on them follows.
pub fn parts(report: &Report, view: &View) -> Vec<Part> {
    let ranked = ranked(report, view);
    let mut parts = vec![Part::Headline(answer(report, view, &ranked))];
    if ranked.len() > 1 {
        let list = ranked.iter().map(|(c, r)| format!("{}: {}", words(*c), said(report, view, c, r.as_ref())));
        parts.push(Part::More { title: "Each setting in a sentence".into(), parts: vec![Part::List(list.collect())] });
    }
    parts.extend(balance::stops_for_slo(view).map(Part::Text));
    parts
}

/// The main result in one paragraph. `ranked` has the ranking for each combination of swept values.
fn answer(report: &Report, view: &View, ranked: &[Ranked]) -> String {
    match ranked {
        [] => nothing(report, view),
        [(combination, ranking)] => said(report, view, combination, ranking.as_ref()),
        all => over_settings(report, view, all),
    }
}

/// The label of the policy that the headline names first. `None` if no policy is compared with plain decoding.
pub fn advised(report: &Report) -> Option<String> {
    let view = View::new(report);
    let ranked = ranked(report, &view);
    let rankings: Vec<&Ranking> = ranked.iter().filter_map(|(_, r)| r.as_ref()).collect();
    let (least, everywhere) = for_all(report, &rankings)?;
    let start = if least > CLOSE { up_to(report, &ranked, &rankings) } else { None };
    Some(start.map_or(everywhere, |(policy, ..)| policy).to_owned())
}

fn ranked<'r, 'v: 'r>(report: &'v Report, view: &'r View<'v>) -> Vec<Ranked<'r, 'v>> {
    view.combinations.iter().map(|&c| (c, rank(report, view, c))).collect()
}

fn said(report: &Report, view: &View, combination: &[Swept], ranking: Option<&Ranking>) -> String {
    ranking.map_or_else(|| nothing(report, view), |ranking| sentence(report, view, combination, ranking))
}

/// The text if no policy can be compared with autoregressive decoding. If only one policy ran, the text gives its
/// numbers.
fn nothing(report: &Report, view: &View) -> String {
    let drafts = view.policies.first().and_then(|(policy, _)| fixed_length(report, policy));
    let next = match (report.source, drafts) {
        (Source::Observed, Some(0)) => " Next: start the server with drafts, observe it again, and calibrate on both.",
        (Source::Observed, _) => " Next: start the server without drafts, observe it again, and calibrate on both.",
        _ => "",
    };
    let [(policy, _)] = view.policies.as_slice() else {
        return format!("No policy was compared with autoregressive here.{next}");
    };
    let mean = |of: fn(&Cell) -> Option<f64>| view.mean(policy, |_| true, of, Scale::Amount).map(|m| m.mean);
    let ms = |name: &str, of: fn(&Cell) -> Option<f64>| mean(of).map(|s| format!("{name} {:.1}\u{a0}ms", 1e3 * s));
    let mut numbers =
        vec![format!("{policy} served {:.0} tokens/s", mean(|c| Some(c.summary.token_goodput_tok_s)).unwrap_or(0.0))];
    numbers.extend(ms("first token after", |c| c.summary.ttft.map(|q| q.mean)));
    numbers.extend(ms("then a token in", |c| c.summary.tpot.map(|q| q.p50)));
    numbers.extend(mean(|c| c.summary.acceptance_rate).map(|r| format!("{:.0}\u{a0}% of drafts accepted", 100.0 * r)));
    format!("{}.{next}", numbers.join(", "))
}

/// Says which policy to run at all combinations of swept values, and by how much it is slower than the fastest policy
/// where this difference is largest.
fn over_settings(report: &Report, view: &View, ranked: &[Ranked]) -> String {
    let rankings: Vec<&Ranking> = ranked.iter().filter_map(|(_, r)| r.as_ref()).collect();
    let Some((least, best)) = for_all(report, &rankings) else { return nothing(report, view) };
    let settings = count(ranked.len(), "setting");
    let leads = leads(&rankings);
    let percent = |behind: f64| format!("{:.1}\u{a0}%", 100.0 * behind);
    let run = |policy: &str| match baseline(report) == Some(policy) {
        true => "do not speculate".to_owned(),
        false => format!("run {policy}"),
    };
    let capital = |words: String| words[..1].to_uppercase() + &words[1..];
    if least <= CLOSE {
        let start = capital(run(best));
        return match leads.as_slice() {
            [(_, only)] if *only == best => format!("{start}: {best} is the fastest in all {settings}."),
            _ => format!(
                "{start}: {best} is never more than {} behind the fastest of {settings}. {}",
                percent(least),
                fastest(&leads)
            ),
        };
    }
    let start = match up_to(report, ranked, &rankings) {
        Some((policy, behind, [low, high], (behind_beyond, beyond))) => {
            let behind =
                if behind < 5e-4 { "the fastest".to_owned() } else { format!("at most {} behind", percent(behind)) };
            let others = match behind_beyond {
                b if b <= CLOSE => format!("{}{}", run(beyond), times(report, view, beyond, &high)),
                b => format!("{beyond} is at most {} behind", percent(b)),
            };
            let (last, times) = (words(*low.last().expect("two values at least")), times(report, view, policy, &low));
            format!("Up to {last} {}{times}: {behind}. Beyond, {others}. ", run(policy))
        }
        None => String::new(),
    };
    let close = format!(
        "No policy is close to the fastest in all {settings}: {best} comes closest, at most {} behind.",
        percent(least)
    );
    format!("{start}{close} {}", fastest(&leads))
}

/// How many times as fast as plain decoding a policy is at some combinations of swept values, in brackets.
fn times(report: &Report, view: &View, policy: &str, settings: &[&[Swept]]) -> String {
    let Some(plain) = baseline(report).filter(|plain| *plain != policy) else { return String::new() };
    let speedup = |c: &&[Swept]| view.mean(policy, |s| s == *c, |cell| cell.speedup, Scale::Ratio).map(|m| m.mean);
    let all: Vec<f64> = settings.iter().filter_map(speedup).collect();
    let Some((low, high)) = all.iter().copied().reduce(f64::min).zip(all.iter().copied().reduce(f64::max)) else {
        return String::new();
    };
    let (low, high) = (format!("{low:.1}"), format!("{high:.1}"));
    let range = if low == high { low } else { format!("{low} to {high}") };
    format!(" ({range}× as fast as {plain})")
}

/// The policies that are the fastest at some combination of swept values, as (number of these combinations, policy),
/// the largest number first.
fn leads<'v>(rankings: &[&Ranking<'v>]) -> Vec<(usize, &'v str)> {
    let leaders = distinct(rankings.iter().map(|r| r.leader), |a, b| a == b);
    let leads = |name: &str| rankings.iter().filter(|r| r.leader == name).count();
    let mut all: Vec<(usize, &str)> = leaders.into_iter().map(|name| (leads(name), name)).collect();
    all.sort_by_key(|lead| std::cmp::Reverse(lead.0));
    all
}

fn fastest(leads: &[(usize, &str)]) -> String {
    let each: Vec<String> = leads.iter().map(|(n, name)| format!("{name} in {n}")).collect();
    format!("The fastest is {}.", each.join(", "))
}

/// A policy, the largest share by which it is slower, the settings with the lower and with the higher values, and the
/// same share and policy for the higher values.
type UpTo<'r, 'v> = (&'v str, f64, [Vec<&'r [Swept]>; 2], (f64, &'v str));

/// If one number is swept, finds the highest value up to which one policy stays within [`CLOSE`] of the fastest policy
/// at every value. `None` if no policy stays close for at least two values.
fn up_to<'r, 'v>(report: &Report, ranked: &'r [Ranked<'r, 'v>], rankings: &[&Ranking<'v>]) -> Option<UpTo<'r, 'v>> {
    let value = |c: &[Swept]| match c {
        [one] => one.number,
        _ => None,
    };
    if rankings.len() != ranked.len() {
        return None;
    }
    let mut order: Vec<(f64, usize)> = Vec::new();
    for (i, (c, _)) in ranked.iter().enumerate() {
        order.push((value(c)?, i));
    }
    order.sort_by(|a, b| a.0.total_cmp(&b.0));
    let best_of = |order: &[(f64, usize)]| {
        let these: Vec<&Ranking> = order.iter().map(|&(_, i)| rankings[i]).collect();
        for_all(report, &these)
    };
    let close = |n: &usize| best_of(&order[..*n]).is_some_and(|(behind, _)| behind <= CLOSE);
    let n = (2..order.len()).rev().find(close)?;
    let (behind, policy) = best_of(&order[..n])?;
    let settings = |order: &[(f64, usize)]| order.iter().map(|&(_, i)| ranked[i].0).collect();
    Some((policy, behind, [settings(&order[..n]), settings(&order[n..])], best_of(&order[n..])?))
}

/// Sentences on one combination of swept values: what to run, ties, the next policy, and policies for which more seeds
/// are needed.
fn sentence(report: &Report, view: &View, combination: &[Swept], ranking: &Ranking) -> String {
    let taken = ranking.taken;
    let here = |s: &[Swept]| s == combination;
    let several = view.seeds.len() > 1;
    let ties = ranking.ties();
    let plain = baseline(report).unwrap_or_default();
    // If plain decoding is taken, the text is about the fastest policy that drafts.
    let drafting = match taken == plain {
        true => [ranking.leader].into_iter().chain(ranking.others.iter().map(|b| b.policy)).find(|p| *p != plain),
        false => Some(taken),
    };
    let drafting = drafting.expect("a policy other than plain decoding is ranked");
    let cells = view.cells(drafting, here);
    let speedup = view.mean(drafting, here, |c| c.speedup, Scale::Ratio).expect("who is ranked has a speedup");
    let of = lengths(report, view, drafting).map(|of| format!("of K = {of}"));
    let as_good = match ties.as_slice() {
        [] => None,
        ties if taken == plain => Some(format!("as good as plain decoding: {}", say::few(ties))),
        ties => Some(format!("as good: {}", say::few(ties))),
    };
    let notes: Vec<String> = of.into_iter().chain(as_good).collect();
    let notes = if notes.is_empty() { String::new() } else { format!(" ({})", notes.join("; ")) };
    let whole = if cells.iter().any(|c| c.entry.batch) { " to the end of the batch" } else { "" };
    let over = format!("{} as fast as {plain}{whole}", say::speedup(&speedup));
    let mut text = match (taken == plain, speedup.ends) {
        (false, _) => format!("Run {taken}{notes}: {over}"),
        (true, _) if speedup.mean > 1.0 => {
            format!(
                "Do not speculate: nothing beats {plain} by more than 1\u{a0}%; the best, {drafting}{notes}, is {over}"
            )
        }
        (true, Some((_, high))) if high >= 1.0 => format!(
            "Do not speculate: no policy beats {plain} on average, and seeds do not tell; the best, {drafting}{notes}, is \
             {over}"
        ),
        (true, _) => format!("Do not speculate: no policy beats {plain}; the best, {drafting}{notes}, is {over}"),
    };
    if cells.iter().any(|c| c.over_overload) {
        text += " (!), which was overloaded: this ratio depends on the length of the run";
    }
    text += &bound(view, combination, drafting, &cells);
    text += ".";
    if let Some(next) = ranking.next(&[plain, drafting]) {
        text += &format!(" Next: {}, {} slower.", next.policy, say::with_interval(&next.slower, "\u{a0}%", 1));
    }
    if !several {
        return text + " One seed: no interval, and nothing is told apart.";
    }
    if !ties.is_empty() {
        let (percent, seeds) = (100.0 * AS_GOOD, count(view.seeds.len(), "seed"));
        text += &format!(" As good: within {percent:.0}\u{a0}%, mean of {seeds}.");
    }
    let noisy = ranking.noisy();
    if !noisy.is_empty() {
        text += &format!(" Too noisy to say: {}; add seeds.", say::few(&noisy));
    }
    text
}

/// The draft lengths of the policies with a fixed length, as text such as `1, 3, 5`, if `policy` is one of them and
/// there are several.
fn lengths(report: &Report, view: &View, policy: &str) -> Option<String> {
    fixed_length(report, policy)?;
    let mut all: Vec<u32> = view.policies.iter().filter_map(|p| fixed_length(report, p.0)).filter(|k| *k > 0).collect();
    all.sort_unstable();
    (all.len() > 1).then(|| all.iter().map(u32::to_string).collect::<Vec<_>>().join(", "))
}

/// How much slower the fastest policy is than the oracle `oracle-goodput`, as text. If the fastest policy drafts trees,
/// the text says instead that this oracle is a bound only for chains of draft tokens. Empty if no oracle was run.
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
