//! The draft length of each step, read from the step log. It is needed to fit costs to runs with several draft lengths.

use crate::recordings::run::ObservedRun;
use foretoken_sim::MAX_SPEC_LEN;

/// For each step of a run: the number of draft tokens per request that the step verified. `None` in three cases: no
/// request decoded; the log's counts are impossible; or the step has more draft tokens per request than any round of an
/// answer. The last case occurs if a preempted request is computed again, because the log counts its tokens as tokens
/// of an answer.
///
/// A step of `n` decoding requests schedules `n` tokens and their draft tokens, so the log gives the mean draft
/// length. Requests of one step may have different lengths. If no round of an answer has the mean length, the next
/// longer length of a round is used, because the largest draft length decides the number of draft passes.
pub fn step_lengths(run: &ObservedRun) -> Vec<Option<u32>> {
    let mut known: Vec<u32> = run
        .answers
        .iter()
        .filter_map(|a| a.rounds.as_ref())
        .flat_map(|rounds| rounds.drafted.iter().copied())
        .collect();
    known.sort_unstable();
    known.dedup();
    let of_step = |requests: u32, tokens: u64| {
        let n = u64::from(requests);
        let drafts = tokens.checked_sub(n)?;
        let mean = u32::try_from(drafts.div_ceil(n)).ok().filter(|&k| k <= MAX_SPEC_LEN)?;
        match known.iter().copied().find(|&k| k >= mean) {
            _ if mean == 0 => Some(0),
            None if known.is_empty() => Some(mean),
            longer => longer,
        }
    };
    let steps = run.steps.iter().map(|s| s.logged);
    steps
        .map(|s| if s.generation_requests == 0 { None } else { of_step(s.generation_requests, s.generation_tokens) })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calibrate::source::Source;
    use crate::calibrate::synthetic::{LAW, Lengths, write_recording};

    fn run() -> ObservedRun {
        let dir = tempfile::tempdir().unwrap();
        let path = write_recording(&LAW.rising(Lengths::Table(&[(4, 3), (64, 1)]), 80, 1), dir.path(), "dyn");
        Source::open(&path).unwrap().run
    }

    /// Without rounds of answers, the log's mean draft length is taken. Here all requests of a step have this length.
    #[test]
    fn without_rounds_a_step_has_the_mean_length_of_the_log() {
        let mut run = run();
        let with_rounds = step_lengths(&run);
        run.answers.iter_mut().for_each(|answer| answer.rounds = None);
        assert_eq!(step_lengths(&run), with_rounds);
    }

    #[test]
    fn a_step_has_the_length_of_its_batch_size() {
        let run = run();
        let lengths = step_lengths(&run);
        let seen = |k: u32| lengths.iter().filter(|l| **l == Some(k)).count();
        assert_eq!(lengths.len(), run.steps.len());
        assert!(seen(1) > 50 && seen(3) > 50 && lengths[0].is_none(), "{} {}", seen(1), seen(3));
        for (step, length) in run.steps.iter().zip(&lengths) {
            let n = u64::from(step.logged.generation_requests);
            assert_eq!(length.map_or(0, |k| n * u64::from(k + 1)), step.logged.generation_tokens);
        }
    }

    /// The test has a step of two requests: one drafted 3 tokens, the other 1. No request has the mean draft length
    /// of 2, so the largest draft length, 3, counts.
    #[test]
    fn of_several_lengths_in_a_step_the_longest_counts() {
        let mut run = run();
        let step = &mut run.steps[5].logged;
        (step.generation_requests, step.generation_tokens) = (2, 4 + 2);
        assert_eq!(step_lengths(&run)[5], Some(3));
    }

    #[test]
    fn a_step_that_computes_a_request_again_has_no_length() {
        let mut run = run();
        let step = &mut run.steps[5].logged;
        (step.generation_requests, step.generation_tokens) = (3, 4 + 4 + 90);
        assert_eq!(step_lengths(&run)[5], None);
    }

    #[test]
    fn impossible_counts_give_no_length() {
        let mut run = run();
        for (at, (requests, tokens)) in [(2, 1), (1, u64::MAX), (u32::MAX, 7)].into_iter().enumerate() {
            let step = &mut run.steps[at].logged;
            (step.generation_requests, step.generation_tokens) = (requests, tokens);
        }
        let lengths = step_lengths(&run);
        assert_eq!(lengths[..3], [None, None, None]);
    }
}
