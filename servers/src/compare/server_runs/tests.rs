//! The report of a small comparison with a server, as text and as a page.

use super::{BOUND, Calibrated, Cell, Replayed, ServerComparison};
use crate::compare::numbers::{E2E, THROUGHPUT, TPOT, TTFT, Unit};
use crate::compare::page_text::page_text;
use crate::compare::row::Row;

/// A number that was observed as `observed`, and its prediction with the parts of the error from acceptance, costs and
/// schedule.
fn row(name: &str, unit: Unit, observed: &[f64], parts: [f64; 3]) -> Row<Calibrated> {
    let error = parts.iter().sum::<f64>();
    let simple = (error != 0.0).then_some(-2.0 * error);
    let prediction = |reference: f64| Calibrated {
        predicted: reference * (1.0 + error),
        half_width: Some(0.04),
        error,
        of_acceptance: parts[0],
        of_cost: parts[1],
        of_schedule: parts[2],
        interpolated: simple,
        formula: simple.map(|x| x / 4.0),
    };
    Row::new(name, unit, observed.to_vec(), prediction)
}

/// A cell whose four means were observed as often as `repeats` says, each value multiplied by its entry. The error of
/// mean TPOT and of throughput has the parts `parts`; the others are predicted exactly.
fn cell(k: u32, load: &str, fitted: bool, repeats: &[f64], parts: [f64; 3]) -> Cell {
    let observed = |value: f64| repeats.iter().map(|repeat| value * repeat).collect::<Vec<_>>();
    let seconds = |name, value: f64, parts| row(name, Unit::Seconds, &observed(value), parts);
    let faster = parts.map(|part| -part);
    let e2e = 1.0 - 0.1 * f64::from(k);
    let rows = vec![
        row(THROUGHPUT, Unit::Plain, &observed(50.0 + f64::from(k)), faster),
        seconds(TPOT, 0.020, parts),
        seconds(E2E, e2e, [0.0; 3]),
        seconds(TTFT, 0.110, [0.0; 3]),
        seconds("E2E, P99", 2.0 * e2e, [0.0, 0.0, 0.07]),
    ];
    Cell {
        accepted: (Some(1.25), (k > 0).then_some(1.5)),
        in_flight: Some(0.031),
        ..Cell::new(k, load.into(), repeats.len(), fitted, rows)
    }
}

fn replayed(run: &str, equal_steps: usize, difference: Option<&str>) -> Replayed {
    let difference = difference.map(str::to_owned);
    Replayed { run: run.into(), steps: 40, equal_steps, placed: 12, rounds: 100, difference }
}

/// Cells that are fitted to, predicted within their bounds, predicted beyond their bounds, observed once, and observed
/// with repeats that do not agree.
fn comparison() -> ServerComparison {
    let agree = [1.0, 1.01];
    let cells = vec![
        cell(3, "open 3.00 req/s, seed 1", false, &[1.0], [0.02, 0.0, 0.0]),
        cell(0, "closed 4", true, &agree, [0.0, 0.0, 0.01]),
        cell(3, "closed 4", false, &agree, [0.01, BOUND + 0.03, -0.01]),
        cell(5, "closed 4", false, &agree, [0.01, 0.02, 0.01]),
        cell(1, "closed 16", false, &[1.0, 1.2], [0.1, 0.0, 0.0]),
    ];
    let replayed = vec![replayed("k0-c4", 40, None), replayed("k3-c4", 17, Some("step 17 (iteration 18 of the log)"))];
    ServerComparison::new(cells, replayed, vec!["The server changed its speed.".into()])
}

#[test]
fn words() {
    insta::assert_snapshot!("words", comparison().in_words());
}

#[test]
fn page() {
    insta::assert_snapshot!("page", page_text(&comparison().page()));
}

#[test]
fn without_held_out_runs_nothing_is_claimed() {
    let fitted = ServerComparison::new(vec![cell(0, "closed 4", true, &[1.0, 1.01], [0.0; 3])], vec![], vec![]);
    assert_eq!(fitted.headline(), "No run is held out: the calibration was made from each of these.");
    assert_eq!((fitted.holds(), fitted.verdict().as_str()), (None, ""));
    assert_eq!(comparison().holds(), Some(false));
}

/// A long table is folded. Four numbers of each cell are in it.
#[test]
fn a_table_of_more_than_forty_rows_is_folded() {
    let folded = |cells: u32| {
        let cells = (0..cells).map(|k| cell(k % 5, &format!("closed {k}"), false, &[1.0], [0.0; 3])).collect();
        page_text(&ServerComparison::new(cells, vec![], vec![]).page())
    };
    assert!(!folded(10).contains("folded: "));
    let text = folded(11);
    assert!(text.contains("folded: All 44 numbers\n"), "{text}");
    assert!(text.contains("\nK = 0, 1, 2, 3, 4 · 11 loads · 11 of 11 cells held out\n"), "{text}");
}

/// The figure explains a sign only if it shows it.
#[test]
fn the_legend_explains_what_the_figure_shows() {
    let figure = |cells| ServerComparison::new(cells, vec![], vec![]).figure().unwrap();
    let all = comparison().figure().unwrap();
    let plain = figure(vec![cell(3, "closed 4", false, &[1.0], [0.0, 0.01, 0.0])]);
    for sign in ["grey: distance of repeats", "*: fitted to", "?: not all means are decided"] {
        assert!(all.contains(sign), "{sign}");
        assert!(!plain.contains(sign), "{sign}");
    }
    let far = figure(vec![cell(3, "closed 4", false, &[1.0], [0.0, 0.9, 0.0])]);
    let arrows = "arrowheads: beyond the edge";
    assert!(far.contains(arrows) && !plain.contains(arrows));
    assert!(all.contains("dashed: bounds") && plain.contains("dashed: bounds"));
}
