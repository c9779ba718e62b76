//! Compares the policy `sglang-gen3` with recorded decisions of SGLang's `AdaptiveSpeculativeParams`: the draft length
//! of every batch, and the average numbers of accepted draft tokens.

use super::*;
use crate::recorded::{draw, histories, near};
use crate::testing::{Batch, CONTEXT, outcome};
use crate::{PolicySpec, from_sglang_json};
use foretoken_sim::Drafts;
use serde_json::Value;

const BATCHES: u64 = 160;

#[derive(Deserialize)]
struct History {
    seed: u64,
    /// The text of SGLang's file of settings, as JSON; `None` if the recording ran with SGLang's default.
    file: Option<Value>,
    initial: u32,
    most: u32,
    /// Batch sizes that were captured as CUDA graphs in the recording; `None` without CUDA graphs.
    graphs: Option<Vec<u32>>,
    lengths: String,
    /// SGLang's average numbers of accepted draft tokens, one for each slot (range of batch sizes). The recording has a
    /// list of averages after every ten batches, or only one list, after its last batch.
    averages: Vec<Vec<f64>>,
}

/// Parses the settings of a recorded run of SGLang's policy in the same way as a user's `adaptive_spec.json`.
fn settings(h: &History) -> SglangGen3 {
    let read = h.file.as_ref().map(|file| from_sglang_json(&file.to_string()).expect("a file that SGLang takes"));
    let settings = match read {
        None => SglangGen3::default(),
        Some(PolicySpec::SglangGen3(settings)) => settings,
        Some(other) => panic!("{} was read", other.name()),
    };
    SglangGen3 { initial_steps: h.initial, cuda_graph: h.graphs.is_some(), ..settings }
}

fn replay(h: &History) {
    let settings = settings(h);
    settings.check().expect("settings that SGLang takes");
    let mut policy = Slots::new(&settings, &PolicyContext { max_num_seqs: h.most, max_draft_len: 32, ..CONTEXT });
    if let Some(graphs) = &h.graphs {
        assert_eq!(policy.router.captured(), graphs, "history {}", h.seed);
    }
    let mut averages = h.averages.iter();
    let drafts = Drafts::default();
    for (batch, length) in (0..BATCHES).zip(h.lengths.chars()) {
        let era = batch / 20;
        let size = 1 + (draw(h.seed, 2, era, 0) % 70 + draw(h.seed, 3, batch, 0) % 4) % u64::from(h.most);
        let holds = 50 + draw(h.seed, 4, era, 0) % 950;
        let n = size as usize;
        let mut plan = DraftPlan { draft_len: vec![9; n], ..DraftPlan::default() };
        policy.propose(&Batch::new(&vec![100; n], &vec![8; n]).view(), &mut plan);
        let steps = plan.draft_len[0];
        assert_eq!(Some(steps), length.to_digit(36), "history {}, batch {batch} of {size}", h.seed);
        let held = |r: u64, i: &u32| draw(h.seed, 1, 1000 * batch + r, u64::from(*i)) % 1000 < holds;
        let accepted: Vec<u32> = (0..size).map(|r| (0..steps).take_while(|i| held(r, i)).count() as u32).collect();
        policy.observe(&outcome(&drafts, &vec![steps; n], &accepted));
        if (batch % 10 == 9 && h.averages.len() > 1) || batch + 1 == BATCHES {
            let theirs = averages.next().expect("averages");
            assert_eq!(theirs.len(), policy.slots.len());
            for (slot, &theirs) in policy.slots.iter().zip(theirs) {
                assert!(near(slot.ema, theirs), "history {}, batch {batch}: {} for {theirs}", h.seed, slot.ema);
            }
        }
    }
    assert_eq!(averages.next(), None);
}

#[test]
fn lengths_and_averages_are_sglangs() {
    let all: Vec<History> = histories("sglang-gen3.jsonl.zst");
    all.iter().for_each(replay);
    let pauses = all.iter().filter(|h| h.lengths.contains('0') && h.lengths.contains(|c| c > '0')).count();
    assert!(all.len() >= 300 && pauses >= 200, "{} histories, {pauses} that draft and pause", all.len());
}
