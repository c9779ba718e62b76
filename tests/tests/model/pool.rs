//! vLLM's block pool (`block_pool.py`): a queue of free KV blocks, and the cached KV blocks. A cached block is found by
//! all tokens up to its end, and not by a hash of them.

use std::collections::{HashMap, VecDeque};

pub type Key = Vec<u64>;

pub struct Pool {
    caching: bool,
    /// The free KV blocks, the next to be taken first. Block 0, the null block (which no request gets), is never among
    /// them.
    free: VecDeque<usize>,
    refs: Vec<i64>,
    keys: Vec<Option<Key>>,
    cached: HashMap<Key, Vec<usize>>,
}

impl Pool {
    pub fn new(blocks: i64, caching: bool) -> Pool {
        let blocks = blocks as usize;
        Pool {
            caching,
            free: (1..blocks).collect(),
            refs: vec![0; blocks],
            keys: vec![None; blocks],
            cached: HashMap::new(),
        }
    }

    pub fn num_free(&self) -> i64 {
        self.free.len() as i64
    }

    /// The KV block that was cached first among the blocks with this key (all tokens up to the block's end); `None` if
    /// no block has the key.
    pub fn cached(&self, key: &Key) -> Option<usize> {
        self.cached.get(key).map(|blocks| blocks[0])
    }

    /// Number of KV blocks in `blocks` that are in the free queue.
    pub fn num_evictable(&self, blocks: &[usize]) -> i64 {
        blocks.iter().filter(|&&block| self.refs[block] == 0).count() as i64
    }

    /// Lets one more request use the cached KV blocks `blocks`. Blocks of them that are in the free queue leave the
    /// queue.
    pub fn touch(&mut self, blocks: &[usize]) {
        for &block in blocks {
            if self.refs[block] == 0 {
                self.free.retain(|&free| free != block);
            }
            self.refs[block] += 1;
        }
    }

    /// Takes KV blocks from the front of the free queue. Their content is no longer cached.
    pub fn take(&mut self, count: i64) -> Vec<usize> {
        let mut taken = Vec::new();
        for _ in 0..count {
            let block = self.free.pop_front().expect("the caller has counted the free blocks");
            if let Some(key) = self.keys[block].take() {
                let blocks = self.cached.get_mut(&key).unwrap();
                blocks.retain(|&other| other != block);
                if blocks.is_empty() {
                    self.cached.remove(&key);
                }
            }
            assert_eq!(self.refs[block], 0);
            self.refs[block] = 1;
            taken.push(block);
        }
        taken
    }

    /// Puts a full KV block into the prefix cache under its key, which is all tokens up to the block's end.
    pub fn cache(&mut self, block: usize, key: Key) {
        assert!(self.keys[block].is_none(), "a block is cached once");
        self.keys[block] = Some(key.clone());
        self.cached.entry(key).or_default().push(block);
    }

    /// Gives the KV blocks of a request back to the pool. `table` has them in the order of the request's tokens.
    pub fn give_back(&mut self, table: &[usize]) {
        let (mut first, mut last) = (Vec::new(), Vec::new());
        for &block in table.iter().rev() {
            self.refs[block] -= 1;
            if self.refs[block] == 0 {
                match self.keys[block].is_none() || !self.caching {
                    true => first.push(block),
                    false => last.push(block),
                }
            }
        }
        first.iter().rev().for_each(|&block| self.free.push_front(block));
        last.iter().for_each(|&block| self.free.push_back(block));
    }
}
