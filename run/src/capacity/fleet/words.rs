//! The results of the search for the smallest fleet as text: the table of fleets, the comparison of three fleets with
//! and without drafting, the rates at which drafting begins or ceases to pay, and notes.

use super::answer::{Alternative, Crossover, FleetAnswer, LoadOverTime, PolicyFleet};
use super::host::WithHost;
use crate::capacity::answer::marks;
use crate::capacity::words::{bounds_in_words, by_swept_values, digits, trimmed};
use comfy_table::Table;
use foretoken_report::{Mark, plain_table, spread};
use std::fmt::Write;

impl FleetAnswer {
    /// The question of the fleet search as text, such as `99 % of requests keep TPOT within 50 ms`.
    pub fn question(&self) -> String {
        let kept = bounds_in_words(self.fleets.iter().flat_map(|f| &f.seeds).map(|s| s.slo));
        format!("{} % of requests keep {kept}", trimmed(100.0 * self.share))
    }

    /// The price of a GPU per hour as text. If the price is swept, the text has the lowest and the highest price.
    fn price(&self) -> String {
        let prices = || self.fleets.iter().map(|fleet| fleet.price_gpu_hour);
        let (least, most) = (prices().fold(f64::INFINITY, f64::min), prices().fold(0.0, f64::max));
        match least < most {
            true => format!("a GPU costs {least} to {most} an hour, as swept, in your currency"),
            false => format!("a GPU costs {most} an hour, in your currency"),
        }
    }

    /// A sentence with the load (request rates over time) and the price of a GPU.
    pub fn load_in_words(&self) -> String {
        let (mean, peak, load) = (self.load.mean(), self.load.peak(), &self.load);
        let busiest = if load.req_s.len() > 1 {
            format!(", {} in the busiest {:.0} s", digits(peak, peak), load.window_s)
        } else {
            String::new()
        };
        let mean = digits(mean, mean);
        let span_s = load.span_s;
        format!("Load: {mean} requests/s on average over {span_s:.0} s{busiest}; {}; {}.", self.counted(), self.price())
    }

    /// How many requests of the load count, and why the others do not.
    fn counted(&self) -> String {
        let LoadOverTime { requests, counted, .. } = self.load;
        let count = format!("{counted} of {requests} requests count");
        match self.asked.window_s {
            Some([from, to]) => format!("{count}, those from {from} to {to} s"),
            None if counted == requests => count,
            None => {
                let edge = (requests - counted) / 2;
                let all = format!("{count}, all but the first and the last {edge}");
                match self.asked.warm_up_requests {
                    asked if asked > edge => {
                        format!(
                            "{all} (a tenth; capacity.warm_up_requests is {asked}, and at most a tenth is left out)"
                        )
                    }
                    _ => all,
                }
            }
        }
    }

    /// The whole text of the fleet search's results: load, table, headlines, compared fleets, rates from which drafting
    /// pays, notes and warnings.
    pub fn in_words(&self) -> String {
        let mut text = self.headlines.iter().map(|line| format!("{line}\n")).collect::<String>();
        writeln!(text, "\n{}: the fewest GPUs with which {} ({})", self.name, self.question(), self.source)
            .expect("a string grows");
        writeln!(text, "{}\n", self.load_in_words()).expect("a string grows");
        writeln!(text, "{}", self.table()).expect("a string grows");
        if !self.ways.is_empty() {
            writeln!(text, "\nthe same GPUs, three ways, over all seeds:\n{}", self.ways_table())
                .expect("a string grows");
        }
        for crossover in &self.crossovers {
            writeln!(text, "{}", crossover.in_words()).expect("a string grows");
        }
        for note in self.notes() {
            writeln!(text, "note: {note}").expect("a string grows");
        }
        for warning in &self.warnings {
            writeln!(text, "warning: {warning}").expect("a string grows");
        }
        text
    }

    fn table(&self) -> Table {
        let swept: Vec<String> =
            self.fleets.first().map_or(&[][..], |f| &f.sweep).iter().map(|s| s.path.clone()).collect();
        let head =
            ["router", "policy", "replicas", "±", "GPUs", "an hour", "a million tokens", "one carries", "by division"];
        let head = [String::new()].into_iter().chain(swept).chain(head.map(str::to_owned));
        let best: Vec<&PolicyFleet> = self.at_each_value().iter().filter_map(|(_, fleets)| self.best(fleets)).collect();
        let row = |f: &PolicyFleet| {
            let mark = if best.iter().any(|best| std::ptr::eq(*best, f)) { ">" } else { "" };
            let swept = f.sweep.iter().map(|s| s.value.clone());
            let policy = [f.router.clone(), Mark::beside(&f.policy, marks(f.bound))];
            let lead = [mark.to_owned()].into_iter().chain(swept).chain(policy);
            let money = |of: Option<f64>| of.map_or(String::new(), |cost| format!("{cost:.2}"));
            let one = f.one_req_s().map_or("no rate".to_owned(), |i| format!("{}/s", digits(i.mean, i.mean)));
            let numbers = [
                f.replicas.map_or_else(|| format!("more than {}", self.most_replicas), |n| n.to_string()),
                f.spread().map_or(String::new(), |(_, text)| text),
                f.gpus.map_or(String::new(), |n| n.to_string()),
                money(f.cost_hour),
                money(f.cost_mtok),
                one,
                f.perfect().map_or(String::new(), |p| format!("{} (mean {:.1})", p.peak, p.mean)),
            ];
            lead.chain(numbers).collect::<Vec<_>>()
        };
        plain_table(head, self.sorted().into_iter().map(row), ..0)
    }

