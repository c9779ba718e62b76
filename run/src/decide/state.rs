//! The state of a server that `foretoken decide` reads: what a policy believes and observes in one step. Times are in
//! seconds.

use crate::spec::problem::{Problem, Result, nearest};
use foretoken_policies::{Belief, PassTimes, PolicySpec};
use foretoken_sim::{Coefficients, ContextReads, Drafting, MAX_SPEC_LEN, PassShape};
use serde::Deserialize;

/// The state of a server in one step (costs, requests, observations), and the policies that decide in it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// Time of a pass of the draft model = α · context tokens + γ · new tokens + δ; the coefficients are in seconds.
    draft: Coefficients,
    /// Time of a pass of the target model = α · context tokens + γ · new tokens + δ; the coefficients are in seconds.
    target: Coefficients,
    /// Does a verify pass read the context once per request, or once per verified position?
    #[serde(default)]
    context_reads: ContextReads,
    /// Does the draft model need one pass per draft token, or one pass for all draft tokens?
    #[serde(default)]
    drafting: Drafting,
    /// The most tokens that a policy may draft for a request.
    pub max_draft_len: u32,
    /// Probability that a draft token is accepted if all earlier draft tokens of the request in this step were
    /// accepted.
    #[serde(default = "acceptance")]
    pub acceptance_rate: f64,
    /// The confidence that policies assume for a token before it is drafted.
    #[serde(default = "confidence")]
    pub prev_confidence: f64,
    /// The TPOT bound of every request, seconds; `None` for no bound.
    #[serde(default)]
    pub slo_tpot_s: Option<f64>,
    /// The seed of policies that draw random numbers. The policy `random` draws by seed, step and request id. Here the
    /// step is 0, and the ids are 0, 1, ….
    #[serde(default)]
    pub seed: u64,
    /// For each past step, the oldest first, the number of accepted draft tokens of each request.
    #[serde(default)]
    pub history: Vec<Vec<u32>>,
    /// The decode requests of the step's batch.
    pub requests: Vec<Request>,
    pub policies: Vec<PolicySpec>,
    /// Measured pass times for policies with a cost table (pass times by number of tokens); `None`: the times in their
    /// tables are computed from α, γ, δ.
    #[serde(default)]
    tables: Option<Tables>,
}

/// A request that decodes in the step, as the user describes it to `foretoken decide`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Number of the request's tokens in the target's KV.
    pub context: u32,
    /// The request's category, for policies that choose by category; none by default.
    #[serde(default)]
    pub category: Option<String>,
    /// The draft model's confidence (its probability) for each token that it would draft next for the request, in
    /// order.
    confidences: Vec<f64>,
}

impl Request {
    /// The draft model's confidence in each draft token of the request, in order.
    pub fn drafts(&self) -> Vec<f64> {
        self.confidences.clone()
    }
}

/// Measured pass times of the draft model and the target model, as `[tokens, seconds]`, ascending by tokens. A pass
/// between two entries takes the time of the larger entry. Beyond the last entry, the time grows in proportion to the
/// tokens.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Tables {
    draft_s: Vec<(u32, f64)>,
    target_s: Vec<(u32, f64)>,
}

fn acceptance() -> f64 {
    0.7
}

fn confidence() -> f64 {
    0.6
}

/// Largest allowed coefficient of a linear pass time, seconds. No machine is that slow, and up to this value all
/// results are finite.
const MOST_S: f64 = 1e6;
/// Shortest allowed target pass, seconds: one picosecond, the engine's unit of time.
const LEAST_S: f64 = 1e-12;

impl State {
    /// Reads and checks the state of a server that the user wrote. `text` is JSON; error messages call it `file`.
    pub fn parse(file: &str, text: &str) -> Result<State> {
        let mut json = serde_json::Deserializer::from_str(text);
        let state: State = serde_path_to_error::deserialize(&mut json).map_err(|e| {
            let (message, help) = explain(&e.path().to_string(), &e.inner().to_string());
            Problem::bad_input(format!("{file}: {message}")).help(help)
        })?;
        json.end().map_err(|e| Problem::bad_input(format!("{file}: something follows the state: {e}")))?;
        state.check().map_err(|(field, why)| Problem::bad_input(format!("{file}: {field}: {why}")))?;
        Ok(state)
    }

    /// The linear model of pass times that policies get, with the state's coefficients.
    pub fn belief(&self) -> Belief {
        let State { draft, target, context_reads, drafting, .. } = *self;
        Belief { draft, target, context_reads, drafting }
    }

