//! Sessions: conversations of several turns. The prompt of a turn is all earlier text of the session and the user's new
//! text. A turn is sent some time after the answer to the turn before it.

use super::exponential;
use crate::checks::within;
use crate::error::TraceError;
use crate::limits;
use foretoken_sim::{Draws, RequestId, Stream, Time, Workload};
use serde::{Deserialize, Serialize};

/// Tokens in a block of a session's text that its turns share as a prefix: the usual size of a KV block.
const BLOCK: u32 = 16;

/// The longest mean gap between two turns, seconds (12 days).
const MOST_GAP_S: f64 = 1e6;

/// The most turns of a session. A larger drawn number of turns is cut to this number.
const MOST_TURNS: usize = 10_000;

/// Sessions (chats) of several turns, in which each prompt repeats the text so far. Each arrival begins a session.
/// `requests` and `duration_s` limit the arrivals. `lengths` gives the tokens of one turn: the user's new text, and the
/// answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Sessions {
    /// Mean number of turns of a session, 1 to 1000. The number is geometric.
    pub turns: f64,
    /// Mean time from the end of an answer until the next turn is sent, from 0 to 1e6 s. The time is exponential.
    pub gap_s: f64,
    /// Most tokens of a turn's prompt and answer together, at least 2. A session ends before the first turn with more
    /// tokens. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_context: Option<u32>,
}

/// A turn of a session: one request of a conversation. Turns are ordered by the time at which they would be sent if
/// answers took no time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Turn {
    /// The time at which the turn would be sent if all answers before it took no time.
    pub at: Time,
    session: u32,
    number: u32,
    /// The time from the end of the previous turn's answer until this turn of the session is sent; zero for a first
    /// turn.
    gap: Time,
}

impl Sessions {
    pub(crate) fn check(&self) -> Result<(), TraceError> {
        within("sessions.turns", self.turns, 1.0, 1000.0, "a mean number of turns from 1 to 1000")?;
        within("sessions.gap_s", self.gap_s, 0.0, MOST_GAP_S, "a mean time from 0 to 1e6 seconds")?;
        match self.max_context {
            Some(0..2) => {
                let what = "a turn has at least 2 tokens";
                Err(TraceError::spec("sessions.max_context", what, "give the most tokens of a prompt and its answer"))
            }
            _ => Ok(()),
        }
    }

    /// Draws the turns of sessions (conversations) that start at the times `starts`, ordered by time. Turns beyond the
    /// end of the clock are left out.
    ///
    /// # Errors
    /// The turns take more memory than the program may use.
    pub(crate) fn turns(&self, starts: &[Time], seed: u64) -> Result<Vec<Turn>, TraceError> {
        let mut turns = Vec::new();
        for (session, &start) in (0u32..).zip(starts) {
            let mut draws = Draws::new(seed, Stream::Sessions, session.into());
            let mut at = start;
            for number in 0..self.number_of_turns(&mut draws) as u32 {
                let gap = if number == 0 { Time::ZERO } else { Time::from_s(self.gap_s * exponential(&mut draws)) };
                at += gap;
                if at == Time::MAX {
                    break;
                }
                turns.push(Turn { at, session, number, gap });
            }
            fits(turns.len(), 0)?;
        }
        turns.sort_unstable();
        Ok(turns)
    }

    fn number_of_turns(&self, draws: &mut Draws) -> usize {
        let u = draws.unit();
        let more = if self.turns > 1.0 { u.ln() / (1.0 - 1.0 / self.turns).ln() } else { 0.0 };
        1 + (more as usize).min(MOST_TURNS - 1)
    }

    /// Puts the session's earlier text in front of each turn's prompt, and links each turn to the turn before it.
    /// `workload` has a request for each of `turns`, with the lengths of the turn's new text and of its answer. Once a
    /// turn has more tokens than `max_context`, this turn and all later turns of its session are left out.
    ///
    /// # Errors
    /// The turns and the ids of their shared blocks take more memory than the program may use.
    pub(crate) fn link(&self, workload: Workload, turns: &[Turn]) -> Result<Workload, TraceError> {
        let most = self.max_context.unwrap_or(u32::MAX);
        let sessions = turns.iter().map(|turn| turn.session as usize + 1).max().unwrap_or(0);
        // For each session: the number of tokens of its text so far (`None` once the session has ended), and the
        // request of its latest turn.
        let mut said: Vec<(Option<u32>, RequestId)> = vec![(Some(0), RequestId::MAX); sessions];
        let mut linked = Workload {
            categories: workload.categories.clone(),
            recordings: workload.recordings.clone(),
            hazards: workload.hazards.clone(),
            prefix_block: BLOCK,
            ..Workload::default()
        };
        for (id, turn) in (0..).zip(turns) {
            let mut request = workload.get(id);
            let (before, last) = &mut said[turn.session as usize];
            let prompt = before.and_then(|before| before.checked_add(request.prompt_len));
            let context = prompt.and_then(|prompt| prompt.checked_add(request.output_len)).filter(|all| *all <= most);
            *before = context;
            let (Some(prompt), Some(context)) = (prompt, context) else { continue };
            fits(linked.len() + 1, linked.prefix_ids.len() as u64 + u64::from(context.div_ceil(BLOCK)))?;
            request.prompt_len = prompt;
            request.prefix = (0..context.div_ceil(BLOCK)).map(|block| block_id(turn.session, block)).collect();
            let own = linked.len() as RequestId;
            linked.push(request);
            linked.next_turn.push(RequestId::MAX);
            linked.gap.push(Time::ZERO);
            if let Some(at) = linked.next_turn.get_mut(*last as usize) {
                *at = own;
                linked.gap[*last as usize] = turn.gap;
            }
            *last = own;
        }
        Ok(linked)
    }
}

