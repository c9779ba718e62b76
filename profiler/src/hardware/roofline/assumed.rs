//! Shares and times of a roofline without floors, where the settings do not give them. All are assumed.

pub(super) const BANDWIDTH: f64 = 0.8;
pub(super) const COMPUTE: f64 = 0.6;
pub(super) const PARALLEL: f64 = 0.9;
pub(super) const PASS_S: f64 = 300e-6;
pub(super) const LAYER_S: f64 = 10e-6;
pub(super) const ALL_REDUCE_S: f64 = 10e-6;
