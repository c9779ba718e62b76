//! Recognises the format of a file of vLLM, SGLang or one of their benchmarks by the file's content.

use super::{file, json, python};
use crate::recordings::unread::Unread;
use serde::de::IgnoredAny;
use serde_json::Deserializer;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

/// The formats of files that vLLM, SGLang and their benchmarks write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// The file has GPU times of given batches from `vllm bench forward`; read by
    /// [`vllm_forward`](super::vllm_forward).
    VllmForward,
    /// The file has client latencies from `vllm bench serve`; read by [`vllm_bench`](super::vllm_bench).
    VllmBench,
    /// The file has client latencies from SGLang's `bench_serving`; read by [`sglang_bench`](super::sglang_bench).
    SglangBench,
    /// The file has SGLang's metrics of each request; read by [`sglang_requests`](super::sglang_requests).
    SglangRequests,
    /// The file has the requests of a run of AIPerf; read by [`aiperf_records`](super::aiperf_records).
    AiperfRecords,
    /// The file is a `speculation_profile.json`, which says how often a draft checkpoint is right.
    SpeculationProfile,
}

impl Format {
    /// All formats of vLLM and SGLang files, in the order in which they are tried.
    pub const ALL: [Format; 6] = [
        Format::VllmForward,
        Format::VllmBench,
        Format::SglangBench,
        Format::SglangRequests,
        Format::AiperfRecords,
        Format::SpeculationProfile,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Format::VllmForward => "vllm bench forward results",
            Format::VllmBench => "vllm bench serve results",
            Format::SglangBench => "sglang.benchmark.serving results",
            Format::SglangRequests => "SGLang request metrics",
            Format::AiperfRecords => "AIPerf records of requests",
            Format::SpeculationProfile => "a speculation profile",
        }
    }

    /// Keys that every JSON object of a file in this format has. No other format has all of these keys. If the file
    /// is a JSON list, its first object has these keys.
    fn keys(self) -> &'static [&'static str] {
        match self {
            Format::VllmForward => &["case", "requests", "median_us", "ranks"],
            Format::VllmBench => &["endpoint_type", "tokenizer_id", "request_rate", "completed"],
            Format::SglangBench => &["dataset_name", "request_rate", "completed", "total_output_tokens_retokenized"],
            Format::SglangRequests => &["request_parameters", "id", "finish_reason"],
            Format::AiperfRecords => &["metadata", "metrics"],
            Format::SpeculationProfile => &["measured", "num_speculative_tokens"],
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Recognises the format of a file by its content `bytes`. If the file holds several JSON values, the first value
/// decides. `path` is the file's name in errors.
pub fn detect(path: &Path, bytes: &[u8]) -> Result<Format, Unread> {
    let text = file::utf8(path, bytes)?;
    let text = python::constants(text);
    let begun = text.trim_start();
    let list = begun.starts_with('[');
    let keys = match begun.chars().next() {
        Some('{') => first(path, &text)?,
        Some('[') => match first::<Vec<Keys>>(path, &text)?.into_iter().next() {
            Some(keys) => keys,
            None => return Err(unknown(path, "it is an empty JSON list")),
        },
        Some(_) => return Err(unknown(path, &format!("it begins with the line {:?}", beginning(begun)))),
        None => return Err(unknown(path, "it is empty but for white space")),
    };
    if keys.contains_key("cases") {
        let hint = "that is what --shapes takes; give what `vllm bench forward --output-json` wrote";
        return Err(Unread::file(path, "has the batches to time, not their times", hint));
    }
    let fits = |format: &Format| {
        format.keys().iter().all(|key| keys.contains_key(*key)) && list == (*format == Format::VllmForward)
    };
    Format::ALL.into_iter().find(fits).ok_or_else(|| {
        let some: Vec<&str> = keys.keys().map(String::as_str).take(8).collect();
        let more = if keys.len() > some.len() { ", ..." } else { "" };
        let kind = if list { "a JSON list of objects" } else { "a JSON object" };
        unknown(path, &format!("it is {kind} with the keys {}{more}", some.join(", ")))
    })
}

/// The keys of a JSON object; the values are not kept.
type Keys = BTreeMap<String, IgnoredAny>;

fn first<T: serde::de::DeserializeOwned + Default>(path: &Path, text: &str) -> Result<T, Unread> {
    match Deserializer::from_str(text).into_iter::<T>().next() {
        Some(Ok(value)) => Ok(value),
        Some(Err(e)) if e.is_data() => Err(unknown(path, "it is a JSON list, but not of objects")),
        Some(Err(e)) => Err(json::malformed(path, &e, &names())),
        None => Ok(T::default()),
    }
}

fn unknown(path: &Path, found: &str) -> Unread {
    Unread::file(path, format!("is of no known format: {found}"), names())
}

fn names() -> String {
    let names: Vec<&str> = Format::ALL.iter().map(|f| f.name()).collect();
    format!("known are {}", names.join(", "))
}

/// The first 60 characters of the first line of `text`, for an error message.
fn beginning(text: &str) -> String {
    text.lines().next().unwrap_or_default().chars().take(60).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recordings::foreign::testing::of;
    use crate::recordings::foreign::{aiperf_records, sglang_bench, sglang_requests, vllm_bench, vllm_forward};

    fn found(text: &str) -> Result<Format, String> {
        of(text.as_bytes(), detect)
    }

    #[test]
    fn formats_are_recognised() {
        for (text, format) in [
            (vllm_forward::tests::GOOD, Format::VllmForward),
            (vllm_bench::tests::GOOD, Format::VllmBench),
            (sglang_bench::tests::GOOD, Format::SglangBench),
            (sglang_requests::tests::GOOD, Format::SglangRequests),
            (aiperf_records::tests::GOOD, Format::AiperfRecords),
            (r#"{"measured": true, "num_speculative_tokens": 3}"#, Format::SpeculationProfile),
        ] {
            assert_eq!(found(text), Ok(format), "{text}");
            assert_eq!(found(&format!("\n {text}\n{text}")), Ok(format), "{text}");
        }
    }

    #[test]
    fn an_unknown_format_is_described() {
        for (text, error) in [
            ("INFO 01-01 vLLM", "f: is of no known format: it begins with the line \"INFO 01-01 vLLM\""),
            ("3", "f: is of no known format: it begins with the line \"3\""),
            ("{\"b\": 1, \"a\": {}}", "f: is of no known format: it is a JSON object with the keys a, b"),
            ("[{\"a\": 1}]", "f: is of no known format: it is a JSON list of objects with the keys a"),
            ("[]", "f: is of no known format: it is an empty JSON list"),
            ("{\"cases\": []}", "f: has the batches to time, not their times"),
            ("\n{\"a\": ", "f, line 2: is cut off: the JSON does not end"),
            ("[1, 2]", "f: is of no known format: it is a JSON list, but not of objects"),
            ("{a}", "f, line 1: is not valid JSON: key must be a string"),
            (" \n", "f: is of no known format: it is empty but for white space"),
        ] {
            assert_eq!(found(text), Err(error.to_owned()), "{text}");
        }
        assert!(of(b"\x1f\x8b\x08\x00", detect).unwrap_err().contains("is not UTF-8 text"));
    }

    #[test]
    fn names_differ() {
        let mut names: Vec<String> = Format::ALL.iter().map(Format::to_string).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), Format::ALL.len());
    }
}
