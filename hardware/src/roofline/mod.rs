//! `roofline`: predicts a pass on hardware that was not measured, from a GPU's datasheet and a model's shape.
//!
//! A pass is a sequence of kernels. Its time is a sum over kinds of kernels of the slower of computing and moving data:
//! - feed-forward and projections: weights once a pass, 2 FLOP a weight and token;
//! - attention: KV of the context once, 4 FLOP a layer, head dimension and query-key pair; a window or a selection
//!   limits both; latent attention takes the cheaper of its packed and its unpacked form;
//! - recurrent layers: the state of each request, read and written;
//! - the output head: its weights; every batched token samples, which overstates prefill by the head's share, 2 to 5 %.
//!
//! A fixed overhead a pass and a layer is added. With `tensor_parallel` bandwidth and peak are multiplied, and each
//! layer all-reduces twice. With several experts a pass reads the weights of the expected number of distinct experts
//! for its token count.

mod experts_read;
mod memory;
mod pass;
mod settings;

pub use memory::Memory;
pub use pass::Roofline;
pub use settings::RooflineSpec;
