//! The moments of the draft loop (the draft passes of a step) at which a drafter decides.

use crate::drafts::Drafts;
use crate::executor::Executor;
use crate::policy::{BatchView, Continue, DraftPlan};

/// The decisions of a drafter in the draft loop: how many tokens to draft, whether to run the next draft pass, and
/// which draft tokens to verify.
pub trait Hooks<E: Executor> {
    /// Called before drafting: sets how many tokens each request drafts, and which values of the draft tokens (such as
    /// confidences) the policy reads. `batch` has only values that a policy may see. `device` has the same requests
    /// with their state on the device, for an oracle.
    fn propose(
        &mut self,
        executor: &mut E,
        batch: &BatchView,
        device: &BatchView,
        plan: &mut DraftPlan,
        drafts: &mut Drafts,
    );

    /// Called after each draft pass. Returns whether the engine runs the next draft pass.
    fn keep_drafting(&mut self, _batch: &BatchView, drafts: &mut Drafts) -> Continue {
        drafts.nothing_to_decide();
        Continue::Yes
    }

    /// Called before verification. May lower `drafts.verify_len`, the number of draft tokens of each request that are
    /// verified.
    fn select(&mut self, _batch: &BatchView, drafts: &mut Drafts) {
        drafts.nothing_to_decide();
    }
}
