//! The prefix tree of SMG's cache-aware router: which prompt prefixes were sent to which replicas. One limit on the
//! number of tokens holds for all replicas together.
//!
//! A page is a prefix block of the workload, as a node of the tree. A page is removed only after all pages that follow
//! it in prompts (the longer prefixes) are removed.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

/// The prefixes of the prompts that were sent to each replica.
#[derive(Default)]
pub(crate) struct PrefixTree {
    pages: HashMap<u64, Page>,
    /// The unshared ends of prompts: the tokens after the last full page (prefix block), which no other prompt shares.
    ends: Vec<End>,
    /// Number of tokens of all pages (prefix blocks of prompts) and unshared ends in the tree. A page counts once for
    /// every replica to which it was sent.
    held: u64,
    /// Number of prompts that were looked up so far; it serves as the clock of the LRU order.
    clock: u64,
}

struct Page {
    /// The hash of the page (prefix block) before this one in the prompt; `None` for the first page of a prompt.
    parent: Option<u64>,
    tokens: u64,
    /// The replicas to which the page (prefix block of a prompt) was sent, in the order of sending; the most recent is
    /// the last.
    holders: Vec<Holder>,
}

struct Holder {
    replica: usize,
    /// When the page was last used on this replica, in numbers of prompts looked up so far (`PrefixTree::clock`).
    used: u64,
    /// Number of pages and unshared ends of prompts that directly follow this page and were sent to this replica. The
    /// replica's copy of the page may be removed only when this number is 0.
    behind: u32,
}

struct End {
    parent: Option<u64>,
    replica: usize,
    tokens: u64,
    used: u64,
}

/// The next thing to remove from the tree: an unshared end, by its index in `ends`, or one replica's copy of a page
/// (prefix block), as (hash, replica).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Leaf {
    End(usize),
    Page(u64, usize),
}

impl PrefixTree {
    /// Finds the longest of `prefixes` that was sent to any replica. Writes the replicas to which this prefix was sent
    /// into `holders`, ascending. Returns how many of `prefixes` were found, from the shortest on. For each found page
    /// (prefix block), only the replica that got it last counts as having used it now.
    pub fn longest(&mut self, prefixes: impl Iterator<Item = u64>, holders: &mut Vec<usize>) -> u32 {
        self.clock += 1;
        holders.clear();
        let (mut found, mut last) = (0, None);
        for hash in prefixes {
            let Some(page) = self.pages.get_mut(&hash) else { break };
            page.holders.last_mut().expect("a page has a holder").used = self.clock;
            (found, last) = (found + 1, Some(hash));
        }
        if let Some(hash) = last {
            holders.extend(self.pages[&hash].holders.iter().map(|holder| holder.replica));
            holders.sort_unstable();
        }
        found
    }

    /// Adds a prompt that is sent to `replica`: each prefix as a page (node of the tree) of `tokens` tokens, and the
    /// `end` tokens after the last full page, which no other prompt shares.
    pub fn add(&mut self, replica: usize, prefixes: impl Iterator<Item = u64>, tokens: u64, end: u64) {
        let mut parent = None;
        for hash in prefixes {
            let page = self.pages.entry(hash).or_insert_with(|| Page { parent, tokens, holders: Vec::new() });
            let held = page.holders.iter().position(|holder| holder.replica == replica);
            let holder = match held {
                Some(at) => Holder { used: self.clock, ..page.holders.remove(at) },
                None => Holder { replica, used: self.clock, behind: 0 },
            };
            page.holders.push(holder);
            if held.is_none() {
                self.held += tokens;
                self.behind(parent, replica, 1);
            }
            parent = Some(hash);
        }
        if end > 0 {
            self.ends.push(End { parent, replica, tokens: end, used: self.clock });
            self.held += end;
            self.behind(parent, replica, 1);
        }
    }

    /// Removes copies of pages (prefix blocks) that no page and no end follows, and unshared ends of prompts, the least
    /// recently used first, until at most `most` tokens are left.
    pub fn cut(&mut self, most: u64) {
        if self.held <= most {
            return;
        }
        let ends = self.ends.iter().enumerate().map(|(i, end)| Reverse((end.used, Leaf::End(i))));
        let mut leaves: BinaryHeap<Reverse<(u64, Leaf)>> = ends.collect();
        for (&hash, page) in &self.pages {
            let last = page.holders.iter().filter(|holder| holder.behind == 0);
            leaves.extend(last.map(|holder| Reverse((holder.used, Leaf::Page(hash, holder.replica)))));
        }
        let mut cut_ends = vec![false; self.ends.len()];
        while self.held > most
            && let Some(Reverse((_, leaf))) = leaves.pop()
        {
            let (parent, replica) = match leaf {
                Leaf::End(at) => {
                    cut_ends[at] = true;
                    self.held -= self.ends[at].tokens;
                    (self.ends[at].parent, self.ends[at].replica)
                }
                Leaf::Page(hash, replica) => {
                    let page = self.pages.get_mut(&hash).expect("a leaf is in the tree");
                    self.held -= page.tokens;
                    let parent = page.parent;
                    page.holders.retain(|holder| holder.replica != replica);
                    if page.holders.is_empty() {
                        self.pages.remove(&hash);
                    }
                    (parent, replica)
                }
            };
            if let Some(used) = self.behind(parent, replica, -1) {
                leaves.push(Reverse((used, Leaf::Page(parent.expect("it is a page"), replica))));
            }
        }
        let mut cut = cut_ends.into_iter();
        self.ends.retain(|_| !cut.next().expect("one for each end"));
    }

    /// Adds `by` to the number of pages (prefix blocks) and unshared ends of prompts that directly follow a replica's
    /// copy of `page`. If the number becomes 0, returns when this copy was last used (`PrefixTree::clock`).
    fn behind(&mut self, page: Option<u64>, replica: usize, by: i32) -> Option<u64> {
        let page = self.pages.get_mut(&page?).expect("a page leaves after the pages behind it");
        let holder = page.holders.iter_mut().find(|holder| holder.replica == replica)?;
        holder.behind = holder.behind.strict_add_signed(by);
        (holder.behind == 0).then_some(holder.used)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_prompts_stay_and_ends_leave_first() {
        let mut tree = PrefixTree::default();
        let mut holders = Vec::new();
        let mut send = |tree: &mut PrefixTree, replica: usize, prompt: &[u64], end: u64| {
            let found = tree.longest(prompt.iter().copied(), &mut holders);
            tree.add(replica, prompt.iter().copied(), 16, end);
            (found, holders.clone())
        };
        assert_eq!(send(&mut tree, 0, &[1, 2], 8), (0, vec![]));
        assert_eq!(send(&mut tree, 1, &[1, 3], 8), (1, vec![0]));
        assert_eq!(send(&mut tree, 1, &[1, 2], 0), (2, vec![0]));
        assert_eq!(tree.held, 6 * 16 + 2 * 8 - 16);
        // `cut` removes the unshared end of the prompt [1, 2], then the end of the prompt [1, 3], and then replica 1's
        // page 3. Replica 0 keeps page 2 (a page is a prefix block), because the third prompt, [1, 2], used it.
        tree.cut(64);
        assert_eq!(tree.held, 64);
        assert_eq!(send(&mut tree, 0, &[1, 3], 0), (1, vec![0, 1]));
        assert_eq!(send(&mut tree, 0, &[1, 2], 0), (2, vec![0, 1]));
        tree.cut(0);
        assert!(tree.pages.is_empty() && tree.ends.is_empty() && tree.held == 0);
    }
}
