//! The arrays that describe a batch of requests, in the form that the CUDA kernels read.

use super::arena::Arena;
use super::memory::{Kv, SPARE_BLOCKS};
use super::tuning::Tuning;
use crate::paged::{BLOCK_SIZE, Batch};

/// Number of queries in a tile of split attention (`FEW`) and in a tile of tiled attention (`MANY`). A query is a
/// (token, head) pair; a tile is a group of queries that a thread block handles together. A request with at most `MANY`
/// queries per key-value head uses split attention, in tiles that fit the GPU's matrix units. A request with more
/// queries uses tiled attention, in which a thread block handles one tile.
const FEW: usize = 16;
const MANY: usize = 64;

/// Split attention divides a context into parts of neighbouring tokens ("stretches"), which the GPU handles at the same
/// time. Each stretch except the last has at least this number of tokens: four KV blocks for each of the four warps of
/// a thread block. With shorter stretches, the time to add up their results would be longer than the time saved.
pub(super) const STRETCH: usize = 256;

/// Most stretches into which one context is divided. A stretch is a part of neighbouring tokens; the GPU handles the
/// stretches at the same time.
const MOST_STRETCHES: usize = 64;

/// A launch whose use of the GPU reaches this share is good enough. The use of the GPU is the share of its places for
/// thread blocks that are occupied, averaged over a launch in which all thread blocks take equally long.
const GOOD_USE: f64 = 0.9;

/// Most stretches in one launch, over all tiles. The device has memory for the results of this number of stretches. If
/// a launch has more than half this number of tiles, its contexts are not divided, because the tiles alone keep the GPU
/// busy.
pub(super) const STRETCHES: usize = 256;

/// Number of f32 results that one stretch gives for one tile of queries and one key-value head. The results of each
/// query are its output (`dim` numbers), its largest score and its sum of exponentials.
pub(super) fn part_numbers(dim: usize) -> usize {
    FEW * (dim + 2)
}

/// The device addresses of a batch's arrays. The addresses of the tiles, of the bit masks and of the block tables
/// depend on all requests' tokens and contexts. The other addresses depend only on the number of rows and the number of
/// rows with logits.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    /// The address of the batch on the host. A later operation of the pass compares this pointer with its own batch, to
    /// know whether the batch is already on the device.
    batch: *const Batch,
    pub(super) rows: usize,
    /// Number of rows (new tokens) of the batch, padding rows included.
    pub(super) padded: usize,
    pub(super) tokens: u64,
    pub(super) positions: u64,
    pub(super) slots: u64,
    pub(super) prefixes: u64,
    pub(super) bits_at: u64,
    pub(super) bits: u64,
    pub(super) logit_rows: u64,
    pub(super) tiles: Option<Tiles>,
}

// SAFETY: the pointer is only compared and never dereferenced.
#[expect(unsafe_code, reason = "a pointer that is only compared keeps the batch's mark from being sent to a thread")]
unsafe impl Send for Sent {}
// SAFETY: the pointer is only compared and never dereferenced.
#[expect(unsafe_code, reason = "as above")]
unsafe impl Sync for Sent {}

/// The tiles of one attention call. `few` is the device address of the list of tiles for split attention, `many` of the
/// list for tiled attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tiles {
    /// Number of query heads that share a key-value head.
    pub(super) group: usize,
    pub(super) few: u64,
    pub(super) few_count: usize,
    /// The largest number of stretches into which the kernel launch divides a context.
    pub(super) stretches: usize,
    pub(super) many: u64,
    pub(super) many_count: usize,
    /// Device address of the bit masks of visible tokens and, after them, the block tables.
    pub(super) words: u64,
}

/// Returns the number of stretches into which a launch of split attention divides each context. The longest context has
/// `longest` tokens, and the GPU runs `at_once` thread blocks at the same time. The result is the smallest number whose
/// use of the GPU is at least [`GOOD_USE`]. If there is no such number, the result is the number with the best use. The
/// result changes only when `longest` passes a power of two, so that passes of a growing context are equal and replay
/// one graph.
fn stretches(longest: usize, tiles: usize, kv_heads: usize, at_once: usize) -> usize {
    let room = STRETCHES / tiles.clamp(1, STRETCHES);
    let most = longest.div_ceil(STRETCH).max(1).next_power_of_two().min(MOST_STRETCHES).min(room);
    let usage = |stretches: usize| {
        let blocks = stretches * tiles.max(1) * kv_heads;
        blocks as f64 / (blocks.div_ceil(at_once) * at_once) as f64
    };
    let best = || (1..=most).max_by(|&a, &b| usage(a).total_cmp(&usage(b)).then(b.cmp(&a)));
    (1..=most).find(|&n| usage(n) >= GOOD_USE).or_else(best).unwrap_or(1)
}

/// Returns (number of 32-bit words, number of bits) of the bit mask of a row (one new token). The mask has a bit for
/// each token after the row's prefix, up to the last token that the row attends to.
fn visible(batch: &Batch, row: usize) -> (usize, usize) {
    let sight = &batch.sights[row];
    let bits = batch.paths[sight.path.clone()].last().map_or(0, |&last| last as usize + 1 - sight.prefix);
    (bits.div_ceil(32), bits)
}

impl Sent {
    /// True if `batch` is the batch whose arrays `self` describes (the same object), and still has the same number of
    /// rows.
    pub(super) fn is(&self, batch: &Batch) -> bool {
        std::ptr::eq(self.batch, batch) && self.rows == batch.rows()
    }

