//! Repeats the schedule of an observed run with Foretoken's engine, and compares the content of steps, not their times.
//!
//! Step n begins at n seconds. In each step, a request accepts as many of its draft tokens as the server reported. No
//! file says when a request reached the scheduler, so each request is placed at a step of the log. These places are the
//! only free parameters, one per request. Everything else follows from them and is compared with the log: the requests
//! and tokens of every step, every request's draft tokens of a step, every chunk of an answer, and the step that ended
//! the answer.

use crate::calibrate::predict::{AcceptanceFrom, fixed};
use crate::calibrate::source::Source;
use crate::compare::server_runs::Replayed;
use crate::recordings::request::Answer;
use crate::recordings::step_log::LoggedStep;
use crate::recordings::steps::{PlacedStep, step_of};
use foretoken_profiler::Calibrated;
use foretoken_run::spec::problem::{Problem, Result};
use foretoken_sim::drafts::Drafts;
use foretoken_sim::event_clock::{EventClock, World};
use foretoken_sim::executor::{Chunk, DecisionTime, Executor, StepPlan};
use foretoken_sim::latency::Linear;
use foretoken_sim::{
    AroundExecutor, Arrivals, Coefficients, ContextReads, Drafting, EngineConfig, Host, Serving, Speculation, Time,
    Workload,
};
use std::convert::Infallible;
use std::sync::atomic::AtomicBool;

/// The content of a step: (number of requests without output, their tokens, number of requests with output, their
/// tokens).
type Content = (u32, u64, u32, u64);

fn content(step: &LoggedStep) -> Content {
    (step.context_requests, step.context_tokens, step.generation_requests, step.generation_tokens)
}

/// Repeats the schedule of a run that always drafted `k` tokens (0: none) with Foretoken's scheduler, and compares
/// steps, rounds, chunks and last steps with the log. `None` if the run has no step log, if an answer did not finish
/// or, with `k` above 0, if the server does not report draft tokens for every step of an answer after the first.
pub fn replay(source: &Source, engine: &EngineConfig, cost: &Calibrated, k: u32) -> Result<Option<Replayed>> {
    // The number of attempts is limited, because a request may be moved back and forth without end.
    replay_within(source, engine, cost, k, 8 * source.run.answers.len() + 1)
}

/// As [`replay`], with at most `attempts` attempts to place the requests.
pub fn replay_within(
    source: &Source,
    engine: &EngineConfig,
    cost: &Calibrated,
    k: u32,
    attempts: usize,
) -> Result<Option<Replayed>> {
    let run = &source.run;
    let known = |a: &Answer| k == 0 || a.rounds_are_whole();
    // Every answer must be finished. If the run drafted, the server must report draft tokens for every step of the
    // answer after the first. Otherwise it is not known in which step the answer's request ended.
    if run.steps.is_empty() || !run.answers.iter().all(|a| a.finished() && known(a)) {
        return Ok(None);
    }
    let replay = Replay::new(source, engine, cost, k);
    let mut places = replay.first_places();
    let mut replayed =
        Replayed { run: source.name(), steps: run.steps.len(), placed: places.len(), ..Replayed::default() };
    // An attempt repeats the whole schedule. If it differs from the log, some requests are moved to other steps for
    // the next attempt.
    for _ in 0..attempts {
        let made = replay.make(&places)?;
        let differs = run.steps.iter().zip(&made.contents).position(|(log, ours)| content(&log.logged) != *ours);
        let short = (made.contents.len() != run.steps.len()).then(|| made.contents.len().min(run.steps.len()));
        replayed.equal_steps = differs.or(short).unwrap_or(run.steps.len());
        let Some(at) = differs.or(short) else {
            (replayed.rounds, replayed.difference) = replay.compare(&made);
            return Ok(Some(replayed));
        };
        replayed.difference = Some(replay.say(at, &made));
        if !replay.move_one(at, &made, &mut places) {
            break;
        }
    }
    Ok(Some(replayed))
}

