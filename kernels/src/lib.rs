//! Models, and the devices Foretoken can run their forward passes on.
//!
//! A model is a shape ([`model`]) with weights ([`weights`]); [`forward`] runs it over a ragged batch with paged KV
//! ([`paged`]), written once over what a device can do ([`device`]). The CPU ([`cpu`]) is such a device. [`doctor`]
//! says what is on this machine. The crate must build, and answer, without a GPU, a driver or a CUDA toolkit: libraries
//! are looked for at run time and nothing is linked. It is the only crate that may contain `unsafe`.

pub mod accept;
pub mod cpu;
mod cuda;
pub mod device;
mod doctor;
pub mod executor;
pub mod forward;
pub mod model;
pub mod paged;
pub mod weights;

pub use cuda::{Device as CudaDevice, Driver};
pub use doctor::{DoctorReport, doctor};
