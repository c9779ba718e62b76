//! What the engine remembers of the requests in the system.

use crate::engine::kv::BlockTable;
use crate::{RequestId, Time};

/// A request in the waiting list: a new one, or one that was preempted.
#[derive(Clone, Copy, Debug)]
pub struct Waiting {
    /// Which request.
    pub id: RequestId,
    /// Output tokens it emitted before it was preempted.
    pub emitted: u32,
    /// When it last emitted; `Time::MAX` when never.
    pub last_emit: Time,
    /// Tokens the draft had seen.
    pub seen: u32,
    /// May it still draft?
    pub may_draft: bool,
}

/// A request in the running list.
///
/// One record of two cache lines a request: the commit of a step touches nearly every field of it, so a list of
/// records beats a column a field here; what policies and executors scan is in columns ([`Columns`](super::work::Columns)).
#[derive(Clone, Debug)]
pub struct Active {
    /// Which request.
    pub id: RequestId,
    /// Tokens in the target's KV (vLLM `num_computed_tokens`).
    pub computed: u32,
    /// Prompt + emitted tokens (vLLM `num_tokens`).
    pub total: u32,
    /// Output tokens emitted.
    pub emitted: u32,
    /// Emitted tokens at which it stops.
    pub stop_at: u32,
    /// Tokens the draft has seen.
    pub seen: u32,
    /// Tokens scheduled in this step; 0 when left out.
    pub new: u32,
    /// Tokens its blocks have room for: a multiple of the block size.
    pub room: u32,
    /// Blocks it holds in a separate draft pool.
    pub draft_blocks: u32,
    /// Slot of its block table.
    pub slot: u32,
    /// Is its prompt (or what it recomputes) still being prefilled?
    pub prefilling: bool,
    /// May it draft? False for good after a permanent gap.
    pub may_draft: bool,
    /// When it last emitted.
    pub last_emit: Time,
    /// Its TPOT limit, seconds; infinity when none.
    pub slo_tpot_s: f64,
    /// Request-steps with at least one verified draft.
    pub rounds: u32,
    /// Draft tokens drafted.
    pub drafted: u32,
    /// Draft tokens verified.
    pub verified: u32,
    /// Draft tokens accepted.
    pub accepted: u32,
}

/// Block tables by slot; slots and buffers are reused.
#[derive(Debug, Default)]
pub struct Tables {
    tables: Vec<BlockTable>,
    free: Vec<u32>,
}

impl Tables {
    /// An empty table.
    pub fn take(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.tables.push(BlockTable::default());
            self.tables.len() as u32 - 1
        })
    }

    /// The table of a slot.
    pub fn get(&mut self, slot: u32) -> &mut BlockTable {
        &mut self.tables[slot as usize]
    }

    /// Gives an empty table back.
    pub fn give_back(&mut self, slot: u32) {
        debug_assert!(self.tables[slot as usize].blocks.is_empty());
        self.free.push(slot);
    }
}
