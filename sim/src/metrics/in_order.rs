//! Puts the records of requests, which end in any order, into the order of the requests. The records are given out in
//! pieces while the run goes on, so that they need not all be in memory.

use super::RequestRecords;
use std::collections::VecDeque;

/// Number of requests in a piece of records. Only the last piece may have fewer.
pub const PIECE: usize = 1 << 18;

/// The records of the requests of a run, in the order of the requests, as one piece or as several.
pub trait Pieces {
    /// Calls `f` with each piece of the records, in the order of the requests. Either there is one piece, or each piece
    /// except the last one has [`PIECE`] requests.
    fn each(&self, f: &mut dyn FnMut(&RequestRecords));
}

impl Pieces for RequestRecords {
    fn each(&self, f: &mut dyn FnMut(&RequestRecords)) {
        f(self);
    }
}

/// Collects the records of ended requests, and gives out pieces of [`PIECE`] requests as soon as all requests of a
/// piece have ended.
pub struct InOrder<'a> {
    give: &'a mut dyn FnMut(RequestRecords) -> bool,
    /// The pieces of records that are not given out yet, because some of their requests have not ended. Each piece is
    /// stored with the number of its requests that have ended.
    pieces: VecDeque<(RequestRecords, usize)>,
    /// Number (place in the order of arrival) of the first request in the first piece of records that is not given out
    /// yet.
    first: usize,
    wanted: bool,
}

impl<'a> InOrder<'a> {
    /// A collector that passes each complete piece of records to `give`. `give` returns whether it wants further
    /// pieces.
    pub fn new(give: &'a mut dyn FnMut(RequestRecords) -> bool) -> InOrder<'a> {
        InOrder { give, pieces: VecDeque::new(), first: 0, wanted: true }
    }

    /// Whether the function that gets the pieces of records wants further ones.
    pub fn wanted(&self) -> bool {
        self.wanted
    }

    /// Adds the record of the request with number `number`. The record is at index `at` of `from`. Each request is
    /// added once.
    pub fn add(&mut self, number: usize, from: &RequestRecords, at: usize) {
        let (piece, i) = ((number - self.first) / PIECE, (number - self.first) % PIECE);
        if self.pieces.len() <= piece {
            self.pieces.resize_with(piece + 1, Default::default);
        }
        let (records, ended) = &mut self.pieces[piece];
        if records.len() <= i {
            records.resize(i + 1);
        }
        records.copy(i, from, at);
        *ended += 1;
        while let Some((records, _)) = self.pieces.pop_front_if(|(_, ended)| *ended == PIECE) {
            self.first += PIECE;
            self.wanted &= (self.give)(records);
        }
    }

    /// Gives out the pieces of records that are left. All requests must have ended.
    pub fn finish(self) {
        for (records, ended) in self.pieces {
            debug_assert_eq!(records.len(), ended, "a request has not ended");
            (self.give)(records);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Time;

    /// Requests end in another order: blocks of 100,000 requests, each from its last request to its first.
    #[test]
    fn pieces_are_in_the_order_of_requests() {
        let total = 2 * PIECE + 7;
        let mut all = RequestRecords::new(total);
        all.arrival = (0..total as u64).map(Time).collect();
        let mut pieces = Vec::new();
        let mut give = |piece| {
            pieces.push(piece);
            true
        };
        let mut order = InOrder::new(&mut give);
        for from in (0..total).step_by(100_000) {
            (from..total.min(from + 100_000)).rev().for_each(|i| order.add(i, &all, i));
        }
        order.finish();
        assert_eq!(pieces.iter().map(RequestRecords::len).collect::<Vec<_>>(), [PIECE, PIECE, 7]);
        assert_eq!(pieces.iter().flat_map(|p| p.arrival.clone()).collect::<Vec<_>>(), all.arrival);
    }
}
