//! Reads costs, acceptance and requests from files of vLLM, SGLang, AIPerf and NVIDIA's Model-Optimizer. The files have
//! measurements of the engines themselves, of benchmarks, or of a draft checkpoint.

use crate::calibrate::costs::{Part, StepRow};
use crate::calibrate::source::unread;
use crate::recordings::foreign::{
    self, Format, aiperf_records, sglang_bench, sglang_requests, vllm_bench, vllm_forward,
};
use foretoken_run::spec::problem::{Problem, Result};
use foretoken_traces::truth::speculation_profile::SpeculationProfile;
use std::path::{Path, PathBuf};

/// The contents of a file of vLLM or SGLang: timed steps, rounds, and requests.
#[derive(Clone, Debug, Default)]
pub struct Foreign {
    /// The path of the vLLM or SGLang file.
    pub path: PathBuf,
    /// BLAKE3 digest of the vLLM or SGLang file, in hexadecimal.
    pub digest: String,
    /// The name of the file's format, as a user reads it.
    pub format: String,
    /// The steps in the file that have times, for the fit of costs.
    pub rows: Vec<StepRow>,
    /// The file's rounds, as (drafted tokens, accepted tokens, number of rounds with these numbers).
    pub rounds: Vec<(u32, u32, u64)>,
    /// What is known of the drafter from elsewhere: it counts where no round of the server was seen.
    pub profile: Option<SpeculationProfile>,
    /// The file's requests, as (arrival, prompt tokens, output tokens). The arrival is in seconds; `None` if the file
    /// has only the order of the requests.
    pub requests: Vec<(Option<f64>, u32, u32)>,
    /// Notes for the user on what is missing in the numbers of the vLLM or SGLang file, such as the host's time.
    pub notes: Vec<String>,
}

/// Reads a file of vLLM or SGLang, and detects its format. `index` is the file's index among the calibration's observed
/// runs and files; the timed steps get this index as their `source`.
pub fn read(path: &Path, index: usize) -> Result<Foreign> {
    let bytes = &foreign::bytes(path).map_err(unread)?;
    let format = foreign::detect(path, bytes).map_err(unread)?;
    let mut f = Foreign {
        path: path.to_path_buf(),
        digest: blake3::hash(bytes).to_hex().to_string(),
        format: format.to_string(),
        ..Foreign::default()
    };
    match format {
        Format::VllmForward => forward_cases(&mut f, bytes, index)?,
        Format::VllmBench => vllm_serve(&mut f, bytes)?,
        Format::SglangBench => sglang_serve(&mut f, bytes)?,
        Format::SglangRequests => requests(&mut f, bytes)?,
        Format::AiperfRecords => aiperf(&mut f, bytes)?,
        Format::SpeculationProfile => profile(&mut f)?,
    }
    Ok(f)
}

fn row(source: usize, part: Part, elapsed_s: f64) -> StepRow {
    StepRow {
        source,
        part,
        when: 0.0,
        k: 0,
        in_one_pass: false,
        decodes: 0,
        verified: 0,
        prompts: 0,
        prompt_tokens: 0,
        context: 0,
        elapsed_s,
        host_s: None,
    }
}

/// Reads vLLM's timed forward passes into `f`. Each time is for a pass over a batch with a stated shape. The time
/// covers the target's pass alone, or the target's pass and the drafter's passes.
fn forward_cases(f: &mut Foreign, bytes: &[u8], source: usize) -> Result<()> {
    let cases = vllm_forward::parse(&f.path, bytes).map_err(unread)?;
    let mut unknown = 0;
    for case in &cases {
        // If a timed pass has draft tokens and the file does not say whether the drafter ran, the time counts as the
        // time of the target's and the drafter's passes together.
        let drafts = case.requests.iter().any(|r| r.num_draft_tokens > 0);
        unknown += usize::from(case.drafter.is_none() && drafts);
        let part = if case.drafter == Some(false) { Part::Target } else { Part::Step };
        let mut r = row(source, part, case.median_s);
        for q in &case.requests {
            let count = q.count;
            let decodes = q.query_len == q.num_draft_tokens + 1;
            r.context += u64::from(count) * u64::from(q.kv_len.saturating_sub(q.query_len));
            if decodes {
                r.k = r.k.max(q.num_draft_tokens);
                r.decodes += count;
                r.verified += u64::from(count) * u64::from(q.query_len);
            } else {
                r.prompts += count;
                r.prompt_tokens += u64::from(count) * u64::from(q.query_len);
            }
        }
        f.rows.push(r);
    }
    f.notes.push("its times are of graphs without sampling and without the host: steps of a server take longer".into());
    if unknown > 0 {
        f.notes.push(format!(
            "{unknown} of its cases draft and do not say whether the drafter ran: it is taken to have run"
        ));
    }
    Ok(())
}

