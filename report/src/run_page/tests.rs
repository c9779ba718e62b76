//! Tests the HTML page of results on made-up runs: its sentences, what it leaves out, and its size.

use super::*;
use crate::figures;
use crate::fixtures::report;
use crate::relate;
use itertools::Itertools;

fn html(report: &Report, run: &RunFacts) -> String {
    run_page(report, &figures(report), run).html()
}

fn related(mut report: Report) -> Report {
    relate(&mut report.cells);
    report
}

#[test]
fn the_headline_names_the_best_with_its_interval_and_the_oracle() {
    let page = html(&related(report(13, &[], &[], 3, 300)), &RunFacts::default());
    let headline = page.split("class=\"headline\">").nth(1).unwrap().split("</p>").next().unwrap().to_owned();
    assert!(headline.starts_with("Run adaspec") && headline.contains("× ["), "{headline}");
    assert!(headline.contains(" above that of oracle-goodput") && !headline.starts_with("oracle"), "{headline}");
}

/// The headline of a page with these policies, given as (policy, mean latency in s for each seed). Autoregressive
/// decoding takes 1.5 s.
fn headline_of(latencies: &[(&str, [f64; 3])], change: impl Fn(&mut Report)) -> String {
    let mut made = related(report(13, &[], &[], 3, 60));
    made.cells.retain(|c| c.key().policy == "autoregressive" || latencies.iter().any(|l| l.0 == c.key().policy));
    for cell in &mut made.cells {
        let of = latencies.iter().find(|l| l.0 == cell.key().policy);
        cell.speedup = of.map(|l| 1.5 / l.1[cell.key().seed as usize - 1]);
        cell.regret = None;
    }
    change(&mut made);
    let page = html(&made, &RunFacts::default());
    page.split("class=\"headline\">").nth(1).unwrap().split("</p>").next().unwrap().replace("&nbsp;", "\u{a0}")
}

/// Measured latencies of eagle2, smartspec-medusa, adaserve-like and specinfer with three seeds, under names of other
/// policies. The last two policies are slower by a quarter or more in every seed. Their intervals are wide, because
/// there are only three seeds.
#[test]
fn a_policy_that_loses_in_every_seed_is_no_tie_and_the_second_is_named() {
    let said = headline_of(
        &[
            ("fixed-1", [0.680, 0.713, 0.667]),
            ("fixed-3", [0.730, 0.762, 0.715]),
            ("fixed-5", [0.857, 1.407, 0.953]),
            ("ema-tier", [1.049, 2.869, 1.191]),
        ],
        |_| (),
    );
    assert!(said.starts_with("Run fixed-1 (of K = 1, 3, 5): 2.19× ["), "{said}");
    assert!(said.contains(" Next: fixed-3, 7.1\u{a0}% ["), "{said}");
    assert!(!said.contains("told apart") && !said.contains("fixed-5") && !said.contains("ema-tier"), "{said}");
}

#[test]
fn ties_are_close_and_not_told_apart_and_the_rest_needs_seeds() {
    let said = headline_of(
        &[
            ("fixed-1", [0.700, 0.705, 0.695]),
            ("fixed-3", [0.702, 0.700, 0.704]),
            ("fixed-5", [0.720, 0.726, 0.716]),
            ("random", [0.690, 0.730, 0.720]),
            ("ema-tier", [0.600, 1.300, 1.200]),
        ],
        |_| (),
    );
    assert!(said.starts_with("Run fixed-1 (of K = 1, 3, 5; as good: fixed-3): 2.14×"), "{said}");
    assert!(said.contains(" Next: fixed-5, 3.0\u{a0}% ["), "{said}");
    assert!(said.contains(" As good: within 1\u{a0}%, mean of 3 seeds."), "{said}");
    assert!(said.ends_with(" Too noisy to say: random, ema-tier; add seeds."), "{said}");
}

#[test]
fn no_speedup_is_negative_however_seeds_scatter() {
    let said = headline_of(&[("fixed-1", [0.366, 0.187, 0.114])], |_| ());
    assert!(said.contains("fixed-1: 8.4") && !said.contains("[-"), "{said}");
}

