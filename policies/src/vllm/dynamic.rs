//! `vllm-dynamic`: vLLM's dynamic speculative decoding, a table from batch size to draft length.
//!
//! Source: vllm-project/vllm PR #32374, `docs/features/speculative_decoding/dynamic_speculative_decoding.md` and
//! `v1/spec_decode/dynamic/utils.py`; version 0.33.0 of `utils.py` was executed for the fixture that the tests compare
//! with (`tests/policies`).

use crate::definition::{About, BadParameter, Check, Definition, PolicyContext};
use crate::shared::by_batch_size::ByBatchSize;
use foretoken_sim::{MAX_SPEC_LEN, Speculation};
use serde::{Deserialize, Serialize};
use serde_json::{Map, json};

/// A range of batch sizes with its draft length: (first batch size, last batch size, draft tokens per request); both
/// ends are included.
pub type BatchRange = (u32, u32, u32);

/// Settings of the policy `vllm-dynamic`, which looks up the draft length by batch size. The default table is from
/// vLLM's documentation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct VllmDynamic {
    /// `[first, last, K]`: at batch sizes from `first` to `last` each request drafts K tokens, 0 to 32. Ranges ascend,
    /// and the first one starts at 1. A batch size between two ranges or above the last range has the K of the range
    /// before it.
    pub num_speculative_tokens_per_batch_size: Vec<BatchRange>,
}

impl Default for VllmDynamic {
    fn default() -> Self {
        VllmDynamic { num_speculative_tokens_per_batch_size: vec![(1, 64, 3), (65, 128, 1), (129, 512, 0)] }
    }
}

impl VllmDynamic {
    /// The table's largest draft length K: vLLM's `num_speculative_tokens`.
    fn longest(&self) -> u32 {
        self.num_speculative_tokens_per_batch_size.iter().map(|r| r.2).max().unwrap_or(0)
    }
}

impl Definition for VllmDynamic {
    fn about(&self) -> About {
        About {
            summary: "one length a step, from a table by batch size",
            source: "vLLM 0.33.0 num_speculative_tokens_per_batch_size (PR #32374), v1/spec_decode/dynamic/utils.py",
            sees: "number of requests scheduled in the step, prefilling ones included",
            differences: "vLLM drafts at the end of the step before, by its batch size; here a step's own batch \
                          counts. The token budget is charged with the last batch's K, so a longer K comes one step \
                          after the batch shrank, as in vLLM, and a shorter one at once, where vLLM still verifies \
                          what it has. num_speculative_tokens is the table's largest K. vLLM sorts ranges; here they \
                          must be sorted",
        }
    }

    fn asks_for(&self) -> Option<(&'static str, u32)> {
        Some(("num_speculative_tokens_per_batch_size", self.longest()))
    }

    fn check(&self) -> Result<(), BadParameter> {
        const KEY: &str = "num_speculative_tokens_per_batch_size";
        let check = Check("vllm-dynamic");
        let ranges = &self.num_speculative_tokens_per_batch_size;
        check.that(KEY, !ranges.is_empty(), || "is empty; give [first, last, K] for each range".into())?;
        check.that(KEY, ranges[0].0 == 1, || format!("the first range starts at {}, not at 1", ranges[0].0))?;
        let mut end = 0;
        for &(first, last, k) in ranges {
            check.that(KEY, first <= last, || format!("[{first}, {last}, {k}] ends before it starts"))?;
            check.that(KEY, first > end, || {
                format!("[{first}, {last}, {k}] does not start after {end}; sort the ranges")
            })?;
            check.that(KEY, k <= MAX_SPEC_LEN, || format!("{k} is more than {MAX_SPEC_LEN} draft tokens"))?;
            end = last;
        }
        check.that(KEY, self.longest() > 0, || "drafts nothing at any batch size; use autoregressive".into())
    }

    fn build(&self, context: &PolicyContext) -> Speculation {
        ByBatchSize::build_vllm(&self.num_speculative_tokens_per_batch_size, context.max_draft_len)
    }
}

/// Writes vLLM's `--speculative-config` for a table from batch size to draft length K, as one line of JSON.
/// `num_speculative_tokens` is the table's largest K; `method` and `model` are written if given.
///
/// # Errors
/// A table that [`VllmDynamic`] refuses, with the reason.
pub fn to_vllm_speculative_config(
    method: Option<&str>,
    model: Option<&str>,
    table: &[BatchRange],
) -> Result<String, BadParameter> {
    let policy = VllmDynamic { num_speculative_tokens_per_batch_size: table.to_vec() };
    policy.check()?;
    let mut config = Map::new();
    for (key, value) in [("method", method), ("model", model)] {
        if let Some(value) = value {
            config.insert(key.into(), value.into());
        }
    }
    config.insert("num_speculative_tokens".into(), policy.longest().into());
    config.insert("num_speculative_tokens_per_batch_size".into(), json!(table));
    Ok(serde_json::Value::Object(config).to_string())
}

