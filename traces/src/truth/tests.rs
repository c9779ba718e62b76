use super::*;
use crate::error::TraceError;
use crate::format::TraceFormat;
use crate::readers::read;
use crate::trace_spec::TraceSpec;
use foretoken_sim::acceptance::Beyond;
use foretoken_sim::{Draws, Request, Stream, Time, Workload};
use std::path::{Path, PathBuf};

/// A truth table (which draft tokens were right) with outputs of 1 to 90 tokens. Two of its three families of prompts
/// have outputs. The draft model's first guess is right at about two of three positions.
fn table(seed: u64) -> TruthTable {
    let mut draws = Draws::new(seed, Stream::Lengths, 0);
    let output = |i: u16| {
        let length = 1 + (draws.unit() * 90.0) as usize;
        let mut rank = || if draws.unit() < 0.66 { 1 } else { 2 + (draws.unit() * 253.9) as u8 };
        let ranks = (0..length).map(|_| rank()).collect();
        let confidences: Vec<f32> = (0..length).map(|_| draws.unit() as f32).collect();
        RecordedOutput::new(2 * (i % 2), 5 + u32::from(i), ranks, &confidences)
    };
    TruthTable { header: header(), outputs: (0..12).map(output).collect() }
}

fn header() -> TruthHeader {
    let model = |name: &str| RecordedModel { name: name.into(), dtype: "bf16".into(), digest: "d".repeat(64) };
    TruthHeader {
        foretoken: "0.1.0".into(),
        target: model("large"),
        draft: model("small"),
        device: "cpu".into(),
        prompts: "families".into(),
        prompts_digest: "e".repeat(64),
        temperature: 0.0,
        families: ["copy", "facts", "arithmetic"].map(String::from).to_vec(),
        observed: None,
    }
}

fn written(bytes: &[u8]) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.truth");
    std::fs::write(&path, bytes).unwrap();
    (dir, path)
}

fn refused(bytes: &[u8]) -> String {
    let (_dir, path) = written(bytes);
    let error = TruthTable::read(&path).unwrap_err();
    assert!(!error.hint().is_empty());
    error.to_string().split_once("x.truth: ").unwrap().1.to_owned()
}

#[test]
fn a_table_comes_back_and_has_the_same_bytes_every_time() {
    for seed in 0..5 {
        let table = table(seed);
        let bytes = table.to_bytes().unwrap();
        assert_eq!(bytes, table.clone().to_bytes().unwrap());
        let (_dir, path) = written(&bytes);
        assert_eq!(TruthTable::read(&path).unwrap(), table);
    }
}

#[test]
fn confidences_are_kept_to_a_65535th_and_never_0() {
    let given = [1.0, 0.5, 0.123_456, 1e-9];
    let output = RecordedOutput::new(0, 1, vec![1; 4], &given);
    for (n, given) in given.into_iter().enumerate() {
        let error = (output.confidence(n) - given).abs();
        assert!(error <= if n == 3 { 1.0 / 65_535.0 } else { 0.5001 / 65_535.0 }, "{given}: {error}");
        assert!(output.confidence(n) > 0.0);
    }
}

#[test]
fn files_that_are_no_truth_table_are_refused_with_a_reason() {
    let bytes = table(1).to_bytes().unwrap();
    assert_eq!(refused(b"PAR1 and more"), "is no truth table");
    assert_eq!(refused(b"FTKT, not a truth table"), "is no truth table");
    let newer = [b"FTKTRUT3", &bytes[8..]].concat();
    assert_eq!(refused(&newer), "is a truth table of layout `3`; this version of foretoken reads `2`");
    let older = b"FTKTRUTH\x10\0\0\0{\"schema_version\":1";
    assert!(refused(older).starts_with("is a truth table of the first layout"), "{}", refused(older));
    let empty = TruthTable { header: header(), outputs: vec![] };
    assert_eq!(refused(&empty.to_bytes().unwrap()), "is a truth table without a recording");
    let twice = [&bytes[..], &bytes[8..]].concat();
    assert!(
        refused(&twice).starts_with("is a damaged truth table: frame 2, which begins at byte "),
        "{}",
        refused(&twice)
    );
    // A truth-table file with one table's header and another table's columns must be refused. Both parts are undamaged
    // by themselves.
    let other = TruthTable { outputs: table(1).outputs[1..].to_vec(), header: header() };
    let spliced = {
        let end = 24 + u32::from_le_bytes(bytes[8..12].try_into().unwrap()) as usize;
        let other = other.to_bytes().unwrap();
        let from = 24 + u32::from_le_bytes(other[8..12].try_into().unwrap()) as usize;
        [&bytes[..end], &other[from..]].concat()
    };
    assert!(refused(&spliced).starts_with("is a damaged truth table: frame 1"), "{}", refused(&spliced));
}

