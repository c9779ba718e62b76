//! The results of a capacity search as text: a table, headlines and notes.

use crate::capacity::answer::{Answer, Capacity, Verdict};
use crate::capacity::host::WithHost;
use crate::capacity::load::Log;
use crate::host_band::DEPENDS;
use foretoken_report::{Mark, Swept, plain_table, spread};
use foretoken_sim::metrics::{Interval, Slo};
use std::fmt::Write;

impl Answer {
    /// The question of the capacity search as text, such as `99 % of requests keep TPOT within 50 ms`.
    pub fn question(&self) -> String {
        let kept = bounds_in_words(self.capacities.iter().flat_map(|c| &c.seeds).map(|s| s.slo));
        let window = self.window_s.map_or(String::new(), |[a, b]| format!(", of the seconds {a} to {b}"));
        format!("{} % of requests{window} keep {kept}", trimmed(100.0 * self.share))
    }

    /// The whole text of the capacity search's results: the table, the headlines, the notes and the warnings.
    pub fn in_words(&self) -> String {
        let swept: Vec<String> =
            self.capacities.first().map_or(&[][..], |c| &c.sweep).iter().map(|s| s.path.clone()).collect();
        let head = [String::new()].into_iter().chain(swept).chain(["policy".to_owned()]);
        let head = head.chain(["requests/s", "±", "tokens/s a GPU", "seeds", "probes"].map(str::to_owned));
        let sorted = self.sorted();
        let groups = sorted.chunk_by(|a, b| a.sweep == b.sweep);
        let best: Vec<&Capacity> = groups.filter_map(|group| group.iter().copied().find(|c| !c.bound)).collect();
        let rows = sorted.iter().copied().map(|c| {
            let probes: usize = c.seeds.iter().map(|s| s.probes.len()).sum();
            let mark = if best.iter().any(|best| std::ptr::eq(*best, c)) { ">" } else { "" };
            let swept = c.sweep.iter().map(|s| s.value.clone());
            let lead = [mark.to_owned()].into_iter().chain(swept).chain([Mark::beside(&c.policy, c.marks())]);
            let numbers = [
                c.rate_in_words(),
                spread_of(c, "").unwrap_or_default(),
                c.tok_s_gpu.map_or(String::new(), |i| format!("{:.0}", i.mean)),
                c.seeds.len().to_string(),
                probes.to_string(),
            ];
            lead.chain(numbers).collect::<Vec<_>>()
        });
        let table = plain_table(head, rows, ..0);
        let said = self.overall().into_iter().chain(self.headlines());
        let mut text = said.map(|line| line + "\n").collect::<String>();
        writeln!(text, "\n{}: {} ({})\n\n{table}", self.name, self.question(), self.source).expect("a string grows");
        for note in self.notes() {
            writeln!(text, "{note}").expect("a string grows");
        }
        for warning in &self.warnings {
            writeln!(text, "warning: {warning}").expect("a string grows");
        }
        text
    }

    /// The capacities in the order of the table: in the order of the sweep; at equal swept values, the highest
    /// capacity first.
    pub fn sorted(&self) -> Vec<&Capacity> {
        self.at_each_value()
            .into_iter()
            .flat_map(|(_, mut capacities)| {
                capacities.sort_by(|a, b| b.rank().total_cmp(&a.rank()));
                capacities
            })
            .collect()
    }

    /// The capacities grouped by their swept values, in the order of the sweep, as (swept values as text, capacities).
    pub fn at_each_value(&self) -> Vec<(String, Vec<&Capacity>)> {
        by_swept_values(&self.capacities, |c| &c.sweep)
    }

    /// One sentence for each combination of swept values. It names the policy with the highest capacity, and says by
    /// how much this capacity exceeds the capacity of plain decoding (the baseline) and of the second best policy.
    pub fn headlines(&self) -> Vec<String> {
        let line = |(at, capacities): (String, Vec<&Capacity>)| {
            let sentence = headline(&capacities);
            let sentence = match self.host.iter().find(|host| host.at == at && host.turns) {
                Some(host) => format!("{DEPENDS} Without host time {sentence} {}", host.in_words()),
                None => sentence,
            };
            if at.is_empty() { sentence } else { format!("{at}: {sentence}") }
        };
        self.at_each_value().into_iter().map(line).collect()
    }

