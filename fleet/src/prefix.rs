//! A router's memory of the prompts that it has sent to each replica. It approximates the replicas' prefix caches.
//!
//! Prompts are compared in units of the workload's prefix block (a number of tokens). The tokens of a prompt after its
//! last full prefix block are shared with no other request. They still take up cache, so their number is stored.

use crate::router::Asked;
use foretoken_sim::luck::mix;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Hashes of the prefixes of a prompt: of its first prefix block, of its first two prefix blocks, and so on. Only
/// blocks that the prompt fills and whose ids are known count.
pub(crate) fn prefixes<'a>(request: &Asked<'a>) -> impl Iterator<Item = u64> + use<'a> {
    let whole = request.prompt_len.checked_div(request.prefix_block).unwrap_or(0) as usize;
    let ids = request.prefix.iter().take(whole);
    ids.scan(0, |hash, &id| {
        *hash = mix(mix(*hash).wrapping_add(id).wrapping_add(GOLDEN));
        Some(*hash)
    })
}

const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// A hash of the beginning of a prompt: its first `tokens` tokens, rounded up to whole prefix blocks, or the whole
/// prompt if it is shorter. If the prompt's [prefix blocks](prefixes) do not cover this beginning, the hash is made
/// from the request's id, so no other request has it.
pub(crate) fn beginning(request: &Asked, tokens: u32) -> u64 {
    let tokens = tokens.min(request.prompt_len);
    let blocks = tokens.div_ceil(request.prefix_block.max(1)) as usize;
    let alone = || mix(mix(u64::from(request.id) ^ GOLDEN));
    prefixes(request).nth(blocks.saturating_sub(1)).unwrap_or_else(alone)
}

/// For each replica, the prompt prefixes that were sent to it, as an LRU cache of limited size.
pub(crate) struct PrefixIndex {
    caches: Vec<Cache>,
    /// For each hash of a prompt prefix: the replicas that hold the prefix. The replica to which it was sent most
    /// recently is the last.
    holders: HashMap<u64, Vec<u16>, BuildHasherDefault<AsItIs>>,
}

impl PrefixIndex {
    /// For each of `replicas` replicas an empty cache of prompt prefixes.
    pub fn new(replicas: usize) -> PrefixIndex {
        PrefixIndex { caches: (0..replicas).map(|_| Cache::default()).collect(), holders: HashMap::default() }
    }

    /// Writes into `matched`, for each replica, how many of the prompt prefixes `prefixes` the replica holds. Stops at
    /// the first prefix that no replica holds.
    pub fn matched(&self, prefixes: impl Iterator<Item = u64>, matched: &mut Vec<u32>) {
        matched.clear();
        matched.resize(self.caches.len(), 0);
        for hash in prefixes {
            let Some(holders) = self.holders.get(&hash) else { return };
            holders.iter().for_each(|&replica| matched[replica as usize] += 1);
        }
    }

    /// Adds a prompt to a replica's cache: each of its prefixes as an entry of size `weight`, and the tokens after its
    /// last full prefix block as an entry of size `rest`. Sizes are in the caller's unit, such as KV blocks. A prefix
    /// that the cache already holds becomes the newest entry.
    pub fn add(&mut self, replica: usize, prefixes: impl Iterator<Item = u64>, weight: u64, rest: u64) {
        for hash in prefixes {
            self.caches[replica].add(hash, weight);
            let holders = self.holders.entry(hash).or_default();
            holders.retain(|&other| other as usize != replica);
            holders.push(replica as u16);
        }
        self.caches[replica].add_rest(rest);
    }

    /// Removes a prompt prefix, by its hash, from the cache of a replica.
    pub fn forget(&mut self, replica: usize, hash: u64) {
        self.caches[replica].remove(hash);
        self.dropped(replica, hash);
    }

    /// Removes the least recently used prompt prefixes and unshared ends from a replica's cache until the sum of their
    /// sizes is at most `most`. If it would be enough to remove a part of an unshared end, only this part is removed.
    pub fn cut(&mut self, replica: usize, most: u64) {
        while let Some(hash) = self.caches[replica].cut(most) {
            self.dropped(replica, hash);
        }
    }

    fn dropped(&mut self, replica: usize, hash: u64) {
        if let Some(holders) = self.holders.get_mut(&hash) {
            holders.retain(|&other| other as usize != replica);
            if holders.is_empty() {
                self.holders.remove(&hash);
            }
        }
    }
}

/// The prompt prefixes and the unshared ends of prompts that a replica may have cached, as a linked list in the order
/// of their last use.
#[derive(Default)]
struct Cache {
    at: HashMap<u64, u32, BuildHasherDefault<AsItIs>>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    oldest: u32,
    newest: u32,
    /// Sum of the sizes of all prompt prefixes and unshared ends in the cache.
    held: u64,
    linked: u32,
}

#[derive(Clone, Copy)]
struct Slot {
    /// Hash of the prompt prefix; `None` for the end of a prompt, which no other request shares.
    hash: Option<u64>,
    weight: u64,
    older: u32,
    newer: u32,
}

