//! Whole-system tests: theory, agreement with other simulators, real data. One binary.

mod agreement;
mod golden;
mod littles_law;
mod live;
mod oracle;
mod queueing;
mod rooms;
mod setup;
mod specbench;
mod speculation;
mod vllm;
