//! The results of the search for the smallest fleet as text: the table of fleets, the comparison of three fleets with
//! and without drafts, the rates at which drafts begin or cease to pay, and notes.

use super::answer::{Crossover, FleetAnswer, PolicyFleet};
use crate::words::{digits, swept_in_words, trimmed};
use comfy_table::Table;
use foretoken_sim::metrics::Slo;
use std::fmt::Write;

impl FleetAnswer {
    /// The question as text, such as `99 % of requests keep TPOT within 50 ms`.
    pub fn question(&self) -> String {
        let bounds =
            [("TTFT", (|s| s.ttft_s) as fn(&Slo) -> Option<f64>), ("TPOT", |s| s.tpot_s), ("E2E", |s| s.e2e_s)];
        let slos = || self.fleets.iter().flat_map(|f| &f.seeds).map(|s| s.slo);
        let bound = |(name, of): (&str, fn(&Slo) -> Option<f64>)| {
            let (least, most) =
                slos().filter_map(|slo| of(&slo)).fold((f64::INFINITY, 0.0f64), |(l, m), s| (l.min(s), m.max(s)));
            let [from, to] = [least, most].map(|s| trimmed(1e3 * s));
            let words = if from == to { to } else { format!("{from} to {to}") };
            least.is_finite().then(|| format!("{name} within {words} ms"))
        };
        let bounds: Vec<String> = bounds.into_iter().filter_map(bound).collect();
        let kept = if bounds.is_empty() { "their own bounds".to_owned() } else { bounds.join(", ") };
        format!("{} % of requests keep {kept}", trimmed(100.0 * self.share))
    }

    /// What a GPU costs, in words; the lowest and the highest price if the price is swept.
    fn price(&self) -> String {
        let prices = || self.fleets.iter().map(|fleet| fleet.price_gpu_hour);
        let (least, most) = (prices().fold(f64::INFINITY, f64::min), prices().fold(0.0, f64::max));
        match least < most {
            true => format!("a GPU costs {least} to {most} an hour, as swept"),
            false => format!("a GPU costs {most} an hour"),
        }
    }

    /// The whole text: load, table, headlines, compared fleets, crossovers, notes and warnings.
    pub fn in_words(&self) -> String {
        let mut text = format!("{}: the fewest GPUs with which {} ({})\n", self.name, self.question(), self.source);
        let (mean, peak) = (self.load.mean(), self.load.peak());
        let load = &self.load;
        writeln!(
            text,
            "load: {} requests/s on average, {} in the busiest {:.0} s of {:.0} s; {}\n",
            digits(mean, mean),
            digits(peak, peak),
            load.window_s,
            load.span_s,
            self.price()
        )
        .expect("a string grows");
        writeln!(text, "{}", self.table()).expect("a string grows");
        for line in self.headlines() {
            writeln!(text, "{line}").expect("a string grows");
        }
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
        let mut table = plain_table();
        let swept: Vec<String> =
            self.fleets.first().map_or(&[][..], |f| &f.sweep).iter().map(|s| s.path.clone()).collect();
        let head =
            ["router", "policy", "replicas", "±", "GPUs", "an hour", "a million tokens", "one carries", "perfect"];
        table.set_header(swept.into_iter().chain(head.map(str::to_owned)));
        for f in self.sorted() {
            let lead = f.sweep.iter().map(|s| s.value.clone()).chain([f.router.clone(), f.policy.clone()]);
            let half = f.over_seeds.and_then(|i| i.half_width).filter(|half| *half > 0.0);
            let money = |of: Option<f64>| of.map_or(String::new(), |cost| format!("{cost:.2}"));
            let one = f.one_req_s().map_or("no rate".to_owned(), |i| format!("{}/s", digits(i.mean, i.mean)));
            let numbers = [
                f.replicas.map_or_else(|| format!("more than {}", self.most_replicas), |n| n.to_string()),
                half.map_or(String::new(), |half| format!("{half:.1}")),
                f.gpus.map_or(String::new(), |n| n.to_string()),
                money(f.cost_hour),
                money(f.cost_mtok),
                one,
                f.perfect().map_or(String::new(), |p| format!("{} (mean {:.1})", p.peak, p.mean)),
            ];
            table.add_row(lead.chain(numbers));
        }
        table
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

    fn at_each_value(&self) -> Vec<(String, Vec<&PolicyFleet>)> {
        let mut groups: Vec<(String, Vec<&PolicyFleet>)> = Vec::new();
        for f in &self.fleets {
            let at = swept_in_words(&f.sweep);
            match groups.iter_mut().find(|(value, _)| *value == at) {
                Some((_, group)) => group.push(f),
                None => groups.push((at, vec![f])),
            }
        }
        groups
    }

    /// A sentence on the cheapest fleet at each combination of swept values. If there are several combinations, a
    /// sentence on the cheapest fleet of all comes first.
    pub fn headlines(&self) -> Vec<String> {
        let groups = self.at_each_value();
        let mut lines: Vec<String> = groups
            .iter()
            .map(|(at, fleets)| if at.is_empty() { headline(fleets) } else { format!("{at}: {}", headline(fleets)) })
            .collect();
        let cheapest = self.fleets.iter().filter(|f| !f.bound && f.cost_hour.is_some());
        if let (true, Some(best)) = (groups.len() > 1, cheapest.min_by(|a, b| rank(a).total_cmp(&rank(b)))) {
            let at = swept_in_words(&best.sweep);
            lines.insert(0, format!("Cheapest of all: {} with {at}, {}.", best.called(), best.in_words()));
        }
        lines
    }

    fn ways_table(&self) -> Table {
        let mut table = plain_table();
        let several = self.ways.iter().any(|way| !way.at.is_empty());
        let head = ["fleet", "an hour", "kept", "±", "p99 TTFT ms", "p99 TPOT ms", "mean E2E s"];
        table.set_header(several.then_some("at").into_iter().chain(head));
        for way in &self.ways {
            let ms = |of: Option<f64>| of.map_or(String::new(), |s| digits(1e3 * s, 1e3 * s));
            let numbers = [
                way.what.clone(),
                format!("{:.2}", way.cost_hour),
                format!("{:.1} %", 100.0 * way.kept.mean),
                way.kept.half_width.map_or(String::new(), |half| format!("{:.1}", 100.0 * half)),
                ms(way.ttft_p99_s),
                ms(way.tpot_p99_s),
                way.e2e_mean_s.map_or(String::new(), |s| digits(s, s)),
            ];
            table.add_row(several.then(|| way.at.clone()).into_iter().chain(numbers));
        }
        table
    }

    fn notes(&self) -> Vec<String> {
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
                "one replica keeps the bounds at no rate, or at every rate tried, so that perfect scaling is not known: {}",
                never.join(", ")
            ));
        }
        let fewer = |f: &&PolicyFleet| f.perfect().zip(f.replicas).is_some_and(|(p, n)| n < p.peak);
        notes.push(
            "perfect: ⌈rate / what one replica carries⌉ in the busiest window, and its mean if the fleet followed the load".to_owned(),
        );
        if self.fleets.iter().any(|f| fewer(&f)) {
            notes.push(
                "fewer replicas than perfect scaling needs: this load ends before the queue of a fleet that is too small grows; a longer one tells more".to_owned(),
            );
        }
        notes
    }
}

