//! The results of a run: per-request records, totals, a time series, and the summary numbers computed from them.

mod calibration;
mod emissions;
mod flow;
mod gaps;
mod hand_off;
mod in_order;
mod interval;
mod lengths;
mod lived;
mod overload;
mod records;
mod replicas;
mod scaled;
mod series;
mod summary;
mod totals;

pub use calibration::{Calibration, CalibrationBin};
pub use emissions::Emissions;
pub use flow::{FLOW_BINS, Flow, FlowBin, Stay};
pub use gaps::Gaps;
pub use hand_off::HandOff;
pub use in_order::{InOrder, PIECE, Pieces};
pub use interval::{Interval, Range, RatioInterval, student_t_975};
pub use lengths::{LengthRow, LengthSums, Lengths};
pub(crate) use lived::Life;
pub use lived::{Lived, Lives, PARTS, Spent};
pub use overload::{Overload, overload, overload_among, overload_of};
pub use records::{Outcome, RequestRecords, StepRecord};
pub use replicas::{ReplicaSummary, Replicas};
pub use scaled::{ReplicaHours, ReplicaLife, Scaled, ScalingDecision};
pub use series::{Bin, Series};
pub use summary::{PositionCounts, Quantiles, Slo, Summary, quantile_sorted};
pub use totals::Totals;
