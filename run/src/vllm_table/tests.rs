//! Checks vLLM's table of draft lengths by batch size against ordinary closed-loop experiments: its rows against one
//! experiment for each fixed length, and the finished table against an experiment that runs it.

use super::Table;
use super::choose::over;
use super::table::{Loop, by_batch_size};
use crate::cells::play;
use crate::plan::Plan;
use crate::setting::Setting;
use foretoken_policies::{Autoregressive, Fixed, PolicySpec};
use foretoken_sim::metrics::Interval;
use foretoken_sim::{Luck, Stream};
use std::sync::atomic::AtomicBool;

const LONGEST: u32 = 5;
const CLIENTS: [u32; 2] = [3, 16];
/// Number of requests that each client sends in an ordinary closed-loop experiment. With 60 requests, the start and the
/// end of the run matter little.
const ROUNDS: u32 = 60;
/// Fewest requests of all clients together in an ordinary closed-loop experiment.
const FEWEST: u32 = 400;

/// The text of a closed-loop experiment with linear costs. Its lengths, costs and acceptance rate are drawn at random
/// from lists; `number` seeds the draws.
fn drawn(number: u64) -> String {
    let luck = Luck::new(number, Stream::Request, 0);
    let pick = |draw: u64, values: &[&'static str]| values[(luck.unit(draw) * values.len() as f64) as usize];
    let lengths = [
        "fixed = { prompt = 64, output = 16 }", "fixed = { prompt = 256, output = 40 }",
        "fixed = { prompt = 1500, output = 30 }", "table = 'azure-code'", "spec-bench = {}",
    ];
    format!(
        "name = 'drawn'
        seeds = [1, 2, 3]
        policies = [{{ fixed = {{ k = 1 }} }}]
        hardware.target.linear = {{ alpha_s = 1e-8, gamma_s = {}, delta_s = 10e-3 }}
        hardware.draft.linear = {{ alpha_s = 0.0, gamma_s = {}, delta_s = {} }}
        workload.lengths.{}
        workload.arrivals.closed-loop = 1
        workload.requests = 100
        acceptance.source.constant.rate = {}
        engine.version = '{}'
        engine.max_draft_len = {LONGEST}",
        pick(0, &["10e-6", "60e-6", "300e-6"]),
        pick(1, &["1e-6", "10e-6"]),
        pick(2, &["0.0", "0.5e-3", "1.5e-3"]),
        pick(3, &lengths),
        pick(4, &["0.4", "0.7", "0.85", "1.0"]),
        pick(5, &["vllm-0.32", "vllm-0.33"]),
    )
}

/// Output tokens per second of a policy in an ordinary closed-loop experiment, with each seed.
fn ordinary(plan: &Plan, spec: &PolicySpec) -> Vec<f64> {
    let rate = |&seed: &u64| {
        let setting = Setting::new(&plan.variants[0], seed).unwrap();
        let played = play(&setting, spec, Some(setting.slo(None)), &AtomicBool::new(false)).unwrap();
        played.stored.summary.token_goodput_tok_s
    };
    plan.seeds.iter().map(rate).collect()
}

/// Output tokens per second of draft length `k` with each seed, on a server that is set up for this length alone.
fn alone_rates(row: &Loop, k: u32) -> &[f64] {
    &row.alone.iter().find(|(length, _)| *length == k).unwrap().1.tok_s
}

fn upper(over: Interval) -> f64 {
    over.mean + over.half_width.unwrap()
}

/// Checks each draft length's speedup over the engine without a drafter: the speedup in `row` must equal the speedup in
/// ordinary runs; the logarithms may differ by 0.04. Also checks the length that is fastest in ordinary runs: it may be
/// faster than the row's length by at most 1 %, or by the upper end of the row's interval if this is more.
fn check(row: &Loop, clients: u32, plan: &Plan, experiment: &str) {
    let policy = |k: u32| match k {
        0 => by_batch_size(vec![(1, 256, 0), (257, 257, 1)]),
        k => PolicySpec::Fixed(Fixed { k }),
    };
    let fixed: Vec<Vec<f64>> = (0..=LONGEST).map(|k| ordinary(plan, &policy(k))).collect();
    let plain = ordinary(plan, &PolicySpec::Autoregressive(Autoregressive {}));
    for (k, rates) in (0..).zip(&fixed) {
        let (in_row, in_runs) = (over(alone_rates(row, k), &row.plain.tok_s).mean, over(rates, &plain).mean);
        assert!(
            (in_row - in_runs).abs() < 0.04,
            "{clients} clients, length {k}: {in_row} over plain, {in_runs} in ordinary runs, in\n{experiment}"
        );
    }
    let total = |rates: &[f64]| rates.iter().map(|r| r.ln()).sum::<f64>();
    let (best, _) = (0..).zip(&fixed).max_by(|a, b| total(a.1).total_cmp(&total(b.1))).unwrap();
    let taken = row.alone_choice.k;
    let ahead = over(&fixed[best as usize], &fixed[taken as usize]).mean;
    let stated = upper(over(alone_rates(row, best), alone_rates(row, taken)));
    assert!(
        ahead <= 0.01f64.max(stated) + 0.002,
        "{clients} clients: length {best} is {ahead} ahead of the row's {taken} ({stated} by the row), in\n{experiment}"
    );
}

/// Checks that the speedup of the finished table in the row's closed loop equals its speedup in an ordinary experiment;
/// the logarithms may differ by 0.04. Does not check a table with only draft length 0.
fn check_table(table: &Table, row: &Loop, clients: u32, plan: &Plan, experiment: &str) {
    if table.ranges.iter().all(|range| range.2 == 0) {
        return;
    }
    let plain = ordinary(plan, &PolicySpec::Autoregressive(Autoregressive {}));
    let in_runs = over(&ordinary(plan, &by_batch_size(table.ranges.clone())), &plain).mean;
    let in_row = over(&row.table.as_ref().unwrap().tok_s, &row.plain.tok_s).mean;
    assert!(
        (in_row - in_runs).abs() < 0.04,
        "{clients} clients, the table: {in_row} over plain, {in_runs} in ordinary runs, in\n{experiment}"
    );
}

#[test]
fn rows_agree_with_ordinary_closed_loops() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("x.toml");
    let mut taken = Vec::new();
    for number in 0..8 {
        let experiment = drawn(number);
        std::fs::write(&file, &experiment).unwrap();
        let table = Table::find(Plan::load(&file, &[]).unwrap(), &file, &CLIENTS, &AtomicBool::new(false)).unwrap();
        for row in &table.rows {
            let clients = row.clients;
            let sets = [
                format!("workload.arrivals={{ closed-loop = {clients} }}"),
                format!("workload.requests={}", (ROUNDS * clients).max(FEWEST)),
            ];
            let plan = Plan::load(&file, &sets).unwrap();
            let measured = row.measured.as_ref().unwrap();
            check(measured, clients, &plan, &experiment);
            check_table(&table, measured, clients, &plan, &experiment);
            taken.push(measured.alone_choice.k);
        }
    }
    taken.sort_unstable();
    taken.dedup();
    assert!(taken.len() >= 3, "the settings differ: {taken:?}");
}

