//! `vllm-context`: a table from batch size and context to draft length, an open proposal for vLLM.
//!
//! Source: vllm-project/vllm RFC #48627 and pull request #48944, as of September 2026. An entry
//! `[bs_lo, bs_hi, ctx_lo, ctx_hi, K]` of `num_speculative_tokens_per_batch_size` holds for batch sizes and contexts in
//! its ranges, both ends included. vLLM's own entry `[bs_lo, bs_hi, K]` holds for all contexts.

use crate::definition::{About, BadParameter, Check, Definition, PolicyContext};
use foretoken_sim::{BatchView, DraftLimits, DraftPlan, MAX_SPEC_LEN, SpecPolicy, Speculation};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// A cell of the table: (first batch size, last batch size, first and last token of context, draft tokens per request).
pub type ContextRange = (u32, u32, u32, u32, u32);

const KEY: &str = "num_speculative_tokens_per_batch_size";

/// Settings of the policy `vllm-context`, which looks up the draft length by batch size and context. The default table
/// is an example.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct VllmContext {
    /// `[first, last, ctx_first, ctx_last, K]`: at batch sizes from `first` to `last` and a mean context from
    /// `ctx_first` to `ctx_last` tokens each request drafts K tokens, 0 to 32. The entries of a range of batch sizes
    /// stand together and cover all contexts from 0 on. Ranges of batch sizes ascend, and the first one starts at 1. A
    /// batch size or a context beyond the last range has the K of the last one.
    pub num_speculative_tokens_per_batch_size: Vec<ContextRange>,
}

impl Default for VllmContext {
    fn default() -> Self {
        let table = vec![(1, 64, 0, 1_048_576, 3), (65, 512, 0, 2047, 0), (65, 512, 2048, 1_048_576, 3)];
        VllmContext { num_speculative_tokens_per_batch_size: table }
    }
}

impl VllmContext {
    fn longest(&self) -> u32 {
        self.num_speculative_tokens_per_batch_size.iter().map(|r| r.4).max().unwrap_or(0)
    }
}

impl Definition for VllmContext {
    fn about(&self) -> About {
        About {
            summary: "one length a step, from a table by batch size and mean context",
            source: "vLLM RFC #48627 and PR #48944 (open): num_speculative_tokens_per_batch_size with a context axis",
            sees: "number of requests scheduled in the step, prefilling ones included; tokens of context of the \
                   decode requests",
            differences: "a step has one length, by the mean context of its decode requests: which context stands \
                          for a step is assumed. It runs as vLLM's EAGLE drafter does, without what vLLM's own table \
                          changes (piecewise graphs)",
        }
    }

    fn asks_for(&self) -> Option<(&'static str, u32)> {
        Some((KEY, self.longest()))
    }

    fn check(&self) -> Result<(), BadParameter> {
        let check = Check("vllm-context");
        let table = &self.num_speculative_tokens_per_batch_size;
        check.that(KEY, !table.is_empty(), || "is empty; give [first, last, ctx_first, ctx_last, K]".into())?;
        check.that(KEY, table[0].0 == 1, || format!("the first range starts at {}, not at 1", table[0].0))?;
        let mut before: Option<ContextRange> = None;
        for &entry @ (first, last, from, to, k) in table {
            let named = || format!("[{first}, {last}, {from}, {to}, {k}]");
            check.that(KEY, first <= last && from <= to, || format!("{} ends before it starts", named()))?;
            check.that(KEY, k <= MAX_SPEC_LEN, || format!("{k} is more than {MAX_SPEC_LEN} draft tokens"))?;
            let wanted = match before {
                Some(b) if (b.0, b.1) == (first, last) => b.3.saturating_add(1),
                _ => 0,
            };
            check.that(KEY, from == wanted, || format!("{}: its contexts must start at {wanted}", named()))?;
            let new_range = before.filter(|b| (b.0, b.1) != (first, last));
            check.that(KEY, new_range.is_none_or(|b| first > b.1), || {
                format!("{} does not start after {}; sort the ranges", named(), before.map_or(0, |b| b.1))
            })?;
            before = Some(entry);
        }
        check.that(KEY, self.longest() > 0, || "drafts nothing anywhere; use autoregressive".into())
    }

    fn build(&self, context: &PolicyContext) -> Speculation {
        let most = context.max_draft_len;
        let cells = self.num_speculative_tokens_per_batch_size.iter();
        let cells = cells.map(|&(first, _, from, _, k)| (first, from, k.min(most))).collect();
        Speculation::Policy(Box::new(Running { cells, last: None, longest: self.longest().min(most) }))
    }
}

/// The policy while the engine runs.
struct Running {
    /// (First batch size, first token of context, draft length) of each cell, ascending.
    cells: Vec<(u32, u32, u32)>,
    last: Option<u32>,
    longest: u32,
}