    /// One sentence on all swept values: at each, how much more the best policy carries than plain decoding. `None` if
    /// nothing is swept, or plain decoding carries no rate at any value.
    pub fn overall(&self) -> Option<String> {
        let times = |(at, capacities): &(String, Vec<&Capacity>)| {
            let plain = capacities.iter().find(|c| c.baseline)?.req_s?.mean;
            let best = capacities.iter().filter(|c| !c.bound).filter_map(|c| Some(c.req_s?.mean)).reduce(f64::max)?;
            Some(format!("{:.1} times at {at}", best / plain))
        };
        let groups = self.at_each_value();
        let each: Vec<String> = groups.iter().filter_map(times).collect();
        let hidden = if self.host.iter().any(|host| host.turns) {
            format!("{DEPENDS} Without host time the")
        } else {
            "The".into()
        };
        (groups.len() > 1 && !each.is_empty())
            .then(|| format!("{hidden} best policy carries, over no drafting: {}.", each.join(", ")))
    }

    /// The notes on the capacities. If several policies have the same note, it is one note that names these policies.
    /// Notes on the load come last.
    pub fn notes(&self) -> Vec<String> {
        let mut notes: Vec<(String, Vec<String>)> = Vec::new();
        for c in &self.capacities {
            for note in c.notes() {
                match notes.iter_mut().find(|(text, _)| *text == note) {
                    Some((_, names)) => names.push(name(c)),
                    None => notes.push((note, vec![name(c)])),
                }
            }
        }
        let lines = notes.into_iter().map(|(note, names)| format!("{}: {note}", names.join("; ")));
        let stays = self.host.iter().filter(|host| !host.turns).map(WithHost::stays);
        let marks = Mark::notes(self.capacities.iter().map(Capacity::marks));
        lines.chain(self.of_the_load()).chain(stays).chain(marks).collect()
    }

    /// Notes on the requests that were run: which requests of a log (trace of arrivals), and which window the rates
    /// refer to. Without a window, a note says if the load changes in time.
    pub fn of_the_load(&self) -> Vec<String> {
        let seeds = || self.capacities.iter().flat_map(|c| c.seeds.iter().map(move |s| (c, s)));
        let mut notes: Vec<String> = Vec::new();
        let logs: Vec<(&Capacity, Log)> = seeds().filter_map(|(c, s)| Some((c, s.log?))).collect();
        for (c, log) in &logs {
            let words = log.in_words(self.window_s);
            let swept = values(c);
            // If the same requests of the log (a trace of arrivals) are run at all swept values, one note is enough.
            let same = logs.iter().all(|(_, other)| other == log);
            let note = if same || swept.is_empty() { words } else { format!("{swept}: {words}") };
            if !notes.contains(&note) {
                notes.push(note);
            }
        }
        let peak = seeds().filter(|(_, s)| s.spread.changes).map(|(_, s)| s.spread.peak).fold(0.0, f64::max);
        if let Some([from, to]) = self.window_s {
            notes.push(format!("rates count the seconds {from} to {to} of the experiment's own arrivals; at other rates the window is stretched or compressed with them"));
        } else if peak > 0.0 {
            notes.push(format!("the load changes in time: {peak:.1} times the mean rate in its busiest twentieth. Rates are means; capacity.window_s asks about a part of the time"));
        }
        notes
    }
}

/// The bounds of the runs as text, such as `TTFT within 300 ms, TPOT within 40 to 50 ms`. A bound that differs between
/// runs is a range.
pub fn bounds_in_words(slos: impl Iterator<Item = Slo> + Clone) -> String {
    let bounds = [("TTFT", (|s| s.ttft_s) as fn(Slo) -> Option<f64>), ("TPOT", |s| s.tpot_s), ("E2E", |s| s.e2e_s)];
    let bound = |(name, of): (&str, fn(Slo) -> Option<f64>)| {
        let all = slos.clone().filter_map(of);
        let (least, most) = all.fold((f64::INFINITY, 0.0f64), |(least, most), s| (least.min(s), most.max(s)));
        let [from, to] = [least, most].map(|s| trimmed(1e3 * s));
        let words = if from == to { to } else { format!("{from} to {to}") };
        least.is_finite().then(|| format!("{name} within {words} ms"))
    };
    let bounds: Vec<String> = bounds.into_iter().filter_map(bound).collect();
    if bounds.is_empty() { "their own bounds".to_owned() } else { bounds.join(", ") }
}

