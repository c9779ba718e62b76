//! vLLM's `KVCacheManager` (docs/model.md 4.4): how much of a request is cached, and whether there are KV slots for the
//! request's tokens. If the draft model has its own pool, every allocation also takes the same number of blocks from
//! that pool.

use super::block_pool::{BlockPool, BlockTable, Content};
use super::block_tables::{BlockTables, TablesOf};
use super::windows::Windows;
use crate::config::{DraftKv, EngineConfig};
use crate::engine::request::RunningRequest;
use crate::engine::scheduler::Rules;
use crate::workload::{RequestId, Workload};

/// The KV memory of the target and of the draft model.
pub struct KvCacheManager {
    pool: BlockPool,
    /// The draft model's own pool, if it has one.
    draft_pool: Option<BlockPool>,
    /// Whether the target's pool is the only pool, only counts its blocks, without ids, and holds no layers with a
    /// sliding window. A request without shared prefixes needs ids only once it may come back.
    counts_alone: bool,
    tables: BlockTables,
    /// Blocks in the memory of the draft model's weights: how many it has, how many the weights hold now, and which.
    weight_blocks: u32,
    held_by_weights: u32,
    weights: BlockTable,
    block_size: u32,
    /// Number of blocks that a running request takes in addition to the blocks of its tokens: recurrent states, windows
    /// of compressed attention, and compressors.
    fixed: u32,
    /// The layers with a sliding window, which drop older tokens.
    windows: Windows,
    caching: bool,
    reserve_full: bool,
    watermark: u32,
    /// Whether a share of the blocks must stay free (watermark) also when a request is admitted while no other request
    /// runs, as in vLLM v0.
    watermark_always: bool,
    /// Number of tokens after the end of a KV block that the block's content hash also covers.
    hash_lookahead: u32,
    /// Number of a request's last computed tokens whose blocks are not put into the prefix cache, because these tokens
    /// may be computed again.
    recomputed: u32,
    /// Whether the last block of a prefix-cache hit is not used but computed again.
    drop_last_hit: bool,
}

/// The KV blocks that the prefix cache has for a waiting request.
#[derive(Clone, Copy, Debug)]
pub struct ComputedBlocks {
    blocks: u32,
    /// Number of tokens in the blocks that the prefix cache has for the request.
    pub num_tokens: u32,
    /// Number of free KV blocks that are not among the blocks that the prefix cache has for this request: in the
    /// target's pool, or in the draft model's own pool if fewer are free there.
    available: u32,
}

impl KvCacheManager {
    /// The KV memory of an engine that follows `rules` and serves `workload`. `addressed` says whether the executor
    /// needs the ids of a request's blocks.
    pub fn new(config: &EngineConfig, workload: &Workload, rules: &Rules, addressed: bool) -> KvCacheManager {
        let drafting = rules.drafter;
        let caching = config.prefix_caching && !(drafting && config.drafts_end_prefix_hits);
        let shared = caching && workload.may_share_prefixes();
        let counts = !addressed && !shared;
        let pool = |blocks| match shared {
            _ if counts => BlockPool::counting(blocks),
            true => BlockPool::new(blocks),
            false => BlockPool::new(blocks).unshared(),
        };
        // Without a drafter there are no weights, and their memory holds KV blocks from the start.
        let weight_blocks = config.draft_weights.map_or(0, |weights| weights.blocks);
        let draft_pool = match config.draft_kv {
            DraftKv::Separate { blocks } if drafting => Some(pool(blocks)),
            _ => None,
        };
        let windows = Windows::new(config, rules);
        let mut manager = KvCacheManager {
            pool: pool(config.usable_blocks(drafting) + weight_blocks),
            counts_alone: counts && draft_pool.is_none() && windows.groups() == 0,
            windows,
            draft_pool,
            tables: BlockTables::new(workload.len()),
            weight_blocks,
            held_by_weights: 0,
            weights: BlockTable::default(),
            block_size: config.block_size,
            fixed: config.blocks_of_a_request(rules.num_speculative_tokens),
            caching,
            reserve_full: rules.reserve_full_isl,
            watermark: rules.watermark_blocks,
            watermark_always: rules.release.watermark_always,
            hash_lookahead: rules.num_hash_lookahead_tokens,
            recomputed: rules.num_prefill_lookahead_tokens.saturating_sub(1),
            drop_last_hit: rules.drop_last_hit,
        };
        if drafting {
            manager.make_room_for_weights(weight_blocks);
        }
        manager
    }

