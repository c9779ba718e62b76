//! Compares the token flow of two runs: drafted, verified and accepted tokens. The steps of the two runs are compared
//! one by one, up to the first step that differs. The rounds of each request are compared over the whole run. A round
//! is a request's draft tokens of one step, verified together.

use foretoken_sim::live::{Round, StepTrace, TracedNode};
use serde::Serialize;
use std::collections::HashMap;

/// The comparison of the token flow of two runs with the same requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TokenFlow {
    /// Number of equal steps before the first difference, summed over pieces. Equal steps have the same requests in the
    /// same order, and the same chunks, decisions and accepted tokens.
    pub same_steps: u64,
    /// Number of steps with a model pass in the first of the two compared runs.
    pub steps: u64,
    /// The first step in which the two runs differ; absent if all steps are equal.
    pub parted: Option<Parting>,
    /// Number of requests whose rounds are all equal in both runs.
    pub same_requests: u64,
    /// Number of requests with at least one round in the first of the two compared runs.
    pub requests: u64,
    /// Number of shared rounds. A round is a request's draft tokens of one step. Shared rounds are rounds of the first
    /// run for which the second run has a round of the same request that starts at the same output position.
    pub shared_rounds: u64,
    /// Number of rounds in both runs in which the policy decided the same in both runs: equal drafted and verified
    /// lengths and, for draft trees, equal nodes.
    pub same_decisions: u64,
    /// Number of rounds that both runs have, with the same decision but different numbers of accepted tokens. If the
    /// second run is a simulation with the first run's acceptance, this must be 0.
    pub other_acceptance: u64,
    /// Number of rounds in the first of the two compared runs.
    pub rounds: u64,
}

/// The first step in which two runs differ.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Parting {
    /// Index of the step, from 0, among the steps of the run in which a model pass ran.
    pub step: u64,
    /// The kind of the first difference between the two runs in this step.
    pub what: Difference,
    /// A text that describes how the two steps differ, with the values of both runs.
    pub how: String,
}

/// The kind of a difference between two steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Difference {
    /// The two steps have different requests or prompt chunks, for example because a request arrived before a step's
    /// end in one run and after the step's end in the other.
    Schedule,
    /// The two steps have the same requests, but the policy decided differently, for example because it saw different
    /// times.
    Decision,
    /// The policy's decisions in the two steps are equal, but a different number of tokens was accepted.
    Acceptance,
    /// One of the two runs ended before this step.
    End,
}

impl TokenFlow {
    /// Adds up the counts of several comparisons of token flow. `parted` is from the first comparison that has a
    /// difference.
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

    /// The share of the rounds that both runs have in which the policy decided the same; `None` if the runs share no
    /// round.
    pub fn agreement(&self) -> Option<f64> {
        (self.shared_rounds > 0).then(|| self.same_decisions as f64 / self.shared_rounds as f64)
    }
}

/// Compares the token flow of two runs, step by step and request by request. Steps without a pass do not count.
pub fn compare(live: &[StepTrace], other: &[StepTrace]) -> TokenFlow {
    let ran = |s: &&StepTrace| !(s.rounds.is_empty() && s.chunks.is_empty());
    let (a, b): (Vec<_>, Vec<_>) = (live.iter().filter(ran).collect(), other.iter().filter(ran).collect());
    let mut flow = TokenFlow { steps: a.len() as u64, ..TokenFlow::default() };
    for at in 0..a.len().max(b.len()) {
        if let Some(parting) = first_difference(a.get(at), b.get(at), at as u64) {
            flow.parted = Some(parting);
            break;
        }
        flow.same_steps += 1;
    }
    by_request(&a, &b, &mut flow);
    flow
}

/// A round with the nodes of its draft tree; a chain has no nodes.
#[derive(Clone, Copy)]
struct RoundWithTree<'a> {
    round: &'a Round,
    tree: &'a [TracedNode],
}

impl RoundWithTree<'_> {
    /// True if the policy decided the same in both rounds: equal lengths and, for trees, the same drafted and the same
    /// verified nodes.
    fn decided_as(&self, other: &RoundWithTree) -> bool {
        let lengths = |r: &Round| (r.start, r.drafted, r.verified, r.nodes);
        let nodes = |t: &RoundWithTree| t.tree.iter().map(|n| (n.parent, n.rank, n.kept)).collect::<Vec<_>>();
        lengths(self.round) == lengths(other.round) && nodes(self) == nodes(other)
    }
}