    /// Adds the batch's arrays to the arena, the device memory for the integers of a batch. Padding rows have token 0
    /// at position 0, write their KV to the spare block (a KV block that no request uses), and attend to no token.
    pub(super) fn new(batch: &Batch, tuning: &Tuning, pad: bool, arena: &mut Arena) -> Sent {
        let rows = batch.rows();
        let padded = |n: usize| if pad { tuning.padded(n) } else { n };
        let p = padded(rows);
        let mut at = 0;
        let bits_at: Vec<u32> = (0..rows)
            .map(|row| {
                at += visible(batch, row).0;
                (at - visible(batch, row).0) as u32
            })
            .collect();
        Sent {
            batch,
            rows,
            padded: p,
            tokens: arena.push(batch.tokens.iter().copied(), p, 0),
            positions: arena.push(batch.positions.iter().copied(), p, 0),
            slots: arena.push(batch.slots.iter().map(|slot| slot + SPARE_BLOCKS * BLOCK_SIZE as u32), p, 0),
            prefixes: arena.push(batch.sights.iter().map(|s| s.prefix as u32), p, 0),
            bits_at: arena.push(bits_at, p, 0),
            bits: arena.push((0..rows).map(|row| visible(batch, row).1 as u32), p, 0),
            logit_rows: arena.push(batch.logit_rows.iter().copied(), padded(batch.logit_rows.len()), 0),
            tiles: None,
        }
    }

    /// Returns the tiles for attention over the KV `kv`. The tiles of one batch depend only on the number of query
    /// heads per key-value head. The first call for such a number adds the tiles to the arena, the device memory for
    /// the integers of a batch.
    pub(super) fn tiles(&mut self, batch: &Batch, kv: &Kv, tuning: &Tuning, pad: bool, arena: &mut Arena) -> Tiles {
        if let Some(tiles) = self.tiles.filter(|t| t.group == kv.group()) {
            return tiles;
        }
        let group = kv.group();
        let words_of_bits: usize = (0..self.rows).map(|row| visible(batch, row).0).sum();
        // The list `words` has the bit masks of visible tokens first, then the block tables. The place of a row's bit
        // mask in the list therefore does not depend on the block tables.
        let (mut few, mut many) = (Vec::new(), Vec::new());
        for span in &batch.spans {
            let queries = span.rows.len() * group;
            let table = (words_of_bits + span.table.start) as u32;
            let (size, list) = if queries <= MANY { (FEW, &mut few) } else { (MANY, &mut many) };
            for first in (0..queries).step_by(size) {
                let count = size.min(queries - first);
                let rows = span.rows.start + first / group..=span.rows.start + (first + count - 1) / group;
                let end = rows.clone().map(|r| batch.sights[r].prefix + visible(batch, r).1).max().unwrap_or(0);
                let all_see = rows.map(|r| batch.sights[r].prefix).min().unwrap_or(0);
                list.push([span.rows.start, first, count, table as usize, end, all_see].map(|n| n as u32));
            }
        }
        // The tiles with the longest contexts start first, so that no long tile runs alone at the end of the launch.
        many.sort_by_key(|tile| std::cmp::Reverse(tile[4]));
        let padded = |n: usize| if pad { tuning.padded(n) } else { n };
        let (few_count, many_count) = (padded(few.len()), padded(many.len()));
        let longest = few.iter().map(|tile| tile[4] as usize).max().unwrap_or(0);
        let stretches = stretches(longest, few_count, kv.kv_heads, tuning.split_blocks);
        let few = arena.push(few.into_iter().flatten(), 6 * few_count, 0);
        let many = arena.push(many.into_iter().flatten(), 6 * many_count, 0);
        let words = arena.next();
        let mut all = vec![0; words_of_bits];
        let mut at = 0;
        for row in 0..self.rows {
            let sight = &batch.sights[row];
            for &token in &batch.paths[sight.path.clone()] {
                let bit = token as usize - sight.prefix;
                all[at + bit / 32] |= 1 << (bit % 32);
            }
            at += visible(batch, row).0;
        }
        arena.push(all.into_iter().chain(batch.tables.iter().map(|block| block + SPARE_BLOCKS)), 0, 0);
        let tiles = Tiles { group, few, few_count, stretches, many, many_count, words };
        self.tiles = Some(tiles);
        tiles
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_are_divided_until_the_gpu_is_in_use() {
        // With one request of 32 key-value heads, 12 stretches make 384 thread blocks, and the GPU runs 396 thread
        // blocks at a time. A shorter context is divided into fewer stretches.
        assert_eq!(stretches(16_384, 1, 32, 396), 12);
        assert_eq!([1, 256, 257, 800, 1200].map(|longest| stretches(longest, 1, 32, 396)), [1, 1, 2, 4, 8]);
        // Eight requests make 256 thread blocks for each stretch. The GPU runs 396 thread blocks at a time. With 3
        // stretches, 768 blocks take 768 of 2 · 396 places; with 1 stretch, 256 blocks take only 256 of 396.
        assert_eq!(stretches(16_384, 8, 32, 396), 3);
        // With 300 tiles, contexts are not divided. With up to 256 tiles, the stretches of all tiles together never
        // exceed `STRETCHES`.
        assert_eq!(stretches(16_384, 300, 8, 396), 1);
        for tiles in [1, 3, 16, 100, 256, 1000] {
            assert!(stretches(100_000, tiles, 8, 396) * tiles.min(STRETCHES) <= STRETCHES);
        }
        // All contexts of 1,025 to 2,048 tokens are divided into the same number of stretches (parts).
        assert!((1025..=2048).all(|longest| stretches(longest, 4, 8, 396) == stretches(1200, 4, 8, 396)));
    }
}