/// The file of a small truth table (which draft tokens were right) must be refused when any bit is flipped or the file
/// is cut at any byte.
#[test]
fn every_flipped_bit_and_every_missing_byte_is_refused() {
    let table = table(1);
    let bytes = TruthTable { outputs: table.outputs[..2].to_vec(), ..table }.to_bytes().unwrap();
    assert!(super::file::parsed(&bytes).is_ok());
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut other = bytes.clone();
            other[at] ^= 1 << bit;
            let what = super::file::parsed(&other).expect_err("a flipped bit");
            let said = match at {
                0..7 => "is no truth table",
                7 => "is a truth table of ",
                _ => "is a damaged truth table: frame ",
            };
            assert!(what.starts_with(said), "byte {at}, bit {bit}: {what}");
        }
        let what = super::file::parsed(&bytes[..at]).expect_err("a missing byte");
        assert!(what.starts_with("is a truth table that ends in the middle"), "{at} bytes: {what}");
    }
}

#[test]
fn impossible_values_count_as_damage() {
    let with = |change: fn(&mut RecordedOutput)| {
        let mut table = table(1);
        change(&mut table.outputs[3]);
        refused(&table.to_bytes().unwrap())
    };
    assert_eq!(with(|o| o.family = 3), "is a damaged truth table: output 3 is of a family without a name");
    assert_eq!(with(|o| o.prompt_len = 0), "is a damaged truth table: output 3 has no prompt");
    assert_eq!(with(|o| o.ranks[0] = 0), "is a damaged truth table: output 3 has a rank of 0");
    assert_eq!(with(|o| o.confidences[0] = 0), "is a damaged truth table: output 3 has a confidence of 0");
}

/// The summary of a truth table (which draft tokens were right) must have the numbers that this test counts itself,
/// output position by output position.
#[test]
fn the_summary_is_what_counting_by_hand_gives() {
    let table = table(7);
    let summary = table.summary();
    let names: Vec<&str> = summary.families.iter().map(|f| f.family.as_str()).collect();
    assert_eq!((summary.source, &names[..]), ("recorded", &["all", "copy", "arithmetic"][..]));
    for (of, family) in [(None, 0), (Some(0), 1), (Some(2), 2)] {
        let outputs = || table.outputs.iter().filter(move |o| of.is_none_or(|f| f == o.family));
        let got = &summary.families[family];
        for k in 1..=DEPTHS {
            let (mut tokens, mut rounds) = (0, 0);
            let mut ended = [0u64; DEPTHS + 1];
            for output in outputs() {
                let right = |n: usize| output.ranks.get(n) == Some(&1);
                let mut at = 1;
                while at < output.ranks.len() {
                    let mut accepted = 0;
                    while accepted < k && right(at + accepted) {
                        accepted += 1;
                    }
                    ended[accepted] += 1;
                    rounds += 1;
                    tokens += accepted + 1;
                    at += accepted + 1;
                }
            }
            assert!((got.mean_acceptance_length[k - 1] - f64::from(tokens as u32) / f64::from(rounds)).abs() < 1e-12);
            if k == DEPTHS {
                for d in 0..DEPTHS {
                    let reached = (d..=DEPTHS).map(|n| ended[n]).sum::<u64>();
                    let accepted = (d + 1..=DEPTHS).map(|n| ended[n]).sum::<u64>();
                    assert_eq!((got.depths[d].reached, got.depths[d].accepted), (reached, accepted));
                }
            }
        }
        let positions = outputs().map(|o| o.ranks.len() as u64 - 1).sum::<u64>();
        let right = outputs().flat_map(|o| &o.ranks[1..]).filter(|&&r| r == 1).count();
        assert_eq!((got.positions, got.right), (positions, right as f64 / positions as f64));
    }
    let ranks_and_confidences =
        || table.outputs.iter().flat_map(|o| (1..o.ranks.len()).map(|n| (o.ranks[n], f64::from(o.confidence(n)))));
    let n = ranks_and_confidences().count() as f64;
    for group in &summary.ranks {
        let share = ranks_and_confidences().filter(|(r, _)| (group.from..=group.to).contains(r)).count() as f64 / n;
        assert!((group.share - share).abs() < 1e-12);
    }
    assert!((summary.ranks.iter().map(|g| g.share).sum::<f64>() - 1.0).abs() < 1e-12);
    let mut error = 0.0;
    for bin in &summary.calibration {
        let own: Vec<_> = ranks_and_confidences().filter(|(_, c)| *c > bin.from && *c <= bin.to).collect();
        let mean = own.iter().map(|p| p.1).sum::<f64>() / own.len() as f64;
        let right = own.iter().filter(|p| p.0 == 1).count() as f64 / own.len() as f64;
        assert_eq!(own.len() as u64, bin.positions);
        assert!((mean - bin.confidence).abs() < 1e-12 && (right - bin.right).abs() < 1e-12);
        error += (mean - right).abs() * own.len() as f64 / n;
    }
    assert!((error - summary.expected_calibration_error).abs() < 1e-12);
}

