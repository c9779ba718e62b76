//! Shapes (sizes and bits) of models, and preset models.

mod catalog;
mod check;
mod choice;
mod context_work;
mod kernels;
mod layers;
mod shape;
mod weights;
mod work;

pub use catalog::{Entry, Uniform, catalog, entry};
pub use choice::{ConfigFile, Experts, ModelChoice};
pub use kernels::{ExpertBlocks, Kernels, Products};
pub use layers::{Attention, FeedForward, LayerGroup, Selection};
pub use shape::{Bits, ModelShape};
pub use work::{AttentionWork, Blocks, FlopsByBits, Unpacked, Windows, Work};

/// The names of the target and the draft model whose weights are in the repository.
pub const SHIPPED: [&str; 2] = ["tiny-target", "tiny-draft"];
