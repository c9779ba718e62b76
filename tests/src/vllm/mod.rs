//! Schedules that were recorded from vLLM's own `Scheduler` and engine core (`tests/vllm/README.md`), and their replay
//! with Foretoken's scheduler and engine.

mod blocks;
mod compare;
mod core;
pub(crate) mod draws;
mod fixture;
mod replay;

pub use compare::Differs;
pub use fixture::{BadFixture, Call, Derived, Entry, Fixture, Recorded, Step, Update};
pub use replay::{replay, replay_by, rules};
