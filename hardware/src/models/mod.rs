//! Shapes of models, and presets of them.

mod catalog;
mod choice;
mod layers;
mod shape;

pub use catalog::{Entry, Uniform, catalog, entry};
pub use choice::{ConfigFile, Experts, ModelChoice};
pub use layers::{Attention, FeedForward, LayerGroup, Selection};
pub use shape::{AttentionWork, Bits, Blocks, FlopsByBits, ModelShape, Unpacked, Work};

/// The target and draft that are shipped with their weights.
pub const SHIPPED: [&str; 2] = ["tiny-target", "tiny-draft"];
