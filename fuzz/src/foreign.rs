//! Fuzzes the readers of files of vLLM's and SGLang's tools. Each target reads its own format, in which numbers must be
//! finite, and also lets the format be detected.

use crate::said;
use foretoken_recordings::Unread;
use foretoken_recordings::foreign as readers;
use std::fmt::Debug;
use std::path::Path;

/// A file of `vllm bench serve`.
pub fn vllm_bench(data: &[u8]) {
    read(data, readers::vllm_bench::parse);
}

/// A file of `vllm bench forward`.
pub fn vllm_forward(data: &[u8]) {
    read(data, readers::vllm_forward::parse);
}

/// A file of `sglang.benchmark.serving`.
pub fn sglang_bench(data: &[u8]) {
    read(data, readers::sglang_bench::parse);
}

/// SGLang's request metrics.
pub fn sglang_requests(data: &[u8]) {
    read(data, readers::sglang_requests::parse);
}

/// SGLang's forward-pass metrics, as JSON or msgpack.
pub fn sglang_forward(data: &[u8]) {
    read(data, readers::sglang_forward::parse);
}

/// SGLang's server info with DSpark's step records.
pub fn sglang_dspark(data: &[u8]) {
    read(data, readers::sglang_dspark::parse);
}

const FILE: &str = "other-tool.json";

fn read<T: Debug>(data: &[u8], parse: impl Fn(&Path, &[u8]) -> Result<Vec<T>, Unread>) {
    match parse(Path::new(FILE), data) {
        Err(error) => said::unread(&error, FILE),
        Ok(all) => said::finite(&all),
    }
    if let Err(error) = readers::detect_bytes(Path::new(FILE), data) {
        said::unread(&error, FILE);
    }
}
