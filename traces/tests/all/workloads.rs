//! TOML descriptions become workloads. The same seed gives the same bytes, and a change of one stream of random draws
//! does not change the other streams.

use crate::round_trip::file;
use foretoken_sim::{Arrivals, Time};
use foretoken_traces::{Built, WorkloadSpec, build};
use itertools::Itertools;

fn spec(text: &str) -> WorkloadSpec {
    toml::from_str(text).unwrap_or_else(|e| panic!("{e}"))
}

fn made(text: &str, seed: u64) -> Built {
    build(&spec(text), seed, None).unwrap_or_else(|e| panic!("{e}: {}", e.hint()))
}

const GENERATORS: [&str; 12] = [
    "{ poisson = { rate = 4.0 } }", "{ gamma = { rate = 4.0, cv = 2.0 } }", "{ azure-conv = {} }",
    "{ azure-code = {} }", "{ mooncake-ticks = { trend_per_h = 0.27 } }", "{ mooncake-poisson = {} }",
    "{ adaspec-mooncake = {} }", "{ burstgpt = {} }", "{ t1 = {} }", "{ t2 = {} }", "{ t3 = { rate = 4.2 } }",
    "{ azure-conv = { fine_cv = 0.182 } }",
];

#[test]
fn the_same_seed_gives_the_same_workload_and_another_does_not() {
    for generator in GENERATORS {
        let text = format!("arrivals = {generator}\nduration_s = 600\nlengths = {{ spec-bench = {{}} }}");
        let (a, b, c) = (made(&text, 1), made(&text, 1), made(&text, 2));
        assert!(a.workload.arrival.is_sorted() && a.workload.len() > 50, "{generator}");
        assert!(a.workload.arrival.iter().all(|&t| t < Time::from_s(600.0)));
        assert_eq!(format!("{:?}", a.workload), format!("{:?}", b.workload), "{generator}");
        assert_ne!(a.workload.arrival, c.workload.arrival, "{generator}");
        let fixed = made(&format!("seed = 1\n{text}"), 99);
        assert_eq!(fixed.workload.arrival, a.workload.arrival, "a seed of its own comes first");
        let counted = made(&text.replace("duration_s = 600", "requests = 40"), 1);
        assert_eq!(counted.workload.arrival[..], a.workload.arrival[..40], "{generator}");
    }
}

#[test]
fn lengths_and_arrivals_are_independent_streams() {
    let with = |lengths: &str, rate: f64| {
        made(&format!("arrivals = {{ poisson = {{ rate = {rate} }} }}\nrequests = 300\nlengths = {lengths}"), 5)
            .workload
    };
    let table = with("{ table = \"azure-conv\" }", 4.0);
    assert_eq!(table.arrival, with("{ fixed = { prompt = 512, output = 256 } }", 4.0).arrival);
    let faster = with("{ table = \"azure-conv\" }", 8.0);
    assert_eq!(table.prompt_len, faster.prompt_len);
    // Invariant 9 (`INVARIANTS.md`): if a rate is multiplied by a power of two, the arrival times are divided by it, up
    // to the rounding to a picosecond.
    assert!(table.arrival.iter().zip_eq(&faster.arrival).all(|(a, b)| a.0.abs_diff(2 * b.0) <= 1));
}

#[test]
fn shapes_last_600_s_by_default() {
    for shape in ["t1", "t2", "t3"] {
        let w = made(&format!("arrivals = {{ {shape} = {{}} }}\nlengths = {{ table = \"sharegpt\" }}"), 3).workload;
        let last = w.arrival[w.len() - 1].as_s();
        assert!((580.0..600.0).contains(&last), "{shape} ends at {last}");
    }
}

#[test]
fn closed_loops_take_their_number_from_requests_or_the_length_trace() {
    let (_dir, path) = file(b"num_prefill_tokens,num_decode_tokens\n7,5\n8,6\n9,7\n");
    let source = format!("arrivals = {{ closed-loop = 2 }}\nlengths = {{ trace = {{ path = {path:?} }} }}\n");
    let built = made(&source, 0);
    assert_eq!(built.arrivals, Arrivals::Closed { clients: 2 });
    assert_eq!((built.workload.prompt_len, built.workload.arrival), (vec![7, 8, 9], vec![Time::ZERO; 3]));
    assert_eq!(built.files, [path]);
    assert_eq!(made(&format!("{source}requests = 5"), 0).workload.output_len, [5, 6, 7, 5, 6]);
}