struct Replay<'a> {
    source: &'a Source,
    config: EngineConfig,
    cost: &'a Calibrated,
    k: u32,
    /// Indices of the run's answers, in the order in which the scheduler gets their requests. This is the order of
    /// the answers' first tokens.
    order: Vec<usize>,
}

/// The schedule that Foretoken's engine made for the run's requests.
#[derive(Default)]
struct Made {
    contents: Vec<Content>,
    /// Index of each request's first step, in the order in which the scheduler gets the requests.
    first: Vec<usize>,
    last: Vec<usize>,
    /// The rounds of each request: (verified tokens, accepted tokens).
    rounds: Vec<Vec<(u32, u32)>>,
}

impl<'a> Replay<'a> {
    fn new(source: &'a Source, engine: &EngineConfig, cost: &'a Calibrated, k: u32) -> Replay<'a> {
        let mut order: Vec<usize> = (0..source.run.answers.len()).collect();
        order.sort_by_key(|&i| (source.run.answers[i].chunks.first().map(|c| c.0), i));
        let config = EngineConfig { max_draft_len: k, step_overhead_s: 0.0, frontend_s: 0.0, ..engine.clone() };
        Replay { source, config, cost, k, order }
    }

    fn steps(&self) -> &[PlacedStep] {
        &self.source.run.steps
    }

    fn answer(&self, at: usize) -> &Answer {
        &self.source.run.answers[self.order[at]]
    }

    /// Places every request at the step of its first token. This is right if the request's whole prompt ran in the
    /// first step after the request reached the scheduler. [`Replay::move_one`] moves the other requests.
    fn first_places(&self) -> Vec<usize> {
        let first = |at: usize| self.answer(at).chunks.first().and_then(|c| step_of(self.steps(), c.0)).unwrap_or(0);
        (0..self.order.len()).map(first).collect()
    }

    /// Simulates the run's requests, in the scheduler's order. Request number `i` in this order reaches the scheduler
    /// at step `places[i]`.
    fn make(&self, places: &[usize]) -> Result<Made> {
        let mut workload = Workload { categories: self.source.run.workload.categories.clone(), ..Workload::default() };
        for (&of, &place) in self.order.iter().zip(places) {
            let mut request = self.source.run.workload.get(of as u32);
            request.arrival = Time::from_s(place as f64);
            workload.push(request);
        }
        // The server reported all rounds of the run's requests. So the acceptance rate for positions without a report
        // (0) is never used.
        let from = if self.k == 0 { AcceptanceFrom::None } else { AcceptanceFrom::Own(&[0.0]) };
        let acceptance = from.source_of(self.order.iter().map(|&i| &self.source.run.answers[i]), &mut workload);
        let acceptance = acceptance.build(1, &workload).map_err(|e| Problem::failed(e.to_string()))?;
        let free = Linear::new(Coefficients::FREE);
        let world = World {
            draft: &free,
            target: &free,
            context_reads: ContextReads::Once,
            drafting: Drafting::Autoregressive,
            acceptance: &*acceptance,
            overhead: Time::ZERO,
            host: Host::NONE,
            decision_time: DecisionTime::default(),
            noise_cv: 0.0,
            seed: 1,
            max_draft_len: self.k,
            queues: false,
        };
        let n = workload.len();
        let seen = StepRecorder {
            left: workload.output_len.clone(),
            asked: &workload.output_len,
            clock: EventClock::new(world, n),
            made: Made { first: vec![usize::MAX; n], last: vec![0; n], rounds: vec![Vec::new(); n], ..Made::default() },
        };
        let serving = Serving {
            workload: &workload,
            arrivals: Arrivals::Open,
            config: &self.config,
            slo_tpot_s: f64::INFINITY,
            keep_steps: false,
            interrupt: &AtomicBool::new(false),
        };
        let policy = match fixed(self.k, &self.config, self.cost, 1) {
            Speculation::Policy(policy) => Some(policy),
            _ => None,
        };
        Ok(serving.run(seen, policy).executor.made)
    }

    /// Moves requests to other steps, so that simulated step `at` becomes equal to step `at` of the log. Returns
    /// false if moving requests cannot explain the difference.
    fn move_one(&self, at: usize, made: &Made, places: &mut [usize]) -> bool {
        let (log, ours) = (self.steps().get(at).map(|s| content(&s.logged)), made.contents.get(at).copied());
        let ((prompts, tokens, ..), (our_prompts, our_tokens, ..)) =
            (log.unwrap_or_default(), ours.unwrap_or_default());
        if (prompts, tokens) == (our_prompts, our_tokens) {
            return false;
        }
        if (prompts, tokens) > (our_prompts, our_tokens) {
            // The log has more prompts in this step than Foretoken's schedule, so the next request in the scheduler's
            // order is moved to this step. This explains the difference only if the client had sent the request
            // before the step began.
            let Some(next) = (0..places.len()).find(|&i| made.first[i] > at && places[i] > at) else { return false };
            let sent = self.answer(next).sent <= self.steps()[at].start;
            places[next] = at;
            // The order in which the scheduler gets the requests is known, so a place before an earlier request's
            // explains nothing.
            sent && places.is_sorted()
        } else {
            // The log has fewer prompts in this step than Foretoken's schedule. The last request that Foretoken
            // admitted in this step, and all requests after it in the scheduler's order, are moved to later steps.
            let Some(last) = (0..places.len()).rev().find(|&i| made.first[i] == at && places[i] <= at) else {
                return false;
            };
            for place in &mut places[last..] {
                *place = (*place).max(at + 1);
            }
            at + 1 < self.steps().len()
        }
    }

    fn say(&self, at: usize, made: &Made) -> String {
        let words = |c: Option<Content>| match c {
            Some((p, pt, g, gt)) => format!("{p} prompts with {pt} tokens and {g} answers with {gt}"),
            None => "no step".to_owned(),
        };
        let log = self.steps().get(at);
        let number = log.map_or(0, |s| s.logged.iteration);
        let log = words(log.map(|s| content(&s.logged)));
        format!("step {at} (iteration {number} of the log): {log}; ours: {}", words(made.contents.get(at).copied()))
    }

    /// Compares the simulated schedule `made` with the server's answers. All steps of `made` must have the same
    /// contents as the steps of the log. Returns the number of compared rounds, and the first difference: in a round,
    /// in the chunks of an answer, or in the last step of an answer.
    fn compare(&self, made: &Made) -> (usize, Option<String>) {
        let mut compared = 0;
        for at in 0..self.order.len() {
            let (answer, rounds) = (self.answer(at), &made.rounds[at]);
            let request = answer.request;
            if let Some(theirs) = answer.rounds.as_ref().filter(|_| self.k > 0) {
                let theirs = theirs.drafted.iter().copied().zip(theirs.accepted.iter().copied());
                let pairs = up_to_the_end(answer.tokens(), theirs);
                let ours = up_to_the_end(answer.tokens(), rounds.iter().copied().filter(|r| r.0 > 0));
                compared += pairs.len();
                if let Some(i) = (0..pairs.len().max(ours.len())).find(|&i| pairs.get(i) != ours.get(i)) {
                    let say = |r: Option<&(u32, u32)>| r.map_or("none".into(), |r| format!("{} of {}", r.1, r.0));
                    let (theirs, ours) = (say(pairs.get(i)), say(ours.get(i)));
                    return (
                        compared,
                        Some(format!("request {request}, round {}: {theirs} accepted; ours {ours}", i + 1)),
                    );
                }
            }
            if let Some(which) = misplaced_chunk(answer, rounds) {
                return (compared, Some(format!("request {request}: {which}")));
            }
            // A client may see the end of an answer one step late, but never early.
            let ended = answer.chunks.last().and_then(|c| step_of(self.steps(), c.0)).unwrap_or(0);
            if !(made.last[at]..=made.last[at] + 1).contains(&ended) {
                let ours = made.last[at];
                return (compared, Some(format!("request {request} ends in step {ended}; ours in step {ours}")));
            }
        }
        (compared, None)
    }
}

