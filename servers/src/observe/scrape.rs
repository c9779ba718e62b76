//! Parses the text of a server's `/metrics` and selects the values that a recording keeps.

use crate::recordings::metrics::KEPT;
use crate::recordings::recording::Sample;
use prometheus_parse::{Scrape, Value};
use std::collections::HashMap;

/// Most values that are kept of one reading of a server's metrics. vLLM exports a few hundred.
const MOST_SAMPLES: usize = 10_000;

/// The counters and gauges about serving, from a server's metrics in Prometheus' text format. Their names start with
/// one of [`KEPT`]. Histograms are left out, because the client measures their quantities for each request.
pub fn samples(text: &str) -> Result<Vec<Sample>, String> {
    // The parser of metrics skips names with a colon without an error. The prefixes of the names are therefore replaced
    // before parsing and restored after it.
    let known = |line: &str| KEPT.iter().fold(line.to_owned(), |line, prefix| line.replace(prefix, &stand_in(prefix)));
    let lines = text.lines().map(|line| Ok::<String, std::io::Error>(known(line)));
    let scrape = Scrape::parse(lines).map_err(|e| format!("/metrics cannot be read: {e}"))?;
    let kept = |s: prometheus_parse::Sample| {
        let value = match s.value {
            Value::Counter(v) | Value::Gauge(v) | Value::Untyped(v) => v,
            Value::Histogram(_) | Value::Summary(_) => return None,
        };
        let prefix = KEPT.into_iter().find(|prefix| s.metric.starts_with(&stand_in(prefix)))?;
        let metric = s.metric.replacen(&stand_in(prefix), prefix, 1);
        (!metric.ends_with("_created") && value.is_finite()).then(|| {
            let mut labels: Vec<String> = s.labels.iter().map(|(name, value)| format!("{name}=\"{value}\"")).collect();
            labels.sort_unstable();
            let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
            Sample { name: metric + &labels, value }
        })
    };
    let samples: Vec<Sample> = scrape.samples.into_iter().filter_map(kept).collect();
    match samples.len() {
        n if n > MOST_SAMPLES => Err(format!("/metrics has {n} values, and at most {MOST_SAMPLES} are kept")),
        _ => Ok(samples),
    }
}

/// The name prefix of a metric, `prefix`, with its colon replaced by `_colon_`, so that the parser accepts the name.
fn stand_in(prefix: &str) -> String {
    prefix.replace(':', "_colon_")
}

/// The metrics of the reading `now` that the reading `before` lacks or has with another value. The first reading of a
/// run is returned as a whole, because `before` is then empty.
pub fn changed(before: &[Sample], now: &[Sample]) -> Vec<Sample> {
    let before: HashMap<&str, f64> = before.iter().map(|b| (b.name.as_str(), b.value)).collect();
    now.iter().filter(|s| before.get(s.name.as_str()) != Some(&s.value)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recordings::metrics::Metrics;
    use crate::recordings::recording::{Event, Head, Recording};
    use foretoken_sim::Time;

    const TEXT: &str = "\
# HELP vllm:num_preemptions_total Preemptions.
# TYPE vllm:num_preemptions_total counter
vllm:num_preemptions_total{engine=\"0\",model_name=\"m\"} 3.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{model_name=\"m\",engine=\"0\"} 0.25
# TYPE vllm:e2e_request_latency_seconds histogram
vllm:e2e_request_latency_seconds_bucket{le=\"0.3\"} 1.0
vllm:e2e_request_latency_seconds_bucket{le=\"+Inf\"} 2.0
# TYPE process_cpu_seconds_total counter
process_cpu_seconds_total 7.5
";

    #[test]
    fn metrics_about_serving_are_kept() {
        let all = samples(TEXT).unwrap();
        let named: Vec<(&str, f64)> = all.iter().map(|s| (s.name.as_str(), s.value)).collect();
        let expected = [
            ("vllm:num_preemptions_total{engine=\"0\",model_name=\"m\"}", 3.0),
            ("vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"m\"}", 0.25),
        ];
        assert_eq!(named, expected);
        let later = samples(&TEXT.replace(" 3.0", " 4.0")).unwrap();
        assert_eq!(changed(&all, &later).len(), 1);
        assert_eq!(changed(&all, &all), []);
    }

    /// The test's metrics were recorded from vLLM 0.32.0 with three draft tokens per request and step, after one
    /// request. Help texts and most histograms were removed.
    #[test]
    fn metrics_of_vllm_are_read() {
        let samples = samples(include_str!("../../fixtures/vllm-0.32-metrics.txt")).unwrap();
        assert!(samples.iter().all(|s| !s.name.contains("_created") && !s.name.contains("_bucket")), "{samples:?}");
        let reading = |samples| Event::Metrics { at: Time::ZERO, samples };
        let events = vec![reading(vec![]), reading(samples)];
        let m = Metrics::of(&Recording { head: Head::default(), events, ending: None });
        assert_eq!((m.drafts, m.draft_tokens, m.accepted_tokens), (Some(5), Some(15), Some(4)));
        assert_eq!(m.accepted_per_pos, [3, 1, 0]);
        assert_eq!((m.preemptions, m.prefix_queries, m.prefix_hits), (Some(0), Some(0), Some(0)));
        assert_eq!((m.block_size, m.reset), (Some(32), false));
        assert!(m.num_gpu_blocks.is_some_and(|n| n > 100));
    }

    /// The test's metrics were recorded from llama.cpp b11434 with three draft tokens per request and step, after
    /// four requests of the warm-up and eight others.
    #[test]
    fn metrics_of_llama_cpp_are_read() {
        let samples = samples(include_str!("../../fixtures/llama-cpp-b11434-metrics.txt")).unwrap();
        assert!(samples.iter().any(|s| s.name == "llamacpp:n_busy_slots_per_decode"), "{samples:?}");
        let reading = |samples| Event::Metrics { at: Time::ZERO, samples };
        let events = vec![reading(vec![]), reading(samples)];
        let m = Metrics::of(&Recording { head: Head::default(), events, ending: None });
        let (drafts, tokens, accepted) = (m.drafts.unwrap(), m.draft_tokens.unwrap(), m.accepted_tokens.unwrap());
        assert!(drafts > 40 && tokens > 2 * drafts && tokens < 3 * drafts, "some were shortened: {m:?}");
        assert_eq!((m.accepted_per_pos.len(), m.accepted_per_pos.iter().sum::<u64>()), (3, accepted));
        assert!(m.prefix_queries.is_some_and(|n| n >= 8 * 88) && m.prefix_hits == Some(0), "{m:?}");
        assert_eq!((m.preemptions, m.num_gpu_blocks, m.reset), (None, None, false));
    }

    #[test]
    fn an_html_page_is_no_metrics() {
        assert_eq!(samples("<html><body>404</body></html>").unwrap_or_default(), []);
    }
}