#[test]
fn a_batch_arrives_at_once() {
    let lengths = "lengths = { log-normal = { prompt = { mean = 80.0, sigma = 1.0, max = 400 }, output = { mean = 20.0, sigma = 0.5, max = 90 } } }";
    let text = format!("arrivals = {{ batch = {{}} }}\nrequests = 40\n{lengths}");
    let built = made(&text, 3);
    assert_eq!(built.arrivals, Arrivals::Open);
    assert_eq!(built.workload.arrival, vec![Time::ZERO; 40]);
    // The drawn lengths do not depend on the arrivals. They depend on the seed of the run, unless the setting `seed`
    // fixes them.
    let poisson = text.replace("{ batch = {} }", "{ poisson = { rate = 4.0 } }");
    assert_eq!(made(&poisson, 3).workload.prompt_len, built.workload.prompt_len);
    assert_ne!(made(&text, 4).workload.prompt_len, built.workload.prompt_len);
    assert_eq!(made(&format!("seed = 3\n{text}"), 4).workload.output_len, built.workload.output_len);
    assert_eq!(made(&format!("{text}\ntransform = [{{ max-requests = 7 }}]"), 3).workload.len(), 7);
    let (_dir, path) = file(b"num_prefill_tokens,num_decode_tokens\n7,5\n8,6\n9,7\n");
    let source = format!("arrivals = {{ batch = {{}} }}\nlengths = {{ trace = {{ path = {path:?} }} }}\n");
    assert_eq!(made(&source, 0).workload.prompt_len, [7, 8, 9]);
}

#[test]
fn shuffled_sources_use_every_row_once_a_round() {
    let rows: String = (1..=50).map(|i| format!("{i},1\n")).collect();
    let (_dir, path) = file(format!("num_prefill_tokens,num_decode_tokens\n{rows}").as_bytes());
    let text = format!(
        "arrivals = {{ poisson = {{ rate = 1 }} }}\nrequests = 100\nlengths = {{ trace = {{ path = {path:?}, sample = \"shuffle\" }} }}"
    );
    let drawn = made(&text, 4).workload.prompt_len;
    let (first, second) = drawn.split_at(50);
    assert_ne!(first, second);
    for round in [first, second] {
        let mut sorted = round.to_vec();
        sorted.sort_unstable();
        assert_eq!(sorted, (1..=50).collect::<Vec<u32>>());
        assert_ne!(round, sorted);
    }
}

#[test]
fn transforms_apply_in_the_stated_order() {
    let (_dir, path) = file(b"t_s,input_tokens,output_tokens\n0,1,1\n2,2,1\n4,3,1\n6,4,1\n8,5,1\n");
    let with = |transforms: &str| {
        let w =
            made(&format!("arrivals = {{ trace = {{ path = {path:?} }} }}\ntransform = [{transforms}]"), 0).workload;
        (w.arrival.iter().map(|t| t.as_s()).collect::<Vec<_>>(), w.prompt_len)
    };
    let (scale, window) = ("{ rate-scale = 2.0 }", "{ window = { start_s = 2.0, end_s = 5.0 } }");
    assert_eq!(with(&format!("{scale}, {window}")), (vec![0.0, 1.0, 2.0], vec![3, 4, 5]));
    assert_eq!(with(&format!("{window}, {scale}")), (vec![0.0, 1.0], vec![2, 3]));
    assert_eq!(with(&format!("{window}, {{ max-requests = 1 }}")), (vec![0.0], vec![2]));
}

#[test]
fn descriptions_survive_being_written_out() {
    let text = "arrivals = { t1 = { cv = 0.2 } }\nlengths = { trace = { path = \"a.csv\", sample = \"shuffle\" } }\n\
                transform = [{ rate-scale = 1.5 }, { window = { start_s = 0.0, end_s = 9.0 } }, { spread = { tick_s = 3.0 } }]";
    let mut parsed = spec(text);
    let written = toml::to_string(&parsed).expect("serialises");
    assert_eq!(spec(&written), parsed, "{written}");
    assert_eq!(parsed.paths_mut().len(), 1);
}