/// Groups the answers `all` by their swept values as text, in the order of the sweep.
pub fn by_swept_values<T>(all: &[T], sweep: impl Fn(&T) -> &[Swept]) -> Vec<(String, Vec<&T>)> {
    let mut groups: Vec<(String, Vec<&T>)> = Vec::new();
    for one in all {
        let at = swept_in_words(sweep(one));
        match groups.iter_mut().find(|(value, _)| *value == at) {
            Some((_, group)) => group.push(one),
            None => groups.push((at, vec![one])),
        }
    }
    groups
}

impl Log {
    fn in_words(&self, window_s: Option<[f64; 2]>) -> String {
        let Log { requests, span_s, before, counted, behind, rate } = *self;
        let of = format!("the log has {requests} requests in {span_s:.1} s");
        let rest = requests - before - counted - behind;
        let end = match (behind, rest) {
            (0, _) => "; the log ends with them, so that the last ones end in a server that empties".to_owned(),
            (_, 0) => format!(", and {behind} behind them, with which the log ends, keep it full"),
            _ => format!(", {behind} behind them keep it full, and the other {rest} are not run"),
        };
        let count = format!("{counted} of them count, {before} before them fill the server{end}");
        let own = match window_s {
            Some(_) => format!("In these seconds the log has {rate:.3} requests/s"),
            None => format!("The log itself has {rate:.3} requests/s there"),
        };
        format!("{of}: {count}. {own}; other rates are its arrival times stretched or compressed, as rate-scale does")
    }
}

impl Capacity {
    /// The capacity (highest request rate served within the SLO) as text, or the reason why there is none.
    pub fn rate_in_words(&self) -> String {
        let seeds = self.seeds.len();
        if let Some(i) = self.req_s {
            return digits(i.mean, i.mean);
        }
        match (self.count(Verdict::NoRate), self.count(Verdict::EveryRateTried)) {
            (no, _) if no == seeds => "no rate".to_owned(),
            (_, every) if every == seeds => format!("every rate tried, up to {:.0}", self.tried_up_to()),
            (0, every) => format!("every rate tried on {every} of {seeds} seeds, up to {:.0}", self.tried_up_to()),
            (no, _) => format!("no rate on {no} of {seeds} seeds"),
        }
    }

    /// The key by which capacities are sorted: the mean capacity over seeds, requests per second. If no rate is carried
    /// (served within the SLO) with some seeds: minus the number of these seeds. Otherwise, if every tried rate is
    /// carried with some seed: infinity.
    pub(crate) fn rank(&self) -> f64 {
        match self.req_s {
            Some(i) => i.mean,
            None if self.count(Verdict::NoRate) > 0 => -(self.count(Verdict::NoRate) as f64),
            None => f64::INFINITY,
        }
    }

    fn called(&self) -> &str {
        if self.baseline { "no drafting" } else { &self.policy }
    }
}

/// A sentence that names the policy with the highest capacity, and by how much it exceeds the capacities of the
/// baseline and of the second best policy. Policies that see the hidden truth (such as which draft tokens will be
/// accepted) are not ranked; the best of them is named at the end. If some policies carry every tried rate, the
/// sentence names only these policies.
fn headline(capacities: &[&Capacity]) -> String {
    let mut found: Vec<&Capacity> = capacities.iter().copied().filter(|c| c.req_s.is_some() && !c.bound).collect();
    found.sort_by(|a, b| b.rank().total_cmp(&a.rank()));
    let unlimited = capacities.iter().filter(|c| !c.bound && c.rank() == f64::INFINITY);
    let unlimited: Vec<&str> = unlimited.map(|c| c.called()).collect();
    if !unlimited.is_empty() {
        return format!("{} every rate that was tried.", carry(&unlimited));
    }
    let Some((best, others)) = found.split_first() else {
        return "no policy carries any rate on all seeds.".to_owned();
    };
    let rate = best.rate_in_words();
    let mut sentence = format!("{} carries most: {rate} requests/s", best.called());
    let baseline = others.iter().find(|c| c.baseline);
    // The capacity of the best policy is compared with the capacity of the baseline (plain decoding). It is also
    // compared with the capacity of the second best policy, unless the second best policy is the baseline.
    let second = others.first().filter(|c| !c.baseline);
    for other in baseline.into_iter().chain(second) {
        sentence += &format!(", {}", more_than(best, other));
    }
    if let Some(plain) = capacities.iter().find(|c| c.baseline && c.req_s.is_none()) {
        sentence += &format!("; without drafts: {}", plain.rate_in_words());
    }
    let bounds = capacities.iter().filter(|c| c.bound).filter_map(|c| Some((c, c.req_s?)));
    if let Some((bound, i)) = bounds.max_by(|a, b| a.1.mean.total_cmp(&b.1.mean)) {
        sentence += &format!("; {}, which sees what no server sees: {}", bound.policy, digits(i.mean, i.mean));
    }
    sentence + "."
}

