//! Reconstructs each request of a recording: its times, its tokens, and its rounds.

use crate::recordings::bounds;
use crate::recordings::llama_cpp;
use crate::recordings::recording::{Asked, Ended, Event, Recording, Tokens};
use foretoken_sim::{MAX_SPEC_LEN, Time};
use serde::Deserialize;
use serde_json::Value;

/// A request of an observed run that was sent, and its answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// Index of the request in the recording's list of planned requests.
    pub request: u32,
    /// The request as it was planned: due time, lengths and category.
    pub asked: Asked,
    /// When the request was sent. If it was sent more than once, the last time.
    pub sent: Time,
    /// How often the request was sent again after a failure or a refusal.
    pub retries: u32,
    /// For each chunk: when the client read it, and how many tokens it had.
    pub chunks: Vec<(Time, u32)>,
    /// Ids of the answer's tokens; empty if the server does not send ids.
    pub ids: Vec<u32>,
    /// True if the server reported the number of tokens of each chunk. If false, the answer's total is spread evenly
    /// over the chunks. If the total is not known either, each chunk counts as one token.
    pub counted: bool,
    /// When and how the answer ended; `None` if the recording ends before the answer.
    pub ended: Option<(Time, Ended)>,
    /// The request's rounds; `None` if the server does not report them.
    pub rounds: Option<Rounds>,
    /// Waiting time and time to first token of the request by the server's clock.
    pub times: ServerTimes,
}

/// A request's rounds, in order. vLLM does not report steps without draft tokens. Of llama.cpp such a step is known
/// too, and is a round of no tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rounds {
    /// `drafted[i]` is the number of draft tokens that round i (the request's draft tokens of one step) verified.
    pub drafted: Vec<u32>,
    /// `accepted[i]` is the number of draft tokens that the target accepted in round i (the request's draft tokens of
    /// one step).
    pub accepted: Vec<u32>,
}

/// A request's times by the server's clock, seconds; `None` if the server does not report them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ServerTimes {
    pub queue_s: Option<f64>,
    pub ttft_s: Option<f64>,
}

impl Answer {
    /// Number of the answer's tokens in the chunks that the client read.
    pub fn tokens(&self) -> u32 {
        self.chunks.iter().map(|c| c.1).sum()
    }

    /// True if the answer ended normally, without refusal or failure.
    pub fn finished(&self) -> bool {
        matches!(self.ended, Some((_, Ended::Finished { .. })))
    }

    /// Number of the prompt's tokens: the server's count if it is plausible, else the planned length.
    pub fn prompt_len(&self) -> u32 {
        let counted = match self.ended {
            Some((_, Ended::Finished { prompt_tokens, .. })) => prompt_tokens.and_then(bounds::prompt_tokens),
            _ => None,
        };
        counted.unwrap_or(self.asked.prompt_len)
    }

    /// The draft lengths of the answer's rounds that the answer's end did not shorten. vLLM may shorten the last round.
    /// llama.cpp drafts at most as many tokens as the answer lacks, less one. Empty if the server does not report
    /// rounds.
    pub fn usual_lengths(&self) -> Vec<u32> {
        let Some(rounds) = &self.rounds else { return Vec::new() };
        let mut lengths = Vec::new();
        let mut emitted = 1;
        for (&drafted, &accepted) in rounds.drafted.iter().zip(&rounds.accepted) {
            if emitted + drafted + 1 < self.asked.output_len {
                lengths.push(drafted);
            }
            emitted += accepted + 1;
        }
        lengths.truncate(rounds.drafted.len().saturating_sub(1));
        lengths
    }

    /// Number of the answer's tokens in the server's usage report, without a check of plausibility; `None` without a
    /// report.
    pub fn usage(&self) -> Option<u32> {
        match self.ended {
            Some((_, Ended::Finished { completion_tokens, .. })) => completion_tokens,
            _ => None,
        }
    }

    /// The delay between the request's due time and its sending. Has no meaning in a closed loop: there the due time
    /// is 0, so the result is the time of sending.
    pub fn late(&self) -> Time {
        self.sent.saturating_sub(self.asked.due)
    }

