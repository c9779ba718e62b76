//! A pool of KV blocks with vLLM's free queue and block-hash prefix caching (vLLM v1 `block_pool.py`, policies.md 4.4).
//!
//! Block ids are real: the same tables address paged KV on hardware. Block 0 is the null block and in no table.

use crate::luck::mix;
use std::collections::HashMap;

/// A block's index in the pool.
pub type BlockId = u32;

const NONE: u32 = u32::MAX;
const NO_HASH: u64 = 0;

/// The blocks a request holds, in order of its tokens, and how far they are registered in the cache.
#[derive(Clone, Debug, Default)]
pub struct BlockTable {
    /// Blocks held.
    pub blocks: Vec<BlockId>,
    /// Leading blocks whose hash is in the cache or was offered to it.
    registered: u32,
    /// Hash of the last registered block; the chain starts at 0.
    chain: u64,
}

/// A pool of equal blocks. Free blocks queue from the least to the most recently freed; a cached block stays usable
/// for hits until it reaches the front and is handed out.
pub struct BlockPool {
    refs: Vec<u32>,
    hash: Vec<u64>,
    next: Vec<u32>,
    prev: Vec<u32>,
    head: u32,
    tail: u32,
    total: u32,
    free: u32,
    cached: HashMap<u64, BlockId>,
    /// Cached blocks handed out since the last look at the cache: growing a table must not hash.
    evicted: Vec<u64>,
}

impl BlockPool {
    /// Blocks 1 to `blocks`, all free. The null block is not among them.
    pub fn new(blocks: u32) -> BlockPool {
        let n = blocks as usize;
        BlockPool {
            refs: vec![0; n + 1],
            hash: vec![NO_HASH; n + 1],
            next: (1..=blocks + 1).map(|next| if next > blocks { NONE } else { next }).collect(),
            prev: (0..=blocks).map(|block| if block < 2 { NONE } else { block - 1 }).collect(),
            head: if blocks == 0 { NONE } else { 1 },
            tail: if blocks == 0 { NONE } else { blocks },
            total: blocks,
            free: blocks,
            cached: HashMap::new(),
            evicted: Vec::with_capacity(n),
        }
    }

    /// Blocks no request holds.
    pub fn free(&self) -> u32 {
        self.free
    }

    /// Blocks in the pool.
    pub fn total(&self) -> u32 {
        self.total
    }

    /// Blocks at least one request holds.
    pub fn used(&self) -> u32 {
        self.total() - self.free
    }

    /// Takes `count` blocks from the front of the free queue. The caller has checked that there are enough.
    pub fn grow(&mut self, table: &mut BlockTable, count: u32) {
        for _ in 0..count {
            let block = self.head;
            assert!(block != NONE, "{count} blocks asked of a pool with {} free", self.free);
            self.unlink(block);
            let hash = std::mem::replace(&mut self.hash[block as usize], NO_HASH);
            if hash != NO_HASH {
                self.evicted.push(hash);
            }
            self.refs[block as usize] = 1;
            table.blocks.push(block);
        }
    }

    /// Gives all blocks of a table back, the last one first, so that the tail of a sequence is evicted first.
    pub fn release(&mut self, table: &mut BlockTable) {
        while let Some(block) = table.blocks.pop() {
            let refs = &mut self.refs[block as usize];
            *refs -= 1;
            if *refs == 0 {
                self.append(block);
            }
        }
        table.registered = 0;
        table.chain = 0;
    }

    /// Leading blocks of `content` in the cache, at most `limit`; and how many of those are free now (taking the hit
    /// takes them out of the free queue).
    pub fn lookup(&mut self, content: &Content, limit: u32) -> (u32, u32) {
        self.forget_evicted();
        let mut chain = 0;
        let (mut hits, mut idle) = (0, 0);
        while hits < limit {
            chain = content.hash(chain, hits);
            let Some(&block) = self.cached.get(&chain) else { break };
            idle += u32::from(self.refs[block as usize] == 0);
            hits += 1;
        }
        (hits, idle)
    }

    /// Takes the leading `hits` cached blocks of `content` into an empty table.
    pub fn take_hits(&mut self, table: &mut BlockTable, content: &Content, hits: u32) {
        for index in 0..hits {
            table.chain = content.hash(table.chain, index);
            let block = self.cached[&table.chain];
            if self.refs[block as usize] == 0 {
                self.unlink(block);
            }
            self.refs[block as usize] += 1;
            table.blocks.push(block);
        }
        table.registered = hits;
    }

