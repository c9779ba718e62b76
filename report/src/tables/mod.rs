//! Writes results as Parquet tables. The order and types of columns are fixed, and no file has a time of writing, so
//! the same runs give the same bytes. The files are compressed with zstd.
//!
//! Every table starts with the same key columns: `policy`, one column `sweep.<path>` for each swept setting (numbers if
//! all its values are numbers, else texts) and `seed`. A value that does not exist, such as the TTFT of a rejected
//! request, is null.

mod calibration;
mod column;
mod flows;
mod frame;
mod lengths;
mod positions;
mod read;
mod read_fleet;
mod replicas;
mod requests;
mod routes;
mod scaling;
mod series;
mod steps;
mod summary;
mod timeline;
mod writer;

pub use calibration::write_calibration;
pub use column::{Column, Value, Values, column};
pub use flows::{FlowRow, write_flows};
pub use lengths::write_lengths;
pub use positions::write_positions;
pub use read::read_cells;
pub use replicas::{ReplicaRow, write_replicas};
pub use requests::{FleetColumns, RequestsWriter};
pub use routes::{Route, read_routes, read_scaling, read_step_replicas};
pub use scaling::{ScaledRow, write_decisions, write_lives, write_replica_counts};
pub use series::write_series;
pub use steps::StepsWriter;
pub use summary::{not_finite, write_summary};
pub use timeline::{read_keys, read_kv_peaks, read_requests, read_steps};
pub use writer::write_rows;

#[cfg(test)]
mod tests;
