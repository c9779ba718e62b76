//! The devices Foretoken can run forward passes on.
//!
//! Today this crate answers one question, [`doctor`]: what of CUDA is on this machine? It must build, and answer,
//! without a GPU, a driver or a CUDA toolkit: libraries are looked for at run time and nothing is linked. It is the
//! only crate that may contain `unsafe`.

mod cuda;
mod doctor;

pub use cuda::{Device, Driver};
pub use doctor::{DoctorReport, doctor};