/// The rounds of an answer of `tokens` tokens, as (verified, accepted). Accepted tokens count only up to the answer's
/// last token, because a client does not see draft tokens after this token.
fn up_to_the_end(tokens: u32, rounds: impl Iterator<Item = (u32, u32)>) -> Vec<(u32, u32)> {
    // The first token of an answer comes from the prompt's step. Each round emits one token more than it accepts.
    let mut left = tokens.saturating_sub(1);
    let cut = |(verified, accepted): (u32, u32)| {
        let seen = accepted.min(left);
        left = left.saturating_sub(accepted + 1);
        (verified, seen)
    };
    rounds.map(cut).collect()
}

/// Finds the first chunk of an answer that ends in the middle of the tokens of one of Foretoken's steps. Returns a
/// message about it; `None` if there is no such chunk. A chunk may have the tokens of several steps, because a slow
/// client may receive them together.
fn misplaced_chunk(answer: &Answer, rounds: &[(u32, u32)]) -> Option<String> {
    let all = answer.tokens();
    let ends: Vec<u32> = rounds
        .iter()
        .scan(1, |emitted, r| {
            *emitted = (*emitted + r.1 + 1).min(all);
            Some(*emitted)
        })
        .collect();
    let mut read = 0;
    for &(_, n) in &answer.chunks {
        read += n;
        if read != 1 && !ends.contains(&read) {
            return Some(format!("a piece of its answer ends at token {read}; none of ours does"));
        }
    }
    None
}