    /// Takes blocks for the draft model's weights. Returns false, and takes nothing, if too few are free.
    pub fn make_room_for_weights(&mut self, blocks: u32) -> bool {
        let fits = blocks <= self.pool.free();
        if fits && blocks > 0 {
            self.pool.grow(&mut self.weights, blocks);
            self.held_by_weights = blocks;
        }
        fits
    }

    /// Gives the blocks of the draft model's weights to requests.
    pub fn give_up_weights(&mut self) {
        self.pool.release(&mut self.weights, 0);
        self.held_by_weights = 0;
    }

    /// Makes room for a workload of `requests` requests, which has grown.
    pub fn make_room(&mut self, requests: usize) {
        self.tables.make_room(requests);
    }

    /// Whether prefix caching is on and the requests of a workload have common prefixes. Then the order in which
    /// requests take and give back blocks decides which blocks are evicted.
    pub fn shares_prefixes(&self, workload: &Workload) -> bool {
        self.caching && workload.shares_prefixes()
    }

    /// Number of blocks of the target's pool that requests can use, with the blocks of the draft model's weights.
    pub fn usable(&self) -> u32 {
        self.pool.total()
    }

    /// Number of blocks of the target's pool that requests hold.
    pub fn used(&self) -> u32 {
        self.pool.used() - self.held_by_weights
    }

    /// Number of blocks that requests hold in the draft model's own pool.
    #[cfg(test)]
    pub fn draft_used(&self) -> u32 {
        self.draft_pool.as_ref().map_or(0, BlockPool::used)
    }

    /// Number of free blocks: in the target's pool, or in the draft model's own pool if fewer are free there.
    pub fn num_free_blocks(&self) -> u32 {
        self.pool.free().min(self.draft_free())
    }

    /// Number of blocks in the draft model's own pool; `u32::MAX` if the draft model has no pool of its own.
    pub fn draft_total(&self) -> u32 {
        self.draft_pool.as_ref().map_or(u32::MAX, BlockPool::total)
    }

    fn draft_free(&self) -> u32 {
        self.draft_pool.as_ref().map_or(u32::MAX, BlockPool::free)
    }

    /// Number of blocks that `tokens` tokens need.
    pub fn blocks_for(&self, tokens: u32) -> u32 {
        tokens.div_ceil(self.block_size)
    }

    /// Whether the target's pool, and whether the draft model's own pool, could hold this number of tokens if the pool
    /// were empty. The second value is true if the draft model has no pool of its own. In v0 the watermark (blocks that
    /// must stay free at an admission) must fit into the pool, too.
    pub fn could_hold(&self, tokens: u32) -> (bool, bool) {
        let need = self.blocks_for(tokens) + if self.watermark_always { self.watermark } else { 0 };
        let room = self.pool.total() - self.weight_blocks;
        (need + self.windows.most(need) + self.fixed <= room, need <= self.draft_total())
    }

    /// Whether layers with a sliding window give blocks back while their request runs.
    pub fn slides(&self) -> bool {
        self.windows.groups() > 0
    }

    /// v0's `can_allocate`: whether a request of `tokens` tokens fits into the free blocks now, while the watermark
    /// (blocks that must stay free at an admission) stays free.
    pub fn could_admit(&self, tokens: u32) -> bool {
        (self.blocks_for(tokens) + self.fixed).saturating_add(self.watermark) <= self.num_free_blocks()
    }

    /// v0's `can_append_slots`: whether the free blocks suffice to grow to `tokens` tokens. All blocks count as new,
    /// except the blocks that the first `seen` tokens fill completely.
    pub fn can_append(&self, seen: u32, tokens: u32) -> bool {
        let begun = seen / self.block_size;
        self.blocks_for(tokens) - begun <= self.num_free_blocks()
    }

    /// Number of blocks that request `r` needs in addition to its present blocks, to hold `tokens` tokens in the layers
    /// that keep every token.
    #[inline]
    pub fn lacking(&self, r: &RunningRequest, tokens: u32) -> u32 {
        if tokens <= r.num_slots { 0 } else { (tokens - r.num_slots).div_ceil(self.block_size) }
    }

    /// Whether the free blocks certainly suffice for each of `requests` requests to grow by `tokens` tokens. One spare
    /// block is counted for each request, so the result may be false although the blocks suffice.
    pub fn surely_holds(&self, requests: usize, tokens: u32) -> bool {
        requests as u64 * u64::from(self.blocks_for(tokens) + 1) <= u64::from(self.num_free_blocks())
    }

    /// Gives a running request KV blocks, so that it has room for `tokens` tokens in total. Returns false if the pools
    /// have too few free blocks.
    #[inline]
    pub fn allocate_slots(&mut self, r: &mut RunningRequest, tokens: u32) -> bool {
        tokens <= r.num_slots || self.grow(r, tokens)
    }

