//! Recognises which load generator wrote a file, by the keys of its first JSON object.

use super::run::Run;
use super::{aiperf, genai_perf, guidellm, sglang, vllm};
use crate::recordings::foreign::{file, python};
use crate::recordings::unread::Unread;
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::collections::BTreeMap;
use std::path::Path;

/// The load generators whose results are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultFormat {
    /// The file is from `vllm bench serve --save-result`.
    Vllm,
    /// The file is from SGLang's `bench_serving`.
    Sglang,
    GuideLlm,
    /// The file is from NVIDIA's AIPerf.
    AiPerf,
    /// The file is from NVIDIA's GenAI-Perf, which AIPerf replaces.
    GenAiPerf,
}

impl ResultFormat {
    pub const ALL: [ResultFormat; 5] = [
        ResultFormat::Vllm,
        ResultFormat::Sglang,
        ResultFormat::GuideLlm,
        ResultFormat::AiPerf,
        ResultFormat::GenAiPerf,
    ];

    /// The name of the load generator's format in messages.
    pub fn name(self) -> &'static str {
        match self {
            ResultFormat::Vllm => "vllm bench serve (--save-result)",
            ResultFormat::Sglang => "SGLang bench_serving (--output-file)",
            ResultFormat::GuideLlm => "GuideLLM (benchmarks.json)",
            ResultFormat::AiPerf => "AIPerf (profile_export_aiperf.json)",
            ResultFormat::GenAiPerf => "GenAI-Perf (profile_export_genai_perf.json)",
        }
    }

    /// Keys that the first JSON object of every file of this format has. The function `detect` takes the first format
    /// in [`ResultFormat::ALL`] whose keys are all there. So a file of a format must not have all keys of a format
    /// that comes earlier in this list.
    fn keys(self) -> &'static [&'static str] {
        match self {
            ResultFormat::Vllm => &["tokenizer_id", "request_rate", "completed"],
            ResultFormat::Sglang => &["dataset_name", "request_rate", "completed", "total_output_tokens_retokenized"],
            ResultFormat::GuideLlm => &["metadata", "benchmarks"],
            ResultFormat::AiPerf => &["aiperf_version", "input_config"],
            ResultFormat::GenAiPerf => &["request_throughput", "request_latency", "input_config"],
        }
    }
}

/// The load generator's format of a file with the content `bytes`. `None` if no known load generator wrote the file.
pub fn detect(bytes: &[u8]) -> Option<ResultFormat> {
    let text = python::constants(std::str::from_utf8(bytes).ok()?);
    let mut values = serde_json::Deserializer::from_str(&text).into_iter::<BTreeMap<String, IgnoredAny>>();
    let keys = values.next()?.ok()?;
    let format =
        ResultFormat::ALL.into_iter().find(|format| format.keys().iter().all(|key| keys.contains_key(*key)))?;
    // AIPerf's releases of 2025 do not name themselves. The part of the file that says the load does.
    let is_aiperf = format == ResultFormat::GenAiPerf
        && serde_json::from_str::<Inputs>(&text).is_ok_and(|inputs| inputs.input_config.contains_key("loadgen"));
    Some(if is_aiperf { ResultFormat::AiPerf } else { format })
}

/// The keys of the settings with which NVIDIA's tools ran.
#[derive(Deserialize)]
struct Inputs {
    input_config: BTreeMap<String, IgnoredAny>,
}

/// Reads the runs from a load generator's results file with the content `bytes`. `path` is the file's name in errors.
pub fn parse(path: &Path, bytes: &[u8]) -> Result<(ResultFormat, Vec<Run>), Unread> {
    file::utf8(path, bytes)?;
    let Some(format) = detect(bytes) else {
        let names: Vec<&str> = ResultFormat::ALL.iter().map(|f| f.name()).collect();
        let hint = format!("known are the JSON files of {}", names.join(", "));
        return Err(Unread::file(path, "is of no known format of results", hint));
    };
    let runs = match format {
        ResultFormat::Vllm => vllm::parse(path, bytes)?,
        ResultFormat::Sglang => sglang::parse(path, bytes)?,
        ResultFormat::GuideLlm => guidellm::parse(path, bytes)?,
        ResultFormat::AiPerf => aiperf::parse(path, bytes)?,
        ResultFormat::GenAiPerf => genai_perf::parse(path, bytes)?,
    };
    Ok((format, runs))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_told_apart() {
        for (text, format) in [
            (include_str!("../../../../fixtures/results/vllm-0.33-k3.jsonl"), ResultFormat::Vllm),
            (include_str!("../../../../fixtures/results/sglang-0.5.23-k3.jsonl"), ResultFormat::Sglang),
            (include_str!("../../../../fixtures/results/guidellm-0.8.1-k3.json"), ResultFormat::GuideLlm),
            (include_str!("../../../../fixtures/results/aiperf-0.13.0-k3.json"), ResultFormat::AiPerf),
            (include_str!("../../../../fixtures/results/genai-perf-0.0.16.json"), ResultFormat::GenAiPerf),
        ] {
            assert_eq!(detect(text.as_bytes()), Some(format));
        }
    }

    #[test]
    fn an_unknown_format_lists_the_known_ones() {
        for text in ["{\"a\": 1}", "[]", "x", "", "\u{1}"] {
            let error = parse(Path::new("f"), text.as_bytes()).unwrap_err();
            assert_eq!(error.to_string(), "f: is of no known format of results");
            assert!(ResultFormat::ALL.iter().all(|format| error.hint.contains(format.name())), "{}", error.hint);
        }
        let cut = parse(Path::new("f"), b"{\"metadata\": {}, \"benchmarks\": [").unwrap_err();
        assert!(cut.to_string().contains("is of no known format"), "{cut}");
        assert!(parse(Path::new("f"), b"\xff").unwrap_err().to_string().contains("is not UTF-8"));
    }
}
