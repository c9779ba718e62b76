//! Files that were written in a format are read back: plain or compressed, and with line ends LF or CRLF.

use foretoken_sim::{Request, Time};
use foretoken_traces::{FailedRows, Ties, TraceFormat, TraceSpec, Unsorted, ZeroTokens, read};
use proptest::prelude::*;
use std::io::Write;
use std::path::PathBuf;
use tempfile::TempDir;

#[derive(Clone, Copy, Debug)]
enum Packing {
    Plain,
    Gzip,
    Zstd,
}

fn pack(text: &str, packing: Packing) -> Vec<u8> {
    match packing {
        Packing::Plain => text.as_bytes().to_vec(),
        Packing::Gzip => {
            let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            out.write_all(text.as_bytes()).expect("packs");
            out.finish().expect("packs")
        }
        Packing::Zstd => zstd::encode_all(text.as_bytes(), 1).expect("packs"),
    }
}

/// Writes a file with these bytes, and with a name that does not reveal the file's format.
pub fn file(bytes: &[u8]) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("trace.data");
    std::fs::write(&path, bytes).expect("written");
    (dir, path)
}

fn packing() -> impl Strategy<Value = Packing> {
    prop_oneof![Just(Packing::Plain), Just(Packing::Gzip), Just(Packing::Zstd)]
}

/// Random rows of a trace, as (arrival in ms, prompt tokens, output tokens), in order of time.
fn rows() -> impl Strategy<Value = Vec<(u64, u32, u32)>> {
    proptest::collection::vec((0u64..10_000_000, 1u32..200_000, 1u32..5_000), 1..60).prop_map(|mut rows| {
        rows.sort_by_key(|r| r.0);
        rows
    })
}

fn requests(rows: &[(u64, u32, u32)]) -> Vec<Request> {
    rows.iter().map(|&(ms, p, o)| Request::new(Time(ms * 1_000_000_000), p, o)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn every_timed_format_comes_back(rows in rows(), packing in packing(), crlf: bool, last_end: bool) {
        let end = if crlf { "\r\n" } else { "\n" };
        let table = |header: &str, row: &dyn Fn(&(u64, u32, u32)) -> String| {
            let lines: Vec<String> = std::iter::once(header.to_owned()).chain(rows.iter().map(row)).collect();
            lines.join(end) + if last_end { end } else { "" }
        };
        let seconds = |ms: u64| format!("{}.{:03}", ms / 1000, ms % 1000);
        let burst_3 = table(
            "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type",
            &|(ms, p, o)| format!("{},,1.5,GPT-4,{p},{o},{},API log", seconds(*ms), p + o),
        );
        let windows = table("t_s,input_tokens,output_tokens", &|(ms, p, o)| format!("{},{p},{o}", seconds(*ms)));
        let mooncake: Vec<String> = rows.iter().map(|(ms, p, o)| {
            let ids: Vec<u32> = (0..p.div_ceil(512)).collect();
            format!(r#"{{"timestamp": {ms}, "input_length": {p}, "output_length": {o}, "hash_ids": {ids:?}}}"#)
        }).collect();
        for (text, format) in [
            (burst_3, TraceFormat::BurstGpt),
            (windows, TraceFormat::Windows),
            (mooncake.join(end), TraceFormat::Mooncake),
        ] {
            let (_dir, path) = file(&pack(&text, packing));
            let trace = read(&TraceSpec::new(path), None).expect("reads");
            prop_assert_eq!(trace.format, format);
            let got: Vec<Request> = (0..trace.workload.len()).map(|i| {
                let full = trace.workload.get(i as u32);
                if format == TraceFormat::Mooncake {
                    assert_eq!(full.prefix, (0..u64::from(full.prompt_len / 512)).collect::<Vec<_>>());
                }
                Request { prefix: vec![], ..full }
            }).collect();
            prop_assert_eq!(got, requests(&rows));
        }
    }

    #[test]
    fn unsorted_rows_are_sorted_by_time(rows in rows(), seed: u64) {
        let mut mixed = rows.clone();
        let n = mixed.len();
        for i in 0..n {
            mixed.swap(i, (seed.wrapping_mul(i as u64 + 1) % n as u64) as usize);
        }
        let lines: String = mixed.iter().map(|(ms, p, o)| format!("{}.{:03},{p},{o}\n", ms / 1000, ms % 1000)).collect();
        let (_dir, path) = file(format!("t_s,input_tokens,output_tokens\n{lines}").as_bytes());
        let spec = TraceSpec { unsorted: Some(Unsorted::Sort), ..TraceSpec::new(path) };
        let w = read(&spec, None).expect("reads").workload;
        prop_assert!(w.arrival.is_sorted());
        let mut got: Vec<_> = (0..n).map(|i| (w.arrival[i].0 / 1_000_000_000, w.prompt_len[i], w.output_len[i])).collect();
        let mut want = rows;
        got.sort_unstable();
        want.sort_unstable();
        prop_assert_eq!(got, want);
    }
}

#[test]
fn two_gzip_members_are_one_file() {
    let mut bytes = pack("t_s,input_tokens,output_tokens\n0.5,10,1\n", Packing::Gzip);
    bytes.extend(pack("1.5,20,2\n", Packing::Gzip));
    let (_dir, path) = file(&bytes);
    assert_eq!(read(&TraceSpec::new(path), None).expect("reads").workload.prompt_len, [10, 20]);
}

#[test]
fn options_decide_about_failed_rows_and_ties() {
    let text = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\r\n\
                5,ChatGPT,10,3,13,API log\r\n5,ChatGPT,20,0,20,API log\r\n5,ChatGPT,0,0,0,API log\r\n6,GPT-4,30,4,34,API log\r\n";
    let (_dir, path) = file(text.as_bytes());
    let spec =
        TraceSpec { failed_rows: Some(FailedRows::KeepAsPromptOnly), ties: Some(Ties::Spread), ..TraceSpec::new(path) };
    let trace = read(&spec, None).expect("reads");
    assert_eq!((trace.rows, &trace.workload.prompt_len[..]), (4, &[10, 20, 30][..]));
    assert_eq!(trace.workload.output_len, [3, 1, 4]);
    assert_eq!(trace.workload.arrival, [5.0, 5.5, 6.0].map(Time::from_s));
    assert_eq!(trace.notes.len(), 2, "{:?}", trace.notes);
}

#[test]
fn an_option_decides_about_rows_with_zero_tokens() {
    let (_dir, path) = file(b"num_prefill_tokens,num_decode_tokens\n7,0\n0,5\n3,4\n");
    let with = |choice| read(&TraceSpec { zero_tokens: Some(choice), ..TraceSpec::new(&path) }, None);
    assert_eq!(with(ZeroTokens::Drop).expect("reads").workload.prompt_len, [3]);
    assert_eq!(with(ZeroTokens::RaiseToOne).expect("reads").workload.output_len, [1, 5, 4]);
    assert!(with(ZeroTokens::Error).expect_err("refused").to_string().contains(":2: column \"num_decode_tokens\""));
}
