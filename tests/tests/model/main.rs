//! A second implementation of vLLM's scheduler and engine core, called the model. It shares no code with our engine. It
//! was written from vLLM's source and from `tests/vllm/README.md`, with vectors and maps, and it has no shortcuts.
//!
//! The model writes the lines that a recording of vLLM would have. So the replay of recordings can compare the model
//! with our engine: every scheduled request with its tokens, draft tokens and cached tokens, every preemption and end,
//! the free blocks, the ids of all blocks, and for the engine core the microsecond of each call.
//!
//! The model must also equal the recordings of vLLM itself.
//!
//! By default the test tries some random workloads. `FORETOKEN_EXPERIMENTS=100000 FORETOKEN_SECONDS=900 cargo test
//! --release -p foretoken-tests --test model -- --nocapture` tries as many as the time allows. `FORETOKEN_SEED` is the
//! seed of the first workload.

mod alone;
mod chance;
mod core;
mod derived;
mod device;
mod draw;
mod lines;
mod pool;
mod request;
mod running;
mod scheduler;
mod update;
mod waiting;
mod workload;

use foretoken_sim::DraftAt;
use foretoken_sim::engine::Rules;
use foretoken_tests::vllm::{Fixture, Recorded, replay, replay_by, rules};
use scheduler::Seen;
use std::io::Read;
use std::time::{Duration, Instant};
use workload::{Release, Workload};

/// Runs a workload with the model, a second implementation of vLLM. Returns the lines of its recording, without the
/// lines `W` (settings) and `R` (requests), and counts of what happened.
fn run(w: &Workload) -> (String, Seen) {
    if w.core { core::run(w) } else { alone::run(w) }
}

/// Parses `text`, the lines of the workload `w` and of its run, as a recorded run.
fn recording(w: &Workload, text: &str) -> Recorded {
    let format = if w.core { "foretoken-vllm-core" } else { "foretoken-vllm" };
    let version = if w.release == Release::V0_33 { "0.33.0" } else { "0.32.0" };
    let text = format!("{format} 1 {version}\n{text}");
    let mut fixture = Fixture::open(text.as_bytes()).unwrap();
    let mut recorded = fixture.read().unwrap_or_else(|e| panic!("{e}: {text}")).unwrap();
    recorded.config.draft_at = w.step_start.then_some(DraftAt::StepStart);
    recorded
}

/// The lines of each workload in a compressed file of recorded runs of vLLM.
fn texts(file: &[u8]) -> Vec<String> {
    let mut all = String::new();
    zstd::Decoder::new(file).unwrap().read_to_string(&mut all).unwrap();
    let ends = all.find("\nC ").map_or(all.len(), |at| at + 1);
    let begins: Vec<usize> = all.match_indices("\nW ").map(|(at, _)| at + 1).chain([ends]).collect();
    begins.windows(2).map(|pair| all[pair[0]..pair[1]].to_owned()).collect()
}

/// The first difference between a recording of vLLM and the model's recording, as text; `None` if they are equal.
fn difference(theirs: &Recorded, ours: &Recorded) -> Option<String> {
    let steps = theirs.steps.iter().zip(&ours.steps).position(|(a, b)| a != b);
    let calls = theirs.calls.iter().zip(&ours.calls).position(|(a, b)| a != b);
    if let Some(at) = steps {
        return Some(format!("step {at}: vLLM {:?}; the model {:?}", theirs.steps[at], ours.steps[at]));
    }
    if let Some(at) = calls {
        return Some(format!("call {at}: vLLM {:?}; the model {:?}", theirs.calls[at], ours.calls[at]));
    }
    let rest = |r: &Recorded| {
        let numbers = (r.steps.len(), r.calls.len(), r.end, r.blocks);
        format!("{numbers:?} {} {:?} {:?}", r.ending, r.refused, r.derived)
    };
    let (theirs, ours) = (rest(theirs), rest(ours));
    (theirs != ours).then(|| format!("the end: vLLM {theirs}; the model {ours}"))
}

