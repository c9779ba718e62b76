//! Compares the token flow of two runs: drafts, verified and accepted tokens. Steps are compared while the schedule is
//! the same; requests are compared to their end.

use foretoken_sim::live::{Round, StepTrace, TracedNode};
use serde::Serialize;
use std::collections::HashMap;

/// The comparison of two runs of the same requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TokenFlow {
    /// Number of equal steps, from the first of each piece on: the same requests in the same order, chunks and
    /// decisions.
    pub same_steps: u64,
    /// Number of steps of the first run.
    pub steps: u64,
    /// The first difference, if there is one.
    pub parted: Option<Parting>,
    /// Number of requests whose rounds are all the same, in the same order.
    pub same_requests: u64,
    /// Number of requests with at least one round in the first run.
    pub requests: u64,
    /// Number of rounds of the first run that start at an output position at which the second also has a round of that
    /// request.
    pub shared_rounds: u64,
    /// Number of shared rounds with the same drafted and verified lengths: the policy decided alike.
    pub same_decisions: u64,
    /// Number of rounds decided alike with a different number of accepted tokens. With recorded acceptance it must be
    /// 0.
    pub other_acceptance: u64,
    /// Number of rounds of the first run.
    pub rounds: u64,
}

/// The first step that differs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Parting {
    /// Index of the step.
    pub step: u64,
    /// What differs first.
    pub what: Difference,
    /// The difference as text, with both sides.
    pub how: String,
}

/// What can differ first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Difference {
    /// Other requests or chunks were scheduled: an arrival was before a step's end in one run, and after it in the
    /// other.
    Schedule,
    /// The requests are the same, but the policy decided differently: it saw other times.
    Decision,
    /// The decisions are the same, but a different number of tokens was accepted.
    Acceptance,
    /// One of the runs has ended.
    End,
}

impl TokenFlow {
    /// The sums over several pieces, with the first difference of the first piece that has one.
    pub fn joined(pieces: impl IntoIterator<Item = TokenFlow>) -> TokenFlow {
        pieces.into_iter().fold(TokenFlow::default(), |all, one| TokenFlow {
            same_steps: all.same_steps + one.same_steps,
            steps: all.steps + one.steps,
            parted: all.parted.or(one.parted),
            same_requests: all.same_requests + one.same_requests,
            requests: all.requests + one.requests,
            shared_rounds: all.shared_rounds + one.shared_rounds,
            same_decisions: all.same_decisions + one.same_decisions,
            other_acceptance: all.other_acceptance + one.other_acceptance,
            rounds: all.rounds + one.rounds,
        })
    }

    /// Share of shared rounds in which the policy decided alike.
    pub fn agreement(&self) -> Option<f64> {
        (self.shared_rounds > 0).then(|| self.same_decisions as f64 / self.shared_rounds as f64)
    }
}

/// Compares the token flow of two runs; steps without a pass are left out.
pub fn compare(live: &[StepTrace], other: &[StepTrace]) -> TokenFlow {
    let ran = |s: &&StepTrace| !(s.rounds.is_empty() && s.chunks.is_empty());
    let (a, b): (Vec<_>, Vec<_>) = (live.iter().filter(ran).collect(), other.iter().filter(ran).collect());
    let mut flow = TokenFlow { steps: a.len() as u64, ..TokenFlow::default() };
    for at in 0..a.len().max(b.len()) {
        if let Some(parting) = part(a.get(at), b.get(at), at as u64) {
            flow.parted = Some(parting);
            break;
        }
        flow.same_steps += 1;
    }
    by_request(&a, &b, &mut flow);
    flow
}

/// A round with the nodes of its tree.
#[derive(Clone, Copy)]
struct Turn<'a> {
    round: &'a Round,
    tree: &'a [TracedNode],
}