fn vllm_serve(f: &mut Foreign, bytes: &[u8]) -> Result<()> {
    for run in vllm_bench::parse(&f.path, bytes).map_err(unread)? {
        let finished = run.requests.iter().filter(|r| r.error.is_none());
        f.requests.extend(finished.map(|r| (Some(r.start_s), r.input_len, r.output_len)));
        if let Some(s) = &run.speculation
            && s.num_drafts > 0
        {
            let per_draft = s.draft_tokens as f64 / s.num_drafts as f64;
            match per_draft.fract() == 0.0 {
                true => f.rounds.extend(by_count(s.num_drafts, &s.per_position)),
                false => f.notes.push(
                    "its drafts had several lengths: acceptance by position is not identifiable from its totals".into(),
                ),
            }
        }
    }
    Ok(())
}

/// Rounds as (draft length, accepted tokens, number of rounds), for 0, 1, … accepted tokens. `rounds` is the number of
/// all rounds. `at_least[i]` is the share of all rounds that accepted more than i tokens.
fn by_count(rounds: u64, at_least: &[f64]) -> Vec<(u32, u32, u64)> {
    let k = at_least.len() as u32;
    let share = |n: usize| if n == 0 { 1.0 } else { at_least.get(n - 1).copied().unwrap_or(0.0) };
    let exactly = |n: usize| ((share(n) - share(n + 1)).max(0.0) * rounds as f64).round() as u64;
    (0..=at_least.len()).map(|n| (k, n as u32, exactly(n))).collect()
}

fn sglang_serve(f: &mut Foreign, bytes: &[u8]) -> Result<()> {
    for run in sglang_bench::parse(&f.path, bytes).map_err(unread)? {
        let untimed = run.requests.unwrap_or_default();
        f.requests.extend(untimed.iter().filter(|r| r.error.is_none()).map(|r| (None, r.input_len, r.output_len)));
        if let Some(length) = run.accept_length {
            f.notes.push(format!(
                "it says that a round gave {length:.2} tokens on average: by position that is not identifiable; an \
                 experiment takes it as acceptance.source = {{ mean-length = {{ lengths = [[K, {length:.2}]] }} }}"
            ));
        }
    }
    f.notes.push("it has no start times: the order of its requests is known, and when they came is not".into());
    Ok(())
}

fn aiperf(f: &mut Foreign, bytes: &[u8]) -> Result<()> {
    let requests = aiperf_records::parse(&f.path, bytes).map_err(unread)?;
    let first = requests.iter().map(|r| r.start_s).fold(f64::INFINITY, f64::min);
    f.requests = requests.iter().map(|r| (Some(r.start_s - first), r.input, r.output)).collect();
    f.rounds = requests.iter().flat_map(|r| r.rounds.iter().copied()).collect();
    let several = requests.iter().filter(|r| !r.one_length).count();
    if several > 0 {
        f.notes.push(format!(
            "{several} requests drafted several lengths: their rounds count with the longest draft, which makes deep \
             drafts look worse; start vLLM with --per-request-spec-decode-metrics detailed"
        ));
    }
    Ok(())
}

fn profile(f: &mut Foreign) -> Result<()> {
    let read =
        SpeculationProfile::read(&f.path).map_err(|e| Problem::bad_input(e.to_string()).help(e.hint().to_owned()))?;
    if read.accept_length_by_k.len() > 1 {
        f.notes.push(format!(
            "it has a mean length for each of {} draft lengths: a calibration takes the rates at K = {} for all; an \
             experiment takes each with acceptance.source = {{ profile = {{ path = … }} }}",
            read.accept_length_by_k.len(),
            read.num_speculative_tokens
        ));
    }
    f.profile = Some(read);
    Ok(())
}

fn requests(f: &mut Foreign, bytes: &[u8]) -> Result<()> {
    let mut several = 0;
    for r in sglang_requests::parse(&f.path, bytes).map_err(unread)? {
        if let Some(prompt) = r.prompt_tokens {
            f.requests.push((r.received_s, prompt, r.completion_tokens));
        }
        let Some(s) = &r.speculation else { continue };
        let (drafted, one_length) = drafted_by_sglang(s);
        several += usize::from(!one_length);
        let counted = s.correct_drafts_histogram.iter().enumerate();
        f.rounds.extend(counted.map(|(accepted, &n)| (drafted, accepted as u32, n)));
    }
    let first = f.requests.iter().filter_map(|r| r.0).fold(f64::INFINITY, f64::min);
    f.requests.iter_mut().for_each(|r| r.0 = r.0.map(|s| s - first));
    if several > 0 {
        f.notes.push(format!(
            "of {several} requests the drafts that were proposed have several widths: rounds that accepted the most count as full ones"
        ));
    }
    Ok(())
}

