//! `foretoken export tensorrt-llm`: TensorRT-LLM's `speculative_config` for `trtllm-serve`.
//!
//! `draft_len_schedule` changed its meaning. In 1.1 and 1.2 a key is the smallest batch that has its length, 1 must be
//! a key, and only n-grams and draft models follow the schedule (NVIDIA/TensorRT-LLM#8194). From 1.3 on a key is the
//! largest batch that has its length, larger batches than the last key do not speculate, and EAGLE-3 and MTP follow it
//! too (#10860, #12262). In both the smallest key must have `max_draft_len`. Its classes want a GPU build, so the text
//! follows the fields of `llmapi/llm_args.py` and was not read by them.

use super::sweep::{SweepArgs, Swept, quoted};
use crate::commands::print;
use clap::{Args, ValueEnum};
use foretoken_run::spec::problem::{Problem, Result};

pub const EXAMPLES: &str = "Examples:
  foretoken export tensorrt-llm experiments/quickstart.toml --method eagle3 --model HEAD > speculation.yaml
  foretoken export tensorrt-llm experiments/quickstart.toml --batch-sizes 8 --method ngram --release 1.2

The lengths are found as `export vllm` finds them. trtllm-serve --config reads the file. A key of draft_len_schedule is
the first batch size of its length in 1.2, and the last one in 1.3, so --release must be the server's. The text follows
TensorRT-LLM's documented fields; its own classes, which need a GPU build, have not read it.";

#[derive(Debug, Args)]
pub struct TensorrtLlmArgs {
    #[command(flatten)]
    pub sweep: SweepArgs,
    /// TensorRT-LLM's release
    #[arg(long, value_enum, default_value_t = Release::V1_3)]
    pub release: Release,
}

/// A release with its own meaning of `draft_len_schedule`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Release {
    /// 1.1 and 1.2: a key is the smallest batch of its length
    #[value(name = "1.2")]
    V1_2,
    /// 1.3: a key is the largest batch of its length
    #[value(name = "1.3")]
    V1_3,
}

pub fn run(args: &TensorrtLlmArgs) -> Result<()> {
    print(&text(&args.sweep.run()?, args.release)?)
}

pub fn text(swept: &Swept, release: Release) -> Result<String> {
    let method = swept.method()?;
    let k = swept.longest();
    if k == 0 {
        return Err(Problem::bad_input("no length pays at any of these batch sizes: there is nothing to write")
            .help("start the server without speculative_config"));
    }
    let (kind, named) = match method {
        "eagle3" => ("Eagle3", true),
        "mtp" => ("MTP", false),
        "draft_model" => ("Draft_Target", true),
        "ngram" => ("NGram", false),
        _ => {
            return Err(Problem::bad_input(format!("no settings of TensorRT-LLM for the method {method}"))
                .help("there are settings for eagle3, mtp, draft_model and ngram"));
        }
    };
    let name = if release == Release::V1_2 { "1.2" } else { "1.3" };
    let mut text =
        format!("# TensorRT-LLM {name}, by its documented fields\nspeculative_config:\n  decoding_type: {kind}\n");
    let length = match (method, release) {
        ("mtp", Release::V1_2) => "num_nextn_predict_layers",
        _ => "max_draft_len",
    };
    text += &format!("  {length}: {k}\n");
    if named {
        text += &format!("  speculative_model: {}\n", quoted(swept.draft()?));
    }
    let schedule = schedule(swept, release)?;
    if !schedule.is_empty() {
        if release == Release::V1_2 && !["ngram", "draft_model"].contains(&method) {
            return Err(Problem::bad_input(format!(
                "TensorRT-LLM 1.2 drafts one length at all batch sizes with {kind}"
            ))
            .help("--release 1.3, or one of the --batch-sizes for one length"));
        }
        let pairs: Vec<String> = schedule.iter().map(|(batch, k)| format!("{batch}: {k}")).collect();
        text += &format!("  draft_len_schedule: {{{}}}\n", pairs.join(", "));
    }
    Ok(text)
}

/// The schedule as (key, draft length); empty if one length is for all batches.
fn schedule(swept: &Swept, release: Release) -> Result<Vec<(u32, u32)>> {
    let ranges = &swept.ranges;
    let k = swept.longest();
    if ranges.iter().all(|r| r.2 == k) {
        return Ok(vec![]);
    }
    if ranges[0].2 != k {
        return Err(Problem::bad_input(format!(
            "the best length grows with the batch, from {} to {k}, and TensorRT-LLM wants the longest first",
            ranges[0].2
        ))
        .help("one of the --batch-sizes gives one length"));
    }
    Ok(match release {
        Release::V1_2 => ranges.iter().map(|&(first, _, k)| (first, k)).collect(),
        Release::V1_3 => {
            // Larger batches than the last key do not speculate: the last range goes up to the engine's limit.
            let last = ranges.len() - 1;
            let end = |(i, &(_, end, k)): (usize, &(u32, u32, u32))| {
                (if i == last { end.max(swept.max_num_seqs) } else { end }, k)
            };
            let mut keys: Vec<(u32, u32)> = ranges.iter().enumerate().map(end).collect();
            keys.pop_if(|(_, k)| *k == 0);
            keys
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn swept(ranges: &[(u32, u32, u32)]) -> Swept {
        Swept {
            method: Some("ngram".into()),
            draft: None,
            target: None,
            tensor_parallel: 1,
            max_num_seqs: 64,
            ranges: ranges.to_vec(),
        }
    }

    /// The length of a batch by each release's rule, written from its documents, equals that of vLLM's table.
    #[test]
    fn each_release_reads_the_lengths_of_the_table() {
        for ranges in
            [&[(1, 4, 5), (5, 16, 2), (17, 32, 0)][..], &[(1, 8, 3), (9, 32, 1)], &[(1, 2, 4), (3, 3, 0), (4, 9, 2)]]
        {
            let swept = swept(ranges);
            let (first, last) = (schedule(&swept, Release::V1_2).unwrap(), schedule(&swept, Release::V1_3).unwrap());
            assert_eq!((first[0], last[0].1), ((1, swept.longest()), swept.longest()));
            for batch in 1..=swept.max_num_seqs {
                let vllm = ranges.iter().find(|r| batch <= r.1).unwrap_or(&ranges[ranges.len() - 1]).2;
                let in_1_2 = first.iter().rev().find(|(from, _)| batch >= *from).unwrap().1;
                let in_1_3 = last.iter().find(|(to, _)| batch <= *to).map_or(0, |(_, k)| *k);
                assert_eq!((in_1_2, in_1_3), (vllm, vllm), "batch {batch} of {ranges:?}");
            }
        }
        assert!(schedule(&swept(&[(1, 8, 3)]), Release::V1_3).unwrap().is_empty());
        assert!(schedule(&swept(&[(1, 8, 1), (9, 32, 3)]), Release::V1_3).is_err());
    }
}
