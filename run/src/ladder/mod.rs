//! `foretoken ladder`: splits the difference between a policy and the best oracle into rungs (steps).
//!
//! Each rung gives the policy one more piece of knowledge, and runs the experiment again with the same random draws.
//! The first three rungs give the true cost, the true calibration of confidences, and the true acceptance rates of
//! requests. On the next three rungs, bounds replace the policy: they know the true costs and the law by which draft
//! tokens are accepted. The first bound also knows what a server has observed, and makes the best choice with this. The
//! second also knows the confidences of all draft tokens of a request in the step, the third also the requests'
//! lengths. The last rung is the oracle, which knows which draft tokens are right. The height of a rung is the loss
//! that its knowledge removes. Heights may be negative. They sum to the policy's loss exactly.

mod climb;
mod plan;
mod render;

pub use climb::RUNGS;
pub use climb::{Ladder, Ladders, Rung};
pub use plan::of as plan_of;
pub use render::{best, page, render, render_json};
