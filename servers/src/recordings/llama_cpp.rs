//! Reads what llama.cpp's server reports (b11434): the `timings` of an answer, and the drafter's statistics in its log.
//!
//! With `timings_per_token` each part of an answer has running totals: tokens of the answer, tokens drafted for it, and
//! drafts accepted. The server adds a round to these totals before it sends the round's first token. So each growth of
//! the drafted tokens is a round, and its growth of accepted tokens is exact.

use crate::recordings::bounds;
use crate::recordings::recording::{Event, Recording};
use foretoken_sim::MAX_SPEC_LEN;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The start of [`Server::version`](crate::recordings::recording::Server::version) for llama.cpp's server.
pub const NAME: &str = "llama.cpp";

/// True if this version, with which a recording names its server, is llama.cpp's.
pub fn is_llama_cpp(version: Option<&str>) -> bool {
    version.is_some_and(|version| version.starts_with(NAME))
}

/// The running totals of an answer in a `timings` object of llama.cpp. A server without a drafter, and the part of an
/// answer before its first drafts, have no totals of drafts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Number of the answer's tokens so far.
    pub predicted_n: u32,
    /// Number of tokens drafted for the answer so far.
    #[serde(default)]
    pub draft_n: u32,
    /// Number of the drafted tokens that were accepted so far.
    #[serde(default)]
    pub draft_n_accepted: u32,
}

/// What llama.cpp reported about a request, in the form in which a recording keeps it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reported {
    /// The last `timings` object of the answer.
    pub timings: Value,
    /// The totals of each part of the answer at which the number of drafted tokens had grown.
    pub rounds: Vec<Totals>,
}

/// The rounds of an answer (a request's draft tokens of one step each), from what llama.cpp reported about it, as
/// (number of drafted tokens, number of accepted ones). A step without drafts between two rounds or after the last one
/// is a round of no tokens. `None` if nothing was drafted, or if the server sent totals with the answer's end only.
pub(crate) fn rounds(reported: &Reported, asked: u32) -> Result<Option<Vec<(u32, u32)>>, String> {
    let Ok(last) = Totals::deserialize(&reported.timings) else { return Ok(None) };
    if last.draft_n == 0 || reported.rounds.is_empty() {
        return Ok(None);
    }
    if last.predicted_n > asked {
        return Err(format!("{} tokens of at most {asked}", last.predicted_n));
    }
    if reported.rounds.len() > asked as usize {
        return Err(format!("{} rounds for {asked} tokens, and each brings a token", reported.rounds.len()));
    }
    // The totals of consecutive rounds give each round's drafted and accepted tokens.
    let mut before = Totals::default();
    let mut found: Vec<(u32, u32)> = Vec::new();
    for now in &reported.rounds {
        let grown = |a: u32, b: u32| b.checked_sub(a);
        match (grown(before.draft_n, now.draft_n), grown(before.draft_n_accepted, now.draft_n_accepted)) {
            (Some(d), _) if d > MAX_SPEC_LEN.saturating_mul(asked).min(bounds::MOST_TOKENS) => {
                return Err(format!("{d} drafted tokens for an answer of {asked}"));
            }
            (Some(d), Some(a)) if a <= d && now.predicted_n <= last.predicted_n => found.push((d, a)),
            _ => return Err("running totals of drafts that fall, or more accepted than drafted".into()),
        }
        before = *now;
    }
    if (before.draft_n, before.draft_n_accepted) != (last.draft_n, last.draft_n_accepted) {
        return Err(format!("{} drafted tokens in all, and {} in its parts", last.draft_n, before.draft_n));
    }
    // The position of a round's first token. The server may keep this token back, so that the totals come with a later
    // token. The start of the next round bounds the position.
    let mut end = last.predicted_n + 1;
    let mut starts = vec![0; found.len()];
    for (i, &(_, accepted)) in found.iter().enumerate().rev() {
        // A stop word may end the answer within its last round.
        let emitted = if i + 1 == found.len() { 1 } else { accepted + 1 };
        starts[i] = reported.rounds[i].predicted_n.min(end.saturating_sub(emitted));
        end = starts[i];
    }
    // Rounds whose tokens follow each other without a gap are single rounds. Their longest draft is the server's K.
    let follows = |i: usize| starts[i] == if i == 0 { 2 } else { starts[i - 1] + found[i - 1].1 + 1 };
    let k = (0..found.len()).filter(|&i| follows(i)).map(|i| found[i].0).max().unwrap_or(0);
    if k > MAX_SPEC_LEN {
        return Err(format!("a round of {k} tokens, where 0 to {MAX_SPEC_LEN} are possible"));
    }
    if found.iter().any(|&(drafted, _)| drafted > k) {
        return Err("the server kept back all tokens of a round, so that two rounds came as one".into());
    }
    let (mut rounds, mut next) = (Vec::new(), 2);
    for (&(drafted, accepted), &start) in found.iter().zip(&starts) {
        rounds.extend((next..start).map(|_| (0, 0)));
        rounds.push((drafted, accepted));
        next = start + accepted + 1;
    }
    rounds.extend((next..=last.predicted_n).map(|_| (0, 0)));
    Ok(Some(rounds))
}

