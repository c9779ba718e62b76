//! The latency model `roofline`: predicts a pass on hardware that was not measured, from a GPU's datasheet and a
//! model's shape.
//!
//! A pass is a sequence of kernels. Each kind of kernel takes as long as the slower of computing and moving data, and
//! the pass takes the sum:
//! - feed-forward and projections: weights are read once a pass; 2 FLOP for each weight and token;
//! - attention: KV of the context is read once; each query-key pair takes 4 FLOP for each number of the query, in each
//!   layer; a window or a selection limits the KV and the pairs; latent attention computes with compressed or with
//!   expanded keys, whichever is cheaper;
//! - recurrent layers: the state of each request is read and written;
//! - the output head: its weights are read once; every batched token is assumed to sample, which overstates prefill by
//!   the head's share, 2 to 5 %.
//!
//! Each kernel has a floor, its measured least time, and shares of bandwidth and arithmetic of its own (`floors.json`);
//! with `floors = false` all kernels have the same shares, and the pass and each layer a constant time.
//! `tensor_parallel` splits products or, without floors, multiplies bandwidth and peak, and adds two all-reduces a
//! layer. In a mixture of experts a pass reads the expected number of distinct experts for its tokens.

mod attention_times;
mod build;
mod experts_read;
mod kernel_times;
mod memory;
mod pass;
mod settings;
#[cfg(test)]
mod tests;

pub use memory::Memory;
pub use pass::Roofline;
pub use settings::RooflineSpec;
