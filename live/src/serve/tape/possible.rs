//! Checks that the content of a tape is possible. Checksums find damaged frames. This check finds undamaged frames
//! whose content no run can write.

use super::{Head, Tail};
use foretoken_sim::MAX_SPEC_LEN;
use foretoken_sim::live::{Round, StepTrace};

/// Says what is impossible in the head of a tape, such as lists of different lengths. `None` if all is possible. The
/// text continues a sentence that begins with "frame 0".
pub fn wrong_head(head: &Head) -> Option<String> {
    let requests = head.arrival.len();
    let columns =
        [("prompts", head.prompt_len.len()), ("outputs", head.output_len.len()), ("categories", head.category.len())];
    let (what, n) = columns.into_iter().find(|(_, n)| *n != requests)?;
    Some(format!("has {n} {what} for {requests} requests"))
}

/// Says what is impossible in a recorded step of a live run, such as more accepted than verified draft tokens. `None`
/// if all is possible.
pub fn wrong_step(head: &Head, step: &StepTrace) -> Option<String> {
    let requests = step.rounds.iter().map(|r| r.request).chain(step.chunks.iter().map(|c| c.request));
    unknown_request(head, requests)
        .or_else(|| step.rounds.iter().find_map(wrong_round))
        .or_else(|| wrong_nodes(step))
        .or_else(|| backwards(step).then(|| "has activities that end before they begin, or out of order".to_owned()))
}

/// The tail of the log lists the rejected requests. Says which of them is not among the requests that the head of the
/// log lists; `None` if the head lists all of them.
pub fn wrong_tail(head: &Head, tail: &Tail) -> Option<String> {
    unknown_request(head, tail.rejected.iter().copied())
}

fn unknown_request(head: &Head, mut requests: impl Iterator<Item = u32>) -> Option<String> {
    let requests_of = head.arrival.len();
    let request = requests.find(|&r| r as usize >= requests_of)?;
    Some(format!("speaks of request {request} of {requests_of}"))
}

fn wrong_round(round: &Round) -> Option<String> {
    let Round { drafted, verified, accepted, .. } = *round;
    let possible = accepted <= verified && verified <= drafted && drafted <= MAX_SPEC_LEN;
    (!possible).then(|| format!("has a round of {drafted} drafts, {verified} verified and {accepted} accepted"))
}

fn wrong_nodes(step: &StepTrace) -> Option<String> {
    let (nodes, of_rounds) = (step.nodes.len(), step.rounds.iter().map(|r| u64::from(r.nodes)).sum::<u64>());
    (nodes as u64 != of_rounds).then(|| format!("has {nodes} nodes, and its rounds have {of_rounds}"))
}

fn backwards(step: &StepTrace) -> bool {
    step.marks.iter().any(|m| m.begin > m.end) || !step.marks.is_sorted_by_key(|m| m.end)
}

#[cfg(test)]
mod tests {
    use super::super::TapeEnding;
    use super::*;
    use foretoken_sim::executor::Chunk;
    use foretoken_sim::live::{Mark, MarkKind, TracedNode};
    use foretoken_sim::{Arrivals, PassShape, Request, Time, Workload};

    fn head() -> Head {
        let workload: Workload = [Request::new(Time(5), 10, 4)].into_iter().collect();
        Head::new("fixed-3".into(), 7, "cpu".into(), Arrivals::Closed { clients: 2 }, &workload)
    }

    fn round(request: u32, [drafted, verified, accepted]: [u32; 3]) -> StepTrace {
        let round = Round { request, start: 0, context: 0, drafted, verified, accepted, nodes: 0 };
        StepTrace { rounds: vec![round], ..StepTrace::default() }
    }

    #[test]
    fn a_tape_speaks_of_its_own_requests() {
        let unknown = "speaks of request 1 of 1";
        assert_eq!(wrong_step(&head(), &round(0, [3, 2, 2])), None);
        assert_eq!(wrong_step(&head(), &round(1, [3, 2, 2])).as_deref(), Some(unknown));
        let chunk = Chunk { request: 1, computed: 0, tokens: 1, last: true, draft_tokens: 0 };
        let step = StepTrace { chunks: vec![chunk], ..StepTrace::default() };
        assert_eq!(wrong_step(&head(), &step).as_deref(), Some(unknown));
        let tail = |rejected| Tail { ending: TapeEnding::Done, rejected };
        assert_eq!(wrong_tail(&head(), &tail(vec![0])), None);
        assert_eq!(wrong_tail(&head(), &tail(vec![0, 1])).as_deref(), Some(unknown));
        let short = Head { output_len: vec![], ..head() };
        assert_eq!(wrong_head(&short).as_deref(), Some("has 0 outputs for 1 requests"));
        assert_eq!(wrong_head(&head()), None);
    }

    #[test]
    fn rounds_nodes_and_times_that_cannot_be_are_found() {
        for drafts in [[2, 3, 1], [3, 2, 3], [33, 1, 1], [u32::MAX, u32::MAX, u32::MAX]] {
            assert!(
                wrong_step(&head(), &round(0, drafts)).is_some_and(|w| w.starts_with("has a round of")),
                "{drafts:?}"
            );
        }
        let mut tree = round(0, [3, 2, 2]);
        tree.rounds[0].nodes = 2;
        assert_eq!(wrong_step(&head(), &tree).as_deref(), Some("has 0 nodes, and its rounds have 2"));
        let node = TracedNode { parent: 0, rank: 1, confidence: 0.5, kept: true, accepted: true };
        tree.nodes = vec![node; 2];
        assert_eq!(wrong_step(&head(), &tree), None);
        let mark = |begin, end| Mark {
            kind: MarkKind::Verify,
            begin: Time(begin),
            end: Time(end),
            device: Time::ZERO,
            shape: PassShape::default(),
        };
        let step = |marks| StepTrace { marks, ..StepTrace::default() };
        assert_eq!(wrong_step(&head(), &step(vec![mark(1, 2), mark(2, 3)])), None);
        assert!(wrong_step(&head(), &step(vec![mark(2, 1)])).is_some());
        assert!(wrong_step(&head(), &step(vec![mark(2, 3), mark(1, 2)])).is_some());
    }
}
