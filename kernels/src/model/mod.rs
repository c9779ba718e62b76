//! A model without weights: its shape, where the shape comes from (a preset or a `config.json`), and the memory that it
//! needs.

mod config;
mod memory;
mod presets;
mod shape;

pub use config::{BadConfigFile, parse_config, read_config};
pub use memory::{MemoryNeeded, TooLittleMemory};
pub use presets::{SHIPPED, preset};
pub use shape::{BadShape, LlamaShape, RopeScaling};
