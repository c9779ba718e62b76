//! For each request, one bitmap of which of its draft tokens are right; the bitmaps lie side by side in one list. This
//! is only for requests for which a single bitmap is enough: it is known for all draft tokens whether they are right,
//! and this does not depend on the depth in the round. That is the usual case, and the layout makes it fast.

use crate::drafts::Drafts;
use crate::policy::BatchView;
use crate::workload::RequestId;
use std::num::NonZeroU64;

const NONE: u32 = u32::MAX;
const NO_REQUEST: RequestId = RequestId::MAX;

/// For each unfinished request: the bitmap of which of its draft tokens are right. All rows of the table are equally
/// long: at least as long as the longest bitmap that was ever stored.
pub struct PlainRows {
    /// Number of 64-bit words of each request's row in the table of bitmaps.
    stride: usize,
    /// The bitmaps of the requests, row after row. A row may be longer than its bitmap; its remaining words are zero.
    words: Vec<u64>,
    /// For each row of the table (one request's bitmap): the id of its request. The row of an ended request keeps the
    /// id, until another request takes that id.
    request_in: Vec<RequestId>,
    /// For each request: the index in `words` of the first word of its bitmap.
    first_word: Vec<u32>,
}

impl PlainRows {
    /// A table without bitmaps, for a workload with `requests` requests.
    pub fn new(requests: usize) -> PlainRows {
        PlainRows { stride: 0, words: Vec::new(), request_in: Vec::new(), first_word: vec![NONE; requests] }
    }

    /// Copies the bitmap of which draft tokens of request `id` are right into row `row`. Widens all rows of the table
    /// first if the bitmap is too long for them. Rounds may start at any output position up to `positions`.
    pub fn set(&mut self, row: u32, id: RequestId, bitmap: &[u64], positions: usize) {
        // Adds one spare word, so that a draft round may read beyond the last position.
        let words = bitmap.len().max(positions / 64 + 2);
        if words > self.stride {
            self.widen(words.next_power_of_two());
        }
        let row = row as usize;
        if row >= self.request_in.len() {
            self.request_in.resize(row + 1, id);
            self.words.resize((row + 1) * self.stride, 0);
        }
        if self.first_word.len() <= id as usize {
            self.first_word.resize(id as usize + 1, NONE);
        }
        if let Some(before) = self.request_in.get_mut(self.first_word[id as usize] as usize / self.stride)
            && *before == id
        {
            // An ended request had the same id. Its row in the table of bitmaps belongs to no request any more.
            *before = NO_REQUEST;
        }
        self.request_in[row] = id;
        self.first_word[id as usize] = u32::try_from(row * self.stride).expect("a request is shorter than 2^31 tokens");
        let own = &mut self.words[row * self.stride..][..self.stride];
        own[..bitmap.len()].copy_from_slice(bitmap);
        own[bitmap.len()..].fill(0);
    }

    /// Moves the bitmaps of the requests apart, so that each has room for `stride` words.
    fn widen(&mut self, stride: usize) {
        let mut words = vec![0; stride * self.request_in.len()];
        for (row, &id) in self.request_in.iter().enumerate() {
            words[row * stride..][..self.stride].copy_from_slice(&self.words[row * self.stride..][..self.stride]);
            if id != NO_REQUEST {
                self.first_word[id as usize] = (row * stride) as u32;
            }
        }
        (self.stride, self.words) = (stride, words);
    }

    /// For each request of a batch: writes into `accepted` how many of the draft tokens to verify are right in a row,
    /// from the first draft token on.
    pub fn accept(&self, batch: &BatchView, drafts: &Drafts, accepted: &mut [u32]) {
        let asked = batch.ids.iter().zip(batch.emitted).zip(accepted);
        match drafts.common_verify_len() {
            Some(verified) => {
                let end = end_of(verified);
                asked.for_each(|((&id, &emitted), accepted)| *accepted = self.right_in_a_row(id, emitted, end));
            }
            None => asked.zip(&drafts.verify_len).for_each(|(((&id, &emitted), accepted), &verified)| {
                *accepted = self.right_in_a_row(id, emitted, end_of(verified));
            }),
        }
    }

    /// Number of draft tokens of request `id` that are right in a row, from output position `emitted` on. `end` is a
    /// word with a single set bit, whose index is the number of draft tokens at which the count stops.
    #[inline(always)]
    fn right_in_a_row(&self, id: RequestId, emitted: u32, end: NonZeroU64) -> u32 {
        debug_assert!((emitted as usize / 64) + 1 < self.stride, "a round starts behind the request's positions");
        let at = (self.first_word[id as usize] + emitted / 64) as usize;
        let (next, word) = (self.words[at + 1], self.words[at]);
        // Joins the word that has output position `emitted` with the next word. Then shifts, so that bit 0 is position
        // `emitted`.
        let bits = ((u128::from(next) << 64 | u128::from(word)) >> (emitted % 64)) as u64;
        (end | !bits).trailing_zeros()
    }
}

/// A word in which only bit `len` (under 64) is set, so that a count of right draft tokens stops after `len` tokens.
fn end_of(len: u32) -> NonZeroU64 {
    NonZeroU64::new(1 << len).expect("a chain has fewer than 64 drafts")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acceptance::TruthRow;
    use crate::luck::{Luck, Stream};

    /// A bitmap of which draft tokens are right, drawn at random for `positions` output positions; most bits are set.
    fn bitmap(luck: Luck, positions: usize) -> TruthRow {
        let mut row = TruthRow::default();
        row.reset(positions, 1);
        (0..positions).filter(|&n| luck.unit(n as u64) < 0.8).for_each(|n| row.set(0, n));
        row
    }

    #[test]
    fn runs_equal_those_of_the_bitmap_while_rows_widen_and_are_reused() {
        let mut rows = PlainRows::new(12);
        let mut in_row: Vec<Option<(RequestId, TruthRow, usize)>> = vec![None; 4];
        for id in 0..12u32 {
            let luck = Luck::new(7, Stream::Right, u64::from(id));
            let positions = [5, 63, 64, 200, 1, 700][id as usize % 6];
            let truth = bitmap(luck, positions);
            rows.set(id % 4, id, truth.words(), positions);
            in_row[id as usize % 4] = Some((id, truth, positions));
            for (id, truth, positions) in in_row.iter().flatten() {
                for start in 0..=*positions as u32 {
                    for len in [0, 1, 4, 32] {
                        let own = rows.right_in_a_row(*id, start, end_of(len));
                        assert_eq!(own, truth.run(start, len), "request {id}, position {start}, {len} drafts");
                    }
                }
            }
        }
    }
}
