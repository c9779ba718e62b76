//! An answer as a table.

use crate::answer::{Answer, Capacity};
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
        let peak = self.capacities.iter().flat_map(|c| &c.seeds).map(|s| s.peak).fold(0.0, f64::max);
        if let Some([from, to]) = self.window_s {
            writeln!(text, "rates are those of the seconds {from} to {to}, as the experiment has them: they are stretched with the load")
                .expect("a string grows");
        } else if peak > VARIES {
            writeln!(text, "the load changes in time: {peak:.1} times the mean rate in its busiest twentieth. Rates are means; capacity.window_s asks for one stretch of it")
                .expect("a string grows");
        }
        text
    }
}

/// A load whose busiest twentieth has more than this many times the mean rate changes in time.
const VARIES: f64 = 1.6;

/// A policy at its swept values.
pub fn name(c: &Capacity) -> String {
    let values: Vec<String> = c.sweep.iter().map(|s| format!("{} = {}", s.path, s.value)).collect();
    if values.is_empty() { c.policy.clone() } else { format!("{}, {}", c.policy, values.join(", ")) }
}

/// Without zeros behind.
fn trimmed(x: f64) -> String {
    let text = format!("{x:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
