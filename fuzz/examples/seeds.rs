//! Writes the fuzzing seeds that only Foretoken can write: files of frames (blocks of bytes with checksums), a finished
//! cell (the run of one policy), a calibrated profile (pass costs fitted to a running server). They replace what
//! `fuzz unpack` unpacked; `fuzz pack` puts them into the archives.
//!
//!     T="recording tape truth-table cell calibrated-profile"
//!     fuzz/libfuzzer/fuzz unpack $T
//!     cargo run --release -p foretoken-fuzz --features live --example seeds
//!     fuzz/libfuzzer/fuzz pack $T

use foretoken_live::serve::tape::{Head as TapeHead, Tail, TapeEnding, TapeWriter};
use foretoken_profiler::hardware::LatencySpec;
use foretoken_profiler::{CALIBRATED_VERSION, Calibrated, CalibratedModel, Kind, ProbedPass, Range, Role, Shape};
use foretoken_run::cells::play;
use foretoken_run::plan::Plan;
use foretoken_run::setting::Setting;
use foretoken_servers::recordings::llama_cpp::{Reported, Totals};
use foretoken_servers::recordings::recording::{
    Asked, Ended, Ending, Event, Head, RecordingWriter, Sample, Server, Tokens,
};
use foretoken_sim::live::{Mark, MarkKind, StepTrace};
use foretoken_sim::{Arrivals, Coefficients, ContextReads, HostLaw, PassShape, Request, Time, Workload};
use foretoken_traces::truth::TruthTable;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

type Done = Result<(), Box<dyn std::error::Error>>;

/// The path of the unpacked seed `name` of a fuzz target. Makes the target's folder.
fn seed(target: &str, name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("libfuzzer/kept").join(target).join("seeds");
    std::fs::create_dir_all(&folder).expect("the folder can be made");
    folder.join(name)
}

fn main() -> Done {
    recording()?;
    llama_cpp()?;
    tape()?;
    truth()?;
    cell()?;
    calibrated()
}

fn recording() -> Done {
    let at = Time::from_s;
    let asked = Asked { due: at(0.5), prompt_len: 10, output_len: 3, category: 0 };
    let head =
        Head { policy: "fixed-3".into(), asked: vec![asked; 2], categories: vec!["a".into()], ..Head::default() };
    let mut file = RecordingWriter::create(&seed("recording", "two.obs"), &head)?;
    let line = "1.5 Iteration(3): 0 context requests, 0 context tokens, 1 generation requests, 4 generation tokens, \
                iteration elapsed time: 19.35 ms, GPU KV cache usage: 0.4%";
    let samples = vec![Sample { name: "vllm:spec_decode_num_drafts_total".into(), value: 3.0 }];
    let finished = Ended::Finished {
        reason: "length".into(),
        prompt_tokens: Some(10),
        completion_tokens: Some(3),
        cached_tokens: None,
        metrics: Some("{}".into()),
    };
    file.append(&[
        Event::Metrics { at: Time::ZERO, samples: Vec::new() },
        Event::Sent { request: 0, at: at(0.5), attempt: 0 },
        Event::Chunk { request: 0, at: at(0.6), tokens: Tokens::Ids(vec![7, 8]) },
        Event::Chunk { request: 0, at: at(0.7), tokens: Tokens::SoFar(3) },
        Event::Log { at: at(0.7), lines: vec![line.into()] },
        Event::Ended { request: 0, at: at(0.7), how: finished },
    ])?;
    file.append(&[
        Event::Sent { request: 1, at: at(1.5), attempt: 0 },
        Event::Chunk { request: 1, at: at(1.6), tokens: Tokens::Unknown },
        Event::Note { at: at(1.6), text: "a note".into() },
        Event::Metrics { at: at(1.7), samples },
    ])?;
    file.append(&[Event::End { at: at(2.0), ending: Ending::Done }])?;
    Ok(())
}

