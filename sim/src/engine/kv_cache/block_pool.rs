//! A pool of KV blocks with vLLM's free queue and block-hash prefix caching (vLLM v1 `block_pool.py`, docs/model.md
//! 4.4).
//!
//! Block ids are real: on hardware the same block tables address paged KV. Block 0 is the null block, which is in no
//! request's table.

use crate::luck::mix;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasherDefault, Hasher};

/// A block's index in the pool.
pub type BlockId = u32;

const NONE: u32 = u32::MAX;
const NO_HASH: u64 = 0;

/// The KV blocks of a request, in the order of the request's tokens, and the number of them that are registered in the
/// prefix cache.
#[derive(Clone, Debug, Default)]
pub struct BlockTable {
    /// Ids of the KV blocks that the request holds, in the order of its tokens.
    pub blocks: Vec<BlockId>,
    /// Number of KV blocks that the request holds. Used only in a pool that counts blocks and gives them no ids.
    counted: u32,
    /// Number of the request's leading blocks for which the pool was asked to register the content hash in the prefix
    /// cache.
    registered: u32,
    /// Number of the request's leading blocks whose content hash is in the prefix cache.
    hashed: u32,
    /// Content hash of the request's last block that is in the prefix cache. Each block's hash covers the hash of the
    /// block before it; the hash of the request's first block covers 0 instead.
    chain: u64,
}

impl BlockTable {
    /// Number of blocks that the request holds.
    pub fn len(&self) -> u32 {
        self.counted + self.blocks.len() as u32
    }
}

/// A pool of KV blocks of equal size. Its free queue has two parts. In front are blocks without a content hash; the
/// blocks of the most recently released table come first. Behind them are blocks with a content hash, in the order in
/// which they were freed. A free block with a hash can be a hit of the prefix cache until the pool hands the block out.
pub struct BlockPool {
    /// Whether the pool only counts its free blocks, and gives them no ids.
    counts: bool,
    /// Whether no two requests share content. Then only a preempted request can hit blocks, namely its own, so that its
    /// blocks are put into the prefix cache when it is preempted, and not before.
    unshared: bool,
    refs: Vec<u32>,
    hash: Vec<u64>,
    next: Vec<u32>,
    prev: Vec<u32>,
    head: u32,
    tail: u32,
    total: u32,
    free: u32,
    /// The cached blocks by content hash. Blocks with the same hash are not merged. They stay in the order of their
    /// registration, and a lookup hits the block that was registered first.
    cached: HashMap<u64, Equal, BuildHasherDefault<Mixed>>,
    /// Cached blocks that the pool handed out since the last lookup, with their hashes. They are removed from `cached`
    /// only at the next lookup, because growing a table must be fast.
    evicted: Vec<(u64, BlockId)>,
}

impl BlockPool {
    /// A pool with blocks 1 to `blocks`, all free. Block 0, the null block, is not part of the pool.
    pub fn new(blocks: u32) -> BlockPool {
        let n = blocks as usize;
        BlockPool {
            counts: false,
            unshared: false,
            refs: vec![0; n + 1],
            hash: vec![NO_HASH; n + 1],
            next: (1..=blocks + 1).map(|next| if next > blocks { NONE } else { next }).collect(),
            prev: (0..=blocks).map(|block| if block < 2 { NONE } else { block - 1 }).collect(),
            head: if blocks == 0 { NONE } else { 1 },
            tail: if blocks == 0 { NONE } else { blocks },
            total: blocks,
            free: blocks,
            cached: HashMap::default(),
            evicted: Vec::with_capacity(n),
        }
    }

    /// A pool that only counts its blocks. The blocks have no ids and no memory. There is no prefix cache before the
    /// blocks are [named](BlockPool::name).
    pub fn counting(blocks: u32) -> BlockPool {
        BlockPool { counts: true, total: blocks, free: blocks, ..BlockPool::new(0).unshared() }
    }

    /// Says that no two requests share content. This makes the pool faster and changes no hit.
    pub fn unshared(self) -> BlockPool {
        BlockPool { unshared: true, ..self }
    }

    /// Whether the pool only counts its blocks.
    pub fn counts(&self) -> bool {
        self.counts
    }

