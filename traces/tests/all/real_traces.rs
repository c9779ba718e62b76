//! Compares the real trace files with the row counts, means and window statistics that were published with them.

use crate::real;
use foretoken_sim::{RequestId, Time, Workload};
use foretoken_traces::{
    ArrivalSpec, BinStats, FailedRows, LengthSpec, LengthStats, Sample, Ties, TraceFormat, TraceSpec, TraceStats,
    Transform, Turns, WorkloadSpec, build, inspect, read,
};
use itertools::Itertools;
use std::collections::BTreeMap;

#[track_caller]
fn near(what: &str, got: f64, want: f64, tolerance: f64) {
    assert!((got - want).abs() <= tolerance, "{what}: got {got}, published {want} ± {tolerance}");
}

/// (file, number of requests, mean requests/s, [lowest, highest] rate of 5-s bins, [lowest, highest] rate of 60-s bins,
/// IDC(1 s), IDC(60 s)), as published, rounded to the last digit. IDC is the index of dispersion, variance / mean of
/// the numbers of requests in bins.
type WindowRow = (&'static str, usize, f64, [f64; 2], [f64; 2], f64, f64);

#[rustfmt::skip]
const WINDOWS: [WindowRow; 11] = [
    ("windows/t1_azure_conv_1920.csv", 3801, 6.34, [3.4, 10.0], [5.18, 7.75], 1.24, 7.7),
    ("windows/t1_azure_conv_2455.csv", 3065, 5.11, [1.4, 9.6], [3.62, 6.30], 1.22, 9.8),
    ("windows/t1_azure_code_1580.csv", 1777, 2.96, [0.0, 20.2], [0.28, 5.23], 9.8, 51.5),
    ("windows/t2_mooncake_conversation_1370.csv", 2063, 3.44, [1.0, 7.8], [3.08, 3.82], 8.0, 1.1),
    ("windows/t2_azure_code_1455.csv", 1806, 3.01, [0.0, 20.2], [0.0, 5.22], 9.6, 50.6),
    ("windows/t3_azure_conv_2890.csv", 2496, 4.16, [1.0, 6.8], [3.68, 4.65], 1.21, 1.2),
    ("windows/t3_mooncake_synthetic_135.csv", 2334, 3.89, [1.8, 6.4], [3.67, 4.17], 1.11, 0.3),
    ("windows/t3_mooncake_conversation_spread_1325.csv", 2074, 3.46, [1.6, 6.6], [2.98, 3.90], 0.46, 1.6),
    ("adaspec/conv.csv", 2867, 4.78, [0.8, 8.4], [3.18, 5.88], 1.19, 6.6),
    ("adaspec/code.csv", 719, 1.20, [0.0, 18.0], [0.0, 3.53], 12.4, 80.0),
    ("adaspec/mooncake.csv", 1077, 1.80, [0.8, 3.6], [1.55, 2.00], 0.28, 0.9),
];

#[test]
fn window_statistics_are_the_published_ones() {
    let mut misfits: Vec<String> = Vec::new();
    for (file, n, mean, five, sixty, idc_1, idc_60) in WINDOWS {
        let Some(path) = real(file) else { return };
        let trace = read(&TraceSpec::new(&path), None).expect(file);
        let stats = TraceStats::of(&trace.workload, trace.gives, Some((0.0, 600.0)));
        let a = stats.arrivals.expect("times");
        assert_eq!(stats.requests, n, "{file}");
        let [one, five_s, sixty_s] = &a.bins[..] else { panic!("three widths") };
        let dispersion = |bins: &BinStats| bins.dispersion.expect("arrivals");
        // The tolerance `half` is half a unit of the last published digit.
        for (what, got, published, half) in [
            ("mean rate", a.mean_rate.expect("a rate"), mean, 0.005),
            ("lowest rate in 5 s", five_s.min_rate, five[0], 0.05),
            ("highest rate in 5 s", five_s.max_rate, five[1], 0.05),
            ("lowest rate in 60 s", sixty_s.min_rate, sixty[0], 0.005),
            ("highest rate in 60 s", sixty_s.max_rate, sixty[1], 0.005),
            ("IDC(1 s)", dispersion(one), idc_1, if idc_1 > 2.0 { 0.05 } else { 0.005 }),
            ("IDC(60 s)", dispersion(sixty_s), idc_60, if idc_60 >= 80.0 { 0.5 } else { 0.05 }),
        ] {
            if (got - published).abs() > half + 1e-3 {
                misfits.push(format!("{file}: {what} is {got:.4}, published {published}"));
            }
        }
    }
    assert!(misfits.is_empty(), "{misfits:#?}");
}

#[test]
fn azure_files_have_their_published_size_and_quantiles() {
    let conv = [
        (5.0, 181.0, 41.0),
        (25.0, 396.0, 85.0),
        (50.0, 1020.0, 129.0),
        (75.0, 1189.0, 395.0),
        (95.0, 4083.0, 451.0),
        (100.0, 14050.0, 1000.0),
    ];
    let code = [(5.0, 75.0, 6.0), (50.0, 1469.0, 13.0), (90.0, 5188.0, 55.0), (100.0, 7437.0, 1899.0)];
    for (file, rows, duration, rate, cv, table) in [
        ("azure/AzureLLMInferenceTrace_conv.csv", 19_366, 3501.7, 5.53, 1.09, &conv[..]),
        ("azure/AzureLLMInferenceTrace_code.csv", 8_819, 3435.9, 2.57, 13.2, &code[..]),
    ] {
        let Some(path) = real(file) else { return };
        let stats = inspect(&TraceSpec::new(&path)).expect(file);
        assert_eq!((stats.format, stats.requests), (Some(TraceFormat::Azure), rows));
        let a = stats.arrivals.expect("times");
        assert_eq!(a.first_s, 0.0);
        near("duration", a.duration_s, duration, 0.05);
        near("rate", a.mean_rate.expect("a rate"), rate, 0.0051);
        near("IAT CV", a.iat_cv.expect("gaps"), cv, if cv > 2.0 { 0.051 } else { 0.0051 });
        check_quantiles(table, &stats.prompt.expect("lengths"), &stats.output.expect("lengths"));
    }
}

/// Asserts that quantiles of prompts and outputs match a published table of (percent, prompt, output), which rounds to
/// whole tokens.
#[track_caller]
fn check_quantiles(table: &[(f64, f64, f64)], prompt: &LengthStats, output: &LengthStats) {
    for &(percent, p, o) in table {
        near(&format!("prompt {percent} %"), prompt.at(percent).expect("on the grid"), p, 0.51);
        near(&format!("output {percent} %"), output.at(percent).expect("on the grid"), o, 0.51);
    }
}

#[test]
fn mooncake_files_have_their_published_size_and_share_prefixes() {
    for (file, rows, duration, mean, max) in [
        ("mooncake/conversation_trace.jsonl", 12_031, 3537.0, 12.0e3, 126_195.0),
        ("mooncake/synthetic_trace.jsonl", 3_993, 1022.0, 15.3e3, 191_378.0),
    ] {
        let Some(path) = real(file) else { return };
        let stats = inspect(&TraceSpec::new(&path)).expect(file);
        assert_eq!((stats.format, stats.requests), (Some(TraceFormat::Mooncake), rows));
        near("duration", stats.arrivals.expect("times").duration_s, duration, 0.6);
        let prompt = stats.prompt.expect("lengths");
        near("mean", prompt.mean, mean, 60.0);
        assert_eq!(prompt.at(100.0), Some(max));
        let shared = stats.prefix_shared.expect("hash ids");
        eprintln!("{file}: shared prefix tokens {shared:.4}");
        assert!((0.05..0.95).contains(&shared), "{shared}");
        let w = read(&TraceSpec::new(&path), None).expect(file).workload;
        assert_eq!(w.prefix_block, 512);
        assert!((0..w.len()).all(|i| w.prefix(i as RequestId).len() as u32 == w.prompt_len[i] / 512));
    }
}

#[test]
fn adaspec_arrivals_are_the_first_ten_minutes_of_azures() {
    let (Some(azure), Some(adaspec)) = (real("azure/AzureLLMInferenceTrace_conv.csv"), real("adaspec/conv.csv")) else {
        return;
    };
    let azure = read(&TraceSpec::new(azure), None).expect("azure").workload.arrival;
    let adaspec = read(&TraceSpec::new(adaspec), None).expect("adaspec").workload.arrival;
    let minutes = azure.partition_point(|&t| t < Time::from_s(600.0));
    for (a, b) in azure[..minutes].iter().zip_eq(&adaspec) {
        near("arrival", a.as_s(), b.as_s(), 1.1e-6);
    }
}

#[test]
fn spreading_and_windowing_mooncake_gives_the_published_window() {
    let (Some(raw), Some(window)) =
        (real("mooncake/conversation_trace.jsonl"), real("windows/t3_mooncake_conversation_spread_1325.csv"))
    else {
        return;
    };
    let spec = WorkloadSpec {
        arrivals: ArrivalSpec::Trace(Box::new(TraceSpec::new(raw))),
        lengths: None,
        transform: vec![Transform::Spread { tick_s: 3.0 }, Transform::Window { start_s: 1325.0, end_s: 1925.0 }],
        duration_s: None,
        requests: None,
        seed: None,
        priorities: BTreeMap::new(),
        sessions: None,
    };
    let ours = build(&spec, 0, None).expect("built").workload.arrival;
    let theirs = read(&TraceSpec::new(window), None).expect("window").workload.arrival;
    // Real ticks (times at which a batch arrives) of the Mooncake trace are 2.997 to 3.003 s apart. The published bins
    // of 3 s end where this test's bins begin, so this test's arrival times agree with the published ones up to 3.1 ms.
    assert_eq!(ours.len(), theirs.len());
    for (a, b) in ours.iter().zip_eq(&theirs) {
        near("arrival", a.as_s(), b.as_s(), 0.0031);
    }
}

#[test]
fn spec_bench_bits_replay_as_recorded() {
    let (Some(csv), Some(accept)) =
        (real("specbench/spec_bench_vicuna7b_requests.csv"), real("specbench/spec_bench_vicuna7b_sps68m_accept.jsonl"))
    else {
        return;
    };
    let spec = TraceSpec { accept: Some(accept.clone()), ..TraceSpec::new(csv) };
    let first = read(&spec, None).expect("first turns");
    assert_eq!((first.workload.len(), first.rows, first.files.len()), (480, 560, 2));
    assert_eq!(first.workload.categories.len(), 6);
    let every_turn = read(&TraceSpec { turns: Some(Turns::All), ..spec.clone() }, None).expect("all turns");
    assert_eq!(every_turn.workload.len(), 560);
    let alone = read(&TraceSpec { turns: Some(Turns::All), ..TraceSpec::new(accept) }, None).expect("JSON lines");
    assert_eq!(alone.workload.prompt_len, every_turn.workload.prompt_len);
    assert_eq!(alone.workload.recordings, every_turn.workload.recordings);

    let stats = TraceStats::of_trace(&first);
    assert!(stats.categories.iter().all(|(_, n)| *n == 80));
    // If a turn has a recording (which draft tokens were right), it has the output length of the recorded run.
    // Near-ties in half precision make 54 turns differ from the run without speculation.
    assert!(every_turn.notes.iter().any(|n| n.starts_with("54 outputs")), "{:?}", every_turn.notes);
    let plain = read(&TraceSpec { accept: None, ..spec.clone() }, None).expect("no recordings");
    near("output mean", TraceStats::of_trace(&plain).output.expect("lengths").mean, 147.5, 0.051);
    near("prompt mean", stats.prompt.expect("lengths").mean, 346.0, 0.51);
    let recorded = TraceStats::of_trace(&every_turn).recorded.expect("bits");
    near("unknown share", 1.0 - recorded.known, 0.127, 0.0005);

    // Replays the recordings of draft tokens with fixed draft length k, from output position 0 on. At a position where
    // nothing was drafted, a fixed low-discrepancy sequence decides whether the draft token is right. The probability
    // is that of a right token at this place in the step if all draft tokens before it were right. This is exact enough
    // for ± 0.02.
    near("accepted a step at k = 3", replay(&first.workload, 3), 1.23, 0.02);
    near("accepted a step at k = 6", replay(&first.workload, 6), 1.55, 0.02);
}

/// Mean number of accepted draft tokens per step of a request with fixed draft length `k` (ratio of sums), from the
/// recordings of `w`, which say which draft tokens were right.
fn replay(w: &Workload, k: usize) -> f64 {
    const HAZARDS: [f64; 8] = [0.572, 0.641, 0.705, 0.753, 0.802, 0.833, 0.851, 0.878];
    let (mut accepted, mut steps, mut turn) = (0usize, 0usize, 0.0f64);
    for recording in &w.recordings {
        let right: Vec<bool> = (recording.bits.iter().zip_eq(&recording.accepted_before))
            .map(|(bit, &before)| {
                bit.unwrap_or_else(|| {
                    turn = (turn + 0.618_033_988_749_895).fract();
                    turn < HAZARDS[(before as usize).min(7)]
                })
            })
            .collect();
        let mut at = 0;
        while at < right.len() {
            let run = right[at..].iter().take(k).take_while(|&&r| r).count();
            accepted += run;
            steps += 1;
            at += run + 1;
        }
    }
    accepted as f64 / steps as f64
}

#[test]
fn burstgpt_excerpt_has_its_failed_rows() {
    let Some(path) = real("burstgpt/BurstGPT_1_head103.csv") else { return };
    let kept = read(&TraceSpec::new(&path), None).expect("read");
    assert_eq!((kept.rows, kept.workload.len()), (103, 98));
    assert!(kept.notes[0].starts_with("5 failed rows"), "{:?}", kept.notes);
    let refused = TraceSpec { failed_rows: Some(FailedRows::Error), ..TraceSpec::new(&path) };
    assert!(read(&refused, None).expect_err("a failed row").to_string().contains("\"Response tokens\""));
    let gpt4 = TraceSpec { model: Some("GPT-4".into()), ..TraceSpec::new(&path) };
    let api = TraceSpec { log_type: Some("API log".into()), ties: Some(Ties::Spread), ..TraceSpec::new(&path) };
    assert!(read(&gpt4, None).expect("GPT-4").workload.len() < 98);
    assert_eq!(read(&api, None).expect("API").workload.len(), 2);
}

#[test]
fn length_tables_and_adaserve_and_published_results_read() {
    let Some(sharegpt) = real("lengths/sharegpt_8k_filtered_stats_llama2_tokenizer.csv.gz") else { return };
    let stats = inspect(&TraceSpec::new(&sharegpt)).expect("gzip");
    assert_eq!((stats.requests, stats.arrivals), (30_731, None));
    let table = [(5.0, 29.0, 44.0), (50.0, 1730.0, 415.0), (95.0, 6563.0, 920.0), (100.0, 8141.0, 1024.0)];
    check_quantiles(&table, &stats.prompt.expect("lengths"), &stats.output.expect("lengths"));
    let arxiv = real("lengths/arxiv_summarization_stats_llama2_tokenizer_filtered_v2.csv.gz").expect("set");
    assert_eq!(inspect(&TraceSpec::new(&arxiv)).expect("gzip").requests, 28_257);

    for (file, rows) in [("adaserve/emission_rps4.0_ol256.csv", 1400), ("adaserve/emission_fluc_6m_peak4.0.csv", 1445)]
    {
        let spec = TraceSpec::new(real(file).expect("set"));
        let w = read(&spec, Some(0.02)).expect(file).workload;
        assert_eq!(w.len(), rows);
        let classes = [0.02 * 1.2, 0.05, 0.15];
        assert!(w.slo_tpot_s.iter().all(|s| classes.iter().any(|c| (s - c).abs() < 1e-12)));
        let e = read(&spec, None).expect_err("no baseline");
        assert!(e.to_string().contains("\"slo_ratio\""), "{e}");
    }
    let text = |file| std::fs::read_to_string(real(file).expect("set")).expect("rows");
    let forge = text("specbench/specforge_eagle3_accept_length.csv");
    assert_eq!((forge.lines().skip(1).count(), forge.lines().filter(|l| l.contains(",none,")).count()), (740, 300));
    let trees = text("specbench/spec_bench_vicuna7b_tree_steps.jsonl");
    let trees: Vec<serde_json::Value> = trees.lines().map(|l| serde_json::from_str(l).expect("JSON")).collect();
    assert_eq!(trees.len(), 404);
    assert!(trees.iter().all(|t| {
        let steps = t["tokens_per_step"].as_array().expect("a list");
        steps.iter().filter_map(serde_json::Value::as_u64).sum::<u64>() == t["output_tokens"]
    }));
}

#[test]
fn arrivals_of_one_trace_carry_requests_of_another() {
    let (Some(conv), Some(accept)) =
        (real("adaspec/conv.csv"), real("specbench/spec_bench_vicuna7b_sps68m_accept.jsonl"))
    else {
        return;
    };
    let source = TraceSpec {
        sample: Some(Sample::Shuffle),
        max_prompt_len: Some(1024),
        max_total_len: Some(2048),
        ..TraceSpec::new(&accept)
    };
    let spec = WorkloadSpec {
        arrivals: ArrivalSpec::Trace(Box::new(TraceSpec::new(&conv))),
        lengths: Some(LengthSpec::Trace(Box::new(source))),
        transform: vec![],
        duration_s: None,
        requests: None,
        seed: None,
        priorities: BTreeMap::new(),
        sessions: None,
    };
    let built = build(&spec, 7, None).expect("built");
    let w = &built.workload;
    assert_eq!((w.len(), built.files.len()), (2867, 2));
    assert_eq!(w.arrival[0], Time::ZERO);
    assert!(w.prompt_len.iter().all(|&p| p <= 1024));
    for i in 0..w.len() {
        let recording = &w.recordings[w.recording[i] as usize];
        assert_eq!(recording.bits.len() as u32, w.output_len[i]);
    }
}

#[test]
fn generators_cover_the_data_they_imitate() {
    for (file, generator, widths) in [
        ("azure/AzureLLMInferenceTrace_conv.csv", "azure-conv", &[0, 1, 2][..]),
        ("azure/AzureLLMInferenceTrace_code.csv", "azure-code", &[0, 1, 2]),
        // 60 s is a multiple of the 3-second tick (time at which a batch arrives) of the Mooncake trace. So the jitter
        // of 3 ms decides into which bin of 60 s a tick of the real trace falls.
        ("mooncake/conversation_trace.jsonl", "mooncake-ticks", &[0, 1]),
    ] {
        let Some(path) = real(file) else { return };
        let trace = read(&TraceSpec::new(path), None).expect(file);
        let duration = trace.workload.arrival.last().expect("requests").as_s();
        let span = Some((0.0, duration));
        let dispersions = |w: &Workload| -> Vec<f64> {
            let arrivals = TraceStats::of(w, trace.gives, span).arrivals.expect("times");
            arrivals.bins.iter().map(|b| b.dispersion.expect("arrivals")).collect()
        };
        let spec: WorkloadSpec = toml::from_str(&format!(
            "arrivals = {{ {generator} = {{}} }}\nduration_s = {duration:?}\nlengths = {{ fixed = {{ prompt = 1, output = 1 }} }}"
        ))
        .expect("parses");
        let runs: Vec<Vec<f64>> =
            (0..100).map(|seed| dispersions(&build(&spec, seed, None).expect("built").workload)).collect();
        for &width in widths {
            let mut simulated: Vec<f64> = runs.iter().map(|r| r[width]).collect();
            simulated.sort_by(f64::total_cmp);
            let (low, data, high) = (simulated[5], dispersions(&trace.workload)[width], simulated[94]);
            eprintln!("{generator}, width {width}: data {data:.2}, 90 % of runs {low:.2} to {high:.2}");
            assert!((low..=high).contains(&data), "{generator}, width {width}: {data} outside {low} to {high}");
        }
    }
}
