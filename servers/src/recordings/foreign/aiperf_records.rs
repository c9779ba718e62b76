//! Reads `profile_export.jsonl` of NVIDIA's AIPerf: the requests of a run, one JSON object per line. AIPerf writes it
//! with `--export-level records`. A request has what its server reported about its drafts, as vLLM does with
//! `--per-request-spec-decode-metrics`.
//!
//! The format is from the released source of AIPerf 0.13.0, `post_processors/record_export_jsonl_writer.py` (the line),
//! `common/models/record_models.py` (`MetricRecordInfo`) and `common/models/spec_decode_models.py` (the counts).

use super::json;
use super::number::Amount;
use crate::recordings::unread::Unread;
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::collections::BTreeMap;
use std::path::Path;

const HINT: &str =
    "give a profile_export.jsonl of AIPerf 0.13 (--export-level records); remove a line that was cut off";

/// A request of the measured phase that succeeded.
#[derive(Clone, Debug, PartialEq)]
pub struct AiperfRequest {
    /// When the request was sent, seconds since 1970.
    pub start_s: f64,
    /// Number of prompt tokens.
    pub input: u32,
    pub output: u32,
    /// The request's rounds, as (drafted tokens, accepted tokens, number of rounds). Empty without speculation.
    pub rounds: Vec<(u32, u32, u64)>,
    /// False if the rounds drafted several lengths and the file does not say which: each round then counts with the
    /// longest draft.
    pub one_length: bool,
}

#[derive(Deserialize)]
struct Raw {
    metadata: Metadata,
    metrics: Metrics,
    spec_decode_acceptance: Option<Counts>,
    error: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct Metadata {
    request_start_ns: u64,
    benchmark_phase: Option<String>,
}

#[derive(Deserialize)]
struct Metrics {
    input_sequence_length: Option<Metric>,
    output_sequence_length: Option<Metric>,
}

#[derive(Deserialize)]
struct Metric {
    value: Amount,
}

#[derive(Deserialize)]
struct Counts {
    acceptance_histogram: BTreeMap<u32, u64>,
    num_draft_tokens: u64,
    num_spec_tokens: Option<u32>,
    per_step_accepted: Option<Vec<u32>>,
    per_step_drafted: Option<Vec<u32>>,
}

/// Reads the requests of the measured phase from the content `bytes`, in its order. Requests that failed are left out.
/// `path` is the file's name in errors.
pub fn parse(path: &Path, bytes: &[u8]) -> Result<Vec<AiperfRequest>, Unread> {
    let mut requests = Vec::new();
    for (line, raw) in json::values::<Raw>(path, bytes, HINT)? {
        let warm_up = raw.metadata.benchmark_phase.is_some_and(|phase| phase != "profiling");
        if raw.error.is_some() || warm_up {
            continue;
        }
        let wrong = |what: String| Unread::line(path, line, what, HINT);
        let tokens = |name: &str, metric: Option<Metric>| match metric.map(|m| m.value.0) {
            Some(n) if n >= 0.0 && n <= f64::from(u32::MAX) && n.fract() == 0.0 => Ok(n as u32),
            Some(n) => Err(wrong(format!("metrics.{name}.value is {n}, and not a number of tokens"))),
            None => Err(wrong(format!("has no metrics.{name}"))),
        };
        let (rounds, one_length) =
            raw.spec_decode_acceptance.map_or(Ok((Vec::new(), true)), |c| c.rounds()).map_err(wrong)?;
        requests.push(AiperfRequest {
            start_s: raw.metadata.request_start_ns as f64 / 1e9,
            input: tokens("input_sequence_length", raw.metrics.input_sequence_length)?,
            output: tokens("output_sequence_length", raw.metrics.output_sequence_length)?,
            rounds,
            one_length,
        });
    }
    Ok(requests)
}

/// Equal rounds: (draft tokens, accepted ones, number of rounds).
type Rounds = (u32, u32, u64);

impl Counts {
    /// The rounds, and whether their draft lengths are known.
    fn rounds(self) -> Result<(Vec<Rounds>, bool), String> {
        let (most, steps) = self.acceptance_histogram.iter().fold((0, 0u64), |(most, steps), (&accepted, &n)| {
            (if n > 0 { accepted.max(most) } else { most }, steps.saturating_add(n))
        });
        if let (Some(accepted), Some(drafted)) = (&self.per_step_accepted, &self.per_step_drafted) {
            let same = accepted.len() == drafted.len() && accepted.len() as u64 == steps;
            if !same || accepted.iter().zip(drafted).any(|(a, d)| a > d) {
                return Err("per_step_accepted contradicts per_step_drafted or acceptance_histogram".into());
            }
            return Ok((drafted.iter().zip(accepted).map(|(&d, &a)| (d, a, 1)).collect(), true));
        }
        let longest = self.num_spec_tokens.unwrap_or(most).max(most);
        if most > self.num_spec_tokens.unwrap_or(most) {
            return Err(format!("a round accepted {most} drafts, but num_spec_tokens is {longest}"));
        }
        let one_length = self.num_draft_tokens == u64::from(longest).saturating_mul(steps);
        Ok((self.acceptance_histogram.into_iter().map(|(accepted, n)| (longest, accepted, n)).collect(), one_length))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::recordings::foreign::testing::{of, with};

    /// Made-up values in the form of AIPerf 0.13.0: a warm-up, a request with totals, one with its steps, a failed one.
    pub(in crate::recordings::foreign) const GOOD: &str =
        include_str!("../../../../fuzz/seeds/aiperf-records/four.jsonl");

    #[test]
    fn requests_have_their_rounds() {
        let requests = of(GOOD.as_bytes(), parse).unwrap();
        let [totals, steps] = &requests[..] else { panic!("{requests:?}") };
        assert_eq!((totals.start_s, totals.input, totals.output), (2.0, 64, 20));
        assert_eq!((&totals.rounds[..], totals.one_length), (&[(3, 0, 4), (3, 1, 2), (3, 3, 3)][..], true));
        assert_eq!((&steps.rounds[..], steps.one_length), (&[(3, 2, 1), (1, 1, 1), (3, 0, 1)][..], true));
        let varying = with(GOOD, "\"num_draft_tokens\": 27", "\"num_draft_tokens\": 20");
        assert!(!of(&varying, parse).unwrap()[0].one_length);
    }

    #[test]
    fn counts_that_cannot_be_are_refused() {
        for (from, to, error) in [
            ("\"num_spec_tokens\": 3", "\"num_spec_tokens\": 2", "f, line 2: a round accepted 3 drafts"),
            ("\"per_step_drafted\": [3, 1, 3]", "\"per_step_drafted\": [1, 1, 3]", "f, line 3: per_step_accepted"),
            ("{\"value\": 64", "{\"value\": 6.4", "f, line 2: metrics.input_sequence_length.value is 6.4"),
            ("\"output_sequence_length\": {\"value\": 20", "\"x\": {\"value\": 20", "f, line 2: has no metrics.output"),
        ] {
            let found = of(&with(GOOD, from, to), parse).unwrap_err();
            assert!(found.starts_with(error), "{found}");
        }
    }
}
