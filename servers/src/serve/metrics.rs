//! The server's `/metrics` in Prometheus' text format, with vLLM's names (from `v1/metrics/loggers.py`,
//! `v1/spec_decode/metrics.py` and the buckets of `v1/metrics/buckets.py` of vLLM 0.32).

use foretoken_sim::online::Emitted;
use foretoken_sim::{EngineConfig, Load, MAX_SPEC_LEN};
use prometheus::core::Collector;
use prometheus::{
    Encoder, Gauge, GaugeVec, Histogram, HistogramOpts, IntCounter, IntCounterVec, Opts, Registry, TextEncoder,
};

const LATENCY: &[f64] = &[
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0,
    1920.0, 7680.0,
];
const FIRST_TOKEN: &[f64] = &[
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
    160.0, 640.0, 2560.0,
];
const INTER_TOKEN: &[f64] =
    &[0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0];

/// How a client's request ended, as the server's metrics count it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finished {
    /// The request reached the output length that the simulation gives it, or a stop string ended its answer.
    Stop,
    /// The request's answer has as many tokens as the client allowed (`max_tokens`).
    Length,
    /// The request's client left before the answer was complete.
    Abort,
}

/// All metrics that the server shows at `/metrics`.
pub struct Metrics {
    registry: Registry,
    running: Gauge,
    waiting: Gauge,
    kv_usage: Gauge,
    prompt_tokens: IntCounter,
    generation_tokens: IntCounter,
    preemptions: IntCounter,
    prefix_queries: IntCounter,
    prefix_hits: IntCounter,
    finished: IntCounterVec,
    drafts: IntCounter,
    draft_tokens: IntCounter,
    accepted_tokens: IntCounter,
    accepted_per_pos: Vec<IntCounter>,
    per_pos: IntCounterVec,
    ttft: Histogram,
    inter_token: Histogram,
    e2e: Histogram,
    queue: Histogram,
}

impl Metrics {
    /// Makes the server's metrics, all zero. `blocks` is the number of KV blocks that requests can use.
    pub fn new(model: &str, config: &EngineConfig, blocks: u32) -> Metrics {
        let labels = [("engine".to_owned(), "0".to_owned()), ("model_name".to_owned(), model.to_owned())];
        let registry = Registry::new_custom(None, Some(labels.into_iter().collect())).expect("two labels");
        let opts = |name: &str, help: &str| Opts::new(format!("vllm:{name}"), help);
        let gauge = |name, help| registered(&registry, Gauge::with_opts(opts(name, help)));
        let counter = |name, help| registered(&registry, IntCounter::with_opts(opts(name, help)));
        let counters = |name, help, label| registered(&registry, IntCounterVec::new(opts(name, help), &[label]));
        let histogram = |name: &str, help: &str, buckets: &[f64]| {
            let opts = HistogramOpts::new(format!("vllm:{name}"), help).buckets(buckets.to_vec());
            registered(&registry, Histogram::with_opts(opts))
        };
        let info = Opts::new("vllm:cache_config_info", "The KV cache.");
        let info =
            registered(&registry, GaugeVec::new(info, &["block_size", "enable_prefix_caching", "num_gpu_blocks"]));
        // vLLM's number of KV blocks includes the null block, which no request gets.
        let (size, caching) = (config.block_size.to_string(), if config.prefix_caching { "True" } else { "False" });
        info.with_label_values(&[size.as_str(), caching, &(blocks + 1).to_string()]).set(1.0);
        Metrics {
            running: gauge("num_requests_running", "Requests that run."),
            waiting: gauge("num_requests_waiting", "Requests that wait."),
            kv_usage: gauge("kv_cache_usage_perc", "Share of the KV cache in use, from 0 to 1."),
            prompt_tokens: counter("prompt_tokens_total", "Prompt tokens of requests that have a first token."),
            generation_tokens: counter("generation_tokens_total", "Output tokens."),
            preemptions: counter("num_preemptions_total", "Preemptions."),
            prefix_queries: counter("prefix_cache_queries_total", "Tokens looked up in the prefix cache."),
            prefix_hits: counter("prefix_cache_hits_total", "Tokens found in the prefix cache."),
            finished: counters("request_success_total", "Requests that ended.", "finished_reason"),
            drafts: counter("spec_decode_num_drafts_total", "Rounds with drafts."),
            draft_tokens: counter("spec_decode_num_draft_tokens_total", "Draft tokens."),
            accepted_tokens: counter("spec_decode_num_accepted_tokens_total", "Draft tokens that were accepted."),
            accepted_per_pos: Vec::new(),
            per_pos: counters(
                "spec_decode_num_accepted_tokens_per_pos_total", "Draft tokens that were accepted, by position.",
                "position",
            ),
            ttft: histogram("time_to_first_token_seconds", "From arrival to the first token.", FIRST_TOKEN),
            inter_token: histogram("inter_token_latency_seconds", "Between a request's emissions.", INTER_TOKEN),
            e2e: histogram("e2e_request_latency_seconds", "From arrival to the last token.", LATENCY),
            queue: histogram("request_queue_time_seconds", "From arrival until a request is scheduled.", LATENCY),
            registry,
        }
    }