fn plain_table() -> Table {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table
}

/// The sort key: the price per hour; infinite if no fleet carries the load.
fn rank(f: &PolicyFleet) -> f64 {
    f.cost_hour.unwrap_or(f64::INFINITY)
}

/// A sentence that compares the cheapest fleet that a server can run with the fleet without drafts. If no fleet keeps
/// the bounds, the sentence says so.
fn headline(fleets: &[&PolicyFleet]) -> String {
    let able = fleets.iter().filter(|f| !f.bound && f.replicas.is_some());
    let Some(best) = able.min_by(|a, b| rank(a).total_cmp(&rank(b))) else {
        return "no fleet keeps the bounds.".to_owned();
    };
    let mut sentence = format!("{} needs least: {}", best.called(), best.in_words());
    match fleets.iter().find(|f| f.baseline && !best.baseline) {
        Some(plain) if plain.replicas == best.replicas => sentence += ", as many as no drafting",
        Some(plain) => match plain.replicas {
            Some(n) => sentence += &format!("; no drafting needs {n}, {}", plain.in_words()),
            None => sentence += "; no drafting has no fleet that keeps the bounds",
        },
        None => {}
    }
    sentence + "."
}

impl PolicyFleet {
    fn called(&self) -> &str {
        if self.baseline { "no drafting" } else { &self.policy }
    }

    fn in_words(&self) -> String {
        match (self.replicas, self.gpus, self.cost_hour) {
            (Some(n), Some(gpus), Some(cost)) => {
                let each = if self.gpus_of_one == 1 { String::new() } else { format!(" of {} GPUs", self.gpus_of_one) };
                format!("{n} replicas{each} behind {}, {gpus} GPUs for {cost:.2} an hour", self.router)
            }
            _ => "no fleet".to_owned(),
        }
    }
}

impl Crossover {
    /// A sentence on the rates at which drafts are faster: up to a rate, from a rate on, at every tried rate, or at
    /// none.
    pub fn in_words(&self) -> String {
        let Crossover { at, policy, replicas, speedups, req_s } = self;
        let at = if at.is_empty() { String::new() } else { format!("{at}: ") };
        let fleet = format!("{at}on {replicas} replicas {policy}");
        let (Some(first), Some(last)) = (speedups.first(), speedups.last()) else {
            return format!("{fleet} was compared at no rate");
        };
        let rates = format!("from {} to {} requests/s", digits(first.0, first.0), digits(last.0, last.0));
        match req_s {
            Some(rate) if first.1 >= 1.0 => {
                format!(
                    "{fleet} is faster than no drafting up to {} requests/s, and slower above ({rates}, mean E2E)",
                    digits(*rate, *rate)
                )
            }
            Some(rate) => {
                format!(
                    "{fleet} is slower than no drafting up to {} requests/s, and faster above ({rates}, mean E2E)",
                    digits(*rate, *rate)
                )
            }
            None if first.1 >= 1.0 => {
                format!("{fleet} is faster than no drafting at every rate tried, {rates} (mean E2E)")
            }
            None => format!("{fleet} is slower than no drafting at every rate tried, {rates} (mean E2E)"),
        }
    }
}
