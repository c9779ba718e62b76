//! The acceptance that a live run revealed. For each round (a request's draft tokens of one step) it has the accepted
//! draft tokens, the first rejected draft token, and the values that policies read, such as confidences. Values are
//! found by request, output position of the round's start, and depth.
//!
//! A replay that makes the same rounds gets the recorded values. A replay with other rounds may need to know whether a
//! draft token is right that the same round did not reveal. If another round revealed this at the same output position,
//! that result is used. Otherwise a fallback source gives the value. Both cases are counted.

use super::{Round, StepTrace, TracedNode};
use crate::acceptance::{AcceptanceSource, RankLaw, TruthRow};
use crate::executor::RequestTruth;
use crate::tree::{ROOT, path_below};
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts of values that a replay needed but that the live run did not reveal for the same round start and depth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Misses {
    /// Number of draft tokens that decided an acceptance although only another round, or another depth, revealed at
    /// this output position whether the draft token is right.
    pub other_round: u64,
    /// Number of draft tokens that decided an acceptance although no round revealed whether they are right. The
    /// fallback source then says whether they are right.
    pub invented: u64,
    /// Number of confidences, entropies, divergences and probabilities of guesses that no round revealed. The fallback
    /// source gave these values.
    pub looks: u64,
}

impl Misses {
    /// Whether every value that the replay needed was recorded.
    pub fn none(&self) -> bool {
        *self == Misses::default()
    }
}

/// A recorded round of a request (its draft tokens of one step). The fields `confidence`, `entropy`, `divergence` and
/// `nodes` are the indices of the round's first values in the lists of [`RecordedRounds`].
#[derive(Clone, Copy, Debug)]
struct Entry {
    round: Round,
    confidence: usize,
    entropy: Option<usize>,
    divergence: Option<usize>,
    nodes: usize,
}

/// The recorded rounds of one request, sorted by the output position where a round starts. A round is the request's
/// draft tokens of one step. Rounds without draft tokens are left out.
#[derive(Clone, Debug, Default)]
struct Request {
    entries: Vec<Entry>,
}

/// The acceptance that was recorded in a live run, as an acceptance source for replays.
pub struct RecordedRounds<'a> {
    fallback: &'a dyn AcceptanceSource,
    requests: Vec<Request>,
    confidence: Vec<f32>,
    entropy: Vec<f64>,
    divergence: Vec<f64>,
    /// The nodes of all draft trees, each with a number (a hash of ranks) that identifies the path from the root to the
    /// node.
    nodes: Vec<(TracedNode, u64)>,
    other_round: AtomicU64,
    invented: AtomicU64,
    looks: AtomicU64,
}

