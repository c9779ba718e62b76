//! `combined_*.jsonl` of SpecDecode-Bench's simulator (arXiv 2601.11580): for each output position of a request, how
//! many tokens a round of EAGLE and one of prompt lookup would have emitted there, the target's own counted.
//!
//! The two lists come from two runs of the target. Where one is longer, the texts parted; the shorter one counts, as in
//! that simulator's own combination of the two.

use super::collector::{Collector, Names};
use super::json;
use super::trace::Trace;
use crate::error::TraceError;
use crate::open::Lines;
use crate::trace_spec::TraceSpec;
use foretoken_sim::{Recording, Request, Time};
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::path::Path;

const NAMES: Names = Names { time: "", prompt: "prompt_token_ids", output: "acc_len" };
const KEYS: [&str; 3] = ["prompt_token_ids", "acc_eagle", "acc_ngram"];

#[derive(Deserialize)]
struct Row {
    prompt_token_ids: Vec<IgnoredAny>,
    acc_eagle: Lengths,
    acc_ngram: Lengths,
}

#[derive(Deserialize)]
struct Lengths {
    acc_len: Vec<u32>,
}

pub(super) fn read(spec: &TraceSpec, mut collector: Collector) -> Result<Trace, TraceError> {
    collector.gives.arrivals = false;
    let mut lines = Lines::open(&spec.path)?;
    while let Some((line, text)) = lines.next()? {
        let row: Row = json::row(&spec.path, line, text, &KEYS)?;
        let (eagle, ngram) = (&row.acc_eagle.acc_len, &row.acc_ngram.acc_len);
        let output = eagle.len().min(ngram.len());
        collector.relengthened += u64::from(eagle.len() != ngram.len());
        let reach = [
            reach(&spec.path, line, "acc_eagle", &eagle[..output])?,
            reach(&spec.path, line, "acc_ngram", &ngram[..output])?,
        ];
        let bits = reach[0].iter().enumerate().map(|(n, &reach)| (n > 0).then_some(reach > 0)).collect();
        let recording = Recording { bits, accepted_before: vec![0; output], reach, ..Recording::default() };
        let mut request = Request::new(Time::ZERO, row.prompt_token_ids.len() as u32, output as u32);
        request.recording = Some(collector.recording(recording));
        collector.push(line, request, NAMES)?;
    }
    collector.finish()
}

/// How many draft tokens would be accepted of a round that starts at each output position. Entry n of `lengths` is for
/// the round behind n + 1 tokens, so that it starts at position n + 1. Position 0 comes from the prompt.
fn reach(path: &Path, line: u64, key: &str, lengths: &[u32]) -> Result<Vec<u8>, TraceError> {
    let accepted = |&tokens: &u32| match tokens {
        0 => {
            let what = "has a round of 0 tokens: the target's own token counts";
            Err(TraceError::row(path, line, Some(key), what, "correct or remove the line"))
        }
        tokens => Ok(u8::try_from(tokens - 1).unwrap_or(u8::MAX)),
    };
    let rounds = lengths.iter().take(lengths.len().saturating_sub(1));
    std::iter::once(Ok(0)).chain(rounds.map(accepted)).take(lengths.len()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::readers::read;

    /// Two requests of our own making, in the form of SpecDecode-Bench.
    const TWO: &str = include_str!("../../../fuzz/seeds/trace-any/written-specdecode-bench");

    fn trace(text: &str) -> Result<Trace, TraceError> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("combined.jsonl");
        std::fs::write(&path, text).unwrap();
        read(&TraceSpec::new(path), None)
    }

    #[test]
    fn both_drafters_are_read_position_by_position() {
        let read = trace(TWO).unwrap();
        let w = &read.workload;
        assert_eq!((&w.prompt_len[..], &w.output_len[..]), (&[4, 2][..], &[8, 4][..]));
        // A round behind one token would have had two of EAGLE's drafts accepted: it starts at position 1.
        assert_eq!(w.recordings[0].reach, [vec![0, 2, 0, 1, 0, 0, 1, 0], vec![0, 0, 0, 0, 4, 3, 2, 1]]);
        // The second lookup's list is longer: the texts parted.
        assert_eq!(w.recordings[1].reach, [vec![0, 1, 2, 1], vec![0; 4]]);
        assert!(read.notes.iter().any(|note| note.contains("length of the recorded run")), "{:?}", read.notes);
    }

    #[test]
    fn damage_is_named() {
        for (from, to, says) in [
            ("[3, 1, 2", "[0, 1, 2", "acc_eagle"),
            ("\"acc_ngram\"", "\"acc_x\"", "no known format: its first line has the columns [acc_eagle, acc_x"),
            ("[3, 1, 2", "[-3, 1, 2", "acc_eagle"),
        ] {
            let said = match trace(&TWO.replacen(from, to, 1)) {
                Err(e) => e.to_string(),
                Ok(_) => panic!("{to} was read"),
            };
            assert!(said.contains(says), "{said}");
        }
    }
}
