//! SGLang's radix tree (`mem_cache/unified_radix_cache.py`, `unified_cache/unified_tree_core.py`): the prefixes in KV
//! that requests may share. Keys have whole pages. A node's KV can be evicted once no running request locks it and
//! nothing hangs below it; by default the node that was used least recently goes first, as a whole.

use super::content::Tokens;
use crate::config::EvictionPolicy;
use std::collections::{BTreeMap, BTreeSet};

/// A node of the tree. The root has no tokens and is never evicted.
pub type NodeId = u32;

/// The tree's root.
pub const ROOT: NodeId = 0;

struct Node {
    key: Tokens,
    parent: NodeId,
    /// The children by the hash of their first page.
    children: BTreeMap<u64, NodeId>,
    /// Number of running requests that use the node's KV, in this node or below.
    locks: u32,
    used: f64,
    /// When the node, or the one that it was split from, was made.
    made: f64,
    /// How many requests put the node's tokens in.
    hits: u32,
    /// The highest priority of a request that put them in.
    priority: i64,
    /// Place among the children of its parent: they are in the order in which they came.
    order: u64,
    /// Number of tokens from the root to the node's end.
    depth: u32,
    /// The largest depth that was ever reached in the node or below it.
    deepest: u32,
}

/// The tree of cached prefixes.
pub struct RadixCache {
    nodes: Vec<Node>,
    free: Vec<NodeId>,
    page: u32,
    /// Whether keys are pairs of tokens.
    pairs: bool,
    /// Counts touches, as SGLang's `get_and_increase_time_counter` does.
    time: f64,
    evictable: u32,
    /// Number of nodes that were made.
    made: u64,
    /// Nodes that can be evicted, the first to go first.
    leaves: BTreeSet<Entry>,
    eviction: EvictionPolicy,
    /// With `tlru`: how many tokens at the end of what was cached are no loss.
    tail: u32,
}

/// A node that can be evicted, behind what decides which one goes first.
type Entry = (i64, u64, NodeId);

/// What a walk down the tree found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Match {
    /// Number of tokens whose KV is in the tree.
    pub tokens: u32,
    /// The last node of the path.
    pub node: NodeId,
}

impl RadixCache {
    /// An empty tree with keys in whole pages of `page` tokens. `pairs` says whether keys are pairs of tokens, `tail`
    /// how many tokens `tlru` gives up.
    pub fn new(page: u32, pairs: bool, eviction: EvictionPolicy, tail: u32) -> RadixCache {
        let root = Node {
            key: Tokens::default(),
            parent: ROOT,
            children: BTreeMap::new(),
            locks: 1,
            used: 0.0,
            made: 0.0,
            hits: 0,
            priority: 0,
            order: 0,
            depth: 0,
            deepest: 0,
        };
        RadixCache {
            nodes: vec![root],
            free: Vec::new(),
            page,
            pairs,
            time: 0.0,
            evictable: 0,
            made: 0,
            leaves: BTreeSet::new(),
            eviction,
            tail,
        }
    }

    /// Number of tokens whose KV could be evicted.
    pub fn evictable(&self) -> u32 {
        self.evictable
    }

    fn tick(&mut self) -> f64 {
        self.time += 1.0;
        self.time
    }

    /// The key of a sequence: pairs if the tree has pairs, whole pages.
    pub fn key(&self, tokens: &Tokens) -> Tokens {
        let mut key = if self.pairs { tokens.pairs() } else { tokens.clone() };
        key.truncate(key.len() / self.page * self.page);
        key
    }

    /// Finds the longest prefix of `tokens` in the tree, and marks its path as used just now.
    pub fn match_prefix(&mut self, tokens: &Tokens) -> Match {
        let mut key = self.key(tokens);
        let (mut node, mut found) = (ROOT, 0);
        if key.is_empty() {
            return Match { tokens: 0, node };
        }
        while !key.is_empty()
            && let Some(&child) = self.nodes[node as usize].children.get(&key.hash_of_first(self.page))
        {
            let (same, whole) = self.same(child, &key);
            found += same;
            if !whole {
                node = self.split(child, same);
                break;
            }
            node = child;
            key.split_front(same);
        }
        let (mut at, mut used) = (node, self.tick());
        loop {
            self.touch(at, used);
            used -= 0.00001;
            if at == ROOT {
                break;
            }
            at = self.nodes[at as usize].parent;
        }
        Match { tokens: found, node }
    }