impl<'a> RecordedRounds<'a> {
    /// An empty recording for a workload of `requests` requests. Values that were not recorded come from `fallback`.
    pub fn new(requests: usize, fallback: &'a dyn AcceptanceSource) -> RecordedRounds<'a> {
        RecordedRounds {
            fallback,
            requests: vec![Request::default(); requests],
            confidence: Vec::new(),
            entropy: Vec::new(),
            divergence: Vec::new(),
            nodes: Vec::new(),
            other_round: AtomicU64::new(0),
            invented: AtomicU64::new(0),
            looks: AtomicU64::new(0),
        }
    }

    /// Adds the rounds of a step. A round without draft tokens is left out. Steps must be added in the order in which
    /// they ran.
    pub fn add(&mut self, step: &StepTrace) {
        let (mut confidence, mut looks, mut nodes) = (0, 0, 0);
        for &round in &step.rounds {
            let entry = Entry {
                round,
                confidence: self.confidence.len(),
                entropy: (!step.entropy.is_empty()).then_some(self.entropy.len()),
                divergence: (!step.divergence.is_empty()).then_some(self.divergence.len()),
                nodes: self.nodes.len(),
            };
            let drafted = if round.nodes > 0 { 0 } else { round.drafted as usize };
            self.confidence.extend_from_slice(&step.confidence[confidence..confidence + drafted]);
            if entry.entropy.is_some() {
                self.entropy.extend_from_slice(&step.entropy[confidence..confidence + drafted]);
            }
            if entry.divergence.is_some() {
                let revealed = round.verified.min(round.accepted + 1) as usize;
                self.divergence.extend_from_slice(&step.divergence[looks..looks + revealed]);
                looks += revealed;
            }
            confidence += drafted;
            for &node in &step.nodes[nodes..nodes + round.nodes as usize] {
                let above = (node.parent != ROOT).then(|| self.nodes[entry.nodes + node.parent as usize].1);
                let depth = self.depth(entry.nodes, node.parent);
                self.nodes.push((node, path_below(above.unwrap_or(0), depth, node.rank)));
            }
            nodes += round.nodes as usize;
            if round.drafted > 0 {
                self.requests[round.request as usize].entries.push(entry);
            }
        }
    }

    /// Depth, from 0, of the children of node `parent`, in the tree whose nodes begin at index `first` of the list of
    /// all nodes.
    fn depth(&self, first: usize, mut parent: u32) -> u32 {
        let mut depth = 0;
        while parent != ROOT {
            parent = self.nodes[first + parent as usize].0.parent;
            depth += 1;
        }
        depth
    }

    /// Counts, so far, of the values that the replay needed and that were not recorded.
    pub fn misses(&self) -> Misses {
        Misses {
            other_round: self.other_round.load(Ordering::Relaxed),
            invented: self.invented.load(Ordering::Relaxed),
            looks: self.looks.load(Ordering::Relaxed),
        }
    }

    fn round(&self, request: RequestTruth, start: u32) -> Option<&Entry> {
        let entries = &self.requests[request.id as usize].entries;
        entries.binary_search_by_key(&start, |e| e.round.start).ok().map(|at| &entries[at])
    }

    /// The nodes of a request's draft tree of one step, each with a number (a hash of ranks) that identifies the path
    /// from the root to the node.
    fn tree(&self, entry: &Entry) -> &[(TracedNode, u64)] {
        &self.nodes[entry.nodes..][..entry.round.nodes as usize]
    }

    /// The node of a request's draft tree of one step that is the `rank`-th guess at `depth` below its parent. `path`
    /// identifies the path from the root to the parent.
    fn node(&self, entry: &Entry, depth: u32, path: u64, rank: u32) -> Option<&TracedNode> {
        let wanted = path_below(path, depth, rank);
        let at_depth = |n: &TracedNode| self.depth(entry.nodes, n.parent) == depth;
        self.tree(entry).iter().find(|(n, p)| *p == wanted && n.rank == rank && at_depth(n)).map(|(n, _)| n)
    }

    /// The ranks, by depth, of the target's tokens among the draft model's guesses, as far as the round `entry`
    /// revealed them. Rank 1 means that the first guess is right. At the first depth where no guess is right the rank
    /// is `u32::MAX`. Deeper ranks are not revealed.
    fn revealed(&self, entry: &Entry) -> impl Iterator<Item = u32> {
        let Round { accepted, verified, nodes, .. } = entry.round;
        let accepted_rank = |depth: u32| match nodes {
            0 => 1,
            _ => self
                .tree(entry)
                .iter()
                .filter(|(n, _)| n.accepted)
                .nth(depth as usize)
                .map_or(u32::MAX, |(n, _)| n.rank),
        };
        let path = (0..accepted).map(accepted_rank).collect::<Vec<_>>();
        // If the accepted path ends at a node without kept children, the draft round revealed no rank below that node.
        let stopped = match nodes {
            0 => accepted < verified,
            _ => {
                let end = self.tree(entry).iter().rposition(|(n, _)| n.accepted).map_or(ROOT, |at| at as u32);
                self.tree(entry).iter().any(|(n, _)| n.kept && n.parent == end)
            }
        };
        path.into_iter().chain(stopped.then_some(u32::MAX))
    }

    fn look<T>(&self, found: Option<T>, fallback: impl FnOnce() -> T) -> T {
        found.unwrap_or_else(|| {
            self.looks.fetch_add(1, Ordering::Relaxed);
            fallback()
        })
    }
}

impl AcceptanceSource for RecordedRounds<'_> {
    fn start(&self, request: RequestTruth, max_draft_len: u32, out: &mut TruthRow) {
        let positions = (request.output_len + max_draft_len) as usize;
        let mut filled = TruthRow::default();
        self.fallback.start(request, max_draft_len, &mut filled);
        out.reset(positions, max_draft_len.max(1) as usize);
        out.know_nothing();
        // If any round revealed whether the draft token at a position is right, this result is used at every depth of
        // the position. Only the depth at which the round revealed it is marked as known.
        let mut at_position = vec![None; positions];
        for entry in &self.requests[request.id as usize].entries {
            for (depth, rank) in self.revealed(entry).enumerate() {
                if let Some(known) = at_position.get_mut(entry.round.start as usize + depth) {
                    *known = Some((depth, rank == 1));
                }
            }
        }
        for (n, known) in at_position.iter().enumerate() {
            for depth in 0..(max_draft_len as usize).min(n + 1) {
                if known.map_or_else(|| filled.right(n as u32, depth as u32), |(_, right)| right) {
                    out.set(depth, n);
                }
            }
            if let Some((depth, _)) = known {
                out.know((*depth).min(max_draft_len.max(1) as usize - 1), n);
            }
        }
    }

