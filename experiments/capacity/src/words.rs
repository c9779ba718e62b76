//! An answer as a table.

use crate::answer::{Answer, Capacity};
use crate::load::Log;
use foretoken_sim::metrics::{Interval, Slo};
use std::fmt::Write;

impl Answer {
    /// What is asked, in words.
    pub fn question(&self) -> String {
        let bounds =
            [("TTFT", (|s| s.ttft_s) as fn(&Slo) -> Option<f64>), ("TPOT", |s| s.tpot_s), ("E2E", |s| s.e2e_s)];
        let bounds: Vec<String> = bounds.into_iter().filter_map(|(name, of)| self.bound(name, of)).collect();
        let own = if bounds.is_empty() { "their own bounds".to_owned() } else { bounds.join(", ") };
        let window = self.window_s.map_or(String::new(), |[a, b]| format!(", of the seconds {a} to {b}"));
        format!("{} % of requests{window} keep {own}", trimmed(100.0 * self.share))
    }

    /// A bound in words: where it is scaled, or swept, from the least to the greatest.
    fn bound(&self, name: &str, of: fn(&Slo) -> Option<f64>) -> Option<String> {
        let all = self.capacities.iter().flat_map(|c| &c.seeds).filter_map(|s| of(&s.slo));
        let (least, most) = all.fold((f64::INFINITY, 0.0f64), |(least, most), s| (least.min(s), most.max(s)));
        let [from, to] = [least, most].map(|s| trimmed(1e3 * s));
        match least.is_finite() {
            false => None,
            true if from == to => Some(format!("{name} within {to} ms")),
            true => Some(format!("{name} within {from} to {to} ms")),
        }
    }

    /// The table and what is to be known of it.
    pub fn in_words(&self) -> String {
        let mut table = comfy_table::Table::new();
        table.load_style(comfy_table::presets::NOTHING);
        let swept: Vec<String> =
            self.capacities.first().map_or(&[][..], |c| &c.sweep).iter().map(|s| s.path.clone()).collect();
        let head = ["policy".to_owned()].into_iter().chain(swept);
        table.set_header(head.chain(["requests/s", "±", "tokens/s a GPU", "seeds", "probes"].map(str::to_owned)));
        for c in &self.capacities {
            let value =
                |i: Option<Interval>, decimals: usize| i.map_or("none".into(), |i| format!("{:.decimals$}", i.mean));
            let half = |i: Option<Interval>| i.and_then(|i| i.half_width).map_or(String::new(), |h| format!("{h:.3}"));
            let probes: usize = c.seeds.iter().map(|s| s.probes.len()).sum();
            let lead = [c.policy.clone()].into_iter().chain(c.sweep.iter().map(|s| s.value.clone()));
            let numbers = [
                value(c.req_s, 3),
                half(c.req_s),
                value(c.tok_s_gpu, 0),
                c.seeds.len().to_string(),
                probes.to_string(),
            ];
            table.add_row(lead.chain(numbers));
        }
        let mut text = format!("{}: {} ({})\n\n{table}\n", self.name, self.question(), self.source);
        for c in &self.capacities {
            for note in c.notes() {
                writeln!(text, "{}: {note}", name(c)).expect("a string grows");
            }
        }
        for note in self.of_the_load() {
            writeln!(text, "{note}").expect("a string grows");
        }
        for warning in &self.warnings {
            writeln!(text, "warning: {warning}").expect("a string grows");
        }
        text
    }

    /// What is to be known of the requests: which ones of a log are run, and whether their rate changes.
    pub fn of_the_load(&self) -> Vec<String> {
        let seeds = || self.capacities.iter().flat_map(|c| c.seeds.iter().map(move |s| (c, s)));
        let mut notes: Vec<String> = Vec::new();
        let logs: Vec<(&Capacity, Log)> = seeds().filter_map(|(c, s)| Some((c, s.log?))).collect();
        for (c, log) in &logs {
            let words = log.in_words(self.window_s);
            let swept = values(c);
            // Where all logs are one, it is said once.
            let same = logs.iter().all(|(_, other)| other == log);
            let note = if same || swept.is_empty() { words } else { format!("{swept}: {words}") };
            if !notes.contains(&note) {
                notes.push(note);
            }
        }
        let peak = seeds().filter(|(_, s)| s.spread.changes).map(|(_, s)| s.spread.peak).fold(0.0, f64::max);
        if let Some([from, to]) = self.window_s {
            notes.push(format!("rates are those of the seconds {from} to {to} as the experiment has them: the window is stretched with the load"));
        } else if peak > 0.0 {
            notes.push(format!("the load changes in time: {peak:.1} times the mean rate in its busiest twentieth. Rates are means; capacity.window_s asks for one stretch of it"));
        }
        notes
    }
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

/// A policy at its swept values.
pub fn name(c: &Capacity) -> String {
    let values = values(c);
    if values.is_empty() { c.policy.clone() } else { format!("{}, {values}", c.policy) }
}

/// The swept values in words.
fn values(c: &Capacity) -> String {
    let values: Vec<String> = c.sweep.iter().map(|s| format!("{} = {}", s.path, s.value)).collect();
    values.join(", ")
}

/// Without zeros behind.
fn trimmed(x: f64) -> String {
    let text = format!("{x:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
