//! Models, and the devices on which Foretoken can run their forward passes.
//!
//! A model is a shape ([`model`]) with weights ([`weights`]). [`forward`] runs it over a batch of requests of different
//! lengths with paged KV ([`paged`]). The forward pass is written once over the operations of a device ([`device`]);
//! the CPU ([`cpu`]) and NVIDIA GPUs ([`cuda`]) are devices. [`accept`] decides which draft tokens are accepted,
//! [`executor`] runs the simulator's engine on real passes, and [`teacher`] measures how often a draft model predicts a
//! target's text. [`doctor`] reports what this machine has. The crate must build and run without a GPU, a driver or a
//! CUDA toolkit: it looks for libraries at run time and links none. It is the only crate that may contain `unsafe`.

// A part of the program: CONTRIBUTING.md says which comments it has.
#![allow(missing_docs)]

pub mod accept;
pub mod cpu;
pub mod cuda;
pub mod device;
mod doctor;
pub mod executor;
pub mod forward;
pub mod model;
pub mod paged;
pub mod teacher;
pub mod weights;

pub use cuda::{Device as CudaDevice, Driver};
pub use doctor::{DoctorReport, doctor};