    fn confidence(&self, request: RequestTruth, round_start: u32, depth: u32, right: Option<bool>, path: u64) -> f32 {
        let entry = self.round(request, round_start);
        let chain =
            |e: &Entry| (path == 0 && depth < e.round.drafted).then(|| self.confidence[e.confidence + depth as usize]);
        let found = entry.and_then(|e| match e.round.nodes {
            0 => chain(e),
            _ => self.node(e, depth, path, 1).map(|n| n.confidence as f32),
        });
        self.look(found, || self.fallback.confidence(request, round_start, depth, right, path))
    }

    fn rank_if_wrong(&self, request: RequestTruth, position: u32) -> u32 {
        let entries = &self.requests[request.id as usize].entries;
        // Only the last draft round that starts at or before `position` can have revealed the target's token there.
        let last = entries.partition_point(|e| e.round.start <= position).checked_sub(1);
        let revealed = last.and_then(|at| {
            let e = &entries[at];
            self.revealed(e).nth((position - e.round.start) as usize)
        });
        // If this fallback value decides an acceptance, `unknown_used` counts that no round revealed the true value.
        revealed.unwrap_or_else(|| self.fallback.rank_if_wrong(request, position))
    }

    fn ranks(&self) -> &RankLaw {
        self.fallback.ranks()
    }

    fn guess(&self, request: RequestTruth, round_start: u32, depth: u32, path: u64, rank: u32, first: f32) -> f64 {
        let entry = self.round(request, round_start).filter(|e| e.round.nodes > 0);
        let found = entry.and_then(|e| self.node(e, depth, path, rank)).map(|n| n.confidence);
        self.look(found, || self.fallback.guess(request, round_start, depth, path, rank, first))
    }

    fn entropy(&self, request: RequestTruth, round_start: u32, depth: u32, first: f32) -> f64 {
        let chain = |e: &Entry| (depth < e.round.drafted).then_some(e.entropy? + depth as usize);
        let found = self.round(request, round_start).and_then(chain).map(|at| self.entropy[at]);
        self.look(found, || self.fallback.entropy(request, round_start, depth, first))
    }

    fn divergence(&self, request: RequestTruth, round_start: u32, depth: u32, rank: u32, first: f64) -> f64 {
        let index = |e: &Entry| {
            let revealed = e.round.verified.min(e.round.accepted + 1);
            (depth < revealed).then_some(e.divergence? + depth as usize)
        };
        let found = self.round(request, round_start).and_then(index).map(|at| self.divergence[at]);
        self.look(found, || self.fallback.divergence(request, round_start, depth, rank, first))
    }