/// Returns (how many tokens SGLang drafted in each round of a request, whether this number was the same in all rounds).
/// A round is the request's draft tokens of one step. SGLang reports `proposed_drafts` = rounds × configured draft
/// length, even if rounds drafted less. If `proposed_drafts` / rounds is no whole number, or is less than the most
/// tokens that a round accepted, several lengths were configured. The returned number is then the most tokens that a
/// round accepted.
fn drafted_by_sglang(s: &sglang_requests::RequestSpeculation) -> (u32, bool) {
    let most_accepted = s.correct_drafts_histogram.len().saturating_sub(1) as u32;
    let Some(proposed) = s.proposed_drafts else { return (most_accepted, true) };
    let length = proposed / s.verify_steps.max(1);
    match length * s.verify_steps == proposed && length >= u64::from(most_accepted) {
        true => (length as u32, true),
        false => (most_accepted, false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Everything that [`read`] finds in a file with the content `text`.
    fn read_text(name: &str, text: impl AsRef<[u8]>) -> String {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        let f = read(&path, 7).unwrap();
        let rows: String = f.rows.iter().map(|row| format!("{row:?}\n")).collect();
        format!("{}\n{rows}rounds {:?}\nrequests {:?}\n{}", f.format, f.rounds, f.requests, f.notes.join("\n"))
    }

    #[test]
    fn timed_passes_of_vllm_say_whether_the_drafter_ran_or_it_is_taken_to_have_run() {
        let case = |drafts: u32, scope: &str| {
            let decode = format!(r#"{{"query_len": {}, "kv_len": 90, "num_draft_tokens": {drafts}}}"#, drafts + 1);
            let prompt = r#"{"query_len": 8, "kv_len": 20, "num_draft_tokens": 0, "chunked": true, "count": 2}"#;
            let latency = r#""num_tokens": 4, "latency_us": {"median": 950.5, "sample_spread_pct": 0.25}"#;
            let rank = format!("{{{latency}{scope}}}");
            format!(r#"{{"case": "v", "requests": [{decode}, {prompt}], "median_us": 950.5, "ranks": [{rank}]}}"#)
        };
        let (both, target) = (r#", "timing_scope": "target_and_drafter""#, r#", "timing_scope": "target_only""#);
        let cases = [case(3, ""), case(2, both), case(4, target), case(0, "")];
        insta::assert_snapshot!(read_text("forward.json", format!("[{}]", cases.join(", "))));
    }

    #[test]
    fn files_of_the_engines_are_read_whole() {
        let files: [(&str, &[u8]); 4] = [
            ("aiperf_records", include_bytes!("../../../fuzz/seeds/aiperf-records/four.jsonl")),
            ("vllm_bench", include_bytes!("../../../fuzz/seeds/vllm-bench/run.jsonl")),
            ("sglang_bench", include_bytes!("../../../fuzz/seeds/sglang-bench/run.jsonl")),
            ("sglang_requests", include_bytes!("../../../fuzz/seeds/sglang-requests/two.jsonl")),
        ];
        for (name, bytes) in files {
            insta::assert_snapshot!(name, read_text("file.json", bytes));
        }
    }

    #[test]
    fn requests_whose_drafts_had_several_lengths_are_counted_in_a_note() {
        let seed = include_str!("../../../fuzz/seeds/sglang-requests/two.jsonl");
        assert!(!read_text("two.jsonl", seed).contains("several widths"));
        let one = seed.replacen("\"spec_num_proposed_drafts\": 20", "\"spec_num_proposed_drafts\": 21", 1);
        let said = read_text("two.jsonl", one);
        assert!(said.contains("of 1 requests the drafts that were proposed have several widths"), "{said}");
    }

    #[test]
    fn totals_by_position_give_the_rounds_by_accepted_tokens() {
        assert_eq!(by_count(10, &[0.7, 0.4, 0.1]), [(3, 0, 3), (3, 1, 3), (3, 2, 3), (3, 3, 1)]);
    }

    /// Returns what [`drafted_by_sglang`] finds for a request with four rounds. Two rounds accepted no draft token, one
    /// accepted 1, and one accepted 2. SGLang reports `proposed` draft tokens in all.
    fn drafted(proposed: Option<u64>) -> (u32, bool) {
        drafted_by_sglang(&sglang_requests::RequestSpeculation {
            verify_steps: 4,
            correct_drafts_histogram: vec![2, 1, 1],
            proposed_drafts: proposed,
        })
    }

    #[test]
    fn sglangs_draft_length_is_found_although_no_round_accepted_all_of_it() {
        assert_eq!(drafted(Some(12)), (3, true));
        assert_eq!(drafted(Some(8)), (2, true));
        assert_eq!(drafted(None), (2, true));
        assert_eq!((drafted(Some(10)), drafted(Some(4))), ((2, false), (2, false)));
    }
}