fn carry(names: &[&str]) -> String {
    match names {
        [one] => format!("{one} carries"),
        some => format!("{} carry", some.join(", ")),
    }
}

/// A text that says by how much the capacity of `best` exceeds the capacity of `other`. The ratio of the two
/// capacities is taken seed by seed. If its 95 % interval contains 1, the text says that the seeds do not tell the
/// two policies apart.
fn more_than(best: &Capacity, other: &Capacity) -> String {
    let name = other.called();
    let rates = best.seeds.iter().zip(&other.seeds).filter_map(|(a, b)| Some(a.req_s? / b.req_s?));
    let logs: Vec<f64> = rates.map(f64::ln).collect();
    let Some(i) = Interval::of(&logs) else { return format!("more than {name}") };
    if logs.iter().all(|x| *x == 0.0) {
        return format!("the same as {name} on every seed");
    }
    if i.half_width.is_some_and(|half| half >= i.mean.abs()) {
        let by = percent(i.mean.exp() - 1.0);
        return format!("not told apart from {name} ({by} % more, {} seeds)", i.n);
    }
    let within = i.half_width.map_or(String::new(), |half| {
        let [low, high] = [i.mean - half, i.mean + half].map(f64::exp);
        match i.mean > TWICE {
            true => format!(" [{low:.1}, {high:.1}]"),
            false => format!(" [{}, {}]", percent(low - 1.0), percent(high - 1.0)),
        }
    });
    match i.mean > TWICE {
        true => format!("{:.1} times{within} as much as {name}", i.mean.exp()),
        false => format!("{} %{within} more than {name}", percent(i.mean.exp() - 1.0)),
    }
}

/// If the logarithm of the ratio of two capacities is above this (ln 2), the difference is written as a factor, else in
/// percent.
const TWICE: f64 = std::f64::consts::LN_2;

/// A share as percent without the sign %: with one decimal below 10 %, else with none.
fn percent(share: f64) -> String {
    let percent = 100.0 * share;
    if percent.abs() < 9.95 { format!("{percent:.1}") } else { format!("{percent:.0}") }
}

/// The number `x` as text. It has the number of decimals, at most five, with which the number `of` has three
/// significant digits.
pub fn digits(x: f64, of: f64) -> String {
    format!("{x:.*}", decimals(of))
}

fn decimals(of: f64) -> usize {
    if of > 0.0 { (2 - of.log10().floor() as i32).clamp(0, 5) as usize } else { 2 }
}

/// What follows a capacity: half the width of its interval over seeds behind `sign`, or both ends if the interval would
/// go below 0. `None` with one seed, and without a rate.
pub fn spread_of(c: &Capacity, sign: &str) -> Option<String> {
    c.req_s.and_then(|i| spread(&i, 1.0, decimals(i.mean), sign))
}

/// A capacity with its interval over seeds, such as `4.04 [0.00, 9.79]`; or the reason why there is none.
pub fn with_spread(c: &Capacity) -> String {
    let spread = spread_of(c, "± ").map_or(String::new(), |spread| format!(" {spread}"));
    c.rate_in_words() + &spread
}

/// The policy's label and the swept values of a capacity, as text.
pub fn name(c: &Capacity) -> String {
    let values = values(c);
    if values.is_empty() { c.policy.clone() } else { format!("{}, {values}", c.policy) }
}

/// The swept values of a capacity as text; empty if nothing is swept.
pub fn values(c: &Capacity) -> String {
    swept_in_words(&c.sweep)
}

/// Swept values as text; empty if nothing is swept.
pub fn swept_in_words(sweep: &[Swept]) -> String {
    sweep.iter().map(|s| value(&s.path, &s.value)).collect::<Vec<_>>().join(", ")
}

/// A swept value as text, such as `TPOT within 50 ms` or `max_num_seqs = 64`.
fn value(path: &str, value: &str) -> String {
    let ms = || value.parse().map_or_else(|_| value.to_owned(), |s: f64| format!("{} ms", trimmed(1e3 * s)));
    match path {
        "slo.adaspec-scale" => format!("TPOT bound × {value}"),
        "slo.tpot_s" => format!("TPOT within {}", ms()),
        "slo.ttft_s" => format!("TTFT within {}", ms()),
        "slo.e2e_s" => format!("E2E within {}", ms()),
        path => format!("{} = {value}", path.rsplit('.').next().unwrap_or(path)),
    }
}