    fn unknown_used(&self, request: RequestTruth, round_start: u32, depth: u32) {
        let position = round_start + depth;
        let entries = &self.requests[request.id as usize].entries;
        let revealed = entries.partition_point(|e| e.round.start <= position).checked_sub(1).is_some_and(|at| {
            let e = &entries[at];
            self.revealed(e).nth((position - e.round.start) as usize).is_some()
        });
        let which = if revealed { &self.other_round } else { &self.invented };
        which.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acceptance::{AcceptanceSpec, Rates};
    use crate::time::Time;
    use crate::workload::{Request, Workload};

    /// A fallback whose draft tokens are always right, so that a test recognises values from the fallback.
    fn always_right() -> Box<dyn AcceptanceSource> {
        let spec = AcceptanceSpec { source: Rates::Constant { rate: 1.0 }, ..AcceptanceSpec::default() };
        spec.build(1, &Workload::from_iter([Request::new(Time::ZERO, 1, 40)])).unwrap()
    }

    fn chain(start: u32, drafted: u32, verified: u32, accepted: u32) -> Round {
        Round { request: 0, start, context: start, drafted, verified, accepted, nodes: 0 }
    }

    const REQUEST: RequestTruth = RequestTruth { id: 0, prompt_len: 0, output_len: 40, category: 0, recording: None };

    #[test]
    fn a_chain_reveals_what_it_accepted_and_the_first_it_did_not() {
        let fallback = always_right();
        let mut recorded = RecordedRounds::new(1, &*fallback);
        // The first round starts at output position 1, drafts 3 tokens, verifies 2 and accepts 1. The second round
        // starts at position 3 and drafts, verifies and accepts 2 tokens.
        let rounds = vec![chain(1, 3, 2, 1), chain(3, 2, 2, 2)];
        let confidence = vec![0.9, 0.5, 0.4, 0.8, 0.7];
        recorded.add(&StepTrace { rounds, confidence, ..StepTrace::default() });
        let mut row = TruthRow::default();
        recorded.start(REQUEST, 8, &mut row);
        assert_eq!((row.run(1, 8), row.run(3, 2)), (1, 2));
        let known = |n, depth| row.is_known(n, depth);
        assert_eq!([known(1, 0), known(2, 1), known(3, 0), known(4, 1)], [true; 4]);
        // Nothing is known at position 3 and depth 2, because the third draft token of the first round was not
        // verified. Nothing is known at position 5 either, because no round drafted a token there.
        assert_eq!([known(3, 2), known(5, 2), known(5, 0)], [false; 3]);
        // A round with another start gets the right and wrong tokens that the two recorded rounds revealed. At later
        // positions it gets the fallback source's tokens, which are always right.
        assert!(!row.right(2, 0) && row.right(4, 0) && row.right(5, 2));

        let at = |start, depth| recorded.confidence(REQUEST, start, depth, None, 0);
        assert_eq!([at(1, 0), at(1, 1), at(1, 2), at(3, 0), at(3, 1)], [0.9, 0.5, 0.4, 0.8, 0.7]);
        assert!(recorded.misses().none());
        at(3, 2);
        at(2, 0);
        recorded.unknown_used(REQUEST, 2, 0);
        recorded.unknown_used(REQUEST, 5, 0);
        assert_eq!(recorded.misses(), Misses { other_round: 1, invented: 1, looks: 2 });
    }

    #[test]
    fn a_tree_reveals_ranks_and_the_confidence_of_every_node() {
        let fallback = always_right();
        let mut recorded = RecordedRounds::new(1, &*fallback);
        let node = |parent, rank, confidence, accepted| TracedNode { parent, rank, confidence, kept: true, accepted };
        // A tree with two guesses at depth 1, and two guesses below each of them. At depth 1 the second guess is right,
        // and no guess below it is right.
        let nodes = vec![
            node(ROOT, 1, 0.6, false),
            node(ROOT, 2, 0.3, true),
            node(0, 1, 0.5, false),
            node(0, 2, 0.2, false),
            node(1, 1, 0.7, false),
            node(1, 2, 0.1, false),
        ];
        let round = Round { nodes: 6, ..chain(4, 2, 2, 1) };
        recorded.add(&StepTrace { rounds: vec![round], nodes, ..StepTrace::default() });
        let mut row = TruthRow::default();
        recorded.start(REQUEST, 4, &mut row);
        assert!(!row.right(4, 0) && !row.right(5, 1) && row.is_known(4, 0) && row.is_known(5, 1));
        assert!(!row.is_known(6, 2));
        assert_eq!((recorded.rank_if_wrong(REQUEST, 4), recorded.rank_if_wrong(REQUEST, 5)), (2, u32::MAX));
        let second = path_below(0, 0, 2);
        let guess = |depth, path, rank| recorded.guess(REQUEST, 4, depth, path, rank, 0.0);
        let first = |depth, path| recorded.confidence(REQUEST, 4, depth, None, path);
        assert_eq!([guess(0, 0, 2), guess(1, 0, 1), guess(1, 0, 2), guess(1, second, 2)], [0.3, 0.5, 0.2, 0.1]);
        assert_eq!([first(0, 0), first(1, 0), first(1, second)], [0.6, 0.5, 0.7]);
        assert!(recorded.misses().none());
        guess(1, second, 3);
        assert_eq!(recorded.misses().looks, 1);
    }
}