    /// Gives a request more KV blocks. Fast path: the request needs one more block, only the target's pool exists, and
    /// this pool only counts its blocks. In other cases calls [`grow_by_any`](Self::grow_by_any).
    #[inline]
    fn grow(&mut self, r: &mut RunningRequest, tokens: u32) -> bool {
        let one = self.counts_alone && tokens - r.num_slots <= self.block_size;
        if one && self.pool.count_one(self.tables.target(r.table)) {
            r.num_slots += self.block_size;
            return true;
        }
        self.grow_by_any(r, tokens)
    }

    #[inline(never)]
    fn grow_by_any(&mut self, r: &mut RunningRequest, tokens: u32) -> bool {
        if self.slides() {
            return self.slide_and_grow(r, tokens);
        }
        let need = (tokens - r.num_slots).div_ceil(self.block_size);
        if need > self.num_free_blocks() {
            return false;
        }
        self.pool.grow(self.tables.target(r.table), need);
        self.grow_draft(r, need);
        r.num_slots += need * self.block_size;
        true
    }

    /// With layers that have a sliding window: gives back the blocks that no later token of the request attends to,
    /// also if the call fails, and takes blocks for `tokens` tokens. Tokens that a step in flight computes still attend
    /// to older ones (vLLM's `remove_skipped_blocks`).
    fn slide_and_grow(&mut self, r: &RunningRequest, tokens: u32) -> bool {
        let (present, computed) = (self.tables.target(r.table).len(), r.num_computed_tokens - r.num_in_flight_tokens);
        let beside = self.tables.beside(r.table);
        let passed = beside.len() - self.fixed - self.windows.held(present, computed);
        self.pool.shrink(beside, passed);
        let need = self.blocks_for(tokens).saturating_sub(present);
        let of_windows = need * self.windows.groups();
        if need + of_windows > self.pool.free() || need > self.draft_free() {
            return false;
        }
        self.pool.grow(self.tables.target(r.table), need);
        self.pool.grow(self.tables.beside(r.table), of_windows);
        self.grow_draft(r, need);
        true
    }

    fn grow_draft(&mut self, r: &RunningRequest, blocks: u32) {
        if let Some(pool) = &mut self.draft_pool {
            pool.grow(self.tables.draft(r.table), blocks);
        }
    }