/// Writes the seed `llama.obs`: a recording of llama.cpp's server with the running totals of an answer and two lines of
/// statistics from its log.
fn llama_cpp() -> Done {
    let at = Time::from_s;
    let asked = Asked { due: at(0.5), prompt_len: 10, output_len: 12, category: 0 };
    let server = Server { version: Some("llama.cpp b11434".into()), metrics: true, ..Server::default() };
    let head = Head { policy: "fixed-3".into(), asked: vec![asked], server, ..Head::default() };
    let mut file = RecordingWriter::create(&seed("recording", "llama.obs"), &head)?;
    let statistics = |calls: u32, ms: f64| {
        format!(
            "0.00.275 I statistics draft: #calls(b,g,a) = 1 {calls} {calls}, #gen drafts = {calls}, #acc drafts = 5, \
             #gen tokens = {}, #acc tokens = 9, dur(b,g,a) = 0.001, {ms}, 0.002 ms",
            3 * calls
        )
    };
    let totals = |predicted_n, draft_n, draft_n_accepted| Totals { predicted_n, draft_n, draft_n_accepted };
    let reported = Reported {
        timings: serde_json::to_value(totals(12, 11, 5))?,
        rounds: vec![totals(2, 3, 3), totals(6, 6, 3), totals(7, 9, 4), totals(9, 11, 5)],
    };
    let finished = Ended::Finished {
        reason: "length".into(),
        prompt_tokens: Some(10),
        completion_tokens: Some(12),
        cached_tokens: Some(0),
        metrics: Some(serde_json::json!({ "llama_cpp": reported }).to_string()),
    };
    file.append(&[
        Event::Sent { request: 0, at: at(0.5), attempt: 0 },
        Event::Log { at: at(0.5), lines: vec![statistics(7, 1.9)] },
        Event::Chunk { request: 0, at: at(0.6), tokens: Tokens::SoFar(1) },
        Event::Chunk { request: 0, at: at(0.7), tokens: Tokens::SoFar(12) },
        Event::Log { at: at(0.7), lines: vec![statistics(17, 5.9)] },
        Event::Ended { request: 0, at: at(0.7), how: finished },
        Event::End { at: at(1.0), ending: Ending::Done },
    ])?;
    Ok(())
}

fn tape() -> Done {
    let mut workload = Workload::default();
    workload.push(Request::new(Time(5), 10, 4));
    workload.push(Request::new(Time(9), 8, 2));
    let head = TapeHead::new("fixed-3".into(), 7, "cpu".into(), Arrivals::Closed { clients: 2 }, &workload);
    let mut file = TapeWriter::create(&seed("tape", "two.tape"), &head)?;
    for n in 1..3u64 {
        let end = Time::from_s(n as f64 * 0.3);
        let shape = PassShape { requests: 0, batched: n, context: 3, pairs: 4 };
        let mark = Mark { kind: MarkKind::Verify, begin: Time::ZERO, end, device: end, shape };
        file.step(&StepTrace { step: n, marks: vec![mark], confidence: vec![0.5; 3], ..StepTrace::default() })?;
    }
    file.finish(&Tail { ending: TapeEnding::Done, rejected: vec![1] })?;
    Ok(())
}

/// Writes the seed `frames.truth`: a truth table (which draft tokens were right) as a file of frames with checksums.
/// The table's contents come from the seed `measured`, which is a header line of JSON followed by the bytes of the
/// columns.
fn truth() -> Done {
    let text = include_bytes!("../seeds/truth-table/measured");
    let end = text.iter().position(|&b| b == b'\n').ok_or("a line of JSON")?;
    let kind = foretoken_traces::truth::KIND;
    let mut file = foretoken_traces::intact::frames::Writer::begin(Vec::new(), kind)?;
    file.frame(&text[..end])?;
    file.frame(&zstd::encode_all(&text[end + 1..], 1)?)?;
    let table = TruthTable::parse(Path::new("measured"), file.into_inner().as_slice())?;
    std::fs::write(seed("truth-table", "frames.truth"), table.to_bytes()?)?;
    Ok(())
}

fn cell() -> Done {
    let text = include_str!("../seeds/experiment/plain.toml");
    let sets = ["workload.requests=3".to_owned(), "seeds=[1]".to_owned(), "output.steps=true".to_owned()];
    let plan = Plan::of_text("plain.toml", text, &sets, Path::new("")).map_err(|e| e.in_words())?;
    let setting = Setting::new(&plan.variants[0], 1).map_err(|e| e.in_words())?;
    let policy = &plan.policies.last().ok_or("a policy")?.spec;
    let played = play(&setting, policy, None, &AtomicBool::new(false)).map_err(|e| e.in_words())?;
    std::fs::write(seed("cell", "small"), postcard::to_stdvec(&played.stored)?)?;
    Ok(())
}

fn calibrated() -> Done {
    let line = Coefficients { alpha_s: 1e-8, gamma_s: 2e-5, delta_s: 6e-3 };
    let range = Range { requests: 8, batched: 64, context: 4000, pairs: 4000 };
    let model = || CalibratedModel { cost: LatencySpec::Linear(line), belief: line, range };
    let probe = Shape { kind: Kind::Decode, requests: 1, new: 1, context: 64 };
    let profile = Calibrated {
        calibrated_version: CALIBRATED_VERSION,
        foretoken: "0.1.0".into(),
        server: "a server".into(),
        distrust: None,
        warnings: vec!["a warning".into()],
        step_overhead_s: 1e-3,
        host: HostLaw::default(),
        noise_cv: 0.02,
        draft_lengths: vec![0, 3],
        separated: true,
        context_reads: ContextReads::Once,
        probes: vec![ProbedPass { role: Role::Target, shape: probe, seconds: 1e-3 }],
        fitted_to: vec!["0".into()],
        target: model(),
        draft: model(),
    };
    std::fs::write(seed("calibrated-profile", "linear"), profile.to_toml())?;
    Ok(())
}
