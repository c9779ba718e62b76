//! What a server's `/metrics` reported during a run: the growth of counters, and the engine's configuration.
//!
//! Names are vLLM's (0.32 and 0.33: `v1/metrics/loggers.py`, `v1/spec_decode/metrics.py`) and llama.cpp's (b11434).
//! Both have the same names for counters of drafts. Neither exports the number of drafted tokens by
//! position. The counters therefore give the acceptance probability at each position only if all requests have equally
//! many draft tokens in all steps.

use crate::recordings::bounds::{MOST_BLOCK_SIZE, MOST_BLOCKS, MOST_COUNT};
use crate::recordings::recording::{Event, Recording, Sample};
use foretoken_sim::MAX_SPEC_LEN;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// A server's metrics of a run. The field of a counter has the counter's growth during the run. A field is `None` if
/// the server does not export it, or if its value cannot be true.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metrics {
    /// Number of rounds during the run. A round is one request's draft tokens of one step.
    pub drafts: Option<u64>,
    pub draft_tokens: Option<u64>,
    pub accepted_tokens: Option<u64>,
    /// `accepted_per_pos[i]` is the number of tokens accepted during the run at draft position i (from 0), over all
    /// requests and steps.
    pub accepted_per_pos: Vec<u64>,
    /// Number of preemptions during the run: requests that lost their KV and were computed again.
    pub preemptions: Option<u64>,
    /// Number of tokens that were looked up in the server's prefix cache during the run.
    pub prefix_queries: Option<u64>,
    /// Number of tokens that were found in the server's prefix cache during the run.
    pub prefix_hits: Option<u64>,
    /// Number of blocks of the server's KV pool.
    pub num_gpu_blocks: Option<u32>,
    /// Number of tokens in a block of the server's KV pool.
    pub block_size: Option<u32>,
    /// True if a counter fell during the run. The server was then restarted, and the growth of counters is unknown.
    pub reset: bool,
    /// One message per value of the server's metrics that cannot be true. The value itself is treated as missing.
    pub doubts: Vec<String>,
}

/// Prefixes of the names of the server's metrics that a recording keeps.
pub const KEPT: [&str; 3] = ["vllm:", "sglang:", "llamacpp:"];

impl Metrics {
    pub fn of(recording: &Recording) -> Metrics {
        let sampled = recording.events.iter().filter_map(|event| match event {
            Event::Metrics { samples, .. } => Some(samples.as_slice()),
            _ => None,
        });
        Metrics::grown(sampled, most_rounds(recording))
    }

    /// The metrics of everything that a server did since its start, from one reading.
    pub fn since_start(samples: &[Sample]) -> Metrics {
        Metrics::grown([&[], samples].into_iter(), u64::MAX)
    }

