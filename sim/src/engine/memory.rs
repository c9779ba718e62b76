//! Whether there is room: the target's block pool, block tables, the prefix cache and the draft's pool together.

use super::kv::{BlockPool, Content};
use super::state::{Active, Tables};
use crate::{DraftKv, EngineConfig, RequestId, Workload};

/// The KV memory of both models.
pub struct Memory<'a> {
    workload: &'a Workload,
    pool: BlockPool,
    tables: Tables,
    block_size: u32,
    caching: bool,
    per_prefix_block: u32,
    reserve_full: bool,
    watermark: u32,
    /// The draft's own pool: blocks in it, and free ones. Infinite unless `draft_kv = separate`.
    draft_total: u32,
    draft_free: u32,
}

/// Leave to admit a request: what of it is cached.
#[derive(Clone, Copy, Debug)]
pub struct Admission {
    hits: u32,
    /// Tokens in those blocks.
    pub cached: u32,
    available: u32,
}

impl<'a> Memory<'a> {
    /// The memory of an engine; `drafter` says whether a draft model takes its share (invariant 7).
    pub fn new(config: &EngineConfig, workload: &'a Workload, drafter: bool) -> Memory<'a> {
        let device = match config.draft_kv {
            DraftKv::EqualSplit { ratio } if drafter => (f64::from(config.num_gpu_blocks) / (1.0 + ratio)) as u32,
            _ => config.num_gpu_blocks,
        };
        // One block is the null block (policies.md 4.1).
        let usable = device.saturating_sub(1);
        let draft_total = match config.draft_kv {
            DraftKv::Separate { blocks } if drafter => blocks,
            _ => u32::MAX,
        };
        Memory {
            workload,
            pool: BlockPool::new(usable),
            tables: Tables::default(),
            block_size: config.block_size,
            caching: config.prefix_caching,
            per_prefix_block: workload.prefix_block / config.block_size,
            reserve_full: config.reserve_full_sequence,
            watermark: (config.watermark * f64::from(usable)).ceil() as u32,
            draft_total,
            draft_free: draft_total,
        }
    }

    /// Blocks requests can use.
    pub fn usable(&self) -> u32 {
        self.pool.total()
    }

    /// Blocks requests hold.
    pub fn used(&self) -> u32 {
        self.pool.used()
    }

    /// Blocks held in the draft's own pool.
    #[cfg(test)]
    pub fn draft_used(&self) -> u32 {
        self.draft_total - self.draft_free
    }

    /// Blocks no request holds.
    pub fn free(&self) -> u32 {
        self.pool.free().min(self.draft_free)
    }

    fn blocks_for(&self, tokens: u32) -> u32 {
        tokens.div_ceil(self.block_size)
    }

    /// Could the empty pools hold this many tokens?
    pub fn could_hold(&self, tokens: u32) -> bool {
        self.blocks_for(tokens) <= self.pool.total().min(self.draft_total)
    }

    /// Blocks a request lacks to hold `tokens`.
    #[inline]
    pub fn lacking(&self, a: &Active, tokens: u32) -> u32 {
        if tokens <= a.room { 0 } else { (tokens - a.room).div_ceil(self.block_size) }
    }

    /// Is there certainly room for `requests` requests to grow by `tokens` each?
    pub fn surely_holds(&self, requests: usize, tokens: u32) -> bool {
        requests as u64 * u64::from(self.blocks_for(tokens) + 1) <= u64::from(self.free())
    }

    /// Makes room for `tokens` tokens of a running request; false when the pools cannot.
    #[inline]
    pub fn ensure(&mut self, a: &mut Active, tokens: u32) -> bool {
        tokens <= a.room || self.grow(a, tokens)
    }

    fn grow(&mut self, a: &mut Active, tokens: u32) -> bool {
        let need = self.lacking(a, tokens);
        if need > self.free() {
            return false;
        }
        self.pool.grow(self.tables.get(a.slot), need);
        a.room += need * self.block_size;
        self.take_draft(a, need);
        true
    }

    fn take_draft(&mut self, a: &mut Active, blocks: u32) {
        if self.draft_total != u32::MAX {
            self.draft_free -= blocks;
            a.draft_blocks += blocks;
        }
    }

    fn content(&self, id: RequestId) -> Content<'a> {
        // Prefix blocks that do not divide into KV blocks cannot be shared; `Simulation::run` warns of it.
        let divides = self.per_prefix_block > 0 && self.workload.prefix_block.is_multiple_of(self.block_size);
        let prefix = if divides { self.workload.prefix(id) } else { &[] };
        Content { prefix, per_prefix_block: self.per_prefix_block, request: id }
    }

    /// Looks a waiting request of `total` tokens up in the prefix cache. At least one token is left to compute.
    pub fn look_up(&mut self, id: RequestId, total: u32) -> Admission {
        if !self.caching {
            return Admission { hits: 0, cached: 0, available: self.free() };
        }
        let content = self.content(id);
        let (hits, idle) = self.pool.lookup(&content, (total - 1) / self.block_size);
        let available = (self.pool.free() - idle).min(self.draft_free.saturating_sub(hits));
        Admission { hits, cached: hits * self.block_size, available }
    }

    /// Takes the cached blocks and room for `tokens` of `total` in all into a new table; false, and nothing taken,
    /// when they do not fit. `busy`: does anything run (the watermark applies only then)?
    pub fn admit(&mut self, a: &mut Active, found: Admission, tokens: u32, busy: bool) -> bool {
        let need = self.blocks_for(tokens) - found.hits;
        let claim = if self.reserve_full { self.blocks_for(a.total) - found.hits } else { need };
        let margin = if busy { self.watermark } else { 0 };
        if claim.saturating_add(margin) > found.available {
            return false;
        }
        let content = self.content(a.id);
        a.slot = self.tables.take();
        let table = self.tables.get(a.slot);
        self.pool.take_hits(table, &content, found.hits);
        self.pool.grow(table, need);
        a.room = (found.hits + need) * self.block_size;
        self.take_draft(a, found.hits + need);
        self.register(a, tokens);
        true
    }

    /// Registers the blocks that `tokens` confirmed tokens fill in the prefix cache.
    pub fn register(&mut self, a: &Active, tokens: u32) {
        if self.caching {
            let content = self.content(a.id);
            self.pool.register(self.tables.get(a.slot), &content, tokens / self.block_size);
        }
    }

    /// Gives everything a request holds back.
    pub fn release(&mut self, a: &mut Active) {
        self.pool.release(self.tables.get(a.slot));
        self.tables.give_back(a.slot);
        if self.draft_total != u32::MAX {
            self.draft_free += std::mem::take(&mut a.draft_blocks);
        }
        a.room = 0;
    }
}
