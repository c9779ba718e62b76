//! Tests of the whole system, and what replays the recorded schedules of other engines.

pub mod vllm;
