//! Recommendations for an experiment that states the server's costs.

use super::tests::{answer, snapshots};
use super::*;
use foretoken_policies::{PolicySpec, VllmDynamic};
use foretoken_run::cells::Mode;
use foretoken_run::complete::{How, complete};
use foretoken_run::plan::Plan;
use foretoken_run::work::Work;
use std::path::Path;

/// A question about an experiment that states the server's costs. `more` replaces values of the experiment.
pub(super) fn stated(more: &[&str]) -> Question {
    // A token of context takes time, too.
    let sets = ["hardware.target.linear.alpha_s=1e-7"].iter().chain(more).map(|&set| set.to_owned()).collect();
    Question {
        text: include_str!("../stated.toml").to_owned(),
        file: "x.toml".into(),
        sets,
        engine: Engine::Vllm,
        objective: Objective { of: Goal::MeanE2e, p99_tpot_s: None },
        longest: 3,
        now: Now::fixed(0, "stated"),
        method: None,
        model: None,
        known: None,
    }
}

#[test]
fn everything_that_an_advice_on_an_experiment_says() {
    let table = VllmDynamic { num_speculative_tokens_per_batch_size: vec![(1, 2, 3), (3, 4, 1)] };
    let now = Now::of(PolicySpec::VllmDynamic(table), "stated");
    let name = format!("{}, as now", now.name);
    let advice = answer(&Question { now, ..stated(&[]) });
    let names: Vec<&str> = advice.at_loads[0].candidates.iter().map(|c| c.name.as_str()).collect();
    assert!(names.contains(&name.as_str()) && names.contains(&"plain decoding"), "{names:?}");
    snapshots("experiment", &advice, Path::new("nowhere"));
    let beyond = answer(&stated(&["workload.arrivals={ poisson = { rate = 60.0 } }"]));
    assert!(beyond.at_loads[0].overload.is_some());
    snapshots("overloaded", &beyond, Path::new("nowhere"));
    let full = Objective { of: Goal::Throughput, p99_tpot_s: Some(0.05) };
    snapshots("throughput", &answer(&Question { objective: full, ..stated(&[]) }), Path::new("nowhere"));
}

#[test]
fn the_draft_method_is_the_users_or_else_the_experiments() {
    let method = |stated_method: &str, users: Option<&str>| {
        let set = format!("engine.method=\"{stated_method}\"");
        let ask = Question { method: users.map(str::to_owned), ..stated(&[&set]) };
        confirm::method(&ask, &ask.experiment().unwrap())
    };
    for name in ["eagle", "eagle3", "mtp", "dflash", "dspark", "ngram", "suffix"] {
        assert_eq!(method(name, None).as_deref(), Some(name));
    }
    assert_eq!(method("dspark-fill-in", None).as_deref(), Some("dspark"));
    assert_eq!((method("draft-model", None), method("mtp", Some("eagle")).unwrap().as_str()), (None, "eagle"));
}

#[test]
fn what_the_argument_for_vllm_lacks_is_named() {
    let start = Start { file: "x.json".into(), text: "{\"a\":1}\n".into(), used: String::new() };
    let paste = |method: Option<&str>, model: Option<&str>, engine| {
        let (method, model) = (method.map(str::to_owned), model.map(str::to_owned));
        confirm::paste(&Question { method, model, engine, ..stated(&[]) }, std::slice::from_ref(&start))
    };
    let lacks = |method, model| paste(method, model, Engine::Vllm).1.unwrap_or_default();
    assert_eq!(paste(None, None, Engine::Vllm).0.unwrap(), "--speculative-config '{\"a\":1}'");
    assert_eq!(paste(None, None, Engine::Sglang), (None, None));
    assert_eq!((lacks(Some("eagle"), Some("m")), lacks(Some("ngram"), None)), (String::new(), String::new()));
    assert!(lacks(Some("eagle"), None).starts_with("it lacks the draft model: add --model NAME"));
    assert!(lacks(None, Some("m")).starts_with("it lacks the method: add --method NAME"));
    assert!(lacks(None, None).starts_with("it lacks method and draft model: add --method NAME --model NAME"));
}

