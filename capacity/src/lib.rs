//! How much load can a policy carry within its bounds? The highest rate of requests at which a given share of them
//! keeps its SLO, for each policy and each swept value.
//!
//! Every rate is tried with the same requests and the same luck, gaps between them stretched. Requests that fill the
//! server and those behind the counted ones do not count. A probe ends as soon as its verdict is certain, so that
//! overload does not run for ever. Every probe is kept: a search that was ended goes on where it was.

pub mod answer;
pub mod kept;
mod load;
mod page;
pub mod plan;
mod probe;
pub mod run;
mod search;
mod store;
mod words;

#[cfg(test)]
mod tests;
