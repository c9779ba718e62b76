//! The figures of made-up cells: what must be in them, that nothing overlaps, and that their bytes stay.
//!
//! `FORETOKEN_FIGURES=DIR cargo test -p foretoken-report` leaves them in DIR to be looked at.

use super::*;
use crate::fixtures::report;

/// The reports looked at: (name, report).
fn samples() -> Vec<(&'static str, Report)> {
    vec![
        ("one", report(1, &[], &[], 1, 200)),
        ("three", report(3, &[], &[], 3, 600)),
        ("thirteen", report(13, &[], &[], 3, 600)),
        ("rates", report(13, &[0.25, 0.5, 1.0, 2.0, 3.0], &[], 3, 400)),
        ("two-sweeps", report(3, &[0.5, 1.0, 2.0], &["v1", "v0-prefill-first"], 2, 300)),
    ]
}

#[test]
fn can_be_looked_at() {
    let Some(folder) = std::env::var_os("FORETOKEN_FIGURES") else { return };
    for (name, report) in samples() {
        let folder = Path::new(&folder).join(name);
        std::fs::create_dir_all(&folder).unwrap();
        write_figures(&folder, &report).unwrap();
    }
}
