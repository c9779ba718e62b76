//! Every mistake in a file or a workload description gives an error that names the place and says what to do.

use crate::round_trip::file;
use foretoken_traces::{FailedRows, TraceFormat, TraceSpec, WorkloadSpec, build, read};
use std::path::Path;

const BURST: &str = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n";

/// Reads the bytes as a trace, and expects an error whose message or hint contains all `words`.
#[track_caller]
fn refused(bytes: &[u8], words: &[&str]) {
    refused_as(bytes, None, words);
}

#[track_caller]
fn refused_as(bytes: &[u8], format: Option<TraceFormat>, words: &[&str]) {
    let (_dir, path) = file(bytes);
    let error = read(&TraceSpec { format, ..TraceSpec::new(path) }, None).expect_err("a mistake");
    let all = format!("{error}\n{}", error.hint());
    for word in words {
        assert!(all.contains(word), "{word:?} is not in {all:?}");
    }
}

#[test]
fn rows_name_file_line_and_column() {
    let row = |row: &str| format!("{BURST}1,ChatGPT,5,6,11,API log\n{row}\n");
    refused(row("2,ChatGPT,x,6,11,API log").as_bytes(), &["trace.data:3:", "\"Request tokens\"", "not a number"]);
    refused(row("2,ChatGPT,-5,6,11,API log").as_bytes(), &[":3:", "\"Request tokens\"", "negative"]);
    refused(row("NaN,ChatGPT,5,6,11,API log").as_bytes(), &[":3:", "\"Timestamp\"", "finite"]);
    refused(row("-2,ChatGPT,5,6,11,API log").as_bytes(), &[":3:", "\"Timestamp\"", "negative"]);
    refused(row("0.5,ChatGPT,5,6,11,API log").as_bytes(), &[":3:", "\"Timestamp\"", "before", "unsorted"]);
    refused(row("2,ChatGPT,5").as_bytes(), &[":3:", "3 fields", "6"]);
    refused(row("1700000000,ChatGPT,5,6,11,API log").as_bytes(), &[":3:", "213 days"]);
    refused(row("2,ChatGPT,0,6,6,API log").as_bytes(), &[":3:", "\"Request tokens\"", "0 tokens", "zero_tokens"]);
    refused(b"TIMESTAMP,ContextTokens,GeneratedTokens\nyesterday,1,2\n", &[":2:", "\"TIMESTAMP\"", "yesterday"]);
}

#[test]
fn missing_columns_name_the_nearest() {
    let header = BURST.replace("Response tokens", "response_tokens");
    refused(
        format!("{header}1,ChatGPT,5,6,11,API log\n").as_bytes(),
        &[":1:", "\"Response tokens\"", "response_tokens"],
    );
    refused_as(b"a,b\n1,2\n", Some(TraceFormat::Windows), &["\"t_s\"", "missing", "a, b"]);
}

#[test]
fn json_lines_name_the_key() {
    let good = r#"{"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [0, 1]}"#;
    let line = |bad: &str| format!("{good}\n{bad}\n");
    let swap = |from: &str, to: &str| line(&good.replace(from, to));
    refused(swap("600", "\"600\"").as_bytes(), &[":2:", "\"input_length\"", "invalid type"]);
    refused(swap("output_length", "output_len").as_bytes(), &[":2:", "\"output_length\"", "missing", "output_len"]);
    refused(swap("[0, 1]", "[0]").as_bytes(), &[":2:", "\"hash_ids\"", "2 blocks"]);
    refused(swap("[0, 1]", "[0, -1]").as_bytes(), &[":2:", "\"hash_ids\""]);
    refused(swap("\"timestamp\": 0", "\"timestamp\": -3").as_bytes(), &[":2:", "\"timestamp\"", "-3"]);
    refused(line(&good[..40]).as_bytes(), &[":2:", "not valid JSON"]);
    refused(line("[1]").as_bytes(), &[":2:", "not a JSON object"]);
}

