//! Finds the fewest replicas with which a fleet keeps the experiment's bounds at the experiment's own load, what they
//! cost, and what else the same GPUs could do.
//!
//! The number of replicas that perfect scaling would need is the load over the capacity of one replica, which the
//! search of [`crate::run`] finds. The search for the fleet begins there. Every number of replicas that was tried is
//! stored.

pub mod answer;
pub mod kept;
pub mod plan;
mod probe;
pub mod run;
mod search;
mod store;
mod words;