    /// The fleets in the order of the table: by swept values in the order of the sweep, then by price per hour, the
    /// cheapest first.
    pub fn sorted(&self) -> Vec<&PolicyFleet> {
        let mut sorted: Vec<&PolicyFleet> = Vec::new();
        for (_, mut fleets) in self.at_each_value() {
            fleets.sort_by(|a, b| rank(a).total_cmp(&rank(b)));
            sorted.extend(fleets);
        }
        sorted
    }

    /// The fleets at each combination of swept values, with the values as text.
    pub fn at_each_value(&self) -> Vec<(String, Vec<&PolicyFleet>)> {
        by_swept_values(&self.fleets, |f| &f.sweep)
    }

    fn ways_table(&self) -> Table {
        let several = self.ways.iter().any(|way| !way.at.is_empty());
        let head = ["fleet", "an hour", "kept", "±", "p99 TTFT ms", "p99 TPOT ms", "mean E2E s"];
        let row = |way: &Alternative| {
            let ms = |of: Option<f64>| of.map_or(String::new(), |s| digits(1e3 * s, 1e3 * s));
            let numbers = [
                way.what.clone(),
                format!("{:.2}", way.cost_hour),
                format!("{:.1} %", 100.0 * way.kept.mean),
                spread(&way.kept, 100.0, 1, "").unwrap_or_default(),
                ms(way.ttft_p99_s),
                ms(way.tpot_p99_s),
                way.e2e_mean_s.map_or(String::new(), |s| digits(s, s)),
            ];
            several.then(|| way.at.clone()).into_iter().chain(numbers)
        };
        plain_table(several.then_some("at").into_iter().chain(head), self.ways.iter().map(row), ..0)
    }

    /// The notes below the table of fleets: whether any fleet keeps the SLO bounds, for which policies perfect scaling
    /// is not known, and how to read the table.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.fleets.iter().all(|f| f.replicas.is_none()) {
            notes.push(format!(
                "no fleet of up to {} replicas keeps the bounds: relax [slo], or raise fleet.most_replicas",
                self.most_replicas
            ));
        }
        let never: Vec<&str> =
            self.fleets.iter().filter(|f| f.one_req_s().is_none()).map(|f| f.policy.as_str()).collect();
        if !never.is_empty() {
            let mut never = never;
            never.dedup();
            notes.push(format!(
                "one replica keeps the bounds at no rate, or at every rate tried, so that its division is not known: {}",
                never.join(", ")
            ));
        }
        let fewer = |f: &&PolicyFleet| f.perfect().zip(f.replicas).is_some_and(|(p, n)| n < p.peak);
        notes.push(
            "by division: ⌈rate / what one replica carries⌉ in the busiest window, and its mean if the fleet followed the load".to_owned(),
        );
        if self.fleets.iter().any(|f| fewer(&f)) {
            notes.push(
                "fewer replicas than by division: this load ends before the queue of a fleet that is too small grows; a longer one tells more".to_owned(),
            );
        }
        notes.extend(Mark::notes(self.fleets.iter().map(|f| marks(f.bound))));
        notes.extend(self.host.iter().filter(|host| !host.turns).map(WithHost::stays));
        notes
    }
}

/// The key by which fleets are sorted: the price per hour; infinite if no tried fleet carries the load.
fn rank(f: &PolicyFleet) -> f64 {
    f.cost_hour.unwrap_or(f64::INFINITY)
}

impl Crossover {
    /// A sentence on the request rates at which drafting pays: up to a rate, from a rate on, at every tried rate, or at
    /// no tried rate. Drafting pays where it shortens the mean end-to-end latency.
    pub fn in_words(&self) -> String {
        let Crossover { at, policy, replicas, speedups, req_s } = self;
        let at = if at.is_empty() { String::new() } else { format!("{at}: ") };
        let drafts = format!("on {replicas} replica{} drafts by {policy}", if *replicas == 1 { "" } else { "s" });
        let (Some(first), Some(last)) = (speedups.first(), speedups.last()) else {
            return format!("{at}{drafts} were compared at no rate");
        };
        let by = |pick: fn(f64, f64) -> f64| speedups.iter().map(|s| s.1).reduce(pick).unwrap_or(1.0);
        let times = format!("requests take {:.2} to {:.2} times as long without them", by(f64::min), by(f64::max));
        let tried = format!("from {} to {} requests/s", digits(first.0, first.0), digits(last.0, last.0));
        let said = match req_s {
            Some(rate) if first.1 >= 1.0 => {
                format!("pay up to about {} requests/s and not above; tried {tried}, {times}", digits(*rate, *rate))
            }
            Some(rate) => {
                format!("pay from about {} requests/s on and not below; tried {tried}, {times}", digits(*rate, *rate))
            }
            None if first.1 >= 1.0 => format!("pay at every rate tried, {tried}: {times}"),
            None => format!("pay at no rate tried, {tried}: {times}"),
        };
        format!("{at}{drafts} {said}")
    }
}