    /// Number of tokens, in whole pages, in which a child and the rest of a key begin alike, and whether that is the
    /// whole child.
    fn same(&self, child: NodeId, key: &Tokens) -> (u32, bool) {
        let own = &self.nodes[child as usize].key;
        let same = own.common(key) / self.page * self.page;
        (same, same == own.len())
    }

    /// Puts a key of a request of some priority into the tree. The request has put its first `before` tokens in before,
    /// which then count no second time. Returns how many tokens were there already, and the last node.
    pub fn insert(&mut self, mut key: Tokens, before: u32, priority: i64) -> Match {
        let (mut node, mut found) = (ROOT, 0);
        let used = self.tick();
        self.touch(ROOT, used);
        while !key.is_empty()
            && let Some(&child) = self.nodes[node as usize].children.get(&key.hash_of_first(self.page))
        {
            let used = self.tick();
            self.touch(child, used);
            let (same, whole) = self.same(child, &key);
            node = if whole { child } else { self.split(child, same) };
            found += same;
            self.note(node, found > before, priority);
            key.split_front(same);
        }
        if !key.is_empty() {
            let (hash, len) = (key.hash_of_first(self.page), key.len());
            self.leaves.remove(&self.entry(node));
            let leaf = self.add(key, node);
            self.deepen(leaf);
            self.nodes[node as usize].children.insert(hash, leaf);
            self.evictable += len;
            self.note(leaf, found + len > before, priority);
            self.settle(leaf);
            self.settle(node);
            node = leaf;
        }
        Match { tokens: found, node }
    }

    fn add(&mut self, key: Tokens, parent: NodeId) -> NodeId {
        let used = self.tick();
        // SGLang counts the node's creation too.
        self.tick();
        self.made += 1;
        let made = self.time;
        let (children, order) = (BTreeMap::new(), self.made);
        let depth = self.nodes[parent as usize].depth + key.len();
        let node =
            Node { key, parent, children, locks: 0, used, made, hits: 0, priority: 0, order, depth, deepest: depth };
        match self.free.pop() {
            Some(id) => {
                self.nodes[id as usize] = node;
                id
            }
            None => {
                self.nodes.push(node);
                self.nodes.len() as NodeId - 1
            }
        }
    }

    /// Notes the depth of a new leaf in the nodes above it. `tlru` alone asks for it.
    fn deepen(&mut self, leaf: NodeId) {
        let Node { depth, parent: mut at, .. } = self.nodes[leaf as usize];
        while self.eviction == EvictionPolicy::Tlru && self.nodes[at as usize].deepest < depth {
            self.nodes[at as usize].deepest = depth;
            at = self.nodes[at as usize].parent;
        }
    }

    /// Splits a node: its first `len` tokens become a node of their own above it. Returns that node.
    fn split(&mut self, child: NodeId, len: u32) -> NodeId {
        let (parent, page) = (self.nodes[child as usize].parent, self.page);
        self.leaves.remove(&self.entry(child));
        let hash = self.nodes[child as usize].key.hash_of_first(page);
        let front = self.nodes[child as usize].key.split_front(len);
        let rest = self.nodes[child as usize].key.hash_of_first(page);
        let new = self.add(front, parent);
        self.nodes[new as usize].children.insert(rest, child);
        let Node { locks, order, made, hits, priority, deepest, .. } = self.nodes[child as usize];
        let front = &mut self.nodes[new as usize];
        (front.locks, front.order, front.made, front.hits, front.priority) = (locks, order, made, hits, priority);
        front.deepest = deepest;
        self.nodes[child as usize].parent = new;
        self.nodes[parent as usize].children.insert(hash, new);
        let used = self.tick();
        self.touch(child, used);
        self.settle(child);
        new
    }

    fn touch(&mut self, node: NodeId, used: f64) {
        let listed = self.leaves.remove(&self.entry(node));
        self.nodes[node as usize].used = used;
        if listed {
            self.leaves.insert(self.entry(node));
        }
    }

