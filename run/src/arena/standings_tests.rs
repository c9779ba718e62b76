use super::*;

fn numbers(e2e_s: f64, busy_tok_s: f64, behind: bool) -> Numbers {
    let (duration_s, tpot_p99_s) = (100.0 / e2e_s, Some(0.02));
    Numbers { e2e_s, duration_s, busy_tok_s, ttft_s: 0.1, tpot_p99_s, slo: Some(0.9), finished: 1000, behind }
}

fn ran(policy: &str, part: Part, e2e: [f64; 2], busy: f64, behind: bool) -> Ran {
    let runs = e2e.map(|e2e| numbers(e2e, busy, behind)).to_vec();
    Ran { policy: policy.to_owned(), part, trees: policy.starts_with("tree"), runs }
}

fn scenario(set: ArenaSet, entrants: Vec<Ran>) -> Scenario {
    Scenario { set, about: "a test".to_owned(), seeds: vec![1, 2], requests: 1000, batch: false, entrants }
}

/// Two scenarios for tests: a light one in which policy `a` has a lower latency than policy `b`, and an overloaded one
/// in which `b` makes more tokens per second than `a`.
fn two() -> Vec<(String, Scenario)> {
    let light = scenario(
        ArenaSet::Tuning,
        vec![
            ran("oracle", Part::Reference, [1.0, 2.0], 100.0, false),
            ran("other-oracle", Part::Reference, [1.2, 2.4], 100.0, false),
            ran("autoregressive", Part::Fixed, [2.0, 4.0], 50.0, false),
            ran("fixed-1", Part::Fixed, [1.5, 3.0], 60.0, false),
            ran("a", Part::Contender, [1.1, 2.2], 90.0, false),
            ran("b", Part::Contender, [1.6, 3.2], 90.0, false),
            ran("tree-c", Part::Contender, [0.9, 1.8], 90.0, false),
        ],
    );
    let full = scenario(
        ArenaSet::HeldOut,
        vec![
            ran("oracle", Part::Reference, [10.0, 10.0], 1000.0, true),
            ran("other-oracle", Part::Reference, [12.0, 12.0], 1100.0, true),
            ran("autoregressive", Part::Fixed, [40.0, 40.0], 500.0, true),
            ran("fixed-1", Part::Fixed, [30.0, 30.0], 600.0, true),
            ran("fixed-9", Part::Fixed, [50.0, 50.0], 400.0, true),
            ran("a", Part::Contender, [12.0, 12.0], 900.0, true),
            ran("b", Part::Contender, [20.0, 20.0], 1050.0, true),
        ],
    );
    vec![("light".to_owned(), light), ("full".to_owned(), full)]
}

fn row<'s>(standings: &'s Standings, policy: &str) -> &'s Standing {
    standings.rows.iter().find(|row| row.policy == policy).unwrap()
}

#[test]
fn the_loss_is_paired_and_against_the_least_oracle() {
    let standings = Standings::of(&two(), Vec::new(), None);
    let a = row(&standings, "a");
    let loss = a.fields[0].as_ref().unwrap().loss;
    assert!((loss.mean - 1.1_f64.ln()).abs() < 1e-12, "seed by seed, not by means: {loss:?}");
    assert!(loss.half_width.unwrap() < 1e-12, "paired: both seeds lose the same");
    assert!((a.fields[0].as_ref().unwrap().to_fixed.mean - (1.1_f64 / 1.5).ln()).abs() < 1e-12);
    assert_eq!((standings.scenarios[0].reference.as_str(), standings.scenarios[0].overload), ("oracle", false));
    assert_eq!(standings.scenarios[0].best, "tree-c");
    assert_eq!(standings.scenarios[0].best_fixed, "fixed-1");
    assert!((row(&standings, "tree-c").mean - 0.9_f64.ln()).abs() < 1e-12, "below the oracle of chains");
}

/// In a batch the policy whose last request ends first is the best, even if its mean E2E is the longest.
#[test]
fn a_batch_is_judged_by_its_last_request() {
    let (name, light) = two().swap_remove(0);
    let standings = Standings::of(&[(name, Scenario { batch: true, ..light })], Vec::new(), None);
    assert_eq!(
        (&*standings.scenarios[0].reference, &*standings.scenarios[0].best_fixed),
        ("other-oracle", "autoregressive")
    );
    let b = row(&standings, "b").fields[0].as_ref().unwrap();
    assert!((b.loss.mean - (1.2_f64 / 1.6).ln()).abs() < 1e-12, "{:?}", b.loss);
}

