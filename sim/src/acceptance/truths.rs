//! The table of which draft tokens of the unfinished requests are right. Three kinds of executors look acceptance up in
//! this table: simulated time (the event clock), replays, and devices whose experiment names an acceptance source.

use super::plain_rows::PlainRows;
use super::{AcceptanceSource, TruthRow};
use crate::drafts::{Drafts, Shown, Wants};
use crate::executor::{DraftPass, RequestTruth};
use crate::policy::BatchView;
use crate::tree::{Growth, path_below};
use crate::workload::RequestId;

const NO_ROW: u32 = u32::MAX;

/// Which draft tokens of the unfinished requests are right. The rows (bitmaps) of requests that ended are reused.
pub struct Truths<'a> {
    acceptance: &'a dyn AcceptanceSource,
    max_draft_len: u32,
    /// A draft position counts as right if the target's token is among this number of the draft model's best guesses: 1
    /// for the first guess alone.
    guesses: u32,
    rows: Vec<TruthRow>,
    requests: Vec<RequestTruth>,
    free_rows: Vec<u32>,
    row_of: Vec<u32>,
    /// For fast reading: the bitmaps that say which draft tokens are right, side by side. `None` without draft tokens.
    /// It becomes `None` for good when a request starts whose row is not [plain](TruthRow::is_plain); a plain row has
    /// one bitmap for all depths and no invented values.
    plain: Option<PlainRows>,
}