    /// Counts the output tokens that one step emitted for one request. If the step verified draft tokens of the
    /// request, also counts the verified and the accepted draft tokens.
    pub fn emitted(&mut self, e: &Emitted) {
        self.generation_tokens.inc_by(e.tokens.into());
        if e.drafted == 0 {
            return;
        }
        self.drafts.inc();
        self.draft_tokens.inc_by(e.drafted.into());
        self.accepted_tokens.inc_by(e.accepted.into());
        while self.accepted_per_pos.len() < e.drafted.min(MAX_SPEC_LEN) as usize {
            let position = self.accepted_per_pos.len().to_string();
            self.accepted_per_pos.push(self.per_pos.with_label_values(&[position]));
        }
        self.accepted_per_pos.iter().take(e.accepted as usize).for_each(IntCounter::inc);
    }

    /// Records a request at its first token: its number of prompt tokens, how many of them the prefix cache had
    /// (`cached`; `None` without prefix caching), its time in the queue and its TTFT. Times are in seconds.
    pub fn first_token(&self, prompt_len: u32, cached: Option<u32>, queue_s: f64, ttft_s: f64) {
        self.prompt_tokens.inc_by(prompt_len.into());
        if let Some(cached) = cached {
            self.prefix_queries.inc_by(prompt_len.into());
            self.prefix_hits.inc_by(cached.into());
        }
        self.queue.observe(queue_s);
        self.ttft.observe(ttft_s);
    }

    /// Records the time between two steps that emitted tokens of the same request, in seconds.
    pub fn gap(&self, gap_s: f64) {
        self.inter_token.observe(gap_s);
    }

    /// Counts the end of a request. `e2e_s` is the request's end-to-end latency in seconds; `None` if its client left.
    pub fn ended(&self, how: Finished, e2e_s: Option<f64>) {
        let reason = match how {
            Finished::Stop => "stop",
            Finished::Length => "length",
            Finished::Abort => "abort",
        };
        self.finished.with_label_values(&[reason]).inc();
        e2e_s.iter().for_each(|&s| self.e2e.observe(s));
    }

    /// Returns the text of all metrics for `/metrics`. `waiting` is the number of waiting requests. It includes
    /// requests that have not reached the scheduler yet.
    pub fn text(&self, load: &Load, waiting: usize, preemptions: u64) -> String {
        self.running.set(load.running.into());
        self.waiting.set(waiting as f64);
        self.kv_usage.set(load.kv_use());
        self.preemptions.inc_by(preemptions.saturating_sub(self.preemptions.get()));
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text).expect("memory can be written");
        String::from_utf8(text).expect("the format is text")
    }
}

/// Adds `metric` to the registry, whose metrics `/metrics` shows, and returns the metric.
fn registered<M: Collector + Clone + 'static>(registry: &Registry, metric: prometheus::Result<M>) -> M {
    let metric = metric.expect("the name is valid");
    registry.register(Box::new(metric.clone())).expect("the name is used once");
    metric
}