    /// Checks all values of a server's state. The error is (the first field with an impossible value, the reason).
    fn check(&self) -> std::result::Result<(), (String, String)> {
        let fault = |field: String, why: String| Err((field, why));
        for (model, c) in [("draft", self.draft), ("target", self.target)] {
            for (key, value) in [("alpha_s", c.alpha_s), ("gamma_s", c.gamma_s), ("delta_s", c.delta_s)] {
                if !(0.0..=MOST_S).contains(&value) {
                    let why = format!("{value} is not a number of seconds from 0 to {MOST_S}");
                    return fault(format!("{model}.{key}"), why);
                }
            }
        }
        if self.max_draft_len > MAX_SPEC_LEN {
            let why = format!("{} is not a draft length from 0 to {MAX_SPEC_LEN}", self.max_draft_len);
            return fault("max_draft_len".into(), why);
        }
        for (field, value) in [("acceptance_rate", self.acceptance_rate), ("prev_confidence", self.prev_confidence)] {
            if !(0.0..=1.0).contains(&value) {
                return fault(field.into(), format!("{value} is not a probability from 0 to 1"));
            }
        }
        if let Some(slo) = self.slo_tpot_s.filter(|s| !(*s > 0.0 && s.is_finite())) {
            return fault("slo_tpot_s".into(), format!("{slo} is not a number of seconds above 0; null is no limit"));
        }
        for (i, batch) in self.history.iter().enumerate() {
            if let Some(j) = batch.iter().position(|&a| a > MAX_SPEC_LEN) {
                let why = format!("{} accepted drafts are more than {MAX_SPEC_LEN}", batch[j]);
                return fault(format!("history[{i}][{j}]"), why);
            }
        }
        if self.requests.is_empty() {
            return fault("requests".into(), "needs at least one decode request".into());
        }
        for (i, request) in self.requests.iter().enumerate() {
            let field = format!("requests[{i}].confidences");
            if request.confidences.len() < self.max_draft_len as usize {
                let (have, need) = (request.confidences.len(), self.max_draft_len);
                return fault(field, format!("{have} values, and max_draft_len = {need} needs at least {need}"));
            }
            if let Some(j) = request.confidences.iter().position(|c| !(*c > 0.0 && *c <= 1.0)) {
                return fault(format!("{field}[{j}]"), format!("{} is not in (0, 1]", request.confidences[j]));
            }
        }
        // The coefficients are checked with the shortest possible target pass: one new token of the request with the
        // least context.
        let least = self.requests.iter().map(|r| r.context).min().unwrap_or(0);
        if self.target.pass_s(f64::from(least), 1.0) < LEAST_S {
            let why = format!("a pass over 1 token after {least} takes no time, so that it has no goodput");
            return fault("target".into(), why);
        }
        if self.policies.is_empty() {
            return fault(
                "policies".into(),
                "the list is empty: name a policy, for example [{\"smartspec\": {}}]".into(),
            );
        }
        self.tables.as_ref().map_or(Ok(()), Tables::check)
    }
}

impl Tables {
    fn check(&self) -> std::result::Result<(), (String, String)> {
        for (name, table) in [("draft_s", &self.draft_s), ("target_s", &self.target_s)] {
            let field = format!("tables.{name}");
            if table.is_empty() {
                return Err((field, "needs at least one [tokens, seconds]".into()));
            }
            if table[0].0 == 0 || table.windows(2).any(|w| w[0].0 >= w[1].0) {
                return Err((field, "tokens must rise, from 1 or more".into()));
            }
            if let Some((n, s)) = table.iter().find(|(_, s)| !(*s > 0.0 && s.is_finite())) {
                return Err((field, format!("{s} at {n} tokens is not a number of seconds above 0")));
            }
        }
        Ok(())
    }
}

/// Turns serde's error `message` about the JSON value at `path` into a message and a hint.
fn explain(path: &str, message: &str) -> (String, String) {
    let policy = path.starts_with("policies[");
    if policy && (message.starts_with("expected value") || message.contains("unit variant")) {
        let why = format!("{path}: not a policy, which is one name with its settings");
        return (why, "write {\"smartspec\": {}}; {} are the defaults".into());
    }
    let place = if matches!(path, "." | "?") { String::new() } else { format!("{path}: ") };
    let quoted: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    let near = match quoted.split_first() {
        Some((given, known)) if message.starts_with("unknown") => nearest(given, known.iter().copied()),
        _ => None,
    };
    let help = match near {
        Some(near) => format!("did you mean `{near}`?"),
        None if policy => "foretoken policies list | show NAME".into(),
        None => "foretoken decide --help shows a whole state".into(),
    };
    (format!("{place}{message}"), help)
}

/// Time of a pass with `tokens` tokens, seconds, from a table of (tokens, seconds).
fn look_up(table: &[(u32, f64)], tokens: u64) -> f64 {
    match table.iter().find(|(n, _)| u64::from(*n) >= tokens) {
        Some((_, s)) => *s,
        None => table.last().map_or(0.0, |(n, s)| s * tokens as f64 / f64::from(*n)),
    }
}

impl PassTimes for State {
    fn draft_s(&self, shape: PassShape) -> f64 {
        self.tables.as_ref().map_or_else(|| self.belief().draft_s(shape), |t| look_up(&t.draft_s, shape.batched))
    }

    fn target_s(&self, shape: PassShape) -> f64 {
        self.tables.as_ref().map_or_else(|| self.belief().target_s(shape), |t| look_up(&t.target_s, shape.batched))
    }

    fn context_reads(&self) -> ContextReads {
        self.context_reads
    }
}