#[test]
fn a_command_that_checks_the_advice_names_its_experiment() {
    let of = |file: &str, sets: &[&str], spec: &PolicySpec| {
        confirm::command(&Question { file: file.into(), ..stated(sets) }, spec, &[])
    };
    assert_eq!(
        of("my x.toml", &["slo.adaspec-scale=1.5"], &now::fixed(0)),
        "foretoken observe http://HOST:PORT 'my x.toml' --set 'policies=[{ autoregressive = {} }]' --set 'slo={}' -o \
         results/confirm-k0"
    );
    let table = PolicySpec::VllmDynamic(VllmDynamic { num_speculative_tokens_per_batch_size: vec![(1, 4, 2)] });
    assert!(of("a/x.toml", &[], &table).starts_with("foretoken observe http://HOST:PORT a/x.toml --set "));
    assert!(of("x.toml", &[], &table).ends_with("' -o results/confirm"));
}

/// The swept rates are shares of the rate that plain decoding sustains with a full engine: here four requests whose
/// step takes 20 ms and 0.2 ms a request, so that a request of 24 tokens takes about half a second.
#[test]
fn swept_rates_are_shares_of_the_service_rate() {
    let loads = answer(&stated(&["hardware.target.linear.alpha_s=0.0"])).loads.unwrap();
    let paper = 4.0 / (24.0 * (0.02 + 4.0 * 2e-4));
    assert!((loads.service_req_s / paper - 1.0).abs() < 0.1, "{} and {paper} on paper", loads.service_req_s);
    let rates: Vec<f64> = loads.points.iter().map(|point| point.rate / loads.service_req_s).collect();
    for (rate, wanted) in rates.iter().zip([0.1, 0.25, 0.4, 0.55, 0.7, 0.8, 0.9, 1.0]) {
        assert!((rate - wanted).abs() < 1e-9, "{rates:?}");
    }
}

/// `run` and `recommend` are asked about the same 20 experiments, with the same draft lengths as candidates. Both take
/// the same length, plain decoding included, by the same rule.
#[test]
fn run_and_recommend_name_the_same_draft_length() {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    let mut taken = Vec::new();
    for (rate, draft_s) in [(0.8, 2e-3), (0.6, 2e-3), (0.7, 8e-3), (0.3, 2e-3), (0.2, 8e-3)] {
        for (load, method) in [
            ("{ poisson = { rate = 1.0 } }", "draft-model"),
            ("{ poisson = { rate = 6.0 } }", "eagle3"),
            ("{ closed-loop = 1 }", "dflash"),
            ("{ closed-loop = 4 }", "mtp"),
        ] {
            let sets = [
                format!("acceptance.source.constant.rate={rate}"),
                format!("hardware.draft.linear.delta_s={draft_s}"),
                format!("workload.arrivals={load}"),
                format!("engine.method=\"{method}\""),
            ];
            let sets: Vec<&str> = sets.iter().map(String::as_str).collect();
            let question = stated(&sets);
            let advice = answer(&question);

            let mut all = question.sets.clone();
            all.push("policies=[{ autoregressive = {} }, { fixed = { k = 1 } }, { fixed = { k = 2 } }, { fixed = { k = 3 } }]".into());
            all.push("engine.max_draft_len=3".into());
            let plan = Plan::of_text("x.toml", &question.text, &all, Path::new("")).unwrap();
            let dir = tempfile::tempdir().unwrap();
            let how = How { mode: Mode::Fresh, figures: false };
            let made = complete(&plan, dir.path().join("run"), how, &pool, &Work::default()).unwrap().made.unwrap();
            let k = match made.results.advised.unwrap().policy.as_str() {
                "autoregressive" => 0,
                fixed => fixed.strip_prefix("fixed-").unwrap().parse().unwrap(),
            };
            assert_eq!(advice.at_loads[0].single, Some(k), "{sets:?}: {}", made.results.comparison.headline);
            taken.push(k);
        }
    }
    for k in 0..=3 {
        assert!(taken.contains(&k), "no experiment has the answer {k}: {taken:?}");
    }
}
