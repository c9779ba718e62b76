//! A hash over the block tables of all requests. It is extended step by step and compared with the hash of the
//! recorder, the Python program that recorded vLLM.

use super::draws::mix;
use super::fixture::Entry;
use foretoken_sim::RequestId;
use foretoken_sim::engine::Scheduler;
use std::collections::HashMap;

/// The hash so far, and for each request the number of its blocks that are in the hash.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    pub hash: u64,
    hashed: HashMap<RequestId, usize>,
}

impl Blocks {
    /// Extends the hash by the blocks that the requests of this step (`entries`) got in it.
    pub fn note(&mut self, scheduler: &Scheduler, entries: &[Entry]) {
        for id in entries.iter().map(|e| e.request) {
            let table = scheduler.kv_cache_manager().tables().target(id);
            let hashed = self.hashed.entry(id).or_default();
            for &block in &table[*hashed..] {
                self.hash = mix(self.hash ^ (u64::from(id) << 32 | u64::from(block)));
            }
            *hashed = table.len();
        }
    }

    /// Forgets a request that ended or was preempted. If the request is scheduled again, its new blocks are hashed from
    /// the first one on.
    pub fn forget(&mut self, id: RequestId) {
        self.hashed.remove(&id);
    }
}
