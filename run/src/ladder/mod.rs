//! Splits the difference between a policy and the best oracle into rungs: `foretoken ladder`.
//!
//! Each rung gives the policy one more thing to know, in a full run with the same random draws: the true cost, the true
//! calibration of confidences, the true acceptance rates of requests. Then bounds take the policy's place. They make
//! the best choice with what a server has observed, then also know all confidences of the round, then the requests'
//! lengths. The last rung is the oracle, which knows which drafts are right. A rung's height is the loss that its
//! knowledge removes. Heights may be negative, and they sum to the policy's loss exactly.

mod climb;
mod plan;
mod render;
mod rungs;

pub use climb::{Ladder, Ladders, Rung};
pub use plan::{LADDER_JSON, PAGE, of as plan_of};
pub use render::{page, render, render_json};
pub use rungs::RUNGS;
