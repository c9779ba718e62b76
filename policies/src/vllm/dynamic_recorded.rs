//! Compares the policy `vllm-dynamic` with recorded results of vLLM's lookup: the draft length at every batch size, and
//! the tables that vLLM refuses.

use super::*;
use crate::recorded::histories;
use crate::shared::by_batch_size::tests::lengths;

#[derive(Deserialize)]
struct Recorded {
    table: Vec<BatchRange>,
    /// Largest batch size for which the recording looked up vLLM's draft length.
    most: usize,
    /// vLLM's draft lengths from batch size 1 on, run-length encoded as (length, number of batch sizes); `None` if vLLM
    /// refused the table.
    lookup: Option<Vec<(u32, usize)>>,
}

#[test]
fn lengths_and_refusals_are_vllms() {
    let all: Vec<Recorded> = histories("vllm-table.jsonl.zst");
    let (mut taken, mut refused) = (0, 0);
    for recorded in &all {
        // vLLM sorts the ranges of batch sizes that it is given, so they are sorted here. vLLM accepts a table that
        // never drafts; `VllmDynamic::check` refuses such a table.
        let mut ranges = recorded.table.clone();
        ranges.sort_by_key(|r| r.0);
        let policy = VllmDynamic { num_speculative_tokens_per_batch_size: ranges };
        match (&recorded.lookup, policy.check()) {
            (None, Err(_)) => refused += 1,
            (Some(_), Err(e)) => assert!(policy.longest() == 0 && e.why.contains("use autoregressive"), "{e}"),
            (None, Ok(())) => panic!("vLLM refuses {:?}", recorded.table),
            (Some(runs), Ok(())) => {
                let theirs: Vec<u32> = runs.iter().flat_map(|&(k, n)| vec![k; n]).collect();
                let batches: Vec<(usize, u32)> = (1..=recorded.most).map(|n| (n, 0)).collect();
                assert_eq!(lengths(&policy, &batches), theirs, "{:?}", recorded.table);
                taken += 1;
            }
        }
    }
    assert!(taken >= 280 && refused >= 100, "{taken} taken, {refused} refused");
}