#[test]
fn as_a_trace_it_gives_lengths_families_and_recordings() {
    let table = table(3);
    let (_dir, path) = written(&table.to_bytes().unwrap());
    let trace = read(&TraceSpec::new(&path), None).unwrap();
    assert_eq!((trace.format, trace.gives.arrivals, trace.rows), (TraceFormat::TruthTable, false, 12));
    assert_eq!(trace.workload.categories, table.header.families);
    for (i, output) in table.outputs.iter().enumerate() {
        let request = trace.workload.get(i as u32);
        let recording = &trace.workload.recordings[request.recording.unwrap() as usize];
        assert_eq!((request.prompt_len, request.output_len as usize), (output.prompt_len, output.ranks.len()));
        assert_eq!((request.category, &recording.ranks), (output.family, &output.ranks));
        let right: Vec<Option<bool>> = output.ranks.iter().map(|&r| Some(r == 1)).collect();
        assert_eq!(recording.bits, right);
        assert!((0..right.len()).all(|n| recording.confidences[n] == output.confidence(n)));
    }
}

fn workload(output_len: u32) -> Workload {
    let request = |i: u16| Request { category: i % 2, ..Request::new(Time::ZERO, 10, output_len) };
    let mut w: Workload = (0..200).map(request).collect();
    w.categories = ["arithmetic", "poems"].map(String::from).to_vec();
    w
}

#[test]
fn recordings_are_assigned_by_family_and_seed() {
    let table = table(3);
    let assigned = |seed: u64| {
        let mut w = workload(1);
        assert_eq!(table.assign(Path::new("t"), &mut w, Beyond::Refuse, seed), Ok(vec![]));
        w
    };
    let w = assigned(1);
    let family = |i: usize| table.outputs[w.recording[i] as usize].family;
    assert!((0..200).step_by(2).all(|i| family(i) == 2), "of the family that its category is called like");
    let strange: Vec<u16> = (1..200).step_by(2).map(family).collect();
    assert!(strange.contains(&0) && strange.contains(&2), "of all where no family is called so");
    assert_eq!(w.recording, assigned(1).recording);
    assert_ne!(w.recording, assigned(2).recording);
    assert_eq!(w.recordings, table.recordings());
}

#[test]
fn requests_longer_than_their_recording_are_refused_or_counted() {
    let table = table(3);
    let said = |beyond, output_len| table.assign(Path::new("t"), &mut workload(output_len), beyond, 1);
    let error: TraceError = said(Beyond::Refuse, 91).unwrap_err();
    assert!(error.to_string().starts_with("t: request 0 emits 91 tokens, its recording has "), "{error}");
    assert!(error.hint().contains("beyond = \"wrap\""));
    let notes = said(Beyond::Wrap, 91).unwrap();
    assert_eq!(notes, ["t: 200 of 200 requests are longer than their recording, which begins again"]);
    let mut own = workload(1);
    own.recording = vec![0; 200];
    let error = table.assign(Path::new("t"), &mut own, Beyond::Wrap, 1).unwrap_err();
    assert!(error.to_string().contains("recordings that the requests of this workload bring"));
    let single = TruthTable { outputs: vec![RecordedOutput::new(0, 1, vec![1], &[0.5])], ..table };
    let error = single.assign(Path::new("t"), &mut workload(2), Beyond::Wrap, 1).unwrap_err();
    assert!(error.hint().contains("at least 2"));
}

/// Truth tables of an observed server keep unknown whether a draft token would have been right where nothing was
/// drafted. They also keep the probabilities with which a simulation draws these positions.
#[test]
fn unknown_positions_of_observed_tables_stay_unknown() {
    let bits = [None, Some(true), Some(true), None, Some(false), Some(true), Some(false), None];
    let observed = ObservedTruth { lengths: vec![2], hazards: vec![0.6, 0.7, 0.8], seen: 2 };
    let table = TruthTable {
        header: TruthHeader { observed: Some(observed), ..header() },
        outputs: vec![RecordedOutput::observed(0, 9, &bits)],
    };
    let bytes = table.to_bytes().unwrap();
    let (_dir, path) = written(&bytes);
    let read = TruthTable::read(&path).unwrap();
    assert_eq!(read, table);
    let recording = &read.recordings()[0];
    assert_eq!(recording.bits, bits);
    assert_eq!(recording.accepted_before, [0, 0, 0, 2, 0, 0, 0, 0]);
    assert!(recording.ranks.is_empty() && recording.confidences.is_empty());
    let mut workload: Workload = [Request::new(Time::ZERO, 9, 8)].into_iter().collect();
    read.assign(&path, &mut workload, Beyond::Refuse, 1).unwrap();
    assert_eq!(workload.hazards, [0.6, 0.7, 0.8]);
    // A truth table may have positions at which nothing was drafted only if its header says that it comes from an
    // observed server.
    let recorded = TruthTable { header: header(), ..table };
    assert!(super::file::parsed(&recorded.to_bytes().unwrap()).unwrap_err().contains("has a rank of 0"));
}
