//! Why a policy is slower or faster than plain (autoregressive) decoding. The difference of the mean end-to-end
//! latencies is split into the parts of which a request's latency consists, such as waiting or draft passes
//! (docs/model.md 14.1).

use crate::Cell;
use foretoken_sim::metrics::{Interval, Lived, PARTS};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A policy compared with plain decoding. Each number is a difference between a run of the policy and a run of plain
/// decoding with the same seed: the mean over seeds, with its interval.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Why {
    /// Mean E2E of the policy − mean E2E of plain decoding, seconds.
    pub difference_s: Interval,
    /// The difference as a share of the mean E2E of plain decoding; negative if the policy is faster.
    pub share: f64,
    /// The mean difference in each part of the latency (such as waiting or draft passes), seconds, by the part's name.
    /// The differences sum to `difference_s`.
    pub parts_s: BTreeMap<String, Interval>,
    /// A sentence that says whether the policy is slower or faster, and names the part that contributes most.
    pub mostly: String,
}

/// For each part of the latency: (key, heading, explanation, words for a sentence if the part is longer than with plain
/// decoding, words if it is shorter). The order is the order of the table's columns.
pub const WORDS: [(&str, &str, &str, &str, &str); 8] = [
    (
        "plain",
        "plain\npasses",
        "target passes, as long as they take with one token a request: fewer passes give less",
        "more target passes",
        "fewer target passes",
    ),
    ("drafts", "draft\npasses", "draft passes", "draft passes", "fewer draft passes"),
    (
        "verify", "verify\naccepted", "what accepted drafts add to target passes",
        "verifying drafts that were accepted", "less verification",
    ),
    (
        "rejected", "verify\nrejected", "what rejected drafts and padding add to target passes",
        "verifying drafts that were rejected", "less verification",
    ),
    (
        "prompts", "prompts\n", "what prompts add to target passes", "prompts in the same steps",
        "fewer prompts in the same steps",
    ),
    ("host", "host\n", "the device waits for the host", "time of the host", "less time of the host"),
    (
        "waiting", "waiting\n", "from arrival until a step takes the request in", "waiting in the queue",
        "less waiting in the queue",
    ),
    (
        "kv_lost",
        "KV\nlost",
        "waiting after a preemption, and computing the lost tokens again",
        "KV that was lost to preemptions",
        "less KV lost to preemptions",
    ),
];

impl Why {
    /// Compares the runs of a policy, one per seed, with the runs of plain decoding with the same seeds. `None` if a
    /// run of plain decoding is missing, or if a run did not record the parts of latencies or finished no request. Runs
    /// on a device do not record these parts.
    pub fn of(own: &[&Cell], plain: &[&Cell]) -> Option<Why> {
        let pair = |own: &&Cell| {
            let plain = plain.iter().find(|plain| plain.key().seed == own.key().seed)?;
            Some((own.summary.lived?, plain.summary.lived?))
        };
        let pairs: Vec<(Lived, Lived)> = own.iter().map(pair).collect::<Option<_>>()?;
        let paired = |of: &dyn Fn(&Lived) -> f64| {
            Interval::of(&pairs.iter().map(|(own, plain)| of(own) - of(plain)).collect::<Vec<f64>>())
        };
        let difference_s = paired(&Lived::sum_s)?;
        let base = pairs.iter().map(|(_, plain)| plain.sum_s()).sum::<f64>() / pairs.len() as f64;
        let parts = PARTS.iter().map(|(name, of)| Some(((*name).to_owned(), paired(of)?)));
        let mut why = Why {
            difference_s,
            share: if base > 0.0 { difference_s.mean / base } else { 0.0 },
            parts_s: parts.collect::<Option<_>>()?,
            mostly: String::new(),
        };
        why.mostly = why.sentence(&own.first()?.key().policy);
        Some(why)
    }

    /// The mean difference to plain decoding in the part of the latency called `key`, seconds; 0 for an unknown key.
    pub fn part_s(&self, key: &str) -> f64 {
        self.parts_s.get(key).map_or(0.0, |part| part.mean)
    }

    /// A sentence that says whether `policy` is slower or faster, and names the part that contributes most.
    fn sentence(&self, policy: &str) -> String {
        let difference = self.difference_s.mean;
        let (sign, how) = if difference > 0.0 { (1.0, "slower") } else { (-1.0, "faster") };
        let most = WORDS.iter().max_by(|a, b| (sign * self.part_s(a.0)).total_cmp(&(sign * self.part_s(b.0))));
        let Some(most) = most.filter(|most| sign * self.part_s(most.0) > 0.0) else {
            return format!("{policy} takes as long as plain decoding.");
        };
        let reason = if difference > 0.0 { most.3 } else { most.4 };
        let (percent, amount) = (100.0 * self.share.abs(), 1e3 * self.part_s(most.0));
        format!(
            "{policy} is {percent:.1} % {how} than plain decoding, mostly because of {reason} ({amount:+.1} ms a request)."
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;

    fn cell(seed: u64, lived: Lived) -> Cell {
        let mut cell = fixtures::report(1, &[], &[], 1, 3).cells.remove(0);
        (cell.entry.key.seed, cell.summary.lived) = (seed, Some(lived));
        cell
    }

    #[test]
    fn the_words_are_for_the_parts() {
        assert_eq!(WORDS.map(|w| w.0), PARTS.map(|p| p.0));
    }

    #[test]
    fn the_parts_sum_to_the_difference() {
        let plain = [
            cell(1, Lived { decoding_s: 1.0, host_s: 0.1, ..Lived::default() }),
            cell(2, Lived { decoding_s: 1.2, host_s: 0.1, waiting_s: 0.3, ..Lived::default() }),
        ];
        let own = [
            cell(1, Lived { decoding_s: 0.6, drafting_s: 0.5, rejected_s: 0.2, host_s: 0.1, ..Lived::default() }),
            cell(
                2,
                Lived {
                    decoding_s: 0.7,
                    drafting_s: 0.6,
                    rejected_s: 0.3,
                    host_s: 0.2,
                    kv_lost_s: 0.1,
                    ..Lived::default()
                },
            ),
        ];
        // The runs of plain decoding may be in another order of seeds.
        let (own, plain) = ([&own[0], &own[1]], [&plain[1], &plain[0]]);
        let why = Why::of(&own, &plain).unwrap();
        let sum: f64 = why.parts_s.values().map(|part| part.mean).sum();
        // The mean latency of the policy minus that of plain decoding is 1.4 s − 1.1 s with seed 1, and 1.9 s − 1.6 s
        // with seed 2.
        assert!((sum - why.difference_s.mean).abs() < 1e-12 && (sum - 0.3).abs() < 1e-12, "{sum}");
        assert!((why.share - 0.3 / 1.35).abs() < 1e-12);
        let says = "x is 22.2 % slower than plain decoding, mostly because of draft passes (+550.0 ms a request).";
        assert_eq!((why.sentence("x").as_str(), why.mostly.starts_with("autoregressive is 22.2 %")), (says, true));
        let back = Why::of(&plain, &own).unwrap().sentence("x");
        assert_eq!(
            back,
            "x is 18.2 % faster than plain decoding, mostly because of fewer draft passes (-550.0 ms a request)."
        );
        assert_eq!(Why::of(&own, &own).unwrap().sentence("x"), "x takes as long as plain decoding.");
        assert_eq!(Why::of(&own, &plain[..1]), None);
        assert_eq!(Why::of(&[], &plain), None);
    }
}
