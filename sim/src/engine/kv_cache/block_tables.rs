//! The block tables of the requests that hold KV. Each such request has an index (slot) of its tables; indices and
//! buffers are reused.

use super::block_pool::{BlockId, BlockTable};
use crate::workload::RequestId;

const NO_SLOT: u32 = u32::MAX;

/// Block tables of the target and of the draft model.
#[derive(Debug, Default)]
pub struct BlockTables {
    target: Vec<BlockTable>,
    /// The draft model's tables, if the draft model has its own pool. Otherwise the target's tables serve both models.
    draft: Vec<BlockTable>,
    /// The other blocks of each request: recurrent states, compressors, and the layers with a sliding window.
    beside: Vec<BlockTable>,
    /// For each request of the workload: the index of its tables in `target` and `draft`.
    slot_of: Vec<u32>,
    free: Vec<u32>,
}

impl BlockTables {
    /// Empty tables for a workload with `requests` requests.
    pub fn new(requests: usize) -> BlockTables {
        BlockTables { slot_of: vec![NO_SLOT; requests], ..BlockTables::default() }
    }

    /// Makes room for a workload of `requests` requests, which has grown.
    pub fn make_room(&mut self, requests: usize) {
        self.slot_of.resize(requests, NO_SLOT);
    }

    /// Gives a request an empty table of each model. Returns the slot (index) of the tables.
    pub fn take(&mut self, id: RequestId) -> u32 {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.target.push(BlockTable::default());
            self.draft.push(BlockTable::default());
            self.beside.push(BlockTable::default());
            self.target.len() as u32 - 1
        });
        self.slot_of[id as usize] = slot;
        slot
    }

    /// The target's block table at index `slot`.
    pub fn target(&mut self, slot: u32) -> &mut BlockTable {
        &mut self.target[slot as usize]
    }

    /// All tables that may hold blocks of the target's pool.
    pub fn of_target(&mut self) -> impl Iterator<Item = &mut BlockTable> {
        self.target.iter_mut().chain(&mut self.beside)
    }

    /// The block table of the draft model's own pool at index `slot`.
    pub fn draft(&mut self, slot: u32) -> &mut BlockTable {
        &mut self.draft[slot as usize]
    }

    /// The other blocks at index `slot`: recurrent states, compressors, and the layers with a sliding window.
    pub fn beside(&mut self, slot: u32) -> &mut BlockTable {
        &mut self.beside[slot as usize]
    }

    /// Takes back the tables of a request. The tables must be empty.
    pub fn give_back(&mut self, id: RequestId) {
        let slot = std::mem::replace(&mut self.slot_of[id as usize], NO_SLOT);
        debug_assert!(self.target[slot as usize].blocks.is_empty() && self.draft[slot as usize].blocks.is_empty());
        self.free.push(slot);
    }
}

/// The block tables of a step's requests, for executors that address real KV memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct TablesOf<'a>(Option<(&'a BlockTables, bool)>);

impl<'a> TablesOf<'a> {
    /// Wraps the block tables of all requests. `separate` says whether the draft model has its own pool.
    pub(super) fn new(tables: &'a BlockTables, separate: bool) -> TablesOf<'a> {
        TablesOf(Some((tables, separate)))
    }

    /// Ids of the blocks of the target's KV that a request holds, in the order of the request's tokens. Empty for a
    /// request without KV. No request gets block 0, the null block.
    pub fn target(&self, id: RequestId) -> &'a [BlockId] {
        self.table(id, false)
    }

    /// Ids of the blocks of the draft model's KV that a request holds. If the draft model has no pool of its own, these
    /// are the ids of the target's blocks; on hardware they also address the draft model's KV memory, which then has as
    /// many blocks.
    pub fn draft(&self, id: RequestId) -> &'a [BlockId] {
        self.table(id, true)
    }

    fn table(&self, id: RequestId, of_draft: bool) -> &'a [BlockId] {
        let Some((tables, separate)) = self.0 else { return &[] };
        match tables.slot_of[id as usize] {
            NO_SLOT => &[],
            slot if of_draft && separate => &tables.draft[slot as usize].blocks,
            slot => &tables.target[slot as usize].blocks,
        }
    }
}
