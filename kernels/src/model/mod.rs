//! A model without weights: its shape, the source of the shape, and the memory it needs.

mod config;
mod memory;
mod presets;
mod shape;

pub use config::{BadConfigFile, parse_config, read_config};
pub use memory::{MemoryNeeded, TooLittleMemory};
pub use presets::{SHIPPED, preset};
pub use shape::{BadShape, LlamaShape, RopeScaling};
