//! The `[observe]` table of an experiment: how `foretoken observe` sends requests to a real server.

use crate::document::{Document, Path};
use crate::problem::Result;
use crate::prompts::Prompts;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The `[observe]` table: settings of `foretoken observe`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ObserveSpec {
    /// The model's name on the server; absent: the only one that it serves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The prompts of the requests. A server with another tokenizer may see other prompt lengths than the workload
    /// has; the recording keeps the lengths that the server reports.
    pub prompts: Prompts,
    /// How prompts are sent.
    pub send: Send,
    /// Size of the model's vocabulary: `prompts = "random"` draws token ids below it.
    pub vocab: u32,
    /// Softmax temperature; 0 is greedy.
    pub temperature: f64,
    /// Must answers have the workload's lengths, even if the model would end them earlier? Not every server can do
    /// this.
    pub ignore_eos: bool,
    /// Requests sent one after the other before the clock starts.
    pub warm_up_requests: u32,
    /// Seconds after which no more requests are sent; absent: all are sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_s: Option<f64>,
    /// Most requests in flight at a time; further requests wait. Absent: any number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_in_flight: Option<u32>,
    /// Seconds that an answer may take as a whole.
    pub timeout_s: f64,
    /// How often a request is sent again if the server refused it for now (429, 503) or there was no connection.
    pub retries: u32,
    /// Trace seconds in a second: 10 plays a trace ten times as fast.
    pub time_scale: f64,
    /// Further fields of each request, such as `{ top_k = 1 }`; they may replace the usual ones.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(with = "BTreeMap<String, serde_json::Value>")]
    pub extra: BTreeMap<String, toml::Value>,
}

/// The range of `run_s` and `timeout_s`, seconds: a millisecond to thirty days.
const LEAST_S: f64 = 1e-3;
const LONGEST_S: f64 = 30.0 * 86_400.0;
/// A trace is played this many times as fast, or as slow, at most.
const MOST_SCALE: f64 = 1e6;

/// How prompts are sent.
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
    /// Checks every value that serde cannot.
    ///
    /// # Errors
    /// A time or the time scale is out of range, the temperature is negative or not finite, the bound on requests in
    /// flight is 0, or random prompts are to be sent as text or have no vocabulary.
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
