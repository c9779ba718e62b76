//! What the executor stores for each request: the request's tokens, and its draft tokens of the present step.

use super::capacity::Capacity;
use super::prompts::Prompts;
use crate::accept::Choice;
use crate::paged::BLOCK_SIZE;
use foretoken_sim::{RequestId, RequestTruth, Workload};

const NO_SLOT: u32 = u32::MAX;

/// A value in [`Slot::ran_at`]. It says that the draft model has not run over this node of the draft tree.
pub(super) const NOT_RUN: u32 = u32::MAX;

/// The executor's state of one request that has started. When the request ends, a later request reuses this struct and
/// its memory.
#[derive(Debug, Default)]
pub(super) struct Slot {
    output_len: u32,
    prompt_len: u32,
    /// The tokens of the request's prompt, then of its output so far.
    pub(super) tokens: Vec<u32>,
    /// Block table of the draft model's KV while a tree is drafted. The blocks that the scheduler gave to the request
    /// come first, then the scratch blocks for nodes of the tree.
    pub(super) tree_table: Vec<u32>,
    /// The tokens drafted in this step: one per depth (index in the chain) of a chain, or one per node of a tree.
    pub(super) drafted: Vec<u32>,
    /// For each drafted token of a chain, its confidence: the probability that the draft model gave to the token. If an
    /// acceptance source decides (`Acceptance::Declared`), this is the confidence that the source showed to the policy,
    /// or NaN if the policy does not want confidences.
    pub(super) confidence: Vec<f32>,
    /// The entropy in nats of the draft model's distribution at each drafted token of a chain. Empty if the policy does
    /// not want entropies. If an acceptance source decides (`Acceptance::Declared`), the entropy comes from the source.
    pub(super) entropy: Vec<f64>,
    /// KL(target ‖ draft) in nats at each verified token of a chain up to and including the first rejected token. Empty
    /// if the policy does not want divergences. If an acceptance source decides (`Acceptance::Declared`), the
    /// divergence comes from the source.
    pub(super) divergence: Vec<f64>,
    /// For each node of the draft tree: the context index at which the draft model's KV of the node is stored, or
    /// [`NOT_RUN`].
    pub(super) ran_at: Vec<u32>,
    /// The guesses of the present draft pass: first the guesses for the children of the first node that the pass
    /// expands, then the guesses for the children of the second node, and so on.
    pub(super) guesses: Vec<Choice>,
}

impl Slot {
    /// Returns the number of output tokens that the request has so far.
    pub(super) fn emitted(&self) -> u32 {
        self.tokens.len() as u32 - self.prompt_len
    }

    pub(super) fn clear_drafts(&mut self) {
        self.drafted.clear();
        self.confidence.clear();
        self.entropy.clear();
        self.divergence.clear();
        self.ran_at.clear();
        self.guesses.clear();
    }
}

/// The scratch blocks that are free: blocks of the draft model's KV that the scheduler does not give to requests. Draft
/// trees need them, because more nodes of a tree are drafted than verified.
#[derive(Debug)]
pub(super) struct Scratch(Vec<u32>);

/// The error of a draft tree that needs more scratch blocks (blocks of the draft model's KV for draft trees) than are
/// free.
#[derive(Debug)]
pub(super) struct ScratchIsDry {
    pub(super) needed: usize,
    pub(super) free: usize,
}

impl Scratch {
    fn new(capacity: Capacity) -> Scratch {
        Scratch((capacity.draft_blocks - capacity.draft_scratch..capacity.draft_blocks).rev().collect())
    }

    /// Adds free scratch blocks (KV blocks for draft trees only) to the block table `table` until the blocks of the
    /// table hold `tokens` tokens.
    pub(super) fn extend(&mut self, table: &mut Vec<u32>, tokens: usize) -> Result<(), ScratchIsDry> {
        let needed = tokens.div_ceil(BLOCK_SIZE).saturating_sub(table.len());
        let Some(from) = self.0.len().checked_sub(needed) else {
            return Err(ScratchIsDry { needed, free: self.0.len() });
        };
        table.extend(self.0.drain(from..).rev());
        Ok(())
    }