#[test]
fn recordings_must_agree_with_themselves() {
    let turn = |accepted: &str, bits: &str| {
        format!(
            r#"{{"question_id":1,"category":"qa","turn":0,"input_tokens":5,"output_tokens":4,"accepted":{accepted},"bits":"{bits}"}}"#
        )
    };
    refused(turn("[1,1]", "1011").as_bytes(), &["\"accepted\"", "position 2"]);
    refused(turn("[1,0]", "1000").as_bytes(), &["\"bits\"", "3 emitted"]);
    refused(turn("[1,1]", "10x0").as_bytes(), &["\"bits\"", "'x'"]);
    let (_dir, path) = file(turn("[1,1]", "101?").as_bytes());
    let w = read(&TraceSpec::new(path), None).expect("consistent").workload;
    assert_eq!(w.recordings[0].bits, [Some(true), Some(false), Some(true), None]);
    assert_eq!(w.recordings[0].accepted_before, [0, 0, 0, 1]);
}

#[test]
fn whole_files_are_refused() {
    refused(b"", &["is empty"]);
    refused(BURST.as_bytes(), &["no usable request"]);
    refused(format!("{BURST}1,ChatGPT,5,0,5,API log\n").as_bytes(), &["no usable request", "1 failed rows"]);
    refused(b"alpha,beta\n1,2\n", &["no known format", "alpha, beta", "burstgpt"]);
    refused(b"Timestamp\n\xff\xfe\n", &[":2:", "\"Timestamp\"", "UTF-8"]);
    refused(b"{\"hash_ids\": \xff}\n", &[":1:", "UTF-8"]);
    let missing = read(&TraceSpec::new("no/such/file.csv"), None).expect_err("no file");
    assert_eq!(missing.to_string(), "no/such/file.csv: no such file");
    let folder = tempfile::tempdir().expect("a folder");
    assert!(read(&TraceSpec::new(folder.path()), None).expect_err("a folder").to_string().contains("is a folder"));
}

#[test]
fn cut_off_and_damaged_archives_are_refused() {
    use std::io::Write;
    let rows: String = (0..2000).map(|i| format!("{i},{},7\n", i % 977 + 1)).collect();
    let text = format!("t_s,input_tokens,output_tokens\n{rows}");
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gz.write_all(text.as_bytes()).expect("packs");
    let gz = gz.finish().expect("packs");
    let zst = zstd::encode_all(text.as_bytes(), 3).expect("packs");
    refused(&gz[..gz.len() / 2], &["truncated"]);
    refused(&zst[..zst.len() / 2], &["truncated"]);
    let mut damaged = gz.clone();
    damaged[gz.len() / 2] ^= 0xff;
    damaged[gz.len() / 2 + 1] ^= 0xff;
    refused(&damaged, &["trace.data"]);
}

#[test]
fn options_of_other_formats_are_refused() {
    let (_dir, path) = file(b"t_s,input_tokens,output_tokens\n0,1,1\n");
    let spec = TraceSpec { failed_rows: Some(FailedRows::Drop), ..TraceSpec::new(path) };
    let e = read(&spec, None).expect_err("not BurstGPT").to_string();
    assert!(e.contains("failed_rows is an option of burstgpt and litellm files; this one is read as windows"), "{e}");
}

/// Builds a workload from the TOML text, and expects an error that contains all `words`.
#[track_caller]
fn refused_spec(text: &str, words: &[&str]) {
    let all = match toml::from_str::<WorkloadSpec>(text) {
        Err(e) => e.to_string(),
        Ok(spec) => {
            let e = build(&spec, 0, None).expect_err("a mistake");
            format!("{e}\n{}", e.hint())
        }
    };
    for word in words {
        assert!(all.contains(word), "{word:?} is not in {all:?}");
    }
}

