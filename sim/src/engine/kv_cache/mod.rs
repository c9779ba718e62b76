//! KV memory: the block pool with its prefix cache, the block tables, and the manager that the scheduler uses.

mod block_pool;
mod block_tables;
mod manager;
mod windows;

pub use block_pool::BlockId;
pub use block_tables::TablesOf;
pub use manager::{ComputedBlocks, KvCacheManager};