const NONE: u32 = u32::MAX;

impl Cache {
    fn add(&mut self, hash: u64, weight: u64) {
        match self.at.get(&hash).copied() {
            Some(at) => self.unlink(at),
            None => {
                let at = self.slot(Some(hash), weight);
                self.at.insert(hash, at);
            }
        }
        let at = self.at[&hash];
        self.link(at);
    }

    fn add_rest(&mut self, weight: u64) {
        if weight > 0 {
            let at = self.slot(None, weight);
            self.link(at);
        }
    }

    fn remove(&mut self, hash: u64) {
        if let Some(at) = self.at.remove(&hash) {
            self.unlink(at);
            self.held -= self.slots[at as usize].weight;
            self.free.push(at);
        }
    }

    /// Removes the least recently used entries while the sum of all sizes exceeds `most`. If the next entry is the
    /// unshared end of a prompt and is larger than the excess over `most`, it shrinks by the excess instead. After
    /// removing a prompt prefix, returns its hash; the caller then calls again. Returns `None` once the sum is at most
    /// `most`.
    fn cut(&mut self, most: u64) -> Option<u64> {
        while self.held > most && self.linked > 0 {
            let (at, slot) = (self.oldest, self.slots[self.oldest as usize]);
            let over = self.held - most;
            if slot.hash.is_none() && slot.weight > over {
                self.slots[at as usize].weight -= over;
                self.held -= over;
                return None;
            }
            self.unlink(at);
            self.held -= slot.weight;
            self.free.push(at);
            if let Some(hash) = slot.hash {
                self.at.remove(&hash);
                return Some(hash);
            }
        }
        None
    }

    fn slot(&mut self, hash: Option<u64>, weight: u64) -> u32 {
        self.held += weight;
        let slot = Slot { hash, weight, older: NONE, newer: NONE };
        match self.free.pop() {
            Some(at) => {
                self.slots[at as usize] = slot;
                at
            }
            None => {
                self.slots.push(slot);
                self.slots.len() as u32 - 1
            }
        }
    }

    /// Puts the cache entry with index `at` (a prompt prefix or an unshared end) at the end of the list, as the entry
    /// that was used last.
    fn link(&mut self, at: u32) {
        let before = if self.linked == 0 { NONE } else { self.newest };
        (self.slots[at as usize].older, self.slots[at as usize].newer) = (before, NONE);
        match before {
            NONE => self.oldest = at,
            _ => self.slots[before as usize].newer = at,
        }
        self.newest = at;
        self.linked += 1;
    }

    fn unlink(&mut self, at: u32) {
        let Slot { older, newer, .. } = self.slots[at as usize];
        match older {
            NONE => self.oldest = newer,
            _ => self.slots[older as usize].newer = newer,
        }
        match newer {
            NONE => self.newest = older,
            _ => self.slots[newer as usize].older = older,
        }
        self.linked -= 1;
    }
}

/// A hasher for keys that are hashes already: it returns the key.
#[derive(Default)]
pub(crate) struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are hashes of 64 bits")
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use foretoken_sim::Time;
    use proptest::prelude::*;

    fn asked(id: u32, prompt_len: u32, prefix: &[u64]) -> Asked<'_> {
        let tpot_s = f64::INFINITY;
        Asked { id, now: Time::ZERO, prompt_len, category: 0, prefix, prefix_block: 16, tpot_s }
    }

    #[test]
    fn prompts_that_share_their_beginning_share_its_hash() {
        let (a, b) = (asked(1, 100, &[5, 6, 7]), asked(2, 90, &[5, 6, 9]));
        assert_eq!(beginning(&a, 32), beginning(&b, 32));
        assert_ne!(beginning(&a, 33), beginning(&b, 33), "the third block differs");
        assert_ne!(beginning(&asked(1, 100, &[]), 32), beginning(&asked(2, 100, &[]), 32));
        assert_eq!(prefixes(&asked(1, 40, &[5, 6, 7])).count(), 2, "the prompt ends in the third block");
    }

    proptest! {
        /// Random additions and cuts of a replica's cache leave the same prefixes in it as in a second implementation,
        /// which is a plain list in the order of last use.
        #[test]
        fn the_cache_is_a_list_of_entries(adds in prop::collection::vec((0..12u64, 0..3u64), 1..60), most in 1..20u64) {
            let mut index = PrefixIndex::new(2);
            let mut plain: Vec<Option<u64>> = Vec::new();
            for (hash, rest) in adds {
                index.add(1, [hash].into_iter(), 1, rest);
                index.cut(1, most);
                plain.retain(|&held| held != Some(hash));
                plain.push(Some(hash));
                plain.extend((0..rest).map(|_| None));
                let over = plain.len().saturating_sub(most as usize);
                plain.drain(..over);
            }
            for hash in 0..12 {
                let mut matched = Vec::new();
                index.matched([hash].into_iter(), &mut matched);
                prop_assert_eq!(matched[1] == 1, plain.contains(&Some(hash)));
                prop_assert_eq!(matched[0], 0);
            }
        }
    }
}
