//! Models, and the devices Foretoken can run their forward passes on.
//!
//! A model is a shape ([`model`]) with weights ([`weights`]). [`forward`] runs it over a batch of requests of different
//! lengths with paged KV ([`paged`]). It is written once over the operations of a device ([`device`]); the CPU
//! ([`cpu`]) is one. [`doctor`] reports what is on this machine. The crate must build and run without a GPU, a driver
//! or a CUDA toolkit: libraries are looked for at run time and nothing is linked. It is the only crate that may contain
//! `unsafe`.

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
