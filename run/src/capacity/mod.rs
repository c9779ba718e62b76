//! Finds the capacity of a policy: the highest request rate at which a given share of the requests keeps its SLO bounds
//! and the queue does not grow. There is one capacity for each policy and each combination of swept values.
//!
//! A rate is tried by a simulated run, called a probe. All probes have the same requests and the same random draws;
//! only the gaps between arrivals are multiplied by a factor. The first requests fill the server and the last requests
//! keep it full; neither count. A probe ends as soon as it is certain whether the rate is carried, so that an
//! overloaded run does not last for ever. Every probe is stored, so that an interrupted search can continue.

pub mod answer;
pub mod fleet;
mod host;
mod host_search;
pub mod kept;
mod load;
mod page;
pub mod plan;
mod probe;
pub mod run;
mod search;
mod searcher;
mod store;
mod words;

#[cfg(test)]
mod tests;