/// The statistics of a drafter that llama.cpp's log has at the end of each request (`--log-verbosity 4`). All numbers
/// count from the server's start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DraftStatistics {
    /// Number of calls of the drafter. A call drafts for all slots that generate.
    pub calls: u64,
    pub drafted: u64,
    /// Time of these calls, seconds.
    pub seconds: f64,
}

impl DraftStatistics {
    /// Parses a line of llama.cpp's log. `None` if it is another line, or has no time.
    pub fn read(line: &str) -> Option<DraftStatistics> {
        let of = |key: &str| line.split_once(key).map(|(_, rest)| rest.trim_start());
        let word = |text: &str| text.split([' ', ',']).next().unwrap_or_default().to_owned();
        let calls = of("#calls(b,g,a) =")?.split_whitespace().nth(1)?.trim_end_matches(',').parse().ok()?;
        let drafted = word(of("#gen tokens =")?).parse().ok()?;
        let ms: f64 = of("dur(b,g,a) =")?.split(',').nth(1)?.trim().parse().ok()?;
        (0.0..=bounds::LONGEST_S).contains(&(ms / 1e3)).then_some(DraftStatistics { calls, drafted, seconds: ms / 1e3 })
    }

    /// The growth of a recording's statistics from the first line of the log to the last. `None` if there are fewer
    /// than two lines, or if a number fell or did not grow.
    pub fn growth(recording: &Recording) -> Option<DraftStatistics> {
        let lines = recording.events.iter().filter_map(|e| match e {
            Event::Log { lines, .. } => Some(lines),
            _ => None,
        });
        let mut all = lines.flatten().filter_map(|line| DraftStatistics::read(line));
        let first = all.next()?;
        let last = all.next_back()?;
        let calls = last.calls.checked_sub(first.calls).filter(|&n| n > 0)?;
        let drafted = last.drafted.checked_sub(first.drafted)?;
        (last.seconds > first.seconds).then_some(DraftStatistics {
            calls,
            drafted,
            seconds: last.seconds - first.seconds,
        })
    }
}