#[test]
fn descriptions_are_checked() {
    let fixed = "lengths = { fixed = { prompt = 8, output = 2 } }\n";
    let with = |text: &str| format!("{fixed}{text}");
    refused_spec(&with("arrivals = { poisson = { rate = -1.0 } }\nrequests = 5"), &["arrivals.poisson.rate", "-1"]);
    refused_spec(&with("arrivals = { poisson = { rate = nan } }\nrequests = 5"), &["arrivals.poisson.rate", "NaN"]);
    refused_spec(&with("arrivals = { poisson = { rte = 1.0 } }\nrequests = 5"), &["rte"]);
    refused_spec(&with("arrivals = { poison = { rate = 1.0 } }\nrequests = 5"), &["poison", "poisson"]);
    refused_spec(&with("arrivals = { poisson = { rate = 4 } }"), &["duration_s", "end"]);
    refused_spec("arrivals = { poisson = { rate = 4 } }\nrequests = 5", &["workload.lengths"]);
    refused_spec(&with("arrivals = { t1 = {} }\nduration_s = -4"), &["duration_s", "-4"]);
    refused_spec(&with("arrivals = { t1 = {} }\nrequests = 0"), &["requests"]);
    refused_spec(&with("arrivals = { closed-loop = 0 }\nrequests = 9"), &["closed-loop"]);
    refused_spec(&with("arrivals = { closed-loop = 4 }"), &["requests"]);
    refused_spec(
        &with("arrivals = { closed-loop = 4 }\nrequests = 9\ntransform = [{ rate-scale = 2 }]"),
        &["transform[0]"],
    );
    let batch = "arrivals = { batch = {} }";
    refused_spec(&with(batch), &["workload.requests", "a batch needs a number"]);
    refused_spec(&with(&format!("{batch}\nrequests = 9\nduration_s = 3")), &["workload.duration_s", "a batch"]);
    for transform in ["{ rate-scale = 2 }", "{ spread = { tick_s = 1 } }", "{ window = { start_s = 0, end_s = 5 } }"] {
        let text = format!("{batch}\nrequests = 9\ntransform = [{{ thin = {{ keep = 0.5 }} }}, {transform}]");
        refused_spec(&with(&text), &["transform[1]", "a batch has no arrival times"]);
    }
    refused_spec(&format!("{batch}\nrequests = 9"), &["workload.lengths"]);
    refused_spec(&with("arrivals = { t3 = {} }\ntransform = [{ thin = { keep = 1.5 } }]"), &["transform[0].thin.keep"]);
    refused_spec(&with("arrivals = { t3 = {} }\ntransform = [{ window = { start_s = 5, end_s = 5 } }]"), &["empty"]);
    refused_spec(
        &with("arrivals = { t3 = {} }\ntransform = [{ window = { start_s = 900, end_s = 950 } }]"),
        &["not one"],
    );
    refused_spec(&with("arrivals = { trace = { path = \"gone.csv\" } }"), &["gone.csv: no such file"]);
    refused_spec(&with("arrivals = { adaspec-mooncake = { variance = 9.0 } }\nduration_s = 9"), &["variance", "below"]);
    refused_spec("arrivals = { t3 = {} }\nlengths = { spec-bench = { max_total = 1 } }", &["max_total", "192"]);
}

#[test]
fn traces_without_the_needed_columns_are_refused() {
    let (_a, times) = file(b"Timestamp\n0.0\n1.0\n");
    let (_b, lengths) = file(b"num_prefill_tokens,num_decode_tokens\n7,5\n");
    let arrivals = |path: &Path| format!("arrivals = {{ trace = {{ path = {path:?} }} }}\n");
    let source = |path: &Path| format!("lengths = {{ trace = {{ path = {path:?} }} }}\n");
    refused_spec(&arrivals(&times), &["workload.lengths", "no lengths of its own"]);
    refused_spec(&arrivals(&lengths), &["has no arrival times"]);
    refused_spec(&(arrivals(&times) + &source(&times)), &["has no lengths"]);
    refused_spec(&(arrivals(&times) + &source(&lengths) + "requests = 5"), &["requests", "max-requests"]);
    let ok: WorkloadSpec = toml::from_str(&(arrivals(&times) + &source(&lengths))).expect("parses");
    assert_eq!(build(&ok, 0, None).expect("built").workload.prompt_len, [7, 7]);
}