    /// True if the output positions of all the request's rounds are known. This needs draft tokens in every step but
    /// the first. If a step had no draft tokens, it is not in `rounds`, and the output positions at which later rounds
    /// began are unknown.
    pub fn rounds_are_whole(&self) -> bool {
        let Some(rounds) = &self.rounds else { return false };
        let emitted: u32 = rounds.accepted.iter().map(|a| a + 1).sum();
        // The last round of an answer may accept draft tokens beyond the answer's end. Such draft tokens are not
        // emitted.
        let last = rounds.accepted.last().copied().unwrap_or(0);
        let tokens = self.tokens();
        tokens > 0 && 1 + emitted >= tokens && emitted < tokens + last
    }
}

/// vLLM's metrics of a request, which come with the completion (`--enable-per-request-metrics`,
/// `--per-request-spec-decode-metrics detailed`; 0.32 and 0.33), or what llama.cpp reported about it. Each value is
/// checked separately, so that a bad value does not discard the remaining values.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ServerMetrics {
    time_to_first_token_ms: Value,
    queue_time_ms: Value,
    speculative_decoding: Value,
    llama_cpp: Value,
}

impl ServerMetrics {
    /// Parses the metrics of a request, which the server sent as JSON. If the server sent no metrics, or if they
    /// cannot be read, all values are missing.
    pub(crate) fn read(text: Option<&str>) -> ServerMetrics {
        text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
    }
}

/// The rounds of an answer of at most `asked` tokens (a round is the request's draft tokens of one step); `None` if the
/// server does not report rounds.
pub(crate) fn rounds(metrics: &ServerMetrics, asked: u32) -> Result<Option<Rounds>, String> {
    if let Ok(reported) = llama_cpp::Reported::deserialize(&metrics.llama_cpp) {
        let of = |rounds: Vec<(u32, u32)>| {
            let (drafted, accepted) = rounds.into_iter().unzip();
            Rounds { drafted, accepted }
        };
        return Ok(llama_cpp::rounds(&reported, asked)?.map(of));
    }
    let list = |key: &str| match &metrics.speculative_decoding[key] {
        Value::Null => Ok(None),
        value => value.as_array().map(Some).ok_or_else(|| format!("{key} is no list")),
    };
    let (Some(drafted), Some(accepted)) = (list("per_step_drafted")?, list("per_step_accepted")?) else {
        return Ok(None);
    };
    if drafted.len() != accepted.len() {
        return Err(format!("{} rounds drafted, and {} accepted", drafted.len(), accepted.len()));
    }
    if drafted.len() > asked as usize {
        return Err(format!("{} rounds for {asked} tokens, and each brings a token", drafted.len()));
    }
    let numbers = |list: &[Value]| -> Result<Vec<u32>, String> {
        let drafts = |v: &Value| {
            let n = v.as_f64().and_then(bounds::drafts);
            n.ok_or_else(|| format!("a round of {v} tokens, where 0 to {MAX_SPEC_LEN} are possible"))
        };
        list.iter().map(drafts).collect()
    };
    let (drafted, accepted) = (numbers(drafted)?, numbers(accepted)?);
    match drafted.iter().zip(&accepted).find(|(d, a)| a > d) {
        Some((d, a)) => Err(format!("a round accepted {a} tokens of {d}")),
        None => Ok(Some(Rounds { drafted, accepted })),
    }
}

/// The requests of a recording that were sent, with their answers, in the order of the recording's list of planned
/// requests. If a request was sent again, only its last attempt is included.
pub fn answers(recording: &Recording) -> Vec<Answer> {
    let mut answers: Vec<Option<Answer>> = vec![None; recording.head.asked.len()];
    // For each answer: the number of its tokens so far. It is needed if the server reports the answer's running total
    // of tokens with each chunk, because a chunk's tokens are then the difference of two totals.
    let mut so_far = vec![0u32; answers.len()];
    for event in &recording.events {
        match event {
            Event::Sent { request, at, attempt } => {
                let i = *request as usize;
                so_far[i] = 0;
                answers[i] = Some(Answer {
                    request: *request,
                    asked: recording.head.asked[i],
                    sent: *at,
                    retries: *attempt,
                    chunks: Vec::new(),
                    ids: Vec::new(),
                    counted: true,
                    ended: None,
                    rounds: None,
                    times: ServerTimes::default(),
                });
            }
            Event::Chunk { request, at, tokens } => {
                let Some(answer) = &mut answers[*request as usize] else { continue };
                let so_far = &mut so_far[*request as usize];
                let n = match tokens {
                    Tokens::Ids(ids) => {
                        answer.ids.extend(ids);
                        *so_far += ids.len() as u32;
                        ids.len() as u32
                    }
                    Tokens::SoFar(total) if bounds::answer_tokens(*total, answer.asked.output_len).is_some() => {
                        let new = total.saturating_sub(*so_far);
                        *so_far = (*so_far).max(*total);
                        new
                    }
                    Tokens::SoFar(_) | Tokens::Unknown => {
                        answer.counted = false;
                        1
                    }
                };
                if n > 0 {
                    answer.chunks.push((*at, n));
                }
            }
            Event::Ended { request, at, how } => {
                if let Some(answer) = &mut answers[*request as usize] {
                    end(answer, *at, how);
                }
            }
            Event::Metrics { .. } | Event::Log { .. } | Event::Note { .. } | Event::End { .. } => {}
        }
    }
    answers.into_iter().flatten().collect()
}

