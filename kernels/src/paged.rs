//! The batch of a forward pass. It combines requests with different numbers of new tokens. It has the tokens, where
//! their keys and values are stored, and which tokens each token attends to.
//!
//! KV is paged as in vLLM: the KV of the token at index `t` of a request's context is in block `table[t / 16]` at
//! offset `t % 16`.

use foretoken_sim::tree::ROOT;
use std::ops::Range;

/// Number of tokens in a KV block.
pub const BLOCK_SIZE: usize = 16;

/// The new tokens of one request in a pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// Range of the request's rows in the batch.
    pub rows: Range<usize>,
    /// Range of the request's block table in [`Batch::tables`].
    pub table: Range<usize>,
    /// Number of context tokens whose keys and values were stored before this pass.
    pub computed: usize,
}

/// Says which tokens one new token attends to: the first `prefix` tokens of its request's context, and then the tokens
/// in `path`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sight {
    /// Number of tokens from the start of the context that the new token attends to.
    pub prefix: usize,
    /// The tokens after the prefix that the new token attends to, as a range of [`Batch::paths`], which holds context
    /// indices in rising order. The range has the indices of the new token's ancestors in the draft tree, then the
    /// index of the new token itself. In a chain the range is empty, because the prefix includes the new token.
    pub path: Range<usize>,
}

/// Says for which new tokens of a request a pass computes logits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Logits {
    /// The pass computes no logits: the tokens are a prefill chunk that is not the prompt's last chunk.
    Skip,
    /// The pass computes the logits of the last token: for decoding, or at the end of a prompt.
    Last,
    /// The pass computes the logits of all new tokens: for verification of draft tokens.
    All,
}

/// The batch of a forward pass. A row is a new token. The same `Batch` is cleared and refilled for every pass, so that
/// its memory is reused.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// Token id of each row.
    pub tokens: Vec<u32>,
    /// Position of each row in its request's text, for the rotary embedding.
    pub positions: Vec<u32>,
    /// The KV slot of each row's keys and values: `block · 16 + offset`.
    pub slots: Vec<u32>,
    /// For each row (new token): which tokens it attends to.
    pub sights: Vec<Sight>,
    /// The requests of the batch. A span has the rows, the block table and the stored context of one request.
    pub spans: Vec<Span>,
    /// The block tables of all requests of the batch, one after the other.
    pub tables: Vec<u32>,
    /// Context indices that tokens of draft trees attend to: for each such token, the indices of its ancestors in the
    /// tree and then its own index. [`Sight::path`] is a range of this list.
    pub paths: Vec<u32>,
    /// The rows for which logits are computed, in rising order.
    pub logit_rows: Vec<u32>,
}

impl Batch {
    /// Removes all requests from the batch; its memory is reused.
    pub fn clear(&mut self) {
        self.tokens.clear();
        self.positions.clear();
        self.slots.clear();
        self.sights.clear();
        self.spans.clear();
        self.tables.clear();
        self.paths.clear();
        self.logit_rows.clear();
    }

    /// Returns the number of tokens in the batch.
    pub fn rows(&self) -> usize {
        self.tokens.len()
    }

    /// Adds a request whose new tokens follow each other: a decode, a drafted chain or a prefill chunk. The KV of the
    /// first `computed` tokens of the request is already stored. Returns the index of the request's first row in the
    /// pass's logits.
    pub fn push_chain(&mut self, tokens: &[u32], computed: usize, table: &[u32], logits: Logits) -> usize {
        for t in 0..tokens.len() {
            self.positions.push((computed + t) as u32);
            let end = self.paths.len();
            self.sights.push(Sight { prefix: computed + t + 1, path: end..end });
        }
        self.push(tokens, computed, table, logits)
    }

    /// Adds a request whose new tokens form a tree. The parent of token `j` is the new token `parents[j]`, which is
    /// below `j`. If `parents[j]` is [`ROOT`], token `j` follows the context. The KV of token `j` is stored at index
    /// `computed + j` of the context. Later, [`move_kv`](crate::forward::Llama::move_kv) moves the KV of the accepted
    /// path to successive indices. Returns the index of the request's first row in the pass's logits.
    pub fn push_tree(
        &mut self,
        tokens: &[u32],
        parents: &[u32],
        computed: usize,
        table: &[u32],
        logits: Logits,
    ) -> usize {
        assert_eq!(tokens.len(), parents.len(), "tokens and their parents");
        let first = self.rows();
        for (j, &parent) in parents.iter().enumerate() {
            let start = self.paths.len();
            if parent != ROOT {
                assert!((parent as usize) < j, "token {j} comes before its parent {parent}");
                self.paths.extend_from_within(self.sights[first + parent as usize].path.clone());
            }
            self.paths.push((computed + j) as u32);
            let depth = self.paths.len() - start - 1;
            self.positions.push((computed + depth) as u32);
            self.sights.push(Sight { prefix: computed, path: start..self.paths.len() });
        }
        self.push(tokens, computed, table, logits)
    }

