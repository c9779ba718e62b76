//! Shapes of models, and presets of them.

mod catalog;
mod check;
mod choice;
mod layers;
mod shape;
mod weights;
mod work;

pub use catalog::{Entry, Uniform, catalog, entry};
pub use choice::{ConfigFile, Experts, ModelChoice};
pub use layers::{Attention, FeedForward, LayerGroup, Selection};
pub use shape::{Bits, ModelShape};
pub use work::{AttentionWork, Blocks, FlopsByBits, Unpacked, Work};

/// The target and draft that are shipped with their weights.
pub const SHIPPED: [&str; 2] = ["tiny-target", "tiny-draft"];