    /// Gives ids to the blocks of a pool that only counted them, and whose requests share no content. `tables` are the
    /// tables that hold blocks of this pool. The ids are not those that the blocks would have had. But no free block
    /// can be hit so far, and the tables hold equally many blocks, so that later hits are the same.
    pub fn name<'t>(&mut self, tables: impl Iterator<Item = &'t mut BlockTable>) {
        debug_assert!(self.counts && self.unshared);
        let free = self.free;
        *self = BlockPool::new(self.total).unshared();
        for table in tables {
            let held = std::mem::take(&mut table.counted);
            self.grow(table, held);
        }
        debug_assert_eq!(self.free, free);
    }

    /// Number of blocks that no request holds.
    pub fn free(&self) -> u32 {
        self.free
    }

    /// Number of blocks in the pool.
    pub fn total(&self) -> u32 {
        self.total
    }

    /// Number of blocks that at least one request holds.
    pub fn used(&self) -> u32 {
        self.total() - self.free
    }

    /// Appends `count` blocks from the front of the free queue to a table. The caller must have checked that the pool
    /// has enough free blocks.
    #[inline]
    pub fn grow(&mut self, table: &mut BlockTable, count: u32) {
        assert!(count <= self.free, "more blocks are asked of a pool than are free");
        if self.counts {
            (self.free, table.counted) = (self.free - count, table.counted + count);
        } else {
            self.hand_out(table, count);
        }
    }

    /// For a pool that only counts its blocks: adds one block to a request's block table, if a block is free. Returns
    /// whether a block was added.
    #[inline]
    pub fn count_one(&mut self, table: &mut BlockTable) -> bool {
        debug_assert!(self.counts);
        if self.free == 0 {
            return false;
        }
        (self.free, table.counted) = (self.free - 1, table.counted + 1);
        true
    }

    fn hand_out(&mut self, table: &mut BlockTable, count: u32) {
        for _ in 0..count {
            let block = self.head;
            self.unlink(block);
            let hash = std::mem::replace(&mut self.hash[block as usize], NO_HASH);
            if hash != NO_HASH {
                self.evicted.push((hash, block));
            }
            self.refs[block as usize] = 1;
            table.blocks.push(block);
        }
    }

    /// Gives back all blocks of a table, the last block first, so that the end of a sequence is evicted first. The
    /// leading `full` blocks are queued as blocks with a hash, even if they were never registered, because vLLM
    /// computes their hash.
    pub fn release(&mut self, table: &mut BlockTable, full: u32) {
        if self.counts {
            self.free += std::mem::take(&mut table.counted);
            (table.registered, table.hashed, table.chain) = (0, 0, 0);
            return;
        }
        // Freed blocks without a hash are put at the front of the queue, in the order in which the loop frees them.
        let (mut after, full) = (NONE, full.max(table.registered) as usize);
        while let Some(block) = table.blocks.pop() {
            let refs = &mut self.refs[block as usize];
            *refs -= 1;
            if *refs > 0 {
                continue;
            }
            if table.blocks.len() >= full {
                self.insert_after(after, block);
                after = block;
            } else {
                self.insert_after(self.tail, block);
            }
        }
        (table.registered, table.hashed, table.chain) = (0, 0, 0);
    }

    /// Gives back the last `count` blocks of a table without content, whose blocks are never cached.
    pub fn shrink(&mut self, table: &mut BlockTable, count: u32) {
        if self.counts {
            (self.free, table.counted) = (self.free + count, table.counted - count);
            return;
        }
        let mut after = NONE;
        for _ in 0..count {
            let block = table.blocks.pop().expect("a table gives back blocks that it holds");
            self.refs[block as usize] = 0;
            self.insert_after(after, block);
            after = block;
        }
    }

    /// Looks up the leading blocks of `content` in the cache. Returns the number of hits, at most `limit`, and without
    /// the last hit if `drop_last`. Also returns how many of the hits are free blocks: taking a free block removes it
    /// from the free queue.
    pub fn lookup(&mut self, content: &Content, limit: u32, drop_last: bool) -> (u32, u32) {
        if self.cached.is_empty() {
            return (0, 0);
        }
        self.forget_evicted();
        let mut chain = 0;
        let (mut hits, mut idle, mut last_idle) = (0, 0, 0);
        while hits < limit {
            chain = content.hash(chain, hits);
            let Some(equal) = self.cached.get(&chain) else { break };
            let block = equal.first();
            last_idle = u32::from(self.refs[block as usize] == 0);
            idle += last_idle;
            hits += 1;
        }
        if drop_last && hits > 0 {
            (hits, idle) = (hits - 1, idle - last_idle);
        }
        (hits, idle)
    }

    /// Puts the leading `hits` cached blocks of `content` into an empty table.
    pub fn take_hits(&mut self, table: &mut BlockTable, content: &Content, hits: u32) {
        for index in 0..hits {
            table.chain = content.hash(table.chain, index);
            let block = self.cached[&table.chain].first();
            if self.refs[block as usize] == 0 {
                self.unlink(block);
            }
            self.refs[block as usize] += 1;
            table.blocks.push(block);
        }
        (table.registered, table.hashed) = (hits, hits);
    }

    /// Registers the leading `full` blocks of the table in the cache under their hashes.
    pub fn register(&mut self, table: &mut BlockTable, content: &Content, full: u32) {
        table.registered = table.registered.max(full);
        if !self.unshared {
            self.publish(table, content);
        }
    }

    /// Puts the registered blocks of a table into the cache, if they are not there yet. Call this before the blocks of
    /// a request are released that may be looked up again.
    pub fn publish(&mut self, table: &mut BlockTable, content: &Content) {
        self.forget_evicted();
        for index in table.hashed..table.registered {
            table.chain = content.hash(table.chain, index);
            let block = table.blocks[index as usize];
            self.hash[block as usize] = table.chain;
            match self.cached.entry(table.chain) {
                Entry::Vacant(slot) => _ = slot.insert(Equal::One(block)),
                Entry::Occupied(mut slot) => slot.get_mut().push(block),
            }
        }
        table.hashed = table.registered;
    }

    fn forget_evicted(&mut self) {
        for (hash, block) in self.evicted.drain(..) {
            if let Entry::Occupied(mut slot) = self.cached.entry(hash)
                && slot.get_mut().remove(block)
            {
                slot.remove();
            }
        }
    }

    fn unlink(&mut self, block: BlockId) {
        let (prev, next) = (self.prev[block as usize], self.next[block as usize]);
        if prev == NONE {
            self.head = next
        } else {
            self.next[prev as usize] = next
        }
        if next == NONE {
            self.tail = prev
        } else {
            self.prev[next as usize] = prev
        }
        self.free -= 1;
    }

    /// Puts a block behind block `prev` in the free queue, or at the queue's front if `prev` is `NONE`.
    fn insert_after(&mut self, prev: u32, block: BlockId) {
        let next = if prev == NONE { self.head } else { self.next[prev as usize] };
        self.prev[block as usize] = prev;
        self.next[block as usize] = next;
        if prev == NONE {
            self.head = block
        } else {
            self.next[prev as usize] = block
        }
        if next == NONE {
            self.tail = block
        } else {
            self.prev[next as usize] = block
        }
        self.free += 1;
    }

    /// Length of the free queue, counted block by block. Tests compare it with `free`.
    #[cfg(test)]
    fn walk(&self) -> u32 {
        std::iter::successors((self.head != NONE).then_some(self.head), |&b| {
            (self.next[b as usize] != NONE).then(|| self.next[b as usize])
        })
        .count() as u32
    }
}