    /// Registers the table's leading `full` blocks in the cache. Blocks already cached elsewhere are not deduplicated.
    pub fn register(&mut self, table: &mut BlockTable, content: &Content, full: u32) {
        self.forget_evicted();
        for index in table.registered..full {
            table.chain = content.hash(table.chain, index);
            let block = table.blocks[index as usize];
            if let std::collections::hash_map::Entry::Vacant(slot) = self.cached.entry(table.chain) {
                slot.insert(block);
                self.hash[block as usize] = table.chain;
            }
        }
        table.registered = table.registered.max(full);
    }

    fn forget_evicted(&mut self) {
        for hash in self.evicted.drain(..) {
            self.cached.remove(&hash);
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

    fn append(&mut self, block: BlockId) {
        self.prev[block as usize] = self.tail;
        self.next[block as usize] = NONE;
        if self.tail == NONE {
            self.head = block
        } else {
            self.next[self.tail as usize] = block
        }
        self.tail = block;
        self.free += 1;
    }

    /// Length of the free queue by walking it: a second way of counting, for tests.
    #[cfg(test)]
    fn walk(&self) -> u32 {
        std::iter::successors((self.head != NONE).then_some(self.head), |&b| {
            (self.next[b as usize] != NONE).then(|| self.next[b as usize])
        })
        .count() as u32
    }
}

/// What a request's blocks contain, as far as hashing goes: shared prefix ids first, then tokens of its own.
#[derive(Clone, Copy, Debug)]
pub struct Content<'a> {
    /// Ids of shared prefix blocks.
    pub prefix: &'a [u64],
    /// KV blocks in one prefix block (512 / 16 = 32 for Mooncake).
    pub per_prefix_block: u32,
    /// Who the other tokens belong to.
    pub request: u32,
}

impl Content<'_> {
    /// The hash of block `index`, given its parent's: H(parent, content).
    fn hash(&self, parent: u64, index: u32) -> u64 {
        let shared = self.prefix.get((index / self.per_prefix_block.max(1)) as usize);
        let content = match shared {
            Some(&id) => mix(id) ^ mix(u64::from(index % self.per_prefix_block) + 1),
            None => mix(u64::from(self.request) | 1 << 40) ^ mix(u64::from(index) | 1 << 41),
        };
        mix(parent ^ content).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn content(prefix: &[u64], request: u32) -> Content<'_> {
        Content { prefix, per_prefix_block: 2, request }
    }

    #[test]
    fn equal_prefixes_hit_until_evicted() {
        let mut pool = BlockPool::new(8);
        let ids = [10, 11];
        let mut a = BlockTable::default();
        pool.grow(&mut a, 5);
        pool.register(&mut a, &content(&ids, 0), 5);
        // Another request shares the first prefix block only: two KV blocks.
        assert_eq!(pool.lookup(&content(&[10, 99], 1), 8), (2, 0));
        assert_eq!(pool.lookup(&content(&[11], 1), 8), (0, 0));
        pool.release(&mut a);
        assert_eq!(pool.used(), 0);
        // Itself, after a preemption: everything, from the free queue.
        assert_eq!(pool.lookup(&content(&ids, 0), 8), (5, 5));
        let mut b = BlockTable::default();
        pool.take_hits(&mut b, &content(&ids, 1), 4);
        assert_eq!((pool.free(), b.blocks.len()), (4, 4));
        // Three never-used blocks lie in front of the cached tail, which goes next; then the pool is dry.
        pool.grow(&mut b, 4);
        assert_eq!(pool.free(), 0);
        assert_eq!(pool.lookup(&content(&ids, 0), 8), (4, 0));
        pool.release(&mut b);
        assert_eq!((pool.free(), pool.walk()), (8, 8));
    }

    proptest! {
        /// Invariant 3: used + free = total at any time, and the free queue holds exactly the free blocks.
        #[test]
        fn blocks_are_conserved(ops in prop::collection::vec((0usize..4, 0u32..6, any::<bool>()), 1..200)) {
            let mut pool = BlockPool::new(20);
            let ids = [1, 2, 3];
            let mut tables: Vec<BlockTable> = vec![BlockTable::default(); 4];
            for (who, count, release) in ops {
                let what = content(&ids[..who.min(3)], who as u32);
                if release {
                    let full = tables[who].blocks.len() as u32;
                    pool.register(&mut tables[who], &what, full);
                    pool.release(&mut tables[who]);
                } else if tables[who].blocks.is_empty() {
                    let (hits, _) = pool.lookup(&what, count);
                    pool.take_hits(&mut tables[who], &what, hits);
                } else if count <= pool.free() {
                    pool.grow(&mut tables[who], count);
                }
                let held: std::collections::HashSet<_> = tables.iter().flat_map(|t| &t.blocks).collect();
                prop_assert_eq!(held.len() as u32, pool.used());
                prop_assert_eq!(pool.walk(), pool.free());
            }
            tables.iter_mut().for_each(|t| pool.release(t));
            prop_assert_eq!(pool.used(), 0);
        }
    }
}
