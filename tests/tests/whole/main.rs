//! Tests of the whole system: theory, agreement with other simulators, real data. All of them are one test binary.

mod agreement;
mod golden;
mod littles_law;
mod live;
mod oracle;
mod queueing;
mod rooms;
mod setup;
mod sglang;
mod specbench;
mod speculation;
mod vllm;