    fn grown<'a>(sampled: impl Iterator<Item = &'a [Sample]>, most_rounds: u64) -> Metrics {
        // A reading is the set of values that the client read from the server's metrics at one time. The first reading
        // has all values; later readings have only the values that changed.
        let mut readings = sampled.map(by_name);
        let Some(first) = readings.next() else { return Metrics::default() };
        let (mut last, mut reset) = (first.clone(), false);
        for reading in readings {
            reset |= reading.iter().any(|(n, v)| base(n).ends_with("_total") && last.get(n).is_some_and(|b| v < b));
            last.extend(reading);
        }
        let sum = |reading: &BTreeMap<&str, f64>, wanted: &dyn Fn(&str) -> bool| {
            reading.iter().filter(|(n, _)| wanted(n)).map(|(_, v)| *v).reduce(|a, b| a + b)
        };
        let growth_of = |wanted: &dyn Fn(&str) -> bool| {
            let end = sum(&last, wanted)?;
            Some((end - sum(&first, wanted).unwrap_or(0.0)).max(0.0).round() as u64)
        };
        let growth = |name: &str| growth_of(&|n| base(n) == name);
        let drafting = |name: &str| growth_of(&|n| counter_of_drafts(n) == Some(name));
        let mut doubts = Vec::new();
        let mut config = |wanted: &str, range: RangeInclusive<u64>| {
            let info = last.keys().find(|n| base(n) == "vllm:cache_config_info")?;
            let n = label(info, wanted)?.parse::<u64>().ok()?;
            if !range.contains(&n) {
                doubts.push(format!("{wanted} = {n}, where {} to {} are possible", range.start(), range.end()));
                return None;
            }
            Some(n as u32)
        };
        let num_gpu_blocks = config("num_gpu_blocks", 2..=MOST_BLOCKS.into());
        let block_size = config("block_size", 1..=MOST_BLOCK_SIZE.into());
        let per_pos = (0..MAX_SPEC_LEN).map_while(|position| {
            let at = position.to_string();
            growth_of(&|n| {
                counter_of_drafts(n) == Some("accepted_tokens_per_pos_total")
                    && label(n, "position") == Some(at.as_str())
            })
        });
        let mut metrics = Metrics {
            drafts: drafting("drafts_total"),
            draft_tokens: drafting("draft_tokens_total"),
            accepted_tokens: drafting("accepted_tokens_total"),
            accepted_per_pos: per_pos.collect(),
            preemptions: growth("vllm:num_preemptions_total"),
            // llama.cpp counts the prompt tokens that it computed and those that it found in a slot.
            prefix_queries: growth_of(&|n| {
                matches!(
                    base(n),
                    "vllm:prefix_cache_queries_total"
                        | "llamacpp:prompt_tokens_total"
                        | "llamacpp:prompt_tokens_cached_total"
                )
            }),
            prefix_hits: growth_of(&|n| {
                matches!(base(n), "vllm:prefix_cache_hits_total" | "llamacpp:prompt_tokens_cached_total")
            }),
            num_gpu_blocks,
            block_size,
            reset,
            doubts,
        };
        metrics.leave_out_what_cannot_be(most_rounds);
        metrics
    }

    /// Sets counters of the server with impossible values to `None` and adds messages about them to `doubts`. If one of
    /// the counters of drafting cannot be true, all counters of drafting are removed, with one message.
    fn leave_out_what_cannot_be(&mut self, most_rounds: u64) {
        let counters = [
            ("preemptions", &mut self.preemptions),
            ("tokens looked up in the prefix cache", &mut self.prefix_queries),
            ("tokens found in the prefix cache", &mut self.prefix_hits),
        ];
        for (what, counter) in counters {
            if let Some(n) = counter.filter(|n| *n > MOST_COUNT) {
                self.doubts.push(format!("{n} {what}, where {MOST_COUNT} are the most"));
                *counter = None;
            }
        }
        let rounds = self.drafts.unwrap_or(0);
        let drafted = self.draft_tokens.unwrap_or(0);
        let accepted = self.accepted_tokens.unwrap_or(0).max(self.accepted_per_pos.iter().copied().max().unwrap_or(0));
        // Each round emits one token in addition to the accepted draft tokens, so the lengths of the answers limit the
        // number of rounds.
        let doubt = if rounds > most_rounds {
            format!("{rounds} rounds of drafting, where the requests that were sent have at most {most_rounds}")
        } else if drafted > rounds * u64::from(MAX_SPEC_LEN) {
            format!("{drafted} drafted tokens in {rounds} rounds, where a round has at most {MAX_SPEC_LEN}")
        } else if accepted > drafted {
            format!("{accepted} accepted tokens of {drafted} drafted ones")
        } else {
            return;
        };
        self.doubts.push(doubt);
        (self.drafts, self.draft_tokens, self.accepted_tokens) = (None, None, None);
        self.accepted_per_pos.clear();
    }

    /// Element `j` is the number of rounds that accepted j tokens, for j from 0 to K. K is the number of draft
    /// positions that the server exports. `None` if the mean number of draft tokens of a round is not K, if there were
    /// no rounds, if a counter fell, or if the counters are missing.
    pub fn rounds_of_one_length(&self) -> Option<Vec<u64>> {
        let (drafts, tokens) = (self.drafts?, self.draft_tokens?);
        let k = self.accepted_per_pos.len() as u64;
        if self.reset || drafts == 0 || drafts.checked_mul(k) != Some(tokens) {
            return None;
        }
        let at_least = |n: usize| if n == 0 { drafts } else { self.accepted_per_pos.get(n - 1).copied().unwrap_or(0) };
        Some((0..=self.accepted_per_pos.len()).map(|n| at_least(n).saturating_sub(at_least(n + 1))).collect())
    }
}

