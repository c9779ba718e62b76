//! A policy's look in figures, from the registry's words into the report's: neither crate knows the other.

use foretoken_policies::{self as registry, PolicySpec};
use foretoken_report::{Dash, Look, Marker};

/// The look of a policy.
pub fn of(policy: &PolicySpec) -> Look {
    Look { colour: policy.colour(), dash: dash(policy.dash()), marker: marker(policy.marker()) }
}

fn dash(dash: registry::Dash) -> Dash {
    match dash {
        registry::Dash::Solid => Dash::Solid,
        registry::Dash::Dashed => Dash::Dashed,
        registry::Dash::Dotted => Dash::Dotted,
        registry::Dash::LongDash => Dash::LongDash,
    }
}

fn marker(marker: registry::Marker) -> Marker {
    match marker {
        registry::Marker::Circle => Marker::Circle,
        registry::Marker::Square => Marker::Square,
        registry::Marker::Triangle => Marker::Triangle,
        registry::Marker::TriangleDown => Marker::TriangleDown,
        registry::Marker::Diamond => Marker::Diamond,
        registry::Marker::Cross => Marker::Cross,
        registry::Marker::Plus => Marker::Plus,
        registry::Marker::Ring => Marker::Ring,
    }
}
