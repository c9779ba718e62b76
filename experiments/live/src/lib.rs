//! Experiments on a device: the same engine, scheduler and policies on a wall clock ([`serve`]), and how wrong the simulator is about
//! them ([`validate`]).

pub mod gpu;
pub mod models;
pub mod serve;
pub mod tokens;
pub mod validate;
