//! Several replicas behind a router, on one event clock.
//!
//! A replica is an engine with settings, hardware and a policy of its own ([`foretoken_sim::Replica`]). A router
//! ([`Router`], one file each in [`routers`]) sends every request to one replica. It sees what a real router sees: its
//! own counts at once, and the replicas' loads as they were reported some time ago ([`Signals`]). [`Fleet`] runs router
//! and replicas. Between two events of the router the replicas step independently.

mod fleet;
mod merged;
mod predictor;
mod prefix;
mod report_board;
mod router;
pub mod routers;
mod senders;

pub use fleet::{Fleet, FleetRun};
pub use report_board::{Report, Signals};
pub use router::{Asked, Ended, Needs, Router, RouterContext, Seen};
pub use routers::RouterSpec;
