//! What stands between a policy and the best oracle, split into rungs: `foretoken ladder`.
//!
//! Each rung gives the policy one more thing that it does not know, in a full run on the same luck: the true cost, the
//! true calibration of confidences, the true rates of requests, then the rule (the bound that knows what a server has
//! observed), all confidences of the round, the requests' lengths, and the outcome itself. A rung's height is the loss
//! that goes away; heights may be negative, and sum to the policy's loss exactly.

mod climb;
mod plan;
mod render;
mod rungs;

pub use climb::{Ladder, Ladders, Rung};
pub use plan::{LADDER_JSON, PAGE, of as plan_of};
pub use render::{page, render, render_json};
pub use rungs::RUNGS;