#[test]
fn a_bound_is_named_for_what_it_bounds() {
    let latencies = [("fixed-1", [0.70, 0.71, 0.72]), ("fixed-3", [0.80, 0.81, 0.82])];
    let with = |regret: f64, trees: bool| {
        headline_of(&latencies, |report| {
            for cell in report.cells.iter_mut().filter(|c| c.key().policy == "fixed-1") {
                (cell.regret, cell.entry.trees) = (Some(regret), trees);
            }
        })
    };
    let said = with(0.095, false);
    assert!(
        said.contains("9.5\u{a0}% [9.5, 9.5] above that of oracle-goodput, the bound for chains of drafts"),
        "{said}"
    );
    let said = with(-0.061, true);
    assert!(
        said.contains("it drafts trees, which oracle-goodput, the bound for chains of drafts, does not bound"),
        "{said}"
    );
    assert!(!said.contains("below"), "{said}");
}

/// A policy that stops drafting for a TPOT bound drafts less if the bound is computed from a run at another load. The
/// row of the policy has a mark, and the page explains the mark.
#[test]
fn a_policy_that_stops_for_the_bound_of_another_load_is_marked() {
    let mut swept = related(report(8, &[0.5, 1.0], &[], 2, 200));
    assert!(!html(&swept, &RunFacts::default()).contains('~'));
    let lowest = swept.cells[0].key().sweep.clone();
    for cell in &mut swept.cells {
        cell.entry.bound = Some(crate::ScaledBound { from: lowest.clone(), scale: 1.0, alone: true });
    }
    let page = html(&swept, &RunFacts::default());
    for part in [
        "adaspec, adaspec- do not speculate in a step that they expect to miss the TPOT bound",
        "the bound is that of rate-scale = 0.5, not of the row",
        "~: does not speculate in a step that it expects to miss the bound, which another load sets",
    ] {
        assert!(page.contains(part), "{part} is missing");
    }
    // Two policies stop drafting for the TPOT bound, at one of the two loads.
    assert_eq!(page.matches(" ~</td>").count(), 2);
}

#[test]
fn a_sweep_says_who_is_never_far_behind() {
    let mut swept = related(report(4, &[0.5, 1.0], &[], 2, 200));
    for cell in &mut swept.cells {
        let low = cell.key().sweep[0].value == "0.5";
        cell.speedup = Some(match (cell.key().policy.as_str(), low) {
            ("autoregressive", _) => 1.0,
            ("fixed-1", true) | ("fixed-5", false) => 1.5,
            ("fixed-3", _) => 1.45,
            _ => 1.0,
        });
    }
    let page = html(&swept, &RunFacts::default()).replace("&nbsp;", "\u{a0}");
    let sentence = "Run fixed-3: fixed-3 is never more than 3.4\u{a0}% behind the fastest of 2 settings. The fastest is fixed-1 in 1, \
         fixed-5 in 1.";
    assert!(page.contains(sentence), "{sentence}");
    assert!(page.contains("Setting by setting") && page.contains("rate-scale = 1</"), "the table of settings");
    let table = page.split("id=\"settings\"").nth(1).unwrap().split("</table>").next().unwrap();
    let rows: Vec<&str> = table.split("<tr>").skip(2).collect();
    assert!(rows[0].contains("fixed-3") && rows[0].contains("class=\"end h4\""), "the safest is first: {}", rows[0]);
    assert!(table.contains("class=\"end h5\"") && table.contains("<p class=\"key\">"), "{table}");
    for cell in swept.cells.iter_mut().filter(|c| c.key().policy == "fixed-3") {
        cell.speedup = Some(1.25);
    }
    let page = html(&swept, &RunFacts::default()).replace("&nbsp;", "\u{a0}");
    let sentence =
        "No policy is close to the fastest in all 2 settings: fixed-3 comes closest, at most 20.0\u{a0}% behind.";
    assert!(page.contains(sentence), "{sentence}");
}

/// If no policy is close to the fastest one at every load, the headline says which policy to run up to which load, and
/// which policy to run beyond.
#[test]
fn a_sweep_says_up_to_where_a_policy_holds() {
    let mut swept = related(report(4, &[1.0, 2.0, 4.0, 8.0], &[], 2, 200));
    for cell in &mut swept.cells {
        let load = cell.key().sweep[0].number.unwrap();
        cell.speedup = Some(match (cell.key().policy.as_str(), load) {
            ("fixed-3", 1.0 | 2.0) => 1.98,
            ("fixed-5", 1.0) => 2.0,
            ("fixed-5", 2.0) => 1.5,
            ("fixed-1", 4.0 | 8.0) => 1.4,
            _ => 1.0,
        });
    }
    let said = headline(&swept);
    let start = "Up to rate-scale = 2 run fixed-3 (2.0× as fast as autoregressive): at most 1.0\u{a0}% behind. \
                 Beyond, run fixed-1 (1.4× as fast as autoregressive). No policy is close";
    assert!(said.starts_with(start), "{said}");
}

