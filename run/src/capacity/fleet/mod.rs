//! Finds the fewest replicas with which a fleet keeps the experiment's SLO bounds at the experiment's own request rate,
//! and their price. Also compares these fleets with fleets that do not draft.
//!
//! Perfect scaling would need ⌈load / capacity of one replica⌉ replicas. The search of [`crate::capacity::run`] finds
//! the capacity of one replica. The search for the fleet begins with the number of replicas that perfect scaling needs
//! in the load's busiest window. Every number of replicas that was tried is stored.

pub mod answer;
mod headline;
mod host;
mod host_search;
pub mod kept;
mod page;
pub mod plan;
mod probe;
pub mod run;
mod search;
pub mod shards;
mod words;