impl Running {
    fn length(&self, batch_size: u32, context: u32) -> u32 {
        let below = &self.cells[..self.cells.partition_point(|cell| cell.0 <= batch_size)];
        let first = below.last().map_or(1, |cell| cell.0);
        let of_range = |cell: &&(u32, u32, u32)| cell.0 == first && cell.1 <= context;
        below.iter().rfind(of_range).map_or(0, |cell| cell.2)
    }
}

impl SpecPolicy for Running {
    /// The length of the last batch is counted, as with vLLM's table by batch size.
    fn limits(&self) -> DraftLimits<'_> {
        DraftLimits::chain(self.last.unwrap_or(self.longest)).up_to(self.longest)
    }

    fn propose(&mut self, batch: &BatchView, plan: &mut DraftPlan) {
        let mean = batch.context_sum / (batch.len() as u64).max(1);
        let length = self.length(batch.len() as u32 + batch.prefill.chunks, mean.min(u32::MAX.into()) as u32);
        plan.fill(length);
        self.last = Some(length);
    }
}

/// Writes the `--speculative-config` that the RFC proposes, as one line of JSON. A range of batch sizes with one length
/// for all contexts is written as vLLM's own entry of three numbers. `method` and `model` are written if given.
///
/// # Errors
/// A table that [`VllmContext`] refuses, with the reason.
pub fn to_rfc_48627(method: Option<&str>, model: Option<&str>, table: &[ContextRange]) -> Result<String, BadParameter> {
    let policy = VllmContext { num_speculative_tokens_per_batch_size: table.to_vec() };
    policy.check()?;
    let entries = table.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)).flat_map(|range| match range {
        [(first, last, _, _, k)] => vec![json!([first, last, k])],
        cells => cells.iter().map(|cell| json!(cell)).collect(),
    });
    let entries: Vec<Value> = entries.collect();
    let mut config = Map::new();
    for (key, value) in [("method", method), ("model", model)] {
        config.extend(value.map(|value| (key.to_owned(), value.into())));
    }
    config.insert("num_speculative_tokens".into(), policy.longest().into());
    config.insert(KEY.into(), entries.into());
    Ok(Value::Object(config).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Batch, CONTEXT, Run};

    fn table(cells: &[ContextRange]) -> VllmContext {
        VllmContext { num_speculative_tokens_per_batch_size: cells.to_vec() }
    }

    #[test]
    fn batch_and_mean_context_choose_the_length() {
        let policy = table(&[(1, 2, 0, 9999, 5), (3, 8, 0, 999, 0), (3, 8, 1000, 9999, 4)]);
        policy.check().unwrap();
        let mut run = Run::of(&policy, &CONTEXT);
        let mut length = |contexts: &[u32]| {
            let n = contexts.len();
            let step = run.step(&Batch::new(contexts, &vec![8; n]), |_, _| 0.9, &vec![8; n]);
            assert!(step.draft_len.iter().all(|&d| d == step.draft_len[0]), "one length for the batch");
            step.draft_len[0]
        };
        assert_eq!(length(&[50, 50]), 5);
        assert_eq!(length(&[50, 50, 50]), 0);
        // The mean is 1,000 and then 999.
        assert_eq!(length(&[100, 900, 2000]), 4);
        assert_eq!(length(&[100, 900, 1997]), 0);
        assert_eq!(length(&[20_000; 9]), 4);
    }

    #[test]
    fn bad_tables_say_what_would_be_right() {
        for (cells, why) in [
            (&[][..], "is empty"),
            (&[(2, 4, 0, 9, 3)], "starts at 2, not at 1"),
            (&[(1, 4, 5, 9, 3)], "contexts must start at 0"),
            (&[(1, 4, 0, 9, 3), (1, 4, 12, 20, 1)], "contexts must start at 10"),
            (&[(1, 4, 0, 9, 3), (4, 8, 0, 9, 1)], "does not start after 4"),
            (&[(1, 4, 9, 0, 3)], "ends before it starts"),
            (&[(1, 4, 0, 9, 33)], "33 is more than 32"),
            (&[(1, 4, 0, 9, 0)], "use autoregressive"),
        ] {
            let error = table(cells).check().expect_err("refused");
            assert!(error.key == KEY && error.why.contains(why), "{error}");
        }
        assert_eq!(VllmContext::default().check(), Ok(()));
    }

    /// The RFC's form: five numbers where the context matters, vLLM's own three where it does not.
    #[test]
    fn the_proposed_config_is_written() {
        let cells = VllmContext::default().num_speculative_tokens_per_batch_size;
        let read: Value = serde_json::from_str(&to_rfc_48627(Some("eagle3"), None, &cells).unwrap()).unwrap();
        let entries = json!([[1, 64, 3], [65, 512, 0, 2047, 0], [65, 512, 2048, 1_048_576, 3]]);
        assert_eq!(
            read,
            json!({ "method": "eagle3", "num_speculative_tokens": 3, "num_speculative_tokens_per_batch_size": entries })
        );
        assert!(to_rfc_48627(None, None, &[(3, 4, 0, 9, 1)]).is_err());
    }
}