/// A hasher for keys that are already hashes.
#[derive(Default)]
struct Mixed(u64);

impl Hasher for Mixed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("the keys are u64")
    }
}

/// The ids of cached KV blocks with the same content hash, in the order of registration.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Equal {
    One(BlockId),
    Many(Vec<BlockId>),
}

impl Equal {
    fn first(&self) -> BlockId {
        match self {
            Equal::One(block) => *block,
            Equal::Many(blocks) => blocks[0],
        }
    }

    fn push(&mut self, block: BlockId) {
        match self {
            Equal::One(first) => *self = Equal::Many(vec![*first, block]),
            Equal::Many(blocks) => blocks.push(block),
        }
    }

    /// Removes a block from the list of blocks with this content hash. Returns whether the list is then empty.
    fn remove(&mut self, block: BlockId) -> bool {
        match self {
            Equal::One(only) => *only == block,
            Equal::Many(blocks) => {
                blocks.retain(|&b| b != block);
                blocks.is_empty()
            }
        }
    }
}

/// The content of a request's blocks, from which their hashes are computed: first the shared prefix ids, then the
/// request's own tokens.
#[derive(Clone, Copy, Debug)]
pub struct Content<'a> {
    /// Ids of the leading blocks of the prompt that the request shares with other requests.
    pub prefix: &'a [u64],
    /// Tokens in a shared prefix block (512 for Mooncake).
    pub prefix_block: u32,
    /// Tokens in a KV block.
    pub block_size: u32,
    /// Number of tokens after the end of a KV block that the block's content hash also covers.
    pub hash_lookahead: u32,
    /// Number (not id) of the request to which the tokens after the shared prefix belong.
    pub request: u32,
}

impl Content<'_> {
    /// The content hash of KV block `index` of the request. It covers the hash `parent` of the block before it and the
    /// block's content.
    fn hash(&self, parent: u64, index: u32) -> u64 {
        let first = index * self.block_size;
        let end = first + self.block_size + self.hash_lookahead;
        let ids = first / self.prefix_block.max(1)..end.div_ceil(self.prefix_block.max(1));
        let content = match self.prefix.get(ids.start as usize..ids.end as usize) {
            Some(ids) => {
                let offset = u64::from(first % self.prefix_block) + 1;
                ids.iter().fold(mix(offset), |content, &id| mix(content ^ mix(id)))
            }
            None => mix(u64::from(self.request) | 1 << 40) ^ mix(u64::from(index) | 1 << 41),
        };
        mix(parent ^ content).max(1)
    }
}

#[cfg(test)]
mod tests;