impl<'a> Truths<'a> {
    /// A table of which draft tokens are right, for a workload with `requests` requests, none of which has started. If
    /// `max_draft_len` is 0 there are no draft tokens, and no bitmaps are filled in.
    pub fn new(acceptance: &'a dyn AcceptanceSource, max_draft_len: u32, requests: usize) -> Truths<'a> {
        Truths {
            acceptance,
            max_draft_len,
            guesses: 1,
            rows: Vec::new(),
            requests: Vec::new(),
            free_rows: Vec::new(),
            row_of: vec![NO_ROW; requests],
            plain: (max_draft_len > 0).then(|| PlainRows::new(requests)),
        }
    }

    /// Counts a position as right if the target's token is among the draft model's best `guesses` guesses there, and
    /// not only if it is the first guess. Call it before the first request starts. The table then describes the best
    /// path in a tree; for chains it is wrong.
    pub(crate) fn count_guesses(&mut self, guesses: u32) {
        self.guesses = guesses;
    }

    /// Fills in which draft tokens of a request that starts are right. Without draft tokens only the request itself is
    /// stored, because bounds (policies that know more than a server can) ask for it.
    pub fn start(&mut self, request: RequestTruth) {
        self.start_as(request.id, request);
    }

    /// Like [`start`](Truths::start), but batches name the request by `id`, which may differ from `request.id`.
    pub fn start_as(&mut self, id: RequestId, request: RequestTruth) {
        let row = self.free_rows.pop().unwrap_or_else(|| {
            self.rows.push(TruthRow::default());
            self.requests.push(request);
            self.rows.len() as u32 - 1
        });
        self.requests[row as usize] = request;
        // In a server requests come while the engine runs, so an id may be higher than the number of requests at the
        // start.
        if self.row_of.len() <= id as usize {
            self.row_of.resize(id as usize + 1, NO_ROW);
        }
        self.row_of[id as usize] = row;
        if self.max_draft_len == 0 {
            return;
        }
        let truth = &mut self.rows[row as usize];
        self.acceptance.start(request, self.max_draft_len, truth);
        let positions = request.output_len as usize + self.max_draft_len as usize;
        if self.guesses > 1 {
            for n in (0..positions as u32).filter(|&n| self.acceptance.rank_if_wrong(request, n) <= self.guesses) {
                truth.set_known(n);
            }
        }
        match &mut self.plain {
            Some(plain) if truth.is_plain() => plain.set(row, id, truth.words(), positions),
            _ => self.plain = None,
        }
    }

    /// Forgets which draft tokens of request `id` are right, because the request has ended. Does nothing if the request
    /// has never started or has ended already.
    pub fn end(&mut self, id: RequestId) {
        let row = self.row_of.get_mut(id as usize).map_or(NO_ROW, |row| std::mem::replace(row, NO_ROW));
        if row != NO_ROW {
            self.free_rows.push(row);
        }
    }

    /// Which draft tokens of request `id`, which has started, are right, by output position and depth in the round.
    #[inline]
    pub(crate) fn row(&self, id: RequestId) -> &TruthRow {
        &self.rows[self.row_of[id as usize] as usize]
    }

    /// For a request that has started: its prompt and output lengths, its category, and the index of its recorded
    /// acceptance, if it replays a real run.
    pub(crate) fn request(&self, id: RequestId) -> RequestTruth {
        self.requests[self.row_of[id as usize] as usize]
    }

    /// The confidence in the token at `depth` (from 0) of the draft round that a request starts at output position
    /// `start`.
    pub(super) fn confidence(&self, id: RequestId, start: u32, depth: u32) -> f32 {
        let row = self.row_of[id as usize] as usize;
        let on_path = self.rows[row].run(start, depth) == depth;
        let right = on_path.then(|| self.rows[row].right(start + depth, depth));
        self.acceptance.confidence_with(self.requests[row], &self.rows[row], start, depth, right, 0)
    }

    /// Lowers the draft limit of each request to the number of tokens that the drafter can propose. Where the drafter
    /// has a match, this is the length of the proposal (prompt lookup does not limit it). Without a match, it is the
    /// number of tokens that the draft model beside a lookup drafts, or 0 if there is no such model. Does nothing if
    /// the drafter always has a proposal.
    pub fn cap_draft_limits(&self, ids: &[RequestId], emitted: &[u32], limit: &mut [u32]) {
        if self.max_draft_len == 0 || !self.acceptance.may_lack_proposals() {
            return;
        }
        let without_match = self.acceptance.drafts_without_match();
        for ((&id, &emitted), limit) in ids.iter().zip(emitted).zip(limit) {
            *limit = (*limit).min(self.row(id).proposed(emitted).max(without_match));
        }
    }

    /// Whether the prompt lookup finds a match for every request of a batch, so that the draft model beside it runs no
    /// pass.
    pub fn all_matched(&self, batch: &BatchView) -> bool {
        batch.ids.iter().zip(batch.emitted).all(|(&id, &emitted)| self.row(id).matched(emitted))
    }

    /// Writes the results of a draft pass into `out`: for trees the nodes of the next level; for chains the confidences
    /// and entropies, if the policy wants them.
    #[inline]
    pub fn reveal(&self, batch: &BatchView, pass: &DraftPass, out: &mut Drafts) {
        if pass.growth.is_some() || out.wants != Wants::default() {
            self.reveal_wanted(batch, pass, out);
        }
    }

    #[inline(never)]
    fn reveal_wanted(&self, batch: &BatchView, pass: &DraftPass, out: &mut Drafts) {
        match pass.growth {
            Some(growth) if pass.pass > 0 => self.grow_trees(batch, pass, growth, out),
            None if pass.pass > 0 && out.wants != Wants::default() => self.look(batch, pass, out),
            _ => {}
        }
    }

    /// Writes into `accepted` how many tokens verification accepts: of the first `verify_len` draft tokens of each
    /// chain, or of the nodes to verify of each tree. Trees also store their accepted path. For chains the divergences
    /// are filled in if the policy wants them. If a token decided this number, and the replayed run did not reveal
    /// whether the token is right, the token is reported to the acceptance source.
    pub fn accept(&self, batch: &BatchView, drafts: &mut Drafts, accepted: &mut [u32]) {
        if drafts.in_trees() {
            for (i, a) in accepted.iter_mut().enumerate().take(batch.len()) {
                let row = self.row_of[batch.ids[i] as usize] as usize;
                let rank = |depth: u32| {
                    self.look_at(row, batch.emitted[i], depth - 1);
                    self.rank(row, batch.emitted[i], depth - 1)
                };
                *a = drafts.trees[i].accepted(rank);
            }
            return;
        }
        match &self.plain {
            Some(plain) => plain.accept(batch, drafts, accepted),
            None => self.accept_and_look(batch, &drafts.verify_len, accepted),
        }
        if drafts.wants.divergence {
            self.reveal_divergences(batch, accepted, drafts);
        }
    }

    /// The slower part of [`accept`](Truths::accept), for chains in which the right draft tokens depend on the depth,
    /// or for which the replayed run did not reveal all right draft tokens. Each token that decided an acceptance and
    /// was not revealed is reported to the acceptance source.
    fn accept_and_look(&self, batch: &BatchView, verify_len: &[u32], accepted: &mut [u32]) {
        let asked = batch.ids.iter().zip(batch.emitted).zip(verify_len);
        for (((&id, &emitted), &v), a) in asked.zip(accepted.iter_mut()) {
            let row = self.row_of[id as usize] as usize;
            let truth = &self.rows[row];
            *a = truth.run(emitted, v);
            if !truth.is_all_known() {
                self.look_at_all(row, emitted, v.min(*a + 1));
            }
        }
    }

    /// Considers the first `depths` draft tokens of a round, which starts at output position `start`; its request has
    /// bitmap `row`. For each token of which the replayed run did not reveal whether it is right: reports to the
    /// acceptance source that an invented value decided an acceptance.
    #[cold]
    fn look_at_all(&self, row: usize, start: u32, depths: u32) {
        (0..depths).for_each(|depth| self.look_at(row, start, depth));
    }

    /// If the replayed run did not reveal whether the draft token at `depth` (from 0) of a round is right, reports to
    /// the acceptance source that an invented value decided an acceptance. The round starts at output position `start`;
    /// its request has bitmap `row`.
    fn look_at(&self, row: usize, start: u32, depth: u32) {
        if !self.rows[row].is_known(start + depth, depth) {
            self.acceptance.unknown_used(self.requests[row], start, depth);
        }
    }

    /// For each token that the pass drafted: fills in the confidence that the policy sees, and the entropy if the
    /// policy wants it.
    fn look(&self, batch: &BatchView, pass: &DraftPass, out: &mut Drafts) {
        let depth = pass.pass - 1;
        for i in (0..batch.len()).filter(|&i| pass.draft_len[i] >= pass.pass) {
            let (id, start) = (batch.ids[i], batch.emitted[i]);
            let c = self.confidence(id, start, depth);
            out.set_confidence(i, depth as usize, self.shown(out.wants.shown, id, start, depth, c));
            if out.wants.entropy {
                out.set_entropy(i, depth as usize, self.acceptance.entropy(self.request(id), start, depth, c));
            }
        }
    }

    /// The value that a policy sees in place of the draft model's confidence `c`: see
    /// [`Law::chance`](super::Law::chance). It is `c` itself if the source has no law.
    #[inline]
    fn shown(&self, shown: Shown, id: RequestId, start: u32, depth: u32, c: f32) -> f64 {
        if shown == Shown::Confidence {
            return c.into();
        }
        match self.acceptance.law() {
            Some(law) => law.chance(self.request(id), start + depth, depth, c.into(), shown),
            None => c.into(),
        }
    }

    /// The rank of the target's token among the draft model's guesses at `depth` (from 0) of a draft round of the
    /// request whose bitmap is row `row`.
    fn rank(&self, row: usize, start: u32, depth: u32) -> u32 {
        match self.rows[row].right(start + depth, depth) {
            true => 1,
            false => self.acceptance.rank_if_wrong(self.requests[row], start + depth),
        }
    }

    /// Grows the trees of the requests in a pass by one level.
    fn grow_trees(&self, batch: &BatchView, pass: &DraftPass, growth: &Growth, out: &mut Drafts) {
        let depth = pass.pass - 1;
        for i in (0..batch.len()).filter(|&i| pass.draft_len[i] >= pass.pass) {
            let row = self.row_of[batch.ids[i] as usize] as usize;
            let start = batch.emitted[i];
            // The key (a hash of ranks) of the path of the target's tokens, down to the parents of this level of the
            // tree. A node is on the path if the ranks of the nodes down to it are the ranks of the target's tokens.
            let target = target_path((0..depth).map(|d| self.rank(row, start, d)));
            let right = self.rows[row].right(start + depth, depth);
            let confidence = |path: u64, on_path: bool| {
                let right = on_path.then_some(right);
                self.acceptance.confidence_with(self.requests[row], &self.rows[row], start, depth, right, path)
            };
            let mut first = (None, 0.0);
            out.trees[i].grow(growth, |parent, rank| {
                let path = parent.map_or(0, |n| n.path);
                if first.0 != Some(path) {
                    first = (Some(path), confidence(path, path == target));
                }
                let guess = self.acceptance.guess(self.requests[row], start, depth, path, rank, first.1);
                (guess, path_below(path, depth, rank))
            });
        }
    }

    /// Fills in KL(target ‖ draft) at the verified positions up to the first rejected draft token. Later draft tokens
    /// follow a wrong token and get no value.
    fn reveal_divergences(&self, batch: &BatchView, accepted: &[u32], out: &mut Drafts) {
        for (i, &accepted) in accepted.iter().enumerate().take(batch.len()) {
            let row = self.row_of[batch.ids[i] as usize] as usize;
            for j in 0..out.verify_len[i].min(accepted + 1) {
                let first = out.confidence(i, j as usize);
                let (request, start) = (self.requests[row], batch.emitted[i]);
                let nats = self.acceptance.divergence(request, start, j, self.rank(row, start, j), first);
                out.set_divergence(i, j as usize, nats);
            }
        }
    }
}

/// A number that identifies a path in the draft tree, the same as [`Node::path`](crate::tree::Node::path): a hash of
/// the ranks of the guesses on the path from the root (0 for first guesses alone).
fn target_path(ranks: impl Iterator<Item = u32>) -> u64 {
    ranks.enumerate().fold(0, |path, (depth, rank)| path_below(path, depth as u32, rank))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acceptance::AcceptanceSpec;
    use crate::tree::DraftTree;
    use crate::workload::Workload;

    /// `count_guesses(3)` counts a position as right if the target's token is among the best three guesses. Then a run
    /// of right positions is as long as the path that verification accepts of a tree with three children of each node.
    #[test]
    fn counted_guesses_are_what_a_tree_accepts() {
        let (guesses, depth, requests) = (3, 4, 20);
        let source = AcceptanceSpec::default().build(7, &Workload::default()).unwrap();
        let (mut first, mut best) = (Truths::new(&*source, depth, requests), Truths::new(&*source, depth, requests));
        best.count_guesses(guesses);
        let mut whole = DraftTree::default();
        (0..depth).for_each(|_| whole.grow(&Growth::Expansion([guesses].into()), |_, _| (0.5, 0)));
        let (mut longer, mut rounds) = (0, 0);
        for id in 0..requests as RequestId {
            let request = RequestTruth { id, prompt_len: 3, output_len: 60, category: 0, recording: None };
            first.start(request);
            best.start(request);
            let row = first.row_of[id as usize] as usize;
            for start in 1..60 {
                let accepted = whole.accepted(|d| first.rank(row, start, d - 1));
                assert_eq!(best.row(id).run(start, depth), accepted);
                longer += u32::from(accepted > first.row(id).run(start, depth));
                rounds += 1;
            }
        }
        assert!(longer * 5 > rounds, "only {longer} of {rounds} runs grew");
    }
}