/// For every draft method, with and without asynchronous scheduling and host time: an ordinary experiment in which as
/// many draft tokens are accepted as the break-even says is as fast as plain decoding. The method's rounds differ: K
/// passes of a draft model or a head, two unlike passes of a block drafter, none of a lookup.
#[test]
fn a_break_even_is_where_two_engine_runs_tie() {
    const K: u32 = 3;
    for (method, always_synchronous) in [
        ("draft-model", false),
        ("eagle", false),
        ("eagle3", false),
        ("mtp", false),
        ("dflash", false),
        ("dspark", false),
        ("ngram", true),
        ("suffix", true),
    ] {
        for asynchronous in [true, false].into_iter().filter(|asynchronous| !(*asynchronous && always_synchronous)) {
            for host_s in [0.0, 12e-3] {
                let case = format!("{method}, asynchronous {asynchronous}, {host_s} s of the host");
                let plan = |rate: f64, clients: u32| {
                    let text = format!(
                        "name = 'tie'
                        seeds = [1]
                        policies = [{{ fixed = {{ k = {K} }} }}]
                        hardware.target.linear = {{ alpha_s = 1e-8, gamma_s = 50e-6, delta_s = 10e-3 }}
                        hardware.draft.linear = {{ alpha_s = 0.0, gamma_s = 1e-6, delta_s = 1e-3 }}
                        workload.lengths.fixed = {{ prompt = 200, output = 200 }}
                        workload.arrivals.closed-loop = {clients}
                        workload.requests = {}
                        acceptance.source.constant.rate = {rate}
                        engine.method = '{method}'
                        engine.async_scheduling = {asynchronous}
                        engine.num_gpu_blocks = 20000
                        engine.host.speculating.step_s = {host_s}
                        engine.max_draft_len = {K}",
                        clients * 40
                    );
                    Plan::of_text("tie.toml", &text, &[], "".as_ref()).unwrap()
                };
                let never = AtomicBool::new(false);
                let clients = 4;
                let table = Table::find(plan(0.8, clients), "tie.toml".as_ref(), &[clients], &never).unwrap();
                let ties = table.ties(plan(0.8, clients), "tie.toml".as_ref(), K, &never).unwrap();
                let [tie] = ties[..] else { panic!("{case}: {ties:?}") };
                assert!((-0.1..1.0).contains(&tie.needs), "{case}: {tie:?}");
                // An ordinary experiment near the tie. Its draws give a slightly other share: seconds of a token are
                // moved to the break-even's share.
                let at = plan(super::tie::rate(tie.needs, K), clients);
                let plain = ordinary(&at, &PolicySpec::Autoregressive(Autoregressive {}))[0];
                let setting = Setting::new(&at.variants[0], 1).unwrap();
                let drafting = PolicySpec::Fixed(Fixed { k: K });
                let played = play(&setting, &drafting, Some(setting.slo(None)), &never).unwrap().stored.summary;
                let has = played.accepted as f64 / played.drafted as f64;
                let moved = (1.0 + f64::from(K) * tie.needs.max(0.0)) / (1.0 + f64::from(K) * has);
                let ratio = played.token_goodput_tok_s / plain * moved;
                let wanted = if tie.needs > 0.0 { (0.99, 1.01) } else { (1.0, 1.2) };
                assert!(wanted.0 < ratio && ratio < wanted.1, "{case}: {tie:?}, {ratio} times as fast");
            }
        }
    }
}