/// If an oracle of trees ran in a scenario, policies that draft trees are compared with it. All other policies are
/// compared with the oracle of chains. An oracle is a policy that knows which draft tokens are right.
#[test]
fn trees_and_chains_have_references_of_their_own() {
    let mut scenarios = two();
    scenarios[0].1.entrants.push(ran("tree-oracle", Part::Reference, [0.8, 1.6], 120.0, false));
    let standings = Standings::of(&scenarios, Vec::new(), None);
    let trees = standings.scenarios[0].tree_reference.as_ref().unwrap();
    assert_eq!((standings.scenarios[0].reference.as_str(), trees.policy.as_str()), ("oracle", "tree-oracle"));
    assert!((trees.to_chains.mean - 0.8_f64.ln()).abs() < 1e-12);
    assert!((row(&standings, "tree-c").mean - (0.9_f64 / 0.8).ln()).abs() < 1e-12);
    assert!((row(&standings, "a").fields[0].as_ref().unwrap().loss.mean - 1.1_f64.ln()).abs() < 1e-12);
    assert!(standings.scenarios[1].tree_reference.is_none(), "no oracle of trees ran there");
    let text = super::super::render(&Standings::of(&scenarios[..1], Vec::new(), None));
    assert!(
        text.contains("-22.3 +-0.0") && text.contains("tree-oracle") && text.contains("^: drafts trees, and so does"),
        "{text}"
    );
}

#[test]
fn a_scenario_adds_at_most_the_cap_to_the_score() {
    let standings = Standings::of(&two(), Vec::new(), None);
    let b = row(&standings, "b");
    assert!((b.score - f64::midpoint(CAP, CAP)).abs() < 1e-12, "ln 1.6 and ln 2 are above the cap: {}", b.score);
    assert!((b.mean - f64::midpoint(1.6_f64.ln(), 2.0_f64.ln())).abs() < 1e-12);
    assert_eq!(b.worst.1, "full");
    assert_eq!((b.score_by_set["tuning"], b.score_by_set["held-out"]), (CAP, CAP));
    assert_eq!(b.behind_fixed, ["light"], "1.6 against 1.5 in the light scenario, for certain");
}

#[test]
fn tokens_a_second_rank_where_all_fall_behind() {
    let alone = |i: usize| Standings::of(&two()[i..=i], Vec::new(), None);
    assert!(row(&alone(0), "a").rank.unwrap().rank < row(&alone(0), "b").rank.unwrap().rank);
    assert!(row(&alone(1), "a").rank.unwrap().rank > row(&alone(1), "b").rank.unwrap().rank);
    assert!(row(&alone(1), "a").score < row(&alone(1), "b").score, "the score is of latency all the same");
}

#[test]
fn bounds_and_policies_that_ran_in_some_scenarios_have_no_rank_and_come_last() {
    let standings = Standings::of(&two(), vec![("gone".into(), "no trace".into())], None);
    let unranked: Vec<&str> = standings.rows.iter().filter(|r| r.rank.is_none()).map(|r| r.policy.as_str()).collect();
    assert_eq!(unranked, ["tree-c", "fixed-9", "oracle", "other-oracle"]);
    assert!(standings.rows[..4].iter().all(|row| row.rank.is_some()));
    let text = super::super::render(&standings);
    assert!(text.contains("skipped: gone: no trace") && text.contains("tree-c ^ (1)"), "{text}");
    assert!(text.is_ascii(), "{text}");
}

#[test]
fn the_table_has_a_line_for_each_policy_in_each_scenario_as_csv() {
    let standings = Standings::of(&two(), Vec::new(), None);
    let csv = super::super::render_csv(&standings);
    assert_eq!(csv.lines().count(), 1 + 7 + 7);
    let columns = csv.lines().next().unwrap().split(',').count();
    assert!(csv.lines().all(|line| line.split(',').count() == columns), "{csv}");
}