/// A number as text with up to three decimals, without trailing zeros.
pub fn trimmed(x: f64) -> String {
    let text = format!("{x:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

impl WithHost {
    /// Both capacities with host time as text.
    pub fn in_words(&self) -> String {
        let rate = |r: Option<f64>| r.map_or("no rate".to_owned(), |r| format!("{} requests/s", digits(r, r)));
        format!(
            "With the host time of a measured server ({}) {} carries {} and no drafting {} (seed {}).",
            self.source,
            self.policy,
            rate(self.drafting_req_s),
            rate(self.plain_req_s),
            self.seed
        )
    }

    /// A note for an answer that host time does not turn around.
    pub fn stays(&self) -> String {
        let at = if self.at.is_empty() { String::new() } else { format!("{}: ", self.at) };
        format!("{at}no host time is counted. {} The answer stays.", self.in_words())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capacity::answer::{Limit, SeedResult};
    use crate::capacity::load::Spread;

    /// A test policy with the capacities `rates` by seed, requests per second. 0 stands for a seed with which the
    /// server carries no rate (serves none within the SLO).
    fn carried(policy: &str, rates: [f64; 3]) -> Capacity {
        let result_of = |(seed, rate): (usize, f64)| SeedResult {
            seed: seed as u64,
            verdict: if rate > 0.0 { Verdict::Rate } else { Verdict::NoRate },
            req_s: Some(rate).filter(|r| *r > 0.0),
            limit: Some(Limit::Bounds),
            slo: Slo::default(),
            exceptions: Vec::new(),
            tried_up_to: 2.0 * rate,
            tok_s_gpu: Some(rate).filter(|r| *r > 0.0),
            rejected: None,
            spread: Spread { peak: 1.0, changes: false },
            log: None,
            probes: Vec::new(),
        };
        Capacity::of(policy.to_owned(), Vec::new(), rates.into_iter().enumerate().map(result_of).collect())
    }

    #[test]
    fn the_headline_names_the_highest_capacity_and_pairs_seeds() {
        let plain = Capacity { baseline: true, ..carried("autoregressive", [16.0, 17.0, 18.0]) };
        let best = carried("fixed-1", [16.0 * 1.17, 17.0 * 1.18, 18.0 * 1.16]);
        let second = carried("adaspec", [16.0 * 1.15, 17.0 * 1.15, 18.0 * 1.14]);
        let sentence = headline(&[&plain, &second, &best]);
        assert_eq!(
            sentence,
            "fixed-1 carries most: 19.9 requests/s, 17 % [15, 20] more than no drafting, 2.0 % [0.8, 3.3] more than adaspec."
        );
        // With these capacities per seed, `best` is above `fixed-3` with some seeds and below it with others.
        let other = carried("fixed-3", [16.0 * 1.20, 17.0 * 1.10, 18.0 * 1.18]);
        assert!(headline(&[&best, &other]).contains("not told apart from fixed-3 (0.9 % more, 3 seeds)"));
        assert!(
            headline(&[&best, &carried("x", [16.0 * 1.17, 17.0 * 1.18, 18.0 * 1.16])])
                .contains("the same as x on every")
        );
        let slow = Capacity { baseline: true, ..carried("autoregressive", [5.0, 5.0, 5.0]) };
        assert!(
            headline(&[&best, &slow]).contains("4.0 times [3.5, 4.6] as much as no drafting"),
            "{}",
            headline(&[&best, &slow])
        );
    }

    #[test]
    fn a_missing_capacity_is_explained() {
        let plain = Capacity { baseline: true, ..carried("autoregressive", [0.0, 1.0, 0.0]) };
        let best = carried("fixed-1", [1.0, 1.0, 1.0]);
        assert_eq!(plain.rate_in_words(), "no rate on 2 of 3 seeds");
        assert!(headline(&[&best, &plain]).ends_with("; without drafts: no rate on 2 of 3 seeds."));
        assert_eq!(headline(&[&plain]), "no policy carries any rate on all seeds.");
        assert_eq!(carried("x", [0.0; 3]).rate_in_words(), "no rate");
    }

    #[test]
    fn numbers_have_three_digits() {
        for (x, text) in [(20.035, "20.0"), (1.266, "1.27"), (127.3, "127"), (0.5681, "0.568"), (1234.6, "1235")] {
            assert_eq!(digits(x, x), text);
        }
    }
}