/// The rounds of a step, each with its draft tree. A round is the draft tokens of one of the step's requests.
fn rounds(step: &StepTrace) -> impl Iterator<Item = RoundWithTree<'_>> {
    let mut nodes = step.nodes.as_slice();
    step.rounds.iter().map(move |round| {
        let (tree, rest) = nodes.split_at(round.nodes as usize);
        nodes = rest;
        RoundWithTree { round, tree }
    })
}

fn by_request(a: &[&StepTrace], b: &[&StepTrace], flow: &mut TokenFlow) {
    let rounds_of_b: HashMap<(u32, u32), RoundWithTree> =
        b.iter().flat_map(|s| rounds(s)).map(|t| ((t.round.request, t.round.start), t)).collect();
    let mut count_in_b = HashMap::<u32, u64>::new();
    rounds_of_b.keys().for_each(|(request, _)| *count_in_b.entry(*request).or_default() += 1);
    // For each request of run `a`: (number of its rounds, true if all of them are equal in run `b`). A round is a
    // request's draft tokens of one step.
    let mut requests = HashMap::<u32, (u64, bool)>::new();
    for in_a in a.iter().flat_map(|s| rounds(s)) {
        let round = in_a.round;
        flow.rounds += 1;
        let (count, all_equal) = requests.entry(round.request).or_insert((0, true));
        *count += 1;
        let Some(in_b) = rounds_of_b.get(&(round.request, round.start)) else {
            *all_equal = false;
            continue;
        };
        flow.shared_rounds += 1;
        let decided = in_a.decided_as(in_b);
        flow.same_decisions += u64::from(decided);
        flow.other_acceptance += u64::from(decided && round.accepted != in_b.round.accepted);
        *all_equal &= decided && round.accepted == in_b.round.accepted;
    }
    flow.requests = requests.len() as u64;
    let is_same =
        |(request, (count, all_equal)): (&u32, &(u64, bool))| *all_equal && count_in_b.get(request) == Some(count);
    flow.same_requests = requests.iter().filter(|&entry| is_same(entry)).count() as u64;
}

/// The first difference between step number `step` of two runs; `None` if the steps are equal. A run without this
/// step ended before it, which is a difference too.
fn first_difference(a: Option<&&StepTrace>, b: Option<&&StepTrace>, step: u64) -> Option<Parting> {
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
    for (in_a, in_b) in rounds(a).zip(rounds(b)) {
        let (x, y) = (in_a.round, in_b.round);
        let text = |r: &Round| format!("drafted {}, verified {}, accepted {}", r.drafted, r.verified, r.accepted);
        let how = || format!("request {} at output {}: live {}; simulated {}", x.request, x.start, text(x), text(y));
        if !in_a.decided_as(&in_b) {
            return differ(Difference::Decision, how());
        }
        if x.accepted != y.accepted {
            return differ(Difference::Acceptance, how());
        }
    }
    None
}

fn schedules(a: &StepTrace, b: &StepTrace) -> String {
    let text = |s: &StepTrace| {
        let prompts: Vec<String> = s.chunks.iter().map(|c| format!("{} (+{})", c.request, c.tokens)).collect();
        match prompts.is_empty() {
            true => format!("{} decodes, no prompts", s.rounds.len()),
            false => format!("{} decodes, prompts of {}", s.rounds.len(), prompts.join(", ")),
        }
    };
    format!("live {}; simulated {}", text(a), text(b))
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

    /// If the second run schedules the same rounds in other steps, the steps differ, but the rounds of each request do
    /// not.
    #[test]
    fn another_schedule_leaves_the_requests_alone() {
        let live = [step(&[round(0, 1, 3, 2), round(1, 1, 3, 3)])];
        let other = [step(&[round(0, 1, 3, 2)]), step(&[round(1, 1, 3, 3)])];
        let flow = compare(&live, &other);
        let parted = flow.parted.as_ref().unwrap();
        assert_eq!(parted.what, Difference::Schedule);
        assert_eq!(parted.how, "live 2 decodes, no prompts; simulated 1 decodes, no prompts");
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

    /// Two draft trees of equal size whose verified nodes differ are different decisions.
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