fn end(answer: &mut Answer, at: Time, how: &Ended) {
    if let Ended::Finished { completion_tokens, metrics, .. } = how {
        let asked = answer.asked.output_len;
        let total = completion_tokens.and_then(|n| bounds::answer_tokens(n, asked));
        if let Some(total) = total.filter(|_| !answer.counted) {
            spread(&mut answer.chunks, total);
        }
        let metrics = ServerMetrics::read(metrics.as_deref());
        let seconds = |ms: &Value| ms.as_f64().map(|ms| ms / 1e3).filter(|s| (0.0..=bounds::LONGEST_S).contains(s));
        answer.times =
            ServerTimes { queue_s: seconds(&metrics.queue_time_ms), ttft_s: seconds(&metrics.time_to_first_token_ms) };
        answer.rounds = rounds(&metrics, asked).unwrap_or_default();
        if let Some(rounds) = answer.rounds.as_ref().filter(|_| !metrics.llama_cpp.is_null() && answer.counted) {
            answer.chunks = by_rounds(&answer.chunks, rounds);
        }
    }
    answer.ended = Some((at, how.clone()));
}

/// Spreads the `total` tokens of an answer evenly over its chunks, given as (time, number of tokens). If `total` is not
/// a multiple of the number of chunks, the earlier chunks get one token more.
fn spread(chunks: &mut [(Time, u32)], total: u32) {
    let n = chunks.len() as u32;
    for (chunk, i) in chunks.iter_mut().zip(0..) {
        chunk.1 = total / n + u32::from(i < total % n);
    }
}

