//! What a model is before it has weights: its shape, where the shape comes from, and the memory it needs.

mod config;
mod memory;
mod presets;
mod shape;

pub use config::{BadConfigFile, read_config};
pub use memory::{MemoryNeeded, TooLittleMemory};
pub use presets::{SHIPPED, preset};
pub use shape::{BadShape, LlamaShape, RopeScaling};