#[cfg(test)]
#[path = "dynamic_recorded.rs"]
mod recorded;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::by_batch_size::tests::lengths;
    use proptest::prelude::*;
    use serde_json::Value;

    fn table(ranges: &[BatchRange]) -> VllmDynamic {
        VllmDynamic { num_speculative_tokens_per_batch_size: ranges.to_vec() }
    }

    /// vLLM's own implementation of the table: a dense list of the draft length K by batch size; a size in no range has
    /// the K of the size before.
    fn dense(ranges: &[BatchRange], max_batch_size: usize) -> Vec<u32> {
        let mut dense = vec![0; max_batch_size + 1];
        let mut last_k = 0;
        for (batch_size, k) in dense.iter_mut().enumerate().skip(1) {
            let covering = ranges.iter().find(|r| (r.0 as usize..=r.1 as usize).contains(&batch_size));
            last_k = covering.map_or(last_k, |r| r.2);
            *k = last_k;
        }
        dense
    }

    #[test]
    fn ranges_are_inclusive_and_gaps_inherit() {
        let policy = table(&[(1, 4, 5), (8, 9, 2), (12, 16, 0)]);
        let batches: Vec<(usize, u32)> = (1..=20).map(|n| (n, 0)).collect();
        assert_eq!(lengths(&policy, &batches), [5, 5, 5, 5, 5, 5, 5, 2, 2, 2, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn prefills_count() {
        assert_eq!(lengths(&table(&[(1, 4, 2), (5, 512, 0)]), &[(4, 0), (3, 1), (4, 1), (1, 4)]), [2, 2, 0, 0]);
    }

    #[test]
    fn bad_tables_say_what_would_be_right() {
        for (ranges, why) in [
            (&[][..], "is empty"),
            (&[(2, 4, 3)], "starts at 2, not at 1"),
            (&[(1, 4, 3), (4, 8, 1)], "does not start after 4"),
            (&[(1, 4, 3), (9, 8, 1)], "ends before it starts"),
            (&[(1, 4, 33)], "33 is more than 32"),
            (&[(1, 4, 0)], "use autoregressive"),
        ] {
            let error = table(ranges).check().expect_err("refused");
            assert!(error.key == "num_speculative_tokens_per_batch_size" && error.why.contains(why), "{error}");
        }
    }

    #[test]
    fn the_documentations_config_is_written() {
        let ranges = VllmDynamic::default().num_speculative_tokens_per_batch_size;
        let written = to_vllm_speculative_config(Some("eagle"), None, &ranges).unwrap();
        let read: Value = serde_json::from_str(&written).unwrap();
        assert_eq!(
            read,
            json!({
                "method": "eagle",
                "num_speculative_tokens": 3,
                "num_speculative_tokens_per_batch_size": [[1, 64, 3], [65, 128, 1], [129, 512, 0]],
            })
        );
        // vLLM's configuration was read back. Its table of draft lengths gives the policy from which it was written.
        let ranges = read["num_speculative_tokens_per_batch_size"].clone();
        let policy = json!({ "num_speculative_tokens_per_batch_size": ranges });
        assert_eq!(serde_json::from_value::<VllmDynamic>(policy).unwrap(), VllmDynamic::default());
        assert!(to_vllm_speculative_config(None, None, &[(3, 4, 1)]).is_err());
    }

    proptest! {
        #[test]
        fn the_lookup_is_vllms_dense_table(
            cuts in prop::collection::btree_set(2u32..60, 0..8),
            gaps in prop::collection::vec(0u32..4, 9),
            ks in prop::collection::vec(0u32..=8, 9),
            batch_size in 1usize..70,
        ) {
            let starts: Vec<u32> = [1].into_iter().chain(cuts).collect();
            let ranges: Vec<BatchRange> = starts.iter().enumerate().map(|(i, &first)| {
                let next = starts.get(i + 1).copied().unwrap_or(64);
                (first, (next - 1).saturating_sub(gaps[i]).max(first), ks[i])
            }).collect();
            let policy = table(&ranges);
            prop_assume!(policy.check().is_ok());
            prop_assert_eq!(lengths(&policy, &[(batch_size, 0)]), vec![dense(&ranges, 70)[batch_size]]);
        }
    }
}
