//! Tests that an experiment gives the same list of runs (plan) after it was written as TOML and read back. Tests the
//! contents of plans.

use super::*;
use crate::plan::to_toml;

fn shipped(name: &str) -> PathBuf {
    FilePath::new(env!("CARGO_MANIFEST_DIR")).join("../experiments").join(name)
}

/// The experiment's TOML with every default is written beside the results. Read back, this TOML gives an equal plan.
#[test]
fn resolving_is_idempotent() {
    for name in ["quickstart.toml", "bench-poisson.toml", "bench-poisson-fixed4.toml"] {
        // The sweeps are given in the order `workload`, `engine`. The written file has them in alphabetical order, so
        // `sweep_order` must keep the given order.
        let sets =
            ["workload.requests={ sweep = [50, 20] }", "engine.max_num_seqs={ sweep = [16, 64] }", "slo.ttft_s=0.5"];
        let sets = sets.map(str::to_owned);
        let plan = Plan::load(&shipped(name), &sets).unwrap();
        let text = to_toml(&plan.resolved).unwrap();
        let again = Plan::of(Document::parse("resolved", &text).unwrap(), FilePath::new("")).unwrap();
        assert_eq!(plan.resolved, again.resolved);
        assert_eq!(plan.digest(), again.digest());
        assert_eq!((plan.cells(), plan.variants.len()), (again.cells(), 4));
        let choices = |plan: &Plan| plan.variants.iter().map(|v| v.choices.clone()).collect::<Vec<_>>();
        assert_eq!(choices(&plan), choices(&again), "the first sweep of the text varies slowest");
        let asked = plan.asked_for(FilePath::new("")).unwrap();
        let asked = Plan::of(Document::parse("asked", &asked).unwrap(), FilePath::new("")).unwrap();
        assert_eq!((plan.digest(), choices(&plan)), (asked.digest(), choices(&asked)));
    }
}

/// The sweep that stands first in the experiment's text varies slowest, also after the text was written back in
/// alphabetical order. Another order of sweeps gives another digest.
#[test]
fn variants_keep_their_order() {
    let text = r#"name = "two"
        policies = [{ autoregressive = {} }]
        [workload]
        arrivals = { poisson = { rate = { sweep = [2.0, 6.0] } } }
        lengths = { fixed = { prompt = 128, output = 64 } }
        requests = 60
        [hardware]
        target = { linear = { alpha_s = 0.0, gamma_s = 5e-5, delta_s = 1e-2 } }
        draft = { linear = { alpha_s = 0.0, gamma_s = 5e-6, delta_s = 1e-3 } }
        [engine]
        max_num_seqs = { sweep = [8, 2] }
        num_gpu_blocks = 400
        [acceptance.source]
        mixture = {}"#;
    let plan_of = |text: &str| Plan::of(Document::parse("x.toml", text).unwrap(), FilePath::new("")).unwrap();
    let values = |plan: &Plan| -> Vec<Vec<String>> {
        plan.variants.iter().map(|v| v.choices.iter().map(|c| c.value.clone()).collect()).collect()
    };
    let plan = plan_of(text);
    assert_eq!(values(&plan), [["2.0", "8"], ["2.0", "2"], ["6.0", "8"], ["6.0", "2"]]);
    for again in [plan.asked_for(FilePath::new("")).unwrap(), to_toml(&plan.resolved).unwrap()] {
        assert!(again.find("[engine]") < again.find("[workload]"), "{again}");
        let again = plan_of(&again);
        assert_eq!((values(&again), again.digest()), (values(&plan), plan.digest()));
    }
    // The digests of the two plans must differ. Otherwise a resumed run would take finished cells for cells with other
    // swept values.
    let other = plan_of(&format!("sweep_order = [\"engine.max_num_seqs\"]\n{text}"));
    assert_eq!(values(&other)[1], ["8", "6.0"]);
    assert_ne!(other.digest(), plan.digest());
}

/// The shipped experiment on real traces is valid. The traces are not shipped, so the test does not read them.
#[test]
fn the_experiment_on_real_traces_parses() {
    let text = fs_err::read_to_string(shipped("adaspec-conv.toml")).unwrap();
    let document = Document::parse("adaspec-conv.toml", &text).unwrap();
    let variants = document.variants("policies", &UNSWEPT).unwrap();
    let experiment = Experiment::read(&variants[0].picked.document()).unwrap();
    assert_eq!((variants.len(), experiment.policies.len()), (1, 13));
}

#[test]
fn the_baseline_is_added_only_if_the_experiment_lacks_it() {
    let plan = Plan::load(&shipped("quickstart.toml"), &[]).unwrap();
    assert_eq!(plan.baseline, 0);
    assert!(plan.policies.iter().all(|p| !p.implied));
    let plan = Plan::load(&shipped("bench-poisson-fixed4.toml"), &[]).unwrap();
    assert!(plan.policies[plan.baseline].implied);
    assert_eq!(plan.policies.len(), 2);
}

#[test]
fn everything_that_decides_results_is_in_the_digest() {
    let digest = |sets: &[&str]| {
        let sets: Vec<String> = sets.iter().map(|s| (*s).to_owned()).collect();
        Plan::load(&shipped("bench-poisson.toml"), &sets).unwrap().digest()
    };
    let plain = digest(&[]);
    assert_eq!(plain, digest(&["engine.draft_gap=catch-up-next-use"]));
    for change in ["seeds=[2]", "engine.watermark=0.1", "workload.requests=9", "policies=[{ fixed = {} }]"] {
        assert_ne!(plain, digest(&[change]), "{change}");
    }
}

#[test]
fn blocks_are_derived_from_the_hardware_unless_given() {
    let derived = |sets: &[&str]| {
        let sets: Vec<String> = sets.iter().map(|s| (*s).to_owned()).collect();
        Plan::load(&shipped("quickstart.toml"), &sets).unwrap().variants[0].derived
    };
    let all = Derived {
        num_gpu_blocks: true,
        state_blocks: true,
        request_blocks: true,
        windows: true,
        draft_kv: true,
        frontend_s: false,
    };
    assert_eq!(derived(&[]), all);
    let given = ["engine.num_gpu_blocks=100", "engine.draft_kv=none"];
    assert_eq!(derived(&given), Derived { num_gpu_blocks: false, draft_kv: false, ..all });
    let given = ["engine.state_blocks=3", "engine.request_blocks=0"];
    assert_eq!(derived(&given), Derived { state_blocks: false, request_blocks: false, ..all });
}