pub fn is_statistics(line: &str) -> bool {
    line.contains(" statistics ") && line.contains("#calls(b,g,a) =")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals(all: &[(u32, u32, u32)]) -> Vec<Totals> {
        let totals = |&(predicted_n, draft_n, draft_n_accepted): &(u32, u32, u32)| Totals {
            predicted_n,
            draft_n,
            draft_n_accepted,
        };
        all.iter().map(totals).collect()
    }

    fn read(parts: &[(u32, u32, u32)], last: (u32, u32, u32)) -> Result<Option<Vec<(u32, u32)>>, String> {
        let timings = serde_json::to_value(totals(&[last])[0]).unwrap();
        rounds(&Reported { timings, rounds: totals(parts) }, 64)
    }

    #[test]
    fn growing_totals_are_rounds_and_the_rest_are_steps_without_drafts() {
        // The answer has 12 tokens: one of the prompt, rounds of 3 of 3, 0 of 3 and 1 of 3, a round shortened to 2,
        // and one token without drafts.
        let all = [(2, 3, 3), (6, 6, 3), (7, 9, 4), (9, 11, 5)];
        let expected = vec![(3, 3), (3, 0), (3, 1), (2, 1), (0, 0), (0, 0)];
        assert_eq!(read(&all, (12, 11, 5)), Ok(Some(expected.clone())));
        // The first token of the second round was kept back. There is no step without drafts.
        let late = [(2, 3, 3), (6, 6, 3), (8, 9, 4), (9, 11, 5)];
        assert_eq!(read(&late, (12, 11, 5)), Ok(Some(expected)));
        let between = vec![(3, 0), (0, 0), (3, 2)];
        assert_eq!(read(&[(2, 3, 0), (4, 6, 2)], (6, 6, 2)), Ok(Some(between)));
    }

    /// The lines are from the log of llama.cpp b11434.
    #[test]
    fn statistics_of_the_drafter_are_read() {
        let log = include_str!("../../fixtures/llama-cpp-b11434-server.log");
        let lines: Vec<&str> = log.lines().filter(|line| is_statistics(line)).collect();
        let read = DraftStatistics::read(lines[0]).unwrap();
        assert_eq!((lines.len(), read.calls, read.drafted), (1, 7, 20));
        assert!((read.seconds - 0.001917).abs() < 1e-12);
        assert!(log.lines().filter(|line| !is_statistics(line)).all(|line| DraftStatistics::read(line).is_none()));
        let later = lines[0].replace("      7      7", "     17     17").replace("1.917", "5.917");
        let log = |lines: &[&str]| {
            let lines = lines.iter().map(|&line| line.to_owned()).collect();
            let events = vec![Event::Log { at: foretoken_sim::Time::ZERO, lines }];
            DraftStatistics::growth(&Recording { head: Default::default(), events, ending: None })
        };
        let growth = log(&[lines[0], "else", &later]).unwrap();
        assert!(growth.calls == 10 && (growth.seconds - 0.004).abs() < 1e-12, "{growth:?}");
        assert_eq!((log(&[lines[0]]), log(&[&later, lines[0]])), (None, None));
    }

    #[test]
    fn totals_that_say_nothing_or_cannot_be_are_not_rounds() {
        assert_eq!(read(&[], (12, 0, 0)), Ok(None), "nothing was drafted");
        assert_eq!(read(&[], (12, 9, 4)), Ok(None), "totals of the whole answer alone");
        assert_eq!(rounds(&Reported::default(), 64), Ok(None));
        let why = |parts: &[(u32, u32, u32)], last| read(parts, last).unwrap_err();
        assert!(why(&[(2, 3, 3), (7, 9, 3)], (9, 9, 3)).contains("two rounds came as one"));
        assert!(why(&[(2, 3, 1), (4, 2, 1)], (9, 2, 1)).contains("that fall"));
        assert!(why(&[(2, 3, 4)], (9, 3, 4)).contains("more accepted than drafted"));
        assert!(why(&[(2, 3, 1)], (9, 6, 1)).contains("6 drafted tokens in all, and 3 in its parts"));
        assert!(why(&[(2, 40, 1)], (9, 40, 1)).contains("a round of 40 tokens"));
        assert!(why(&[(2, 3, 1)], (65, 3, 1)).contains("65 tokens of at most 64"));
        assert!(
            why(&[(2, u32::MAX, u32::MAX)], (9, u32::MAX, u32::MAX)).contains("drafted tokens for an answer of 64")
        );
        assert!(why(&[(2, 3, 1); 65], (9, 3, 1)).contains("65 rounds for 64 tokens"));
    }
}