/// Refuses turns of sessions that, with the ids of their shared prefix blocks, take more memory than the program may
/// use. Also refuses more ids than a workload can number.
fn fits(turns: usize, ids: u64) -> Result<(), TraceError> {
    let bytes = (turns as u64).saturating_mul(limits::REQUEST).saturating_add(ids.saturating_mul(8));
    if bytes <= limits::memory() && ids < u64::from(u32::MAX) {
        return Ok(());
    }
    let what = format!("{turns} turns and {ids} shared blocks take {}", limits::bytes(bytes));
    let hint = format!("ask for fewer sessions or turns, or give max_context; {}", limits::raise());
    Err(TraceError::spec("sessions", what, hint))
}

/// The id of the shared prefix block number `block` of a session's text. Text is only appended, so a block is the same
/// in all turns that contain it.
fn block_id(session: u32, block: u32) -> u64 {
    (u64::from(session) + 1) << 32 | u64::from(block)
}

#[cfg(test)]
mod tests {
    use super::*;
    use foretoken_sim::Request;

    fn sessions(turns: f64, gap_s: f64, max_context: Option<u32>) -> Sessions {
        Sessions { turns, gap_s, max_context }
    }

    fn starts(n: u64) -> Vec<Time> {
        (0..n).map(|i| Time::from_s(i as f64)).collect()
    }

    /// Sessions that start at `starts`, as a workload and its turns. Each turn has 100 tokens of new text and an answer
    /// of 20 tokens.
    fn linked(of: &Sessions, starts: &[Time]) -> (Workload, Vec<Turn>) {
        let turns = of.turns(starts, 3).unwrap();
        let workload = turns.iter().map(|turn| Request::new(turn.at, 100, 20)).collect();
        (of.link(workload, &turns).unwrap(), turns)
    }

    #[test]
    fn turns_and_gaps_have_the_means_that_were_asked_for() {
        let turns = sessions(5.0, 12.0, None).turns(&starts(20_000), 3).unwrap();
        let mean = turns.len() as f64 / 20_000.0;
        assert!((mean - 5.0).abs() < 0.1, "{mean}");
        let gaps: Vec<f64> = turns.iter().filter(|turn| turn.number > 0).map(|turn| turn.gap.as_s()).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        assert!((mean - 12.0).abs() < 0.2, "{mean}");
        let single = sessions(1.0, 12.0, None).turns(&starts(100), 3).unwrap();
        assert_eq!(single.len(), 100);
    }

    #[test]
    fn a_prompt_repeats_all_that_was_said_before() {
        let (w, _) = linked(&sessions(4.0, 5.0, None), &starts(200));
        let mut turns = 0;
        for first in w.first_turns() {
            let (mut id, mut before) = (first, 0);
            assert_eq!(w.prompt_len[id as usize], 100);
            while let Some((next, _)) = w.following(id) {
                before += 120;
                assert!(next > id);
                assert_eq!(w.prompt_len[next as usize], before + 100);
                // The prompt of the next turn begins with the blocks of this turn in the same order. The last block of
                // this turn may be partial, so it is not compared.
                assert!(w.prefix(next).starts_with(&w.prefix(id)[..w.prefix(id).len() - 1]));
                id = next;
                turns += 1;
            }
        }
        assert!(turns > 400, "{turns}");
        let mut ids: Vec<u64> = w.first_turns().iter().flat_map(|&id| w.prefix(id).to_vec()).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), 200 * 8, "sessions share nothing");
    }

    #[test]
    fn a_session_ends_before_it_outgrows_the_context() {
        let (w, turns) = linked(&sessions(10.0, 5.0, Some(500)), &starts(300));
        let longest = (0..w.len()).map(|i| w.prompt_len[i] + w.output_len[i]).max();
        assert_eq!(longest, Some(480));
        let long = (0..300).filter(|&s| turns.iter().filter(|turn| turn.session == s).count() > 4).count();
        assert!(long > 100);
        let kept: usize = (0..300).map(|s| turns.iter().filter(|turn| turn.session == s).count().min(4)).sum();
        assert_eq!(w.len(), kept);
    }

    #[test]
    fn bad_settings_are_named() {
        let key = |of: Sessions| of.check().map_err(|e| e.to_string());
        assert_eq!(key(sessions(3.0, 0.0, None)), Ok(()));
        assert!(key(sessions(0.5, 1.0, None)).unwrap_err().contains("sessions.turns"));
        assert!(key(sessions(2.0, -1.0, None)).unwrap_err().contains("sessions.gap_s"));
        assert!(key(sessions(2.0, 1e30, None)).unwrap_err().contains("sessions.gap_s"));
        assert!(key(sessions(2.0, 1.0, Some(1))).unwrap_err().contains("sessions.max_context"));
    }

    #[test]
    fn turns_beyond_the_clock_are_left_out() {
        let turns = sessions(1000.0, 1e6, None).turns(&starts(3), 3).unwrap();
        assert!((3..1000).contains(&turns.len()) && turns.iter().all(|turn| turn.at < Time::MAX), "{}", turns.len());
    }

    #[test]
    fn more_shared_blocks_than_a_workload_can_number_are_refused() {
        assert!(fits(1, 1000).is_ok());
        assert!(fits(1, u64::from(u32::MAX)).unwrap_err().to_string().contains("4294967295 shared blocks"));
    }
}
