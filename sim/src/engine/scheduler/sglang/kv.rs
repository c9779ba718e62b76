//! SGLang's KV pool and tree together: what is free, what can be evicted, and what a request takes and gives back
//! (`mem_cache/allocation.py`, `mem_cache/common.py`). The pool counts pages; which page a token has changes nothing.

use super::content::Tokens;
use super::radix_cache::{Match, RadixCache};
use super::req::{Contents, Req};
use super::settings::SglangRules;
use crate::workload::RequestId;

/// The KV pool and the tree of prefixes.
pub struct Kv {
    pub page: u32,
    free_pages: u32,
    /// `None` without a radix cache.
    pub tree: Option<RadixCache>,
}

impl Kv {
    /// An empty pool and an empty tree.
    pub fn new(rules: &SglangRules) -> Kv {
        let page = rules.page_size;
        let tree = || RadixCache::new(page, rules.pairs, rules.eviction, rules.tlru_tail);
        Kv { page, free_pages: rules.kv_tokens / page, tree: rules.radix_cache.then(tree) }
    }

    /// `tokens`, in whole pages.
    pub fn ceil(&self, tokens: u32) -> u32 {
        tokens.next_multiple_of(self.page)
    }

    /// Number of free KV slots.
    pub fn available(&self) -> u32 {
        self.free_pages * self.page
    }

    /// Number of KV slots that eviction could free.
    pub fn evictable(&self) -> u32 {
        self.tree.as_ref().map_or(0, RadixCache::evictable)
    }

    /// Evicts until `tokens` slots are free, or nothing can be evicted.
    pub fn evict_to(&mut self, tokens: u32) {
        while self.available() < tokens
            && let Some(freed) = self.tree.as_mut().and_then(RadixCache::evict_one)
        {
            self.free_pages += freed / self.page;
        }
    }

    /// Whether `tokens` slots are free after eviction (`check_decode_capacity`).
    pub fn has_room(&mut self, tokens: u32) -> bool {
        self.evict_to(tokens);
        self.available() >= tokens
    }

    /// Takes the pages by which the slots of a request grow from `from` to `to` tokens.
    fn take(&mut self, from: u32, to: u32) {
        let pages = (self.ceil(to) - self.ceil(from)) / self.page;
        debug_assert!(pages <= self.free_pages, "admission and retraction leave enough pages");
        self.free_pages = self.free_pages.saturating_sub(pages);
    }

    /// Slots for the chunks of a batch: `(prefix, end)` of each.
    pub fn take_chunks(&mut self, chunks: &[(u32, u32)]) {
        let tokens: u32 = chunks.iter().map(|(prefix, end)| end - prefix).sum();
        // SGLang makes room for one page more a chunk when pages are larger than a token.
        let spare = if self.page > 1 { chunks.len() as u32 * self.page } else { 0 };
        self.evict_to(tokens + spare);
        chunks.iter().for_each(|&(prefix, end)| self.take(prefix, end));
    }

    /// Room for the next token of `requests` decode requests.
    pub fn make_room_for_next(&mut self, requests: usize) {
        self.evict_to(requests as u32 * self.page);
    }

    /// A slot for the next token of a decode request.
    pub fn take_next(&mut self, r: &mut Req) {
        self.take(r.allocated, r.allocated + 1);
        r.allocated += 1;
        r.committed += 1;
    }

    /// How many slots a request lacks for drafting and verifying: `reserve` behind its certain tokens, in whole pages.
    pub fn lacks_for_drafts(&self, r: &Req, reserve: u32) -> u32 {
        self.ceil(r.committed + reserve).max(r.allocated) - r.allocated
    }

    /// Room for the `tokens` slots that `requests` requests lack for drafting and verifying.
    pub fn make_room_for_drafts(&mut self, tokens: u32, requests: usize) {
        if tokens > 0 {
            let spare = if self.page > 1 { requests as u32 * self.page } else { 0 };
            self.evict_to(tokens + spare);
        }
    }

    /// Slots for drafting and verifying.
    pub fn take_drafts(&mut self, r: &mut Req, reserve: u32) {
        let end = r.allocated + self.lacks_for_drafts(r, reserve);
        self.take(r.allocated, end);
        r.allocated = end;
    }

    /// Looks up the first tokens of a waiting request.
    pub fn match_prefix(&mut self, tokens: &Tokens) -> Match {
        match &mut self.tree {
            Some(tree) => tree.match_prefix(tokens),
            None => Match { tokens: 0, node: super::radix_cache::ROOT },
        }
    }

    /// Puts the first `up_to` tokens of a running request into the tree, and moves the request's lock to them
    /// (`checkpoint_into_tree`).
    pub fn checkpoint(&mut self, contents: &impl Contents, id: RequestId, r: &mut Req, up_to: u32) {
        let Some(tree) = &mut self.tree else { return };
        let tokens = contents.tokens(id, up_to);
        if tokens.is_empty() {
            return;
        }
        let key = tree.key(&tokens);
        let len = key.len();
        let priority = i64::from(r.asked.priority);
        let found = tree.insert(key, r.inserted, priority);
        r.inserted = r.inserted.max(len);
        // The request's own copies of what was there already are given back.
        self.free_pages += found.tokens.saturating_sub(r.protected) / self.page;
        // A node ends where the prompt ends, so that outputs can be evicted without their prompt.
        let mut prompt = tokens;
        prompt.truncate(r.asked.prompt);
        let prompt = tree.key(&prompt);
        if !prompt.is_empty() && prompt.len() < len {
            let again = prompt.len();
            tree.insert(prompt, again, priority + 1);
        }
        if let Some(lock) = r.lock {
            tree.unlock(lock);
        }
        tree.lock(found.node);
        (r.lock, r.last_node, r.protected) = (Some(found.node), found.node, len);
    }

    /// Puts the chunk that was just scheduled into the tree; the next one begins behind it (`checkpoint_kv_cache`).
    pub fn checkpoint_chunk(&mut self, contents: &impl Contents, id: RequestId, r: &mut Req) {
        self.checkpoint(contents, id, r, r.extend_end);
        r.prefix_len = r.extend_end;
    }

    /// Takes a request's KV back. With `checkpoint` the tree keeps what it can (`release_kv_cache`).
    pub fn release(&mut self, contents: &impl Contents, id: RequestId, r: &mut Req, checkpoint: bool) {
        if checkpoint {
            self.checkpoint(contents, id, r, r.owned());
        }
        self.free_pages += (self.ceil(r.allocated) - r.protected) / self.page;
        if let (Some(lock), Some(tree)) = (r.lock.take(), &mut self.tree) {
            tree.unlock(lock);
        }
        (r.allocated, r.holds_row) = (0, false);
    }
}