/// An executor that gives every step the same length: step n begins at n seconds. It records the schedule of
/// Foretoken's engine.
struct StepRecorder<'a> {
    clock: EventClock<'a>,
    /// Number of output tokens that each request has yet to emit.
    left: Vec<u32>,
    /// Number of output tokens that each request emits in all.
    asked: &'a [u32],
    made: Made,
}

impl<'a> AroundExecutor for StepRecorder<'a> {
    type Inner = EventClock<'a>;
    type Error = Infallible;

    fn inner(&self) -> &EventClock<'a> {
        &self.clock
    }

    fn inner_mut(&mut self) -> &mut EventClock<'a> {
        &mut self.clock
    }

    fn around_verify(
        &mut self,
        plan: &StepPlan,
        drafts: &mut Drafts,
        accepted: &mut [u32],
    ) -> std::result::Result<(), Infallible> {
        self.clock.verify(plan, drafts, accepted)?;
        let (step, ids) = (self.made.contents.len(), plan.batch.ids);
        let verified = |i: usize| match plan.padded {
            true => plan.batch.limit[i],
            false => drafts.verify_len.get(i).copied().unwrap_or(0),
        };
        // If a preempted request is computed again, vLLM's log counts it as a request with output, not as a prompt.
        let (prompts, again): (Vec<_>, Vec<_>) =
            plan.chunks.iter().partition(|c| self.left[c.request as usize] == self.asked[c.request as usize]);
        // With asynchronous scheduling, a step may run a request that ended while the step was in flight. The output
        // of such a request in this step is discarded.
        for (i, &id) in ids.iter().enumerate() {
            let (left, accepted) = (&mut self.left[id as usize], accepted.get(i).copied().unwrap_or(0));
            if *left == 0 {
                continue;
            }
            *left = left.saturating_sub(1 + accepted);
            self.made.rounds[id as usize].push((verified(i), accepted));
            self.made.last[id as usize] = step;
        }
        for chunk in plan.chunks {
            let id = chunk.request as usize;
            self.left[id] = self.left[id].saturating_sub(u32::from(chunk.last));
            self.made.first[id] = self.made.first[id].min(step);
            self.made.last[id] = step;
        }
        let tokens_of = |chunks: &[&Chunk]| chunks.iter().map(|c| u64::from(c.tokens)).sum::<u64>();
        let tokens = (0..ids.len()).map(|i| u64::from(verified(i)) + 1).sum::<u64>() + tokens_of(&again);
        let answers = (ids.len() + again.len()) as u32;
        self.made.contents.push((prompts.len() as u32, tokens_of(&prompts), answers, tokens));
        self.clock.wait_until(Time::from_s(step as f64 + 1.0));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calibrate::calibration::Calibration;
    use std::path::Path;

    /// A recorded run of vLLM 0.32.0 for CPUs with draft length `k`: 12 requests of three clients. The server ran the
    /// target model and draft model that Foretoken ships.
    fn recorded(k: u32) -> Source {
        let name = format!("fixtures/vllm-0.32-k{k}.obs");
        Source::open(&Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap()
    }

    fn engine() -> EngineConfig {
        let c = Calibration::of(vec![recorded(0), recorded(3)], vec![]).unwrap();
        EngineConfig {
            max_num_seqs: 8,
            max_num_batched_tokens: 256,
            max_model_len: 512,
            prefix_caching: false,
            ..c.engine
        }
    }

    fn cost() -> Calibrated {
        Calibration::of(vec![recorded(0), recorded(3)], vec![]).unwrap().profile().unwrap()
    }

    #[test]
    fn a_real_schedule_is_made_again_step_by_step() {
        for k in [0, 3] {
            let source = recorded(k);
            let replayed = replay(&source, &engine(), &cost(), k).unwrap().unwrap();
            assert_eq!(replayed.difference, None, "{replayed:?}");
            assert_eq!((replayed.equal_steps, replayed.placed), (replayed.steps, 12));
            assert_eq!(replayed.rounds > 300, k > 0, "{replayed:?}");
        }
    }

    /// A client's clock may be early, so that a request seems to have its first token one step too early. The request
    /// is moved back to the step of its prompt.
    #[test]
    fn a_request_that_is_placed_too_early_is_moved_to_a_later_step() {
        let mut source = recorded(0);
        let (first, _) = source.run.answers[7].chunks[0];
        let at = step_of(&source.run.steps, first).unwrap();
        source.run.answers[7].chunks[0].0 = source.run.steps[at - 1].end;
        let replayed = replay(&source, &engine(), &cost(), 0).unwrap().unwrap();
        assert_eq!(replayed.difference, None, "{replayed:?}");
        assert_eq!(replayed.equal_steps, replayed.steps);
    }

    #[test]
    fn a_changed_step_of_the_log_is_found() {
        let mut source = recorded(3);
        let at = source.run.steps.len() / 2;
        source.run.steps[at].logged.generation_tokens += 1;
        let replayed = replay(&source, &engine(), &cost(), 3).unwrap().unwrap();
        assert_eq!(replayed.equal_steps, at);
        assert!(replayed.difference.unwrap().starts_with(&format!("step {at} ")));
    }

    #[test]
    fn a_changed_round_is_found() {
        let mut source = recorded(3);
        let rounds = source.run.answers.iter_mut().find_map(|a| a.rounds.as_mut()).unwrap();
        // The test swaps two rounds of an answer that accepted different numbers of tokens. The answer keeps its
        // length, but its chunks end elsewhere.
        let (i, j) = (0..rounds.accepted.len())
            .flat_map(|i| (0..i).map(move |j| (j, i)))
            .find(|&(i, j)| rounds.accepted[i] != rounds.accepted[j])
            .unwrap();
        rounds.accepted.swap(i, j);
        let replayed = replay(&source, &engine(), &cost(), 3).unwrap().unwrap();
        assert!(replayed.difference.is_some(), "{replayed:?}");
    }
}
