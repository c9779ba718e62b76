//! What the executor keeps of requests: their tokens, blocks of KV in both pools, and what was drafted in this step.

use super::{Capacity, Prompts};
use crate::device::Choice;
use crate::paged::BLOCK_SIZE;
use foretoken_sim::{RequestId, RequestTruth, Workload};

const NO_SLOT: u32 = u32::MAX;

/// A node that the draft has not run over.
pub(super) const NOT_RUN: u32 = u32::MAX;

/// One request that has started. Slots and their buffers are reused.
#[derive(Debug, Default)]
pub(super) struct Slot {
    output_len: u32,
    prompt_len: u32,
    /// Prompt and output.
    pub(super) tokens: Vec<u32>,
    /// Its blocks of the target's KV.
    pub(super) table: Vec<u32>,
    /// Its blocks of the draft's.
    pub(super) draft_table: Vec<u32>,
    /// The tokens drafted in this step: a chain's, or those of the tree's nodes.
    pub(super) drafted: Vec<u32>,
    /// The draft's probability of each token of a chain.
    pub(super) confidence: Vec<f32>,
    /// The entropy behind each, where a policy looks.
    pub(super) entropy: Vec<f64>,
    /// What was said of verified tokens, where a policy looks.
    pub(super) divergence: Vec<f64>,
    /// Index in the context at which the draft's KV of each node lies, or [`NOT_RUN`].
    pub(super) ran_at: Vec<u32>,
    /// The guesses of the pass at hand, below one node of the frontier after the other.
    pub(super) guesses: Vec<Choice>,
}

impl Slot {
    /// Output tokens so far.
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

/// Blocks nobody holds. The null block is never among them.
#[derive(Debug)]
pub(super) struct FreeBlocks(Vec<u32>);

/// A pool has fewer blocks than are asked of it.
#[derive(Debug)]
pub(super) struct PoolIsDry {
    pub(super) needed: usize,
    pub(super) free: usize,
}

impl FreeBlocks {
    fn new(blocks: u32) -> FreeBlocks {
        FreeBlocks((1..blocks).rev().collect())
    }

    /// Makes room for `tokens` tokens in a table.
    pub(super) fn ensure(&mut self, table: &mut Vec<u32>, tokens: usize) -> Result<(), PoolIsDry> {
        let needed = tokens.div_ceil(BLOCK_SIZE).saturating_sub(table.len());
        let Some(from) = self.0.len().checked_sub(needed) else {
            return Err(PoolIsDry { needed, free: self.0.len() });
        };
        table.extend(self.0.drain(from..).rev());
        Ok(())
    }

    /// Takes back what is beyond `tokens` tokens.
    pub(super) fn shrink(&mut self, table: &mut Vec<u32>, tokens: usize) {
        let keep = tokens.div_ceil(BLOCK_SIZE).min(table.len());
        self.0.extend(table.drain(keep..).rev());
    }
}

/// All requests in the system.
#[derive(Debug)]
pub(super) struct Requests {
    slot_of: Vec<u32>,
    slots: Vec<Slot>,
    free_slots: Vec<u32>,
    pub(super) free: FreeBlocks,
    pub(super) draft_free: FreeBlocks,
}

impl Requests {
    pub(super) fn new(workload: &Workload, capacity: Capacity) -> Requests {
        Requests {
            slot_of: vec![NO_SLOT; workload.len()],
            slots: Vec::new(),
            free_slots: Vec::new(),
            free: FreeBlocks::new(capacity.blocks),
            draft_free: FreeBlocks::new(capacity.draft_blocks),
        }
    }

    /// The state of a request that has started.
    pub(super) fn get(&mut self, id: RequestId) -> &mut Slot {
        &mut self.slots[self.slot_of[id as usize] as usize]
    }

    /// The state of a request, and the free blocks of both pools.
    pub(super) fn with_pools(&mut self, id: RequestId) -> (&mut Slot, &mut FreeBlocks, &mut FreeBlocks) {
        (&mut self.slots[self.slot_of[id as usize] as usize], &mut self.free, &mut self.draft_free)
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

    /// Takes the blocks of a request; it keeps its tokens.
    pub(super) fn preempt(&mut self, id: RequestId) {
        let (slot, free, draft_free) = self.with_pools(id);
        free.shrink(&mut slot.table, 0);
        draft_free.shrink(&mut slot.draft_table, 0);
        slot.clear_drafts();
    }

    /// Forgets a request; returns its output, if it ever started.
    pub(super) fn end(&mut self, id: RequestId) -> Option<&[u32]> {
        if self.slot_of[id as usize] == NO_SLOT {
            return None;
        }
        self.preempt(id);
        let at = std::mem::replace(&mut self.slot_of[id as usize], NO_SLOT);
        self.free_slots.push(at);
        let slot = &self.slots[at as usize];
        let output = &slot.tokens[slot.prompt_len as usize..];
        Some(&output[..output.len().min(slot.output_len as usize)])
    }
}
