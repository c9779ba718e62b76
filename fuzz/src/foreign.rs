//! Fuzzes the readers of files that vLLM's and SGLang's tools write. Each target reads `data` twice: as the target's
//! own format, in which all numbers must be finite, and as a file whose format the reader must detect.

use crate::said;
use foretoken_recordings::Unread;
use foretoken_recordings::foreign as readers;
use std::fmt::Debug;
use std::path::Path;

/// Reads `data` as a file of `vllm bench serve`.
pub fn vllm_bench(data: &[u8]) {
    read(data, readers::vllm_bench::parse);
}

/// Reads `data` as a file of `vllm bench forward`.
pub fn vllm_forward(data: &[u8]) {
    read(data, readers::vllm_forward::parse);
}

/// Reads `data` as a file of `sglang.benchmark.serving`.
pub fn sglang_bench(data: &[u8]) {
    read(data, readers::sglang_bench::parse);
}

/// Reads `data` as SGLang's request metrics.
pub fn sglang_requests(data: &[u8]) {
    read(data, readers::sglang_requests::parse);
}

/// Reads `data` as SGLang's forward-pass metrics, in JSON or msgpack.
pub fn sglang_forward(data: &[u8]) {
    read(data, readers::sglang_forward::parse);
}

/// Reads `data` as SGLang's server info with DSpark's step records.
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
