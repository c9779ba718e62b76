//! Several replicas behind a router, on one event clock (simulated time that jumps from event to event).
//!
//! A replica is an engine with settings, hardware and a policy of its own ([`foretoken_sim::Replica`]). A router
//! ([`Router`], one file each in [`routers`]) sends every request to one replica. The router knows what a real router
//! knows: its own counts of the requests that it sent, and the loads that the replicas report. The reports come at an
//! interval and with a delay ([`Signals`]). [`Fleet`] runs the router and the replicas.

mod fleet;
mod link;
mod merged;
mod pool;
mod predictor;
mod prefix;
mod prefix_tree;
mod report_board;
mod router;
pub mod routers;
mod scaling;
mod senders;
mod split;
mod split_rule;

pub use fleet::{Fleet, FleetRun};
pub use link::{Link, SharedBy};
pub use report_board::{Report, Signals};
pub use router::{Asked, Ended, Needs, Router, RouterContext, Seen};
pub use routers::RouterSpec;
pub use scaling::{
    DynamoPlanner, EngineLimits, Fixed, Growing, LlmDSaturation, Scaling, ScalingRule, Traffic, Watched, Wish,
};
pub use split::{HandOff, Role, SplitFleet, Splitting};
pub use split_rule::{DynamoQueue, DynamoSplit, LlmDSplit, SplitRule};