/// Plain decoding is a candidate: where drafting loses at the higher loads, the headline says so, and the table of
/// settings has its row.
#[test]
fn a_sweep_in_which_drafting_loses_says_so() {
    let mut swept = related(report(4, &[1.0, 2.0, 4.0, 8.0], &[], 2, 200));
    for cell in &mut swept.cells {
        let load = cell.key().sweep[0].number.unwrap();
        cell.speedup = Some(match (cell.key().policy.as_str(), load) {
            ("fixed-3", 1.0 | 2.0) => 1.9,
            ("fixed-1", _) => 0.9,
            ("autoregressive", _) => 1.0,
            _ => 0.8,
        });
    }
    let said = headline(&swept);
    let start = "Up to rate-scale = 2 run fixed-3 (1.9× as fast as autoregressive): the fastest. Beyond, do not \
                 speculate. No policy is close";
    assert!(said.starts_with(start), "{said}");
    assert_eq!(advised(&swept).as_deref(), Some("fixed-3"));
    let page = html(&swept, &RunFacts::default()).replace("&nbsp;", "\u{a0}");
    let sentence = "rate-scale = 4: Do not speculate: no policy beats autoregressive; the best, fixed-1";
    assert!(page.contains(sentence), "{sentence}");
    for cell in swept.cells.iter_mut().filter(|c| c.key().policy == "fixed-3") {
        cell.speedup = Some(1.005);
    }
    let said = headline(&swept);
    assert!(said.starts_with("Do not speculate: autoregressive is never more than 0.5\u{a0}% behind"), "{said}");
}

#[test]
fn one_seed_tells_nothing_apart() {
    let page = html(&related(report(3, &[], &[], 1, 200)), &RunFacts::default());
    assert!(page.contains("One seed: no interval") && page.contains("none: one seed"), "{page}");
}

#[test]
fn a_sweep_has_a_sentence_a_setting() {
    let page = html(&related(report(4, &[0.5, 1.0], &[], 2, 200)), &RunFacts::default());
    assert!(page.contains("2 settings"));
    assert!(page.contains("<li>rate-scale = 0.5: ") && page.contains("<li>rate-scale = 1: "));
}

#[test]
fn a_missing_figure_names_the_setting_that_gives_it() {
    let mut one = report(1, &[], &[], 1, 60);
    for cell in &mut one.cells {
        (cell.summary.slo_attainment, cell.series, cell.lengths) = (None, Default::default(), Vec::new());
    }
    let page = html(&one, &RunFacts::default());
    for part in [
        "adaspec-scale = 1.0", "--regret", "such as adaspec", "Nothing was verified", "sweep = [1, 3, 5]",
        "sweep = [1.0",
    ] {
        assert!(page.contains(part), "{part} is missing");
    }
}

#[test]
fn a_policy_that_finished_nothing_is_named_and_breaks_nothing() {
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
fn a_partial_run_says_so_behind_the_answer_and_warnings_are_listed() {
    let run = RunFacts {
        partial: Some("3 of 12 cells are finished".into()),
        warnings: vec!["adaspec: something".into()],
        ..RunFacts::default()
    };
    let page = html(&related(report(2, &[], &[], 2, 60)), &run);
    let at = |text: &str| page.find(text).unwrap();
    assert!(at("class=\"headline\"") < at("3 of 12 cells") && at("3 of 12 cells") < at("<nav"));
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
        // The other results have twice the latency, with a small difference between seeds.
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
    assert!(page.contains("-50.5 [-51.1, -49.9]") && page.contains("Change in mean end-to-end latency"));
}

/// Twelve policies at five loads with three seeds: the page is small enough to send by mail.
#[test]
fn a_large_comparison_stays_small() {
    let page = html(&related(report(12, &[0.25, 0.5, 1.0, 2.0, 3.0], &[], 3, 3000)), &RunFacts::default());
    assert!(page.len() < 5_000_000, "{} bytes", page.len());
    eprintln!("{} bytes", page.len());
}
