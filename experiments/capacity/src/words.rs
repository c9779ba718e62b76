//! An answer as a table.

use crate::answer::{Answer, Capacity};
use foretoken_sim::metrics::Interval;
use std::fmt::Write;

impl Answer {
    /// What is asked, in words.
    pub fn question(&self) -> String {
        let slo = self.capacities.iter().flat_map(|c| &c.seeds).map(|s| s.slo).next().unwrap_or_default();
        let bound = |name: &str, s: Option<f64>| s.map(|s| format!("{name} within {} ms", trimmed(1e3 * s)));
        let bounds: Vec<String> = [bound("TTFT", slo.ttft_s), bound("TPOT", slo.tpot_s), bound("E2E", slo.e2e_s)]
            .into_iter()
            .flatten()
            .collect();
        let own = if bounds.is_empty() { "their own bounds".to_owned() } else { bounds.join(", ") };
        let window = self.window_s.map_or(String::new(), |[a, b]| format!(", of the seconds {a} to {b}"));
        format!("{} % of requests{window} keep {own}", trimmed(100.0 * self.share))
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
        if peak > VARIES && self.window_s.is_none() {
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