    /// Removes all scratch blocks (KV blocks for draft trees only) from the block table `table`, and makes them free
    /// again. They come after the first `keep` blocks of the table.
    pub(super) fn take_back(&mut self, table: &mut Vec<u32>, keep: usize) {
        self.0.extend(table.drain(keep.min(table.len())..).rev());
    }
}

/// The states of all requests that have started and not ended.
#[derive(Debug)]
pub(super) struct Requests {
    slot_of: Vec<u32>,
    slots: Vec<Slot>,
    free_slots: Vec<u32>,
    scratch: Scratch,
}

impl Requests {
    pub(super) fn new(workload: &Workload, capacity: Capacity) -> Requests {
        Requests {
            slot_of: vec![NO_SLOT; workload.len()],
            slots: Vec::new(),
            free_slots: Vec::new(),
            scratch: Scratch::new(capacity),
        }
    }

    /// Returns the state of request `id`. The request must have started.
    pub(super) fn get(&mut self, id: RequestId) -> &mut Slot {
        &mut self.slots[self.slot_of[id as usize] as usize]
    }

    /// Returns the state of request `id`, and the free scratch blocks (blocks of the draft model's KV for trees).
    pub(super) fn with_scratch(&mut self, id: RequestId) -> (&mut Slot, &mut Scratch) {
        (&mut self.slots[self.slot_of[id as usize] as usize], &mut self.scratch)
    }

    pub(super) fn start(&mut self, request: RequestTruth, prompts: &dyn Prompts) {
        let at = self.free_slots.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() as u32 - 1
        });
        self.slot_of[request.id as usize] = at;
        let slot = &mut self.slots[at as usize];
        slot.tokens.clear();
        prompts.fill(request.id, &mut slot.tokens);
        slot.prompt_len = slot.tokens.len() as u32;
        slot.output_len = request.output_len;
    }

    /// Removes the request `id`. Returns its output tokens, cut to the requested length. `None` if the request never
    /// started.
    pub(super) fn end(&mut self, id: RequestId) -> Option<&[u32]> {
        if self.slot_of[id as usize] == NO_SLOT {
            return None;
        }
        let at = std::mem::replace(&mut self.slot_of[id as usize], NO_SLOT);
        self.free_slots.push(at);
        let slot = &self.slots[at as usize];
        let output = &slot.tokens[slot.prompt_len as usize..];
        Some(&output[..output.len().min(slot.output_len as usize)])
    }
}

#[cfg(test)]
mod tests {
    use super::super::capacity::Needs;
    use super::*;
    use foretoken_sim::{EngineConfig, Request, Time};

    /// The structs of requests and the scratch blocks (KV blocks for draft trees only) are reused: a thousand requests
    /// that run one after the other need a single struct.
    #[test]
    fn slots_and_scratch_blocks_are_used_again() {
        let workload: Workload = (0..1000).map(|_| Request::new(Time::ZERO, 20, 5)).collect();
        let prompts = vec![vec![1; 20]; 1000];
        let config = EngineConfig { num_gpu_blocks: 7, max_num_seqs: 1, ..EngineConfig::default() };
        let needs = Needs { draft: true, trees: true, distributions: false };
        let mut requests = Requests::new(&workload, Capacity::of(&config, needs));
        let all = requests.scratch.0.len();
        for id in 0..1000 {
            let truth = RequestTruth { id, prompt_len: 0, output_len: 5, category: 0, recording: None };
            requests.start(truth, &prompts);
            let (slot, scratch) = requests.with_scratch(id);
            slot.tokens.extend([7; 6]);
            slot.tree_table.clear();
            slot.tree_table.extend([4, 2]);
            scratch.extend(&mut slot.tree_table, 49).unwrap();
            assert_eq!((slot.tree_table.len(), scratch.0.len()), (4, all - 2));
            assert!(slot.tree_table[2..].iter().all(|&b| b >= 7), "the scheduler's blocks are the scheduler's");
            let dry = scratch.extend(&mut slot.tree_table, 10_000).unwrap_err();
            assert_eq!((dry.needed, dry.free), (621, all - 2));
            scratch.take_back(&mut slot.tree_table, 2);
            assert_eq!(requests.end(id), Some(&[7; 5][..]), "trimmed to what was asked for");
        }
        assert_eq!((requests.slots.len(), requests.scratch.0.len()), (1, all));
        assert_eq!(requests.end(0), None);
    }
}
