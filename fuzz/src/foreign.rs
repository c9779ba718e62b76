//! Fuzzes the readers of files that tools of vLLM and SGLang write. Each fuzz target reads `data` twice. First it reads
//! `data` in the format of its tool; if the reader accepts `data`, all its numbers must be finite. Then it reads `data`
//! with the reader that detects the format. Every error must name the file and have a hint.

use crate::said;
use foretoken_servers::recordings::Unread;
use foretoken_servers::recordings::foreign as readers;
use std::fmt::Debug;
use std::path::Path;

/// Reads `data` as a result file of the load generator `vllm bench serve`.
pub fn vllm_bench(data: &[u8]) {
    read(data, readers::vllm_bench::parse);
}

/// Reads `data` as a result file of `vllm bench forward`, which times passes.
pub fn vllm_forward(data: &[u8]) {
    read(data, readers::vllm_forward::parse);
}

/// Reads `data` as a result file of the load generator `sglang.benchmark.serving`.
pub fn sglang_bench(data: &[u8]) {
    read(data, readers::sglang_bench::parse);
}

/// Reads `data` as a file of metrics for each request, which SGLang writes.
pub fn sglang_requests(data: &[u8]) {
    read(data, readers::sglang_requests::parse);
}

/// Reads `data` as the requests of a run, which AIPerf writes.
pub fn aiperf_records(data: &[u8]) {
    read(data, readers::aiperf_records::parse);
}

/// Reads `data` as the results of a run of a load generator: `vllm bench serve`, SGLang's `bench_serving`, GuideLLM,
/// AIPerf or GenAI-Perf. Every error must name the file.
pub fn load_results(data: &[u8]) {
    match readers::results::parse(Path::new(FILE), data) {
        Err(error) => said::unread(&error, FILE),
        Ok((_, runs)) => {
            said::finite(&runs);
            assert!(runs.iter().all(|run| run.completed > 0), "runs without a request have no means");
        }
    }
}

const FILE: &str = "other-tool.json";

fn read<T: Debug>(data: &[u8], parse: impl Fn(&Path, &[u8]) -> Result<Vec<T>, Unread>) {
    match parse(Path::new(FILE), data) {
        Err(error) => said::unread(&error, FILE),
        Ok(all) => said::finite(&all),
    }
    if let Err(error) = readers::detect(Path::new(FILE), data) {
        said::unread(&error, FILE);
    }
}