    /// Notes that a request put the node's tokens in; `anew` says that it did so for the first time.
    fn note(&mut self, node: NodeId, anew: bool, priority: i64) {
        let listed = self.leaves.remove(&self.entry(node));
        let n = &mut self.nodes[node as usize];
        n.hits += u32::from(anew);
        n.priority = n.priority.max(priority);
        if listed {
            self.leaves.insert(self.entry(node));
        }
    }

    fn entry(&self, node: NodeId) -> Entry {
        let n = &self.nodes[node as usize];
        let (used, made) = (n.used.to_bits(), n.made.to_bits());
        let (first, time) = match self.eviction {
            EvictionPolicy::Lru => (0, used),
            EvictionPolicy::Mru => (0, !used),
            EvictionPolicy::Lfu => (n.hits.into(), used),
            EvictionPolicy::Slru => (i64::from(n.hits >= 2), used),
            EvictionPolicy::Tlru => {
                let no_loss = n.depth - n.key.len() >= n.deepest.saturating_sub(self.tail);
                (-i64::from(no_loss), used)
            }
            EvictionPolicy::Fifo => (0, made),
            EvictionPolicy::Filo => (0, !made),
            EvictionPolicy::Priority => (n.priority, used),
        };
        (first, time, node)
    }

    /// Lists the node among those that can be evicted, or takes it off the list.
    fn settle(&mut self, node: NodeId) {
        let (n, entry) = (&self.nodes[node as usize], self.entry(node));
        if node != ROOT && n.locks == 0 && n.children.is_empty() {
            self.leaves.insert(entry);
        } else {
            self.leaves.remove(&entry);
        }
    }

    /// Locks the path to a node, so that none of its KV is evicted.
    pub fn lock(&mut self, mut node: NodeId) {
        while node != ROOT {
            self.leaves.remove(&self.entry(node));
            let n = &mut self.nodes[node as usize];
            if n.locks == 0 {
                self.evictable -= n.key.len();
            }
            n.locks += 1;
            node = n.parent;
        }
    }

    /// Releases one lock of the path to a node.
    pub fn unlock(&mut self, mut node: NodeId) {
        while node != ROOT {
            let n = &mut self.nodes[node as usize];
            n.locks -= 1;
            let parent = n.parent;
            if n.locks == 0 {
                self.evictable += n.key.len();
                self.settle(node);
            }
            node = parent;
        }
    }

    /// Evicts the first node to go. Returns how many tokens of KV it had; `None` if no node can go.
    pub fn evict_one(&mut self) -> Option<u32> {
        let (.., node) = self.leaves.pop_first()?;
        let key = std::mem::take(&mut self.nodes[node as usize].key);
        let parent = self.nodes[node as usize].parent;
        self.nodes[parent as usize].children.remove(&key.hash_of_first(self.page));
        self.free.push(node);
        self.evictable -= key.len();
        self.settle(parent);
        Some(key.len())
    }

    /// The order of SGLang's `dfs-weight`: the indices of `nodes` (the last node of each waiting request), so that the
    /// subtree with the most requests comes first, and what is below a node before the node's own requests.
    pub fn by_weight(&self, nodes: &[NodeId]) -> Vec<usize> {
        let mut weight: BTreeMap<NodeId, u32> = BTreeMap::new();
        for &node in nodes {
            let mut at = node;
            loop {
                *weight.entry(at).or_default() += 1;
                if at == ROOT {
                    break;
                }
                at = self.nodes[at as usize].parent;
            }
        }
        let mut order = Vec::with_capacity(nodes.len());
        let mut stack = vec![(ROOT, false)];
        while let Some((node, visited)) = stack.pop() {
            if visited {
                order.extend((0..nodes.len()).filter(|&i| nodes[i] == node));
                continue;
            }
            stack.push((node, true));
            let mut children: Vec<NodeId> = self.nodes[node as usize].children.values().copied().collect();
            children.retain(|child| weight.contains_key(child));
            let key = |&child: &NodeId| (weight[&child], std::cmp::Reverse(self.nodes[child as usize].order));
            children.sort_by_key(key);
            stack.extend(children.into_iter().map(|child| (child, false)));
        }
        order
    }

    /// Forgets all prefixes.
    pub fn clear(&mut self) {
        *self = RadixCache::new(self.page, self.pairs, self.eviction, self.tail);
    }
}
