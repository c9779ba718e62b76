//! The `[observe]` table of an experiment: how `foretoken observe` sends requests to a real server.

use crate::spec::document::{Document, Path};
use crate::spec::problem::Result;
use crate::spec::prompts::Prompts;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The `[observe]` table: settings of `foretoken observe`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ObserveSpec {
    /// Name of the model on the server; absent: the only model that the server serves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The prompts of the requests. A server with another tokenizer may see other prompt lengths than the workload
    /// has; the recording keeps the lengths that the server reports.
    pub prompts: Prompts,
    /// Whether prompts are sent as token ids or as text.
    pub send: Send,
    /// Number of tokens in the model's vocabulary. With `prompts = "random"`, token ids below this number are drawn.
    pub vocab: u32,
    /// Softmax temperature with which the server samples, ≥ 0; 0 is greedy decoding.
    pub temperature: f64,
    /// Whether answers must have the workload's output lengths, even if the model would end them earlier (the field
    /// `ignore_eos` of a request). Not every server can do this.
    pub ignore_eos: bool,
    /// Number of requests that are sent one after the other before the clock starts, with prompts of their own. They
    /// are not recorded.
    pub warm_up_requests: u32,
    /// Time after the start of the run at which no more requests are sent, seconds, 0.001 to 2592000; absent: all
    /// requests are sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_s: Option<f64>,
    /// Most requests in flight at a time, at least 1; further requests wait in the client. Absent: any number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_in_flight: Option<u32>,
    /// Longest time that an answer may take from the sending of its request to its end, seconds, 0.001 to 2592000. An
    /// answer that takes longer has failed.
    pub timeout_s: f64,
    /// Most times that a request is sent again after the server refused it for the moment (HTTP 429 or 503) or the
    /// connection failed.
    pub retries: u32,
    /// Factor on the speed of arrivals, 0.000001 to 1000000: with 10, requests arrive ten times as fast as in the
    /// workload.
    pub time_scale: f64,
    /// Further fields of the JSON of each request, such as `{ top_k = 1 }`. A field of the same name as a usual field
    /// replaces it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(with = "BTreeMap<String, serde_json::Value>")]
    pub extra: BTreeMap<String, toml::Value>,
}

/// The least value of `run_s` (when an observation stops sending) and of `timeout_s` (how long an answer may take): a
/// millisecond, in seconds. The most is `LONGEST_S`, thirty days.
const LEAST_S: f64 = 1e-3;
const LONGEST_S: f64 = 30.0 * 86_400.0;
/// Largest `time_scale`: a trace is played at most this number of times as fast, or as slow.
const MOST_SCALE: f64 = 1e6;

/// The form in which prompts are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Send {
    /// As token ids. A text is sent as one id per byte, which is the tokenizer of the shipped pair.
    #[default]
    TokenIds,
    /// As text, which the server tokenizes.
    Text,
}

impl Default for ObserveSpec {
    fn default() -> Self {
        ObserveSpec {
            model: None,
            prompts: Prompts::default(),
            send: Send::default(),
            vocab: 256,
            temperature: 0.0,
            ignore_eos: true,
            warm_up_requests: 4,
            run_s: None,
            max_in_flight: None,
            timeout_s: 600.0,
            retries: 0,
            time_scale: 1.0,
            extra: BTreeMap::new(),
        }
    }
}

impl ObserveSpec {
    /// Checks every value of the `[observe]` table that serde cannot check.
    pub fn check(&self, doc: &Document) -> Result<()> {
        let problem_at = |key: &str, message: String| {
            doc.problem_at(&Path::of("observe").key(key), format!("observe.{key}: {message}"))
        };
        let spans = [
            ("timeout_s", Some(self.timeout_s), LEAST_S..=LONGEST_S),
            ("run_s", self.run_s, LEAST_S..=LONGEST_S),
            ("time_scale", Some(self.time_scale), 1.0 / MOST_SCALE..=MOST_SCALE),
        ];
        for (key, given, range) in spans {
            if let Some(x) = given.filter(|x| !range.contains(x)) {
                let (least, most) = (range.start(), range.end());
                return Err(problem_at(key, format!("{x} is out of range")).help(format!("expected {least} to {most}")));
            }
        }
        if !(self.temperature >= 0.0 && self.temperature.is_finite()) {
            return Err(
                problem_at("temperature", format!("{} is no temperature", self.temperature)).help("0 is greedy")
            );
        }
        if self.max_in_flight == Some(0) {
            return Err(
                problem_at("max_in_flight", "with 0 nothing is ever sent".into()).help("leave it out for any number")
            );
        }
        if self.prompts == Prompts::Random && (self.send == Send::Text || self.vocab == 0) {
            let message = "random prompts are token ids below observe.vocab".to_owned();
            return Err(problem_at("prompts", message).help("send = \"token-ids\", or prompts = \"families\" as text"));
        }
        Ok(())
    }
}
