//! What a server's `/metrics` said of a run: counters as their growth, and what the engine is configured with.
//!
//! Names are vLLM's (0.32 and 0.33: `v1/metrics/loggers.py`, `v1/spec_decode/metrics.py`). Drafted tokens by position are not
//! exported: acceptance by position given that a position was drafted follows from them only where all rounds are of one length.

use crate::recording::{Event, Recording, Sample};
use std::collections::BTreeMap;

/// What the metrics say of a run. `None` where the server does not have them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metrics {
    /// Rounds of drafting.
    pub drafts: Option<u64>,
    /// Tokens drafted.
    pub draft_tokens: Option<u64>,
    /// Drafted tokens that were accepted.
    pub accepted_tokens: Option<u64>,
    /// The same by position in the round, from the first.
    pub accepted_per_pos: Vec<u64>,
    /// Requests that lost their place.
    pub preemptions: Option<u64>,
    /// Tokens looked up in the prefix cache.
    pub prefix_queries: Option<u64>,
    /// Tokens found there.
    pub prefix_hits: Option<u64>,
    /// Blocks of the KV pool.
    pub num_gpu_blocks: Option<u32>,
    /// Tokens in a block.
    pub block_size: Option<u32>,
    /// Did a counter fall while it ran? Then the server was started again, and nothing can be said of the growth.
    pub reset: bool,
}

const PER_POS: &str = "vllm:spec_decode_num_accepted_tokens_per_pos_total";

/// Prefixes of the metrics that are kept of a server.
pub const KEPT: [&str; 2] = ["vllm:", "sglang:"];

impl Metrics {
    /// Of the metrics that a recording has.
    pub fn of(recording: &Recording) -> Metrics {
        let all = recording.events.iter().filter_map(|event| match event {
            Event::Metrics { samples, .. } => Some(samples.as_slice()),
            _ => None,
        });
        // The first reading has all values, the others those that changed.
        let mut readings = all.map(by_name);
        let Some(first) = readings.next() else { return Metrics::default() };
        let (mut last, mut reset) = (first.clone(), false);
        for reading in readings {
            reset |= reading.iter().any(|(n, v)| base(n).ends_with("_total") && last.get(n).is_some_and(|b| v < b));
            last.extend(reading);
        }
        let of = |all: &BTreeMap<&str, f64>, wanted: &dyn Fn(&str) -> bool| {
            all.iter().filter(|(n, _)| wanted(n)).map(|(_, v)| *v).reduce(|a, b| a + b)
        };
        let growth_of = |wanted: &dyn Fn(&str) -> bool| {
            let end = of(&last, wanted)?;
            Some((end - of(&first, wanted).unwrap_or(0.0)).max(0.0).round() as u64)
        };
        let growth = |name: &str| growth_of(&|n| base(n) == name);
        let config = |wanted: &str| {
            let info = last.keys().find(|n| base(n) == "vllm:cache_config_info")?;
            label(info, wanted)?.parse().ok()
        };
        let per_pos = (0..).map_while(|position: usize| {
            let at = position.to_string();
            growth_of(&|n| base(n) == PER_POS && label(n, "position") == Some(at.as_str()))
        });
        Metrics {
            drafts: growth("vllm:spec_decode_num_drafts_total"),
            draft_tokens: growth("vllm:spec_decode_num_draft_tokens_total"),
            accepted_tokens: growth("vllm:spec_decode_num_accepted_tokens_total"),
            accepted_per_pos: per_pos.collect(),
            preemptions: growth("vllm:num_preemptions_total"),
            prefix_queries: growth("vllm:prefix_cache_queries_total"),
            prefix_hits: growth("vllm:prefix_cache_hits_total"),
            num_gpu_blocks: config("num_gpu_blocks"),
            block_size: config("block_size"),
            reset,
        }
    }

    /// How many rounds accepted 0, 1, … K tokens, where all rounds drafted K. `None` where they did not, or nobody knows.
    pub fn rounds_of_one_length(&self) -> Option<Vec<u64>> {
        let (drafts, tokens) = (self.drafts?, self.draft_tokens?);
        let k = self.accepted_per_pos.len() as u64;
        if self.reset || drafts == 0 || tokens != drafts * k {
            return None;
        }
        let at_least = |n: usize| if n == 0 { drafts } else { self.accepted_per_pos.get(n - 1).copied().unwrap_or(0) };
        Some((0..=self.accepted_per_pos.len()).map(|n| at_least(n).saturating_sub(at_least(n + 1))).collect())
    }
}

fn by_name(samples: &[Sample]) -> BTreeMap<&str, f64> {
    samples.iter().map(|s| (s.name.as_str(), s.value)).collect()
}

/// A metric's name without its labels.
fn base(name: &str) -> &str {
    name.split_once('{').map_or(name, |(base, _)| base)
}

/// A label of a metric: names are kept as `name{a="x",b="y"}`.
fn label<'a>(name: &'a str, label: &str) -> Option<&'a str> {
    let (_, labels) = name.split_once('{')?;
    let start = labels.find(&format!("{label}=\""))? + label.len() + 2;
    labels[start..].split_once('"').map(|(value, _)| value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::Head;
    use foretoken_sim::Time;

    fn of(all: &[&[(&str, f64)]]) -> Metrics {
        let samples = |s: &&[(&str, f64)]| s.iter().map(|&(n, value)| Sample { name: n.into(), value }).collect();
        let events = all.iter().map(|s| Event::Metrics { at: Time::ZERO, samples: samples(s) }).collect();
        Metrics::of(&Recording { head: Head::default(), events, ending: None })
    }

    const DRAFTS: &str = "vllm:spec_decode_num_drafts_total{engine=\"0\"}";
    const TOKENS: &str = "vllm:spec_decode_num_draft_tokens_total{engine=\"0\"}";
    const FIRST: &str = "vllm:spec_decode_num_accepted_tokens_per_pos_total{engine=\"0\",position=\"0\"}";
    const SECOND: &str = "vllm:spec_decode_num_accepted_tokens_per_pos_total{engine=\"0\",position=\"1\"}";

    #[test]
    fn counters_are_read_as_growth() {
        let config = "vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"512\"}";
        let m = of(&[
            &[(DRAFTS, 10.0), (TOKENS, 20.0), (FIRST, 5.0), (SECOND, 4.0)],
            &[(DRAFTS, 110.0), (TOKENS, 220.0), (FIRST, 75.0), (SECOND, 44.0), (config, 1.0)],
        ]);
        assert_eq!((m.drafts, m.draft_tokens, m.accepted_per_pos.as_slice()), (Some(100), Some(200), &[70, 40][..]));
        assert_eq!((m.num_gpu_blocks, m.block_size, m.reset, m.preemptions), (Some(512), Some(16), false, None));
        assert_eq!(m.rounds_of_one_length(), Some(vec![30, 30, 40]));
    }

    #[test]
    fn rounds_of_several_lengths_say_nothing_by_position() {
        let m = of(&[&[], &[(DRAFTS, 100.0), (TOKENS, 150.0), (FIRST, 70.0), (SECOND, 40.0)]]);
        assert_eq!(m.rounds_of_one_length(), None);
    }

    #[test]
    fn a_counter_that_falls_is_a_restart() {
        assert!(of(&[&[(DRAFTS, 10.0)], &[(DRAFTS, 3.0)], &[(DRAFTS, 30.0)]]).reset);
        assert_eq!(of(&[]), Metrics::default());
    }
}