impl Turn<'_> {
    /// True if the policy decided alike: the same lengths, and for trees the same nodes drafted and verified.
    fn decided_as(&self, other: &Turn) -> bool {
        let lengths = |r: &Round| (r.start, r.drafted, r.verified, r.nodes);
        let nodes = |t: &Turn| t.tree.iter().map(|n| (n.parent, n.rank, n.kept)).collect::<Vec<_>>();
        lengths(self.round) == lengths(other.round) && nodes(self) == nodes(other)
    }
}

/// The rounds of a step.
fn turns(step: &StepTrace) -> impl Iterator<Item = Turn<'_>> {
    let mut nodes = step.nodes.as_slice();
    step.rounds.iter().map(move |round| {
        let (tree, rest) = nodes.split_at(round.nodes as usize);
        nodes = rest;
        Turn { round, tree }
    })
}

fn by_request(a: &[&StepTrace], b: &[&StepTrace], flow: &mut TokenFlow) {
    let other: HashMap<(u32, u32), Turn> =
        b.iter().flat_map(|s| turns(s)).map(|t| ((t.round.request, t.round.start), t)).collect();
    let mut count_of_other = HashMap::<u32, u64>::new();
    other.keys().for_each(|(request, _)| *count_of_other.entry(*request).or_default() += 1);
    let mut same = HashMap::<u32, (u64, bool)>::new();
    for turn in a.iter().flat_map(|s| turns(s)) {
        let round = turn.round;
        flow.rounds += 1;
        let (count, all) = same.entry(round.request).or_insert((0, true));
        *count += 1;
        let Some(twin) = other.get(&(round.request, round.start)) else {
            *all = false;
            continue;
        };
        flow.shared_rounds += 1;
        let decided = turn.decided_as(twin);
        flow.same_decisions += u64::from(decided);
        flow.other_acceptance += u64::from(decided && round.accepted != twin.round.accepted);
        *all &= decided && round.accepted == twin.round.accepted;
    }
    flow.requests = same.len() as u64;
    let whole = |(request, (count, all)): (&u32, &(u64, bool))| *all && count_of_other.get(request) == Some(count);
    flow.same_requests = same.iter().filter(|&entry| whole(entry)).count() as u64;
}

/// The first difference of two steps; `None` if they are the same.
fn part(a: Option<&&StepTrace>, b: Option<&&StepTrace>, step: u64) -> Option<Parting> {
    let (a, b) = match (a, b) {
        (Some(a), Some(b)) => (a, b),
        (Some(_), None) => {
            return Some(Parting { step, what: Difference::End, how: "the simulation has ended".into() });
        }
        (None, _) => return Some(Parting { step, what: Difference::End, how: "the live run has ended".into() }),
    };
    let differ = |what, how| Some(Parting { step, what, how });
    let ids = |s: &StepTrace| s.rounds.iter().map(|r| r.request).collect::<Vec<_>>();
    if ids(a) != ids(b) || a.chunks != b.chunks {
        return differ(Difference::Schedule, schedules(a, b));
    }
    for (of_a, of_b) in turns(a).zip(turns(b)) {
        let (x, y) = (of_a.round, of_b.round);
        let told = |r: &Round| format!("drafted {}, verified {}, accepted {}", r.drafted, r.verified, r.accepted);
        let how = || format!("request {} at output {}: live {}; simulated {}", x.request, x.start, told(x), told(y));
        if !of_a.decided_as(&of_b) {
            return differ(Difference::Decision, how());
        }
        if x.accepted != y.accepted {
            return differ(Difference::Acceptance, how());
        }
    }
    None
}

