//! What the unfinished requests hide from policies and show to bounds: their lengths, the law of their acceptance,
//! whether the drafter has a proposal, and the confidences of tokens that are not drafted yet. A bound is a policy that
//! knows more than a server can.

use super::law::Law;
use super::{AcceptanceSource, Truths};
use crate::executor::RequestTruth;
use crate::workload::RequestId;

/// What the acceptance source knows about the unfinished requests, such as the probability law of their acceptance.
/// Only bounds (policies that know more than a server can) may read this.
#[derive(Clone, Copy)]
pub struct Hidden<'a> {
    acceptance: &'a dyn AcceptanceSource,
    truths: &'a Truths<'a>,
}

impl<'a> Hidden<'a> {
    /// A view of the unfinished requests. `truths` is the table of which of their draft tokens are right. `acceptance`
    /// is the acceptance source that filled this table.
    pub fn new(acceptance: &'a dyn AcceptanceSource, truths: &'a Truths<'a>) -> Hidden<'a> {
        Hidden { acceptance, truths }
    }

    /// The probability law from which the acceptance source draws which draft tokens are right; `None` for sources
    /// without a law, such as recordings of a real run.
    pub fn law(&self) -> Option<&'a dyn Law> {
        self.acceptance.law()
    }

    /// For a request that has started: its prompt and output lengths, its category, and the index of its recorded
    /// acceptance, if it replays a real run.
    pub fn request(&self, id: RequestId) -> RequestTruth {
        self.truths.request(id)
    }

    /// Whether the drafter has a proposal for a draft round that starts at output position `start`.
    pub fn proposes(&self, id: RequestId, start: u32) -> bool {
        self.truths.row(id).matched(start)
    }

    /// The confidence that a policy would see for the draft token at `depth` (from 0) of the round that starts at
    /// output position `start`.
    pub fn confidence(&self, id: RequestId, start: u32, depth: u32) -> f64 {
        self.truths.confidence(id, start, depth).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acceptance::AcceptanceSpec;
    use crate::workload::Workload;

    #[test]
    fn without_drafts_requests_are_known() {
        let source = AcceptanceSpec::default().build(1, &Workload::default()).unwrap();
        let mut truths = Truths::new(&*source, 0, 3);
        truths.start(RequestTruth { id: 2, prompt_len: 5, output_len: 7, category: 0, recording: None });
        let request = Hidden::new(&*source, &truths).request(2);
        assert_eq!((request.id, request.prompt_len, request.output_len), (2, 5, 7));
        truths.end(2);
    }
}