    fn content<'w>(&self, workload: &'w Workload, id: RequestId) -> Content<'w> {
        // The engine shares prefixes only if the size of a prefix block is a multiple of the size of a KV block, or the
        // reverse. Otherwise no prefix is shared, and `Simulation::run` warns.
        let (shared, block_size) = (workload.prefix_block, self.block_size);
        let divides = shared > 0 && (shared.is_multiple_of(block_size) || block_size.is_multiple_of(shared));
        let prefix = if divides { workload.prefix(id) } else { &[] };
        Content {
            prefix,
            prefix_block: shared,
            block_size,
            hash_lookahead: self.hash_lookahead,
            request: workload.number(id),
        }
    }

    /// Looks up a waiting request of `num_tokens` tokens in the prefix cache. The hit covers fewer tokens than
    /// `num_tokens`, so that at least one token is left to compute. Without prefix caching there is no hit.
    pub fn get_computed_blocks(&mut self, workload: &Workload, id: RequestId, num_tokens: u32) -> ComputedBlocks {
        if !self.caching {
            return ComputedBlocks { blocks: 0, num_tokens: 0, available: self.num_free_blocks() };
        }
        let content = self.content(workload, id);
        let (hits, idle) = self.pool.lookup(&content, (num_tokens - 1) / self.block_size, self.drop_last_hit);
        let available = (self.pool.free() - idle).min(self.draft_free().saturating_sub(hits));
        ComputedBlocks { blocks: hits, num_tokens: hits * self.block_size, available }
    }

    /// For a request that starts to run: takes its cached blocks, and further blocks so that it has KV slots for
    /// `tokens` tokens in total. Returns false, and takes nothing, if the free blocks do not suffice.
    ///
    /// `busy` says whether other requests run. The watermark (blocks that must stay free at an admission) is kept if
    /// `busy` is true; in v0 always. If the setting `scheduler_reserve_full_isl` is on, the free blocks must suffice
    /// for all tokens of the request, although the call takes only the blocks for `tokens`.
    pub fn allocate_new(
        &mut self,
        workload: &Workload,
        r: &mut RunningRequest,
        found: ComputedBlocks,
        tokens: u32,
        busy: bool,
    ) -> bool {
        let need = self.blocks_for(tokens) - found.blocks;
        let whole = if self.reserve_full { self.blocks_for(r.num_tokens) - found.blocks } else { 0 };
        // For the layers with a sliding window the last blocks of a hit are taken anew, as if they were not cached.
        let of_windows = self.windows.held(self.blocks_for(tokens), found.num_tokens);
        let of_all = if self.reserve_full { self.windows.most(self.blocks_for(r.num_tokens)) } else { 0 };
        let claim = (need + of_windows).max(whole + of_all) + self.fixed;
        let margin = if busy || self.watermark_always { self.watermark } else { 0 };
        if claim.saturating_add(margin) > found.available {
            return false;
        }
        let content = self.content(workload, r.id);
        r.table = self.tables.take(r.id);
        let table = self.tables.target(r.table);
        self.pool.take_hits(table, &content, found.blocks);
        self.pool.grow(table, need);
        let beside = self.fixed + of_windows;
        if beside > 0 {
            self.pool.grow(self.tables.beside(r.table), beside);
        }
        self.grow_draft(r, found.blocks + need);
        // With windows every call of `allocate_slots` must give blocks back, so the request never counts as roomy.
        r.num_slots = if self.slides() { 0 } else { (found.blocks + need) * self.block_size };
        true
    }

    /// Allocates blocks for a request that starts to run and already has blocks, so that it has room for `tokens`
    /// tokens in total. Returns false if the pools have too few blocks. `busy` says whether other requests run; then
    /// the watermark is kept, as in [`allocate_new`](Self::allocate_new).
    pub fn allocate_more(&mut self, r: &mut RunningRequest, tokens: u32, busy: bool) -> bool {
        let margin = if busy || self.watermark_always { self.watermark } else { 0 };
        let need = match self.slides() {
            true => {
                self.blocks_for(tokens).saturating_sub(self.tables.target(r.table).len()) * (1 + self.windows.groups())
            }
            false => self.lacking(r, tokens),
        };
        need.saturating_add(margin) <= self.num_free_blocks() && self.allocate_slots(r, tokens)
    }

    /// Number of a request's full blocks that can be cached, if `num_tokens` of its tokens are certain (not draft
    /// tokens).
    fn cacheable_blocks(&self, r: &RunningRequest, num_tokens: u32) -> u32 {
        let hashed = r.num_tokens.saturating_sub(self.hash_lookahead);
        num_tokens.saturating_sub(self.recomputed).min(hashed) / self.block_size
    }

    /// Registers in the prefix cache the blocks that the first `num_tokens` tokens of a request fill. These tokens must
    /// be certain (not draft tokens).
    pub fn cache_blocks(&mut self, workload: &Workload, r: &RunningRequest, num_tokens: u32) {
        if self.caching {
            let (content, blocks) = (self.content(workload, r.id), self.cacheable_blocks(r, num_tokens));
            self.pool.register(self.tables.target(r.table), &content, blocks);
        }
    }

    /// Gives all KV blocks of a request, which may come back, to the pools of the target and of the draft model.
    pub fn free(&mut self, workload: &Workload, r: &mut RunningRequest) {
        if self.caching {
            if self.pool.counts() {
                self.pool.name(self.tables.of_target().chain(std::iter::once(&mut self.weights)));
                self.counts_alone = false;
            }
            let content = self.content(workload, r.id);
            self.pool.publish(self.tables.target(r.table), &content);
        }
        self.give_back(r, 0);
    }

    /// Gives the blocks of an ended request back to the pools, in vLLM's order. The blocks of the request's output are
    /// registered for prefix caching only if the request has a next turn in its session, whose prompt repeats the
    /// output. Other prompts never repeat output tokens.
    pub fn free_finished(&mut self, workload: &Workload, r: &mut RunningRequest) {
        let full = if self.caching { self.cacheable_blocks(r, r.num_cacheable_tokens) } else { 0 };
        if full > 0 && workload.goes_on(r.id) {
            let content = self.content(workload, r.id);
            self.pool.register(self.tables.target(r.table), &content, full);
        }
        self.give_back(r, full);
    }

    fn give_back(&mut self, r: &mut RunningRequest, full: u32) {
        self.pool.release(self.tables.target(r.table), full);
        if self.fixed > 0 || self.slides() {
            self.pool.release(self.tables.beside(r.table), 0);
        }
        if let Some(pool) = &mut self.draft_pool {
            pool.release(self.tables.draft(r.table), full);
        }
        self.tables.give_back(r.id);
        r.num_slots = 0;
    }

    /// The block tables of all requests that hold KV.
    pub fn tables(&self) -> TablesOf<'_> {
        TablesOf::new(&self.tables, self.draft_pool.is_some())
    }
}