    /// Adds a request whose new tokens are the next level of a draft tree; earlier passes ran the upper levels. Each
    /// new token attends to the first `prefix` tokens of the context, then to its ancestors in the tree, then to
    /// itself. `path(j, paths)` must append the context indices of the ancestors of token `j` to `paths`, in rising
    /// order. The KV of token `j` is stored at index `computed + j` of the context. Returns the index of the request's
    /// first row in the pass's logits.
    pub fn push_level(
        &mut self,
        tokens: &[u32],
        prefix: usize,
        computed: usize,
        table: &[u32],
        mut path: impl FnMut(usize, &mut Vec<u32>),
    ) -> usize {
        for j in 0..tokens.len() {
            let start = self.paths.len();
            path(j, &mut self.paths);
            self.paths.push((computed + j) as u32);
            self.positions.push((prefix + self.paths.len() - start - 1) as u32);
            self.sights.push(Sight { prefix, path: start..self.paths.len() });
        }
        self.push(tokens, computed, table, Logits::All)
    }

    fn push(&mut self, tokens: &[u32], computed: usize, table: &[u32], logits: Logits) -> usize {
        let (first, end) = (self.rows(), computed + tokens.len());
        assert!(!tokens.is_empty(), "a request without new tokens");
        assert!(end <= table.len() * BLOCK_SIZE, "{end} tokens do not fit {} blocks", table.len());
        self.tokens.extend_from_slice(tokens);
        self.slots.extend((computed..end).map(|t| slot(table, t)));
        let tables = self.tables.len();
        self.tables.extend_from_slice(table);
        self.spans.push(Span { rows: first..self.rows(), table: tables..self.tables.len(), computed });
        let (chosen, last) = (self.logit_rows.len(), self.rows() as u32);
        self.logit_rows.extend(match logits {
            Logits::Skip => 0..0,
            Logits::Last => last - 1..last,
            Logits::All => first as u32..last,
        });
        chosen
    }
}

/// Returns the KV slot (`block · 16 + offset`) of the token at index `t` of a context with the block table `table`.
pub fn slot(table: &[u32], t: usize) -> u32 {
    table[t / BLOCK_SIZE] * BLOCK_SIZE as u32 + (t % BLOCK_SIZE) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_and_a_tree_have_their_slots_positions_and_visible_tokens() {
        let mut batch = Batch::default();
        assert_eq!(batch.push_chain(&[7, 8], 15, &[4, 2], Logits::Last), 0);
        // In the tree, token 20 follows the context, tokens 21 and 22 follow token 20, and token 23 follows token 22.
        assert_eq!(batch.push_tree(&[20, 21, 22, 23], &[ROOT, 0, 0, 2], 16, &[9, 3], Logits::All), 1);
        assert_eq!(batch.slots, [4 * 16 + 15, 2 * 16, 48, 49, 50, 51]);
        assert_eq!(batch.positions, [15, 16, 16, 17, 17, 18]);
        assert_eq!(batch.logit_rows, [1, 2, 3, 4, 5]);
        let sees = |row: usize| (batch.sights[row].prefix, &batch.paths[batch.sights[row].path.clone()]);
        assert_eq!(sees(1), (17, &[][..]));
        assert_eq!(sees(3), (16, &[16, 17][..]));
        assert_eq!(sees(5), (16, &[16, 18, 19][..]));
        assert_eq!(batch.spans[1], Span { rows: 2..6, table: 2..4, computed: 16 });
    }

    #[test]
    fn a_level_attends_to_the_levels_that_ran_before() {
        let mut batch = Batch::default();
        // The context with the tree's root has 17 tokens. Two nodes below the root are at the context indices 17 and
        // 18. Of three new nodes, the first is a child of the node at 17, and the second and third are children of the
        // node at 18.
        let above = [17, 18, 18];
        batch.push_level(&[5, 6, 7], 17, 19, &[4, 2], |j, path| path.push(above[j]));
        let sees = |row: usize| (batch.sights[row].prefix, &batch.paths[batch.sights[row].path.clone()]);
        assert_eq!([sees(0), sees(2)], [(17, &[17, 19][..]), (17, &[18, 21][..])]);
        assert_eq!((&batch.positions[..], &batch.slots[..]), (&[18; 3][..], &[35, 36, 37][..]));
        assert_eq!(batch.logit_rows, [0, 1, 2]);
    }

    #[test]
    #[should_panic(expected = "17 tokens do not fit 1 blocks")]
    fn a_table_too_short_is_refused() {
        Batch::default().push_chain(&[1], 16, &[0], Logits::Last);
    }
}