#[test]
fn the_model_makes_every_recorded_call() {
    let files: [(&[u8], Release, bool); 4] = [
        (include_bytes!("../../vllm/vllm-0.33.0.txt.zst"), Release::V0_33, false),
        (include_bytes!("../../vllm/vllm-0.32.0.txt.zst"), Release::V0_32, false),
        (include_bytes!("../../vllm/core-0.33.0.txt.zst"), Release::V0_33, true),
        (include_bytes!("../../vllm/core-0.32.0.txt.zst"), Release::V0_32, true),
    ];
    for (file, release, core) in files {
        let (mut ran, mut differ) = (0, Vec::new());
        for text in texts(file) {
            let w = Workload::parse(release, core, &text);
            let theirs = recording(&w, &text);
            if theirs.derived.is_none() {
                // vLLM refused the settings of this recorded workload, so there are no steps to compare.
                continue;
            }
            ran += 1;
            let ours = recording(&w, &(w.lines() + &run(&w).0));
            differ.extend(difference(&theirs, &ours).map(|what| format!("seed {}: {what}", w.seed)));
        }
        assert!(ran >= 400, "{ran} workloads");
        differ.truncate(3);
        assert!(differ.is_empty(), "{release:?}, core {core}, {ran} workloads: {differ:#?}");
    }
}

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |text| text.parse().unwrap_or_else(|e| panic!("{name}: {e}")))
}

/// Number of random workloads in which something happened, such as a preemption; one number for each event.
#[derive(Debug, Default)]
struct Counts {
    tried: u64,
    core: u64,
    asynchronous: u64,
    step_start: u64,
    with_preemptions: u64,
    with_hits: u64,
    with_chunks: u64,
    with_stale_output: u64,
    with_drafts: u64,
    done: u64,
    calls: u64,
}

impl Counts {
    fn add(&mut self, w: &Workload, recorded: &Recorded, seen: &Seen) {
        self.tried += 1;
        self.core += u64::from(w.core);
        self.asynchronous += u64::from(w.asynchronous);
        self.step_start += u64::from(w.step_start);
        self.with_preemptions += u64::from(seen.preemptions > 0);
        self.with_hits += u64::from(seen.hits > 0);
        self.with_chunks += u64::from(seen.chunks > 0);
        self.with_stale_output += u64::from(seen.stale > 0);
        self.with_drafts += u64::from(w.k > 0);
        self.done += u64::from(recorded.ending == "done");
        self.calls += (recorded.steps.len() + recorded.calls.len()) as u64;
    }
}

#[test]
fn the_engine_makes_the_calls_of_the_model() {
    let (most, seed) = (number("FORETOKEN_EXPERIMENTS", 6_000), number("FORETOKEN_SEED", 1));
    let until = Instant::now() + Duration::from_secs(number("FORETOKEN_SECONDS", 600));
    let mut counts = Counts::default();
    for seed in seed..seed + most {
        if Instant::now() > until {
            break;
        }
        let w = draw::workload(seed);
        let (lines, seen) = run(&w);
        let text = w.lines() + &lines;
        let recorded = recording(&w, &text);
        // If `replay` finds a difference, its message says that the recorded run is from vLLM. Here it is from the
        // model, our second implementation of vLLM.
        if let Err(differs) = replay(&recorded) {
            panic!("seed {seed}, {:?}: {differs}\n{text}", w.release);
        }
        counts.add(&w, &recorded, &seen);
    }
    eprintln!("from seed {seed}: {counts:?}");
    let quarter = counts.tried / 4;
    let often = [counts.with_preemptions, counts.with_hits, counts.with_chunks, counts.asynchronous];
    assert!(often.iter().all(|&count| count > quarter), "{counts:?}");
}

/// Changes one rule of our scheduler at a time. For at least one of the random workloads, the schedule must then differ
/// from the schedule of the model (our second implementation of vLLM).
#[test]
fn a_changed_rule_is_noticed() {
    type Change = fn(&mut Rules);
    let changes: [(&str, Change); 12] = [
        ("a lookahead slot more", |r| r.num_lookahead_tokens += 1),
        ("a token less in the budget", |r| r.max_num_batched_tokens -= 1),
        ("a request more", |r| r.max_num_active_seqs += 1),
        ("a longer context", |r| r.max_model_len += 1),
        ("a slot more for drafting", |r| r.draft_slots += 1),
        ("a block more below the watermark", |r| r.watermark_blocks += 1),
        ("a longer interval", |r| r.prefill_schedule_interval += 1),
        ("a higher threshold", |r| r.long_prefill_token_threshold += 1),
        ("no adaptive threshold", |r| r.long_prefill_token_threshold_adaptive = false),
        ("no reserved sequence", |r| r.reserve_full_isl = !r.reserve_full_isl),
        ("no padded admission", |r| r.pad_admissions = 0),
        ("late caching", |r| r.cache_when_verified = !r.cache_when_verified),
    ];
    let recordings: Vec<Recorded> =
        (1..400).map(draw::workload).map(|w| recording(&w, &(w.lines() + &run(&w).0))).collect();
    for (name, change) in changes {
        let differ = recordings.iter().any(|recorded| {
            let mut rules = rules(recorded).unwrap();
            change(&mut rules);
            replay_by(recorded, rules).is_err()
        });
        assert!(differ, "{name} changes nothing");
    }
}
