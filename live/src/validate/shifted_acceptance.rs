//! An [`AcceptanceSource`] (which says whether a request's draft tokens are right) for a part of a workload. The part's
//! requests have ids from 0; the source adds `first` to these ids.

use foretoken_sim::acceptance::RankLaw;
use foretoken_sim::{AcceptanceSource, RequestTruth, TruthRow};

/// Says which draft tokens are right for the requests of a part of a workload. Request `i` of the part is request
/// `first + i` of the whole workload.
#[derive(Clone, Copy)]
pub struct ShiftedAcceptance<'a> {
    /// Says which draft tokens are right for the requests of the whole workload.
    pub whole: &'a dyn AcceptanceSource,
    /// The id in the whole workload of the part's first request.
    pub first: u32,
}

impl ShiftedAcceptance<'_> {
    fn shifted(&self, request: RequestTruth) -> RequestTruth {
        RequestTruth { id: request.id + self.first, ..request }
    }
}

impl AcceptanceSource for ShiftedAcceptance<'_> {
    fn start(&self, request: RequestTruth, max_draft_len: u32, out: &mut TruthRow) {
        self.whole.start(self.shifted(request), max_draft_len, out);
    }

    fn confidence(&self, request: RequestTruth, round_start: u32, depth: u32, right: Option<bool>, path: u64) -> f32 {
        self.whole.confidence(self.shifted(request), round_start, depth, right, path)
    }

    fn rank_if_wrong(&self, request: RequestTruth, position: u32) -> u32 {
        self.whole.rank_if_wrong(self.shifted(request), position)
    }

    fn ranks(&self) -> &RankLaw {
        self.whole.ranks()
    }

    fn guess(&self, request: RequestTruth, round_start: u32, depth: u32, path: u64, rank: u32, first: f32) -> f64 {
        self.whole.guess(self.shifted(request), round_start, depth, path, rank, first)
    }

    fn entropy(&self, request: RequestTruth, round_start: u32, depth: u32, first: f32) -> f64 {
        self.whole.entropy(self.shifted(request), round_start, depth, first)
    }

    fn divergence(&self, request: RequestTruth, round_start: u32, depth: u32, rank: u32, first: f64) -> f64 {
        self.whole.divergence(self.shifted(request), round_start, depth, rank, first)
    }

    fn unknown_used(&self, request: RequestTruth, round_start: u32, depth: u32) {
        self.whole.unknown_used(self.shifted(request), round_start, depth);
    }

    fn may_lack_proposals(&self) -> bool {
        self.whole.may_lack_proposals()
    }

    fn drafts_without_match(&self) -> u32 {
        self.whole.drafts_without_match()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use foretoken_sim::Workload;
    use foretoken_sim::acceptance::{AcceptanceSpec, Rates};

    #[test]
    fn request_0_of_the_part_is_request_2_of_the_whole() {
        let spec = AcceptanceSpec { source: Rates::Constant { rate: 0.5 }, ..AcceptanceSpec::default() };
        let whole = spec.build(7, &Workload::default()).unwrap();
        let request = |id| RequestTruth { id, prompt_len: 0, output_len: 200, category: 0, recording: None };
        let row = |source: &dyn AcceptanceSource, id| {
            let mut row = TruthRow::default();
            source.start(request(id), 3, &mut row);
            (0..200).map(|n| row.right(n, 0)).collect::<Vec<_>>()
        };
        let rest = ShiftedAcceptance { whole: &*whole, first: 2 };
        assert_eq!(row(&rest, 0), row(&*whole, 2));
        assert_ne!(row(&rest, 0), row(&*whole, 0));
        let confidence = |source: &dyn AcceptanceSource, id| source.confidence(request(id), 5, 1, Some(true), 0);
        assert_eq!(confidence(&rest, 3), confidence(&*whole, 5));
    }
}