fn schedules(a: &StepTrace, b: &StepTrace) -> String {
    let told = |s: &StepTrace| {
        let prompts: Vec<String> = s.chunks.iter().map(|c| format!("{} (+{})", c.request, c.tokens)).collect();
        match prompts.is_empty() {
            true => format!("{} decodes, no prompts", s.rounds.len()),
            false => format!("{} decodes, prompts of {}", s.rounds.len(), prompts.join(", ")),
        }
    };
    format!("live {}; simulated {}", told(a), told(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(request: u32, start: u32, drafted: u32, accepted: u32) -> Round {
        Round { request, start, context: 9, drafted, verified: drafted, accepted, nodes: 0 }
    }

    fn step(rounds: &[Round]) -> StepTrace {
        StepTrace { rounds: rounds.to_vec(), ..StepTrace::default() }
    }

    #[test]
    fn the_same_run_is_the_same() {
        let run = [step(&[round(0, 1, 3, 2)]), step(&[round(0, 4, 3, 0), round(1, 1, 3, 3)])];
        let flow = compare(&run, &run);
        assert_eq!((flow.same_steps, flow.parted.clone(), flow.same_requests, flow.requests), (2, None, 2, 2));
        assert_eq!((flow.rounds, flow.shared_rounds, flow.same_decisions, flow.other_acceptance), (3, 3, 3, 0));
        assert_eq!(flow.agreement(), Some(1.0));
        assert_eq!(TokenFlow::joined([flow.clone()]), flow);
        let both = TokenFlow::joined([flow.clone(), compare(&run, &run[..1])]);
        assert_eq!((both.same_steps, both.steps, both.rounds, both.same_requests), (3, 4, 6, 2));
        assert_eq!(both.parted.unwrap().what, Difference::End);
    }

    /// A different schedule makes steps differ, but not requests.
    #[test]
    fn another_schedule_leaves_the_requests_alone() {
        let live = [step(&[round(0, 1, 3, 2), round(1, 1, 3, 3)])];
        let other = [step(&[round(0, 1, 3, 2)]), step(&[round(1, 1, 3, 3)])];
        let flow = compare(&live, &other);
        assert_eq!(flow.parted.as_ref().unwrap().what, Difference::Schedule);
        assert_eq!((flow.same_steps, flow.same_requests), (0, 2));
    }

    #[test]
    fn decisions_and_acceptance_are_told_apart() {
        let live = [step(&[round(0, 1, 3, 2)]), step(&[round(0, 4, 3, 1)])];
        let decided = compare(&live, &[step(&[round(0, 1, 3, 2)]), step(&[round(0, 4, 2, 1)])]);
        assert_eq!(decided.parted.as_ref().unwrap().what, Difference::Decision);
        assert_eq!((decided.same_steps, decided.same_decisions, decided.other_acceptance), (1, 1, 0));
        let accepted = compare(&live, &[step(&[round(0, 1, 3, 2)]), step(&[round(0, 4, 3, 0)])]);
        let parting = accepted.parted.as_ref().unwrap();
        assert_eq!((parting.what, parting.step, accepted.other_acceptance), (Difference::Acceptance, 1, 1));
        assert!(parting.how.contains("request 0 at output 4") && parting.how.contains("accepted 0"), "{}", parting.how);
        assert_eq!((accepted.same_requests, accepted.requests), (0, 1));
    }

    /// Two trees of equal size with different nodes.
    #[test]
    fn trees_are_compared_node_by_node() {
        let node = |rank, kept| TracedNode { parent: u32::MAX, rank, confidence: 0.5, kept, accepted: false };
        let tree = |nodes: [TracedNode; 2], accepted| {
            let round = Round { drafted: 1, verified: 1, accepted, nodes: 2, ..round(0, 1, 1, 0) };
            [StepTrace { rounds: vec![round], nodes: nodes.to_vec(), ..StepTrace::default() }]
        };
        let live = tree([node(1, true), node(2, false)], 1);
        assert_eq!(compare(&live, &live).same_requests, 1);
        let other = compare(&live, &tree([node(1, false), node(2, true)], 0));
        assert_eq!((other.same_decisions, other.other_acceptance), (0, 0));
        assert_eq!(other.parted.unwrap().what, Difference::Decision);
    }

    #[test]
    fn a_run_that_ends_early_says_so() {
        let live = [step(&[round(0, 1, 3, 2)]), step(&[round(0, 4, 3, 1)])];
        let flow = compare(&live, &live[..1]);
        assert_eq!(flow.parted.as_ref().unwrap().what, Difference::End);
        assert_eq!((flow.rounds, flow.shared_rounds, flow.same_requests), (2, 1, 0));
    }
}
