//! The order in which a server schedules its steps, as its step log and its answers show it together.
//!
//! An asynchronous scheduler queues a step before it has the output of the step in flight, so that steps start back to
//! back. When an answer ends, its next step is often queued already. The log then has a step of a request that the
//! answer's rounds do not have. A synchronous scheduler waits for each output and never computes such a step.
//!
//! The times of a log do not show the order. In both orders a line's elapsed time is shorter than the time since the
//! line before it: an asynchronous server logs how long it waited for an output (0.9 ms less than the step in the
//! shipped recording; 0.3 to 0.6 ms less in synchronous ones, `experiments/validation/clockwork/`).

use crate::recordings::request::Answer;
use crate::recordings::run::ObservedRun;

/// With at least this number of answers, none of which has a step behind its end, the log counts as synchronous. In
/// the shipped asynchronous recording 6 of 10 answers have one.
const ANSWERS: usize = 20;
/// At least this number of steps behind the ends of answers, and at least one for ten answers, show asynchronous
/// scheduling.
const BEHIND: u64 = 3;

/// How the steps of a log agree with the rounds of the answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// True if steps were queued before the output of the step in flight was known.
    pub asynchronous: bool,
    /// Number of requests with output, summed over the steps of the log.
    pub computed: u64,
    pub rounds: u64,
    pub answers: usize,
}

impl Order {
    /// The order that the log of a run shows. `None` if it does not show it: without a complete log, without all rounds
    /// of all answers, with preemptions, or if too few answers came.
    pub fn of(run: &ObservedRun) -> Option<Order> {
        let follows =
            |pair: &[crate::recordings::steps::PlacedStep]| pair[0].logged.iteration + 1 == pair[1].logged.iteration;
        let whole = !run.steps.is_empty() && run.steps.windows(2).all(follows);
        let known = run.answers.iter().all(|a| a.finished() && a.rounds_are_whole());
        if !whole || !known || run.metrics.preemptions.is_some_and(|n| n > 0) {
            return None;
        }
        let computed: u64 = run.steps.iter().map(|s| u64::from(s.logged.generation_requests)).sum();
        let rounds: u64 = run.answers.iter().filter_map(rounds_of).sum();
        let (answers, behind) = (run.answers.len(), computed.checked_sub(rounds)?);
        let order = |asynchronous| Some(Order { asynchronous, computed, rounds, answers });
        match behind {
            0 if answers >= ANSWERS => order(false),
            // Further steps belong to another client.
            n if n >= BEHIND && 10 * n >= answers as u64 && n <= 2 * answers as u64 => order(true),
            _ => None,
        }
    }

    /// A warning if the log shows another order than `stated`, the experiment's `engine.async_scheduling`. An
    /// experiment that does not state it means a synchronous server, as for `calibrate`.
    pub fn warning(&self, stated: Option<bool>) -> Option<String> {
        let Order { asynchronous, computed, rounds, answers } = *self;
        if asynchronous == stated.unwrap_or(false) {
            return None;
        }
        let evidence = match asynchronous {
            true => format!(
                "steps of the log start back to back, before the output of the step in flight is known ({} of {computed} \
                 steps of requests are behind the ends of {answers} answers): the server schedules asynchronously",
                computed - rounds
            ),
            false => format!(
                "steps of the log never start back to back: each waits for the output of the step before it (none of \
                 {computed} steps of requests is behind the end of one of {answers} answers): the server schedules \
                 synchronously"
            ),
        };
        let says = match stated {
            Some(true) => "says asynchronously",
            Some(false) => "says synchronously",
            None => "does not say so",
        };
        Some(format!(
            "{evidence}, and the experiment {says}: set engine.async_scheduling={asynchronous}, or see how the server \
             was started"
        ))
    }
}

fn rounds_of(answer: &Answer) -> Option<u64> {
    Some(answer.rounds.as_ref()?.drafted.len() as u64)
}
