//! A hash over the block tables of all requests. It is extended at each step. It must equal the hash that the Python
//! program computed while it recorded vLLM.

use super::draws::mix;
use super::fixture::Entry;
use foretoken_sim::RequestId;
use foretoken_sim::engine::Scheduler;
use std::collections::HashMap;

/// A hash over the KV blocks that the scheduler gave to requests so far, and for each request the number of its blocks
/// that the hash has. A recorded run of vLLM has a hash that is computed in the same way.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    pub hash: u64,
    hashed: HashMap<RequestId, usize>,
}

impl Blocks {
    /// Extends the hash by the KV blocks that the scheduled requests `entries` of this step got in this step.
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

    /// Forgets a request that ended or was preempted. If the request is scheduled again, all its KV blocks are hashed
    /// as new.
    pub fn forget(&mut self, id: RequestId) {
        self.hashed.remove(&id);
    }
}
