//! The page of made-up cells: what it says, what it leaves out, that its size stays within bounds.

use super::*;
use crate::fixtures::report;
use crate::relate;
use itertools::Itertools;

fn html(report: &Report, run: &RunFacts) -> String {
    run_page(report, run).html()
}

fn related(mut report: Report) -> Report {
    relate(&mut report.cells);
    report
}

#[test]
fn the_headline_names_the_best_with_its_interval_and_the_oracle() {
    let page = html(&related(report(13, &[], &[], 3, 300)), &RunFacts::default());
    let headline = page.split("class=\"headline\">").nth(1).unwrap().split("</p>").next().unwrap().to_owned();
    assert!(headline.starts_with("adaspec 1.") && headline.contains("× ["), "{headline}");
    assert!(headline.contains(" above the oracle") && !headline.starts_with("oracle"), "{headline}");
}

#[test]
fn one_seed_tells_nothing_apart() {
    let page = html(&related(report(3, &[], &[], 1, 200)), &RunFacts::default());
    assert!(page.contains("One seed: no interval") && page.contains("none: one seed"), "{page}");
}

#[test]
fn a_sweep_has_a_sentence_a_setting() {
    let page = html(&related(report(4, &[0.5, 1.0], &[], 2, 200)), &RunFacts::default());
    assert!(page.contains("Of 2 settings, the fastest is"));
    assert!(page.contains("<li>rate_scale = 0.5: ") && page.contains("<li>rate_scale = 1: "));
}

#[test]
fn what_is_not_there_says_what_to_switch_on() {
    let mut one = report(1, &[], &[], 1, 60);
    for cell in &mut one.cells {
        (cell.summary.slo_attainment, cell.series, cell.lengths) = (None, Default::default(), Vec::new());
    }
    let page = html(&one, &RunFacts::default());
    for part in [
        "adaspec-scale = 1.0",
        "--regret",
        "such as adaspec",
        "Nothing was verified",
        "sweep = [1, 3, 5]",
        "sweep = [1.0",
    ] {
        assert!(page.contains(part), "{part} is missing");
    }
}

#[test]
fn a_policy_that_finished_nothing_is_told_and_breaks_nothing() {
    let mut broken = report(3, &[], &[], 2, 60);
    let empty = report(3, &[], &[], 2, 1);
    for (cell, none) in broken.cells.iter_mut().zip_eq(empty.cells).filter(|(c, _)| c.key().policy == "fixed-3") {
        *cell = none;
    }
    relate(&mut broken.cells);
    let page = html(&broken, &RunFacts::default());
    assert!(page.contains("fixed-3 finished no request"), "{page}");
    assert!(!page.contains("NaN") && !page.contains("inf"));
}

#[test]
fn a_partial_run_says_so_first_and_warnings_are_listed() {
    let run = RunFacts {
        partial: Some("3 of 12 cells are finished".into()),
        warnings: vec!["adaspec: something".into()],
        ..RunFacts::default()
    };
    let page = html(&related(report(2, &[], &[], 2, 60)), &run);
    assert!(page.find("3 of 12 cells").unwrap() < page.find("class=\"headline\"").unwrap());
    assert!(page.contains("<li>adaspec: something</li>"));
}

#[test]
fn no_cell_at_all_is_a_page_too() {
    let page = html(&report(0, &[], &[], 0, 0), &RunFacts::default());
    assert!(page.contains("No run is finished"));
}

#[test]
fn changes_are_paired_by_seed() {
    let mut own = related(report(2, &[], &[], 3, 200));
    let mut pairs = Vec::new();
    for cell in &own.cells {
        let mut other = cell.summary.clone();
        // Twice the latency, with a little difference between seeds.
        let slower = 2.0 + 0.01 * cell.key().seed as f64;
        other.e2e.as_mut().unwrap().mean *= slower;
        pairs.push(Pair { key: cell.key().clone(), other });
    }
    let differs = vec![("engine.block_size".to_owned(), "16".to_owned(), "32".to_owned())];
    let compared = Compared { name: "before".into(), pairs, differs, ..Compared::default() };
    compared.set_changes(&mut own.cells);
    assert!((own.cells[0].change.unwrap() - (1.0 / 2.01 - 1.0)).abs() < 1e-12);
    let page = html(&own, &RunFacts { compared: Some(compared), ..RunFacts::default() });
    assert!(page.contains("With before: 6 pairs") && page.contains("engine.block_size"), "{page}");
    assert!(page.contains("-50.5 [-") && page.contains("Change in mean end-to-end latency"));
}

/// Every policy there is, at five loads: the page of a large comparison stays small enough to send.
#[test]
fn a_large_comparison_stays_small() {
    let page = html(&related(report(12, &[0.25, 0.5, 1.0, 2.0, 3.0], &[], 3, 3000)), &RunFacts::default());
    assert!(page.len() < 5_000_000, "{} bytes", page.len());
    eprintln!("{} bytes", page.len());
}
