//! What a drafter cannot do: draft beyond its own longest context, stay when its memory is wanted, and leave the prefix
//! cache of a hybrid model as it is.

use super::fixture::{Fixture, Steady};
use crate::config::DraftWeights;
use crate::*;
use std::sync::{Arc, Mutex};

fn requests(list: &[(f64, u32, u32)]) -> Workload {
    list.iter().map(|&(at, p, o)| Request::new(Time::from_s(at), p, o)).collect()
}

fn run(f: &Fixture, policy: impl SpecPolicy + 'static) -> Run {
    f.with(|s| s.run(Speculation::Policy(Box::new(policy))))
}

/// vllm#58080: one request beyond the drafter's length, and no request of the batch gets a draft. Draft passes
/// stop, too.
#[test]
fn one_long_request_ends_drafting_for_the_batch() {
    let mut f = Fixture::new(requests(&[(0.0, 10, 60), (0.0, 200, 60)]));
    f.rate = 1.0;
    f.config.draft_at = None;
    f.config.runner = Some(Runner::V1);
    f.config.method = DraftMethod::Eagle;
    f.config.max_draft_len = 3;
    let decodes = |f: &Fixture| -> Vec<(u32, u32, u32)> {
        let steps = run(f, Steady(3)).steps;
        steps.iter().filter(|s| s.batch_size == 2).map(|s| (s.verified, s.accepted, s.draft_passes)).collect()
    };
    let whole = decodes(&f);
    assert!(whole[2..10].iter().all(|&(verified, accepted, _)| (verified, accepted) == (6, 6)), "{whole:?}");
    f.config.draft_max_model_len = Some(230);
    let steps = decodes(&f);
    let gate = steps.iter().position(|&(_, accepted, _)| accepted == 0).expect("the gate closes");
    // The longer request gains 4 tokens a step from 201 on. Its drafts are skipped once it would pass 230.
    assert!((5..9).contains(&gate), "{steps:?}");
    assert!(steps[gate..gate + 10].iter().all(|&step| step == (0, 0, 0)), "{steps:?}");
    // Beyond the model's own length the key changes nothing.
    f.config.draft_max_model_len = Some(1 << 21);
    assert_eq!(decodes(&f), whole);
}

#[test]
fn limits_that_no_release_has_are_refused() {
    let mut f = Fixture::new(requests(&[(0.0, 10, 9)]));
    let why = |f: &Fixture| {
        let speculation = Speculation::Policy(Box::new(Steady(3)));
        speculation.check(&f.config, f.drafting).unwrap_err().to_string()
    };
    f.config.draft_max_model_len = Some(100);
    assert!(why(&f).contains("only runner \"v1\""), "{}", why(&f));
    f.config.draft_max_model_len = None;
    f.config.draft_weights = Some(DraftWeights { blocks: 8, bytes: 1e9, link_bytes_s: 1e10 });
    f.config.draft_gap = DraftGap::Permanent;
    assert!(why(&f).contains("catch-up-next-use"), "{}", why(&f));
    f.config.draft_at = None;
    assert!(why(&f).contains("step-start"), "{}", why(&f));
}

/// vllm#54360: with a drafter no prefix is hit; without one the second request computes only its own tokens.
#[test]
fn a_drafter_may_end_prefix_hits() {
    let mut workload = Workload { prefix_block: 256, ..Workload::default() };
    for at in [0.0, 1.0] {
        workload.push(Request { prefix: vec![7], ..Request::new(Time::from_s(at), 512, 4) });
    }
    let mut f = Fixture::new(workload);
    let chunks = |f: &Fixture, drafts: bool| -> u64 {
        let ran = if drafts { run(f, Steady(2)) } else { f.plain() };
        ran.steps.iter().map(|s| s.chunk_tokens).sum()
    };
    assert_eq!((chunks(&f, false), chunks(&f, true)), (768, 768));
    f.config.drafts_end_prefix_hits = true;
    assert_eq!((chunks(&f, false), chunks(&f, true)), (768, 1024));
}

/// A policy that gives the weights up in one step, and wants them back in a later one.
struct Gives {
    step: u32,
    from: u32,
    until: u32,
    seen: Arc<Mutex<Vec<Memory>>>,
}

impl SpecPolicy for Gives {
    fn limits(&self) -> DraftLimits<'_> {
        DraftLimits::chain(2)
    }

    fn keeps_weights(&mut self, memory: &Memory) -> bool {
        self.seen.lock().unwrap().push(*memory);
        self.step += 1;
        !(self.from..self.until).contains(&self.step)
    }

    fn propose(&mut self, _: &BatchView, plan: &mut DraftPlan) {
        plan.fill(2);
    }
}

/// Weights leave and blocks come: a request that waited for memory starts. Nothing is drafted until the weights are
/// back, which takes their bytes over the link, and the first draft pass then runs over all that was missed.
#[test]
fn weights_leave_and_come_back_over_the_link() {
    let mut f = Fixture::new(requests(&[(0.0, 64, 10), (0.0, 64, 60)]));
    f.rate = 0.0;
    f.config.block_size = 16;
    // A prompt takes 4 blocks: beside the weights one request fits. The first one ends before the weights are wanted.
    f.config.num_gpu_blocks = 10;
    f.config.draft_weights = Some(DraftWeights { blocks: 9, bytes: 3e9, link_bytes_s: 6e10 });
    let seen = Arc::new(Mutex::new(Vec::new()));
    let gives = |from, until| Gives { step: 0, from, until, seen: seen.clone() };
    let ran = run(&f, gives(5, 12));
    let memory = std::mem::take(&mut *seen.lock().unwrap());
    assert_eq!((memory[3].loaded, memory[3].num_waiting, memory[3].weight_blocks), (true, 1, 9));
    // The step in which the weights go admits the waiting request.
    assert_eq!((ran.steps[4].chunk_tokens, ran.steps[4].drafted), (64, 0));
    assert!(memory[5].num_waiting == 0 && !memory[5].loaded);
    let back = ran.steps.iter().enumerate().position(|(i, s)| i > 5 && s.drafted > 0).expect("they come back");
    let asked = ran.steps[11].start;
    assert!(ran.steps[back].start - asked >= Time::from_s(0.05), "3 GB over 60 GB/s");
    assert!(ran.steps[back - 1].start - asked < Time::from_s(0.05));
    assert!(ran.steps[4..back].iter().all(|s| s.drafted == 0 && s.draft_passes == 0));
    // Before, a first pass has one token of each request; now it has all that the draft model missed.
    let pass = |at: usize| ran.steps[at].draft_time;
    assert!(pass(back) > pass(2) + Time::from_s(60e-6), "{:?} {:?}", pass(back), pass(2));
    // A server without a drafter has the blocks of the weights from the start.
    assert_eq!(f.plain().steps[0].chunk_tokens, 128);
    // Weights that stay: the second request waits for the first one's end.
    assert!(run(&f, gives(u32::MAX, u32::MAX)).steps[4].chunk_tokens == 0);
}