/// Upper bound on the number of rounds during the run: two rounds for each requested token, plus 10,000 rounds, because
/// the server may serve other clients too.
fn most_rounds(recording: &Recording) -> u64 {
    const BESIDES: u64 = 10_000;
    let sent = recording.events.iter().filter_map(|event| match event {
        Event::Sent { request, .. } => recording.head.asked.get(*request as usize),
        _ => None,
    });
    let tokens: u64 = sent.map(|asked| u64::from(asked.output_len)).sum();
    2 * tokens + BESIDES
}

fn by_name(samples: &[Sample]) -> BTreeMap<&str, f64> {
    samples.iter().map(|s| (s.name.as_str(), s.value)).collect()
}

/// The name of a server's metric without its labels.
fn base(name: &str) -> &str {
    name.split_once('{').map_or(name, |(base, _)| base)
}

/// The name of a counter of drafts, without the beginning that all of them have; `None` for another metric.
fn counter_of_drafts(name: &str) -> Option<&str> {
    let (engine, counter) = base(name).split_once(":spec_decode_num_")?;
    matches!(engine, "vllm" | "llamacpp").then_some(counter)
}

/// The sum of a metric's values over its labels; `None` if the server does not export it.
pub fn total(samples: &[Sample], name: &str) -> Option<f64> {
    samples.iter().filter(|s| base(&s.name) == name).map(|s| s.value).reduce(|a, b| a + b)
}

/// A label of a metric, of the first of a server's engines.
pub fn label_of<'a>(samples: &'a [Sample], name: &str, wanted: &str) -> Option<&'a str> {
    let sample = samples.iter().find(|s| base(&s.name) == name)?;
    label(&sample.name, wanted)
}

/// The value of a label of a server's metric; names have the form `name{a="x",b="y"}`.
fn label<'a>(name: &'a str, label: &str) -> Option<&'a str> {
    let (_, labels) = name.split_once('{')?;
    let wanted = format!("{label}=\"");
    // Another label may end in this one's name.
    let whole = |at: &usize| *at == 0 || labels[..*at].ends_with(',');
    let start = labels.match_indices(&wanted).map(|(at, _)| at).find(whole)? + wanted.len();
    labels[start..].split_once('"').map(|(value, _)| value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recordings::recording::Head;
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
    fn rounds_of_several_lengths_give_no_acceptance_by_position() {
        let m = of(&[&[], &[(DRAFTS, 100.0), (TOKENS, 150.0), (FIRST, 70.0), (SECOND, 40.0)]]);
        assert_eq!(m.rounds_of_one_length(), None);
    }

    #[test]
    fn a_counter_that_falls_is_a_restart() {
        assert!(of(&[&[(DRAFTS, 10.0)], &[(DRAFTS, 3.0)], &[(DRAFTS, 30.0)]]).reset);
        assert_eq!(of(&[]), Metrics::default());
    }

    #[test]
    fn impossible_values_count_as_missing() {
        const MOST: f64 = 4_294_967_295.0;
        const HITS: &str = "vllm:prefix_cache_hits_total";
        let blocks = |size, n| format!("vllm:cache_config_info{{block_size=\"{size}\",num_gpu_blocks=\"{n}\"}}");
        let (none, many) = (blocks("0", "512"), blocks("16", "4294967295"));
        let rounds = |drafts, tokens, first| vec![(DRAFTS, drafts), (TOKENS, tokens), (FIRST, first)];
        for (last, said) in [
            (vec![(none.as_str(), 1.0)], "block_size = 0, where 1 to 65536 are possible"),
            (vec![(many.as_str(), 1.0)], "num_gpu_blocks = 4294967295, where 2 to 16777216 are possible"),
            (rounds(MOST, 3.0 * MOST, 5.0), "4294967295 rounds of drafting, where the requests that were sent have at"),
            (rounds(10.0, 10_000.0, 5.0), "10000 drafted tokens in 10 rounds, where a round has at most 32"),
            (rounds(10.0, 10.0, 1e300), "18446744073709551615 accepted tokens of 10 drafted ones"),
            (vec![(HITS, 1e300)], "18446744073709551615 tokens found in the prefix cache"),
        ] {
            let m = of(&[&[], &last]);
            assert!(m.doubts.len() == 1 && m.doubts[0].contains(said), "{said}: {:?}", m.doubts);
            assert_eq!((m.drafts, m.prefix_hits, m.rounds_of_one_length()), (None, None, None));
        }
        let half = of(&[&[], &[(none.as_str(), 1.0)]]);
        assert_eq!((half.block_size, half.num_gpu_blocks), (None, Some(512)), "what can be is believed");
    }
}
