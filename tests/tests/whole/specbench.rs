//! Real acceptance: the 480 first turns of Spec-Bench, with Vicuna-68M as draft model of Vicuna-7B. Each turn runs
//! once, at batch size 1. The result is the number of accepted draft tokens divided by the number of steps with draft
//! tokens. Where the recording has no draft token, acceptance is drawn once from the recording's mean rates by
//! position.

use crate::setup::Setup;
use foretoken_sim::acceptance::{AcceptanceSpec, Rates};
use foretoken_sim::*;
use foretoken_traces::{Built, WorkloadSpec};

fn specbench() -> Option<Built> {
    let folder = foretoken_tests::traces()?.join("specbench");
    let spec = serde_json::json!({
        "arrivals": { "closed-loop": 1 },
        "lengths": { "trace": {
            "path": folder.join("spec_bench_vicuna7b_requests.csv"),
            "accept": folder.join("spec_bench_vicuna7b_sps68m_accept.jsonl"),
        }},
    });
    let spec: WorkloadSpec = serde_json::from_value(spec).unwrap();
    Some(foretoken_traces::build(&spec, 1, None).unwrap())
}

fn recorded(workload: &Workload) -> Box<dyn AcceptanceSource> {
    let source: Rates = serde_json::from_str(r#"{"recorded": {}}"#).unwrap();
    AcceptanceSpec { source, ..AcceptanceSpec::default() }.build(7, workload).unwrap()
}

/// In this test the first step of each request drafts from output position 0 on, as in the recorded runs of Spec-Bench.
/// A step with draft length k = 3 must then accept 1.23 draft tokens of a request on average, and a step with k = 6
/// must accept 1.55.
#[test]
fn recorded_rounds_from_position_0_accept_the_published_mean() {
    let Some(built) = specbench() else { return };
    let workload = &built.workload;
    assert_eq!(workload.len(), 480);
    let truth = recorded(workload);
    for (k, expected) in [(3, 1.23), (6, 1.55)] {
        let (mut accepted, mut steps) = (0u64, 0u64);
        let mut row = TruthRow::default();
        for i in 0..480 {
            let r = workload.get(i);
            let (output_len, category) = (r.output_len, r.category);
            truth.start(
                RequestTruth { id: i, prompt_len: 0, output_len, category, recording: r.recording },
                k,
                &mut row,
            );
            let mut n = 0;
            while n < output_len {
                let run = row.run(n, k);
                accepted += u64::from(run);
                steps += 1;
                n += run + 1;
            }
        }
        let mean = accepted as f64 / steps as f64;
        println!("k {k}: {mean:.4} accepted a step, {expected} expected");
        assert!((mean - expected).abs() < 0.02, "k {k}: {mean}");
    }
}

/// In the engine, a step with draft length k = 3 must accept 1.245 draft tokens of a request on average, and a step
/// with k = 6 must accept 1.57. The prefill emits output token 0, so position 0 is never drafted.
#[test]
fn recorded_rounds_in_the_engine_accept_the_published_mean() {
    let Some(built) = specbench() else { return };
    let truth = recorded(&built.workload);
    let mut setup = Setup::new(&built.workload);
    setup.acceptance = &*truth;
    setup.arrivals = built.arrivals;
    for (k, expected) in [(3, 1.245), (6, 1.57)] {
        let s = setup.summary(Speculation::Policy(Box::new(crate::speculation::Fixed(k))));
        let mean = s.accepted as f64 / s.rounds as f64;
        println!("k {k}: {mean:.4} accepted a step, {expected} expected");
        assert!((mean - expected).abs() < 0.02, "k {k}: {mean}");
        assert!(s.mean_batch_size <= 1.0, "one client decodes alone");
    }
}