/// The chunks of an answer, given as (time, number of tokens), in which each token came alone, put together by the
/// answer's rounds. llama.cpp sends the tokens of a round one by one; a chunk is then complete when its last token is
/// read.
fn by_rounds(chunks: &[(Time, u32)], rounds: &Rounds) -> Vec<(Time, u32)> {
    let (mut whole, mut waiting): (Vec<(Time, u32)>, u32) = (Vec::new(), 0);
    let mut ends = std::iter::once(1).chain(rounds.accepted.iter().map(|a| a + 1));
    let mut end = ends.next();
    let mut so_far = 0;
    for &(at, n) in chunks {
        waiting += n;
        so_far += n;
        let mut complete = false;
        while let Some(left) = end.filter(|&left| so_far >= left) {
            so_far -= left;
            end = ends.next();
            complete = true;
        }
        if complete {
            whole.push((at, std::mem::take(&mut waiting)));
        }
    }
    // A stop word may end the answer within its last round.
    if let Some(&(at, _)) = chunks.last().filter(|_| waiting > 0) {
        whole.push((at, waiting));
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recordings::recording::Head;

    fn finished(metrics: Option<&str>, completion: Option<u32>) -> Ended {
        Ended::Finished {
            reason: "length".into(),
            prompt_tokens: Some(12),
            completion_tokens: completion,
            cached_tokens: None,
            metrics: metrics.map(str::to_owned),
        }
    }

    fn recording(chunks: Vec<Tokens>, how: Ended) -> Recording {
        let at = |i: usize| Time::from_s(i as f64);
        let mut events = vec![Event::Sent { request: 0, at: at(0), attempt: 0 }];
        let chunk = |(i, tokens)| Event::Chunk { request: 0, at: at(1 + i), tokens };
        events.extend(chunks.into_iter().enumerate().map(chunk));
        events.push(Event::Ended { request: 0, at: at(9), how });
        let asked = vec![Asked { prompt_len: 10, output_len: 8, ..Asked::default() }; 2];
        Recording { head: Head { asked, ..Head::default() }, events, ending: None }
    }

    fn only(recording: &Recording) -> Answer {
        let mut all = answers(recording);
        assert_eq!(all.len(), 1, "the other one was not sent");
        all.remove(0)
    }

    #[test]
    fn tokens_are_counted_from_ids_running_totals_or_usage() {
        let sizes = |chunks, how| {
            let answer = only(&recording(chunks, how));
            (answer.chunks.iter().map(|c| c.1).collect::<Vec<_>>(), answer.counted)
        };
        let ids = vec![Tokens::Ids(vec![1]), Tokens::Ids(vec![2, 3, 4]), Tokens::Ids(vec![])];
        assert_eq!(sizes(ids, finished(None, Some(4))), (vec![1, 3], true));
        let so_far = vec![Tokens::SoFar(1), Tokens::SoFar(4), Tokens::SoFar(4)];
        assert_eq!(sizes(so_far, finished(None, Some(4))), (vec![1, 3], true));
        let unknown = vec![Tokens::Unknown; 3];
        assert_eq!(sizes(unknown.clone(), finished(None, Some(7))), (vec![3, 2, 2], false));
        assert_eq!(sizes(unknown, finished(None, None)), (vec![1, 1, 1], false));
    }

    #[test]
    fn rounds_are_whole_when_they_make_up_the_answer() {
        let answer_with = |drafted: &str, accepted: &str| {
            let metrics = format!(
                r#"{{"queue_time_ms": 2.5, "speculative_decoding": {{"per_step_drafted": {drafted}, "per_step_accepted": {accepted}}}}}"#
            );
            only(&recording(vec![Tokens::Ids(vec![5; 8])], finished(Some(&metrics), Some(8))))
        };
        let answer = answer_with("[3, 3, 3]", "[3, 0, 1]");
        assert_eq!(answer.rounds, Some(Rounds { drafted: vec![3; 3], accepted: vec![3, 0, 1] }));
        assert!(answer.rounds_are_whole() && answer.prompt_len() == 12);
        assert_eq!(answer.times, ServerTimes { queue_s: Some(0.0025), ttft_s: None });
        assert!(answer_with("[3, 3]", "[3, 3]").rounds_are_whole(), "one was accepted behind the end");
        assert!(!answer_with("[3, 3]", "[3, 0]").rounds_are_whole(), "a step is missing");
        assert_eq!(answer_with("[3, 3]", "[3]").rounds, None);
        assert_eq!(answer_with("[3]", "[4]").rounds, None);
        assert_eq!(answer_with("7", "[4]").rounds, None);
    }

    #[test]
    fn tokens_that_came_one_by_one_are_put_together_by_rounds() {
        let at = |ms: u64| Time(ms * 1_000_000_000);
        let rounds = Rounds { drafted: vec![3, 3, 0], accepted: vec![2, 0, 0] };
        let ones: Vec<(Time, u32)> = (1..=6).map(|ms| (at(ms), 1)).collect();
        assert_eq!(by_rounds(&ones, &rounds), [(at(1), 1), (at(4), 3), (at(5), 1), (at(6), 1)]);
        // The server kept back the end of the first round, and sent it with the second one.
        let late = [(at(1), 1), (at(2), 1), (at(5), 3), (at(6), 1)];
        assert_eq!(by_rounds(&late, &rounds), [(at(1), 1), (at(5), 4), (at(6), 1)]);
        assert_eq!(by_rounds(&ones[..3], &rounds), [(at(1), 1), (at(3), 2)], "it ended within a round");
    }

    #[test]
    fn a_request_that_was_sent_again_starts_again() {
        let mut r = recording(vec![Tokens::SoFar(2)], finished(None, None));
        r.events.push(Event::Sent { request: 0, at: Time::from_s(10.0), attempt: 1 });
        let answer = only(&r);
        assert_eq!((answer.retries, answer.chunks.len(), answer.finished()), (1, 0, false));
    }
}
