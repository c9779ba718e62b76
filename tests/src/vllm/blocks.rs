//! The running hash over all block tables.

use super::draws::mix;
use super::fixture::Entry;
use foretoken_sim::RequestId;
use foretoken_sim::engine::Scheduler;
use std::collections::HashMap;

/// The hash, and the number of hashed blocks of each table.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    pub hash: u64,
    known: HashMap<RequestId, usize>,
}

impl Blocks {
    /// Hashes the blocks that the tables of a step's requests have gained.
    pub fn note(&mut self, scheduler: &Scheduler, entries: &[Entry]) {
        for id in entries.iter().map(|e| e.request) {
            let table = scheduler.kv_cache_manager().tables().target(id);
            let known = self.known.entry(id).or_default();
            for &block in &table[*known..] {
                self.hash = mix(self.hash ^ (u64::from(id) << 32 | u64::from(block)));
            }
            *known = table.len();
        }
    }

    /// Removes a request that gave its blocks back.
    pub fn forget(&mut self, id: RequestId) {
        self.known.remove(&id);
    }
}
