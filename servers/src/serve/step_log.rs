//! The step log: one line for each step, in vLLM's form (`--enable-logging-iteration-details`, `v1/metrics/loggers.py`
//! of vLLM 0.32). A line begins with the time at which it was written, in seconds since 1970. vLLM writes this time if
//! it logs with `experiments/vllm-logging.json`.

use crate::serve::clock::Clock;
use foretoken_run::spec::problem::{Problem, Result};
use foretoken_sim::online::StepLine;
use fs_err::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// The open file of the server's step log.
pub struct StepLog {
    path: PathBuf,
    to: BufWriter<File>,
    steps: u64,
    /// Number of KV blocks that requests can use. A line gives the share of these blocks that is in use.
    blocks: u32,
}

impl StepLog {
    /// Creates the file of the step log; an existing file is replaced. `blocks` is the number of KV blocks that
    /// requests can use.
    pub fn create(path: &Path, blocks: u32) -> Result<StepLog> {
        let file = File::create(path).map_err(|e| Problem::failed(format!("--step-log: {e}")))?;
        Ok(StepLog { path: path.to_path_buf(), to: BufWriter::new(file), steps: 0, blocks })
    }

    pub fn step(&mut self, step: &StepLine, clock: &Clock) -> Result<()> {
        let usage = 100.0 * f64::from(step.used_blocks) / f64::from(self.blocks.max(1));
        let line = writeln!(
            self.to,
            "{:.6} INFO foretoken.serve Engine 000: Iteration({}): {} context requests, {} context tokens, \
             {} generation requests, {} generation tokens, iteration elapsed time: {:.2} ms, GPU KV cache usage: {:.1}%",
            clock.unix_s(step.written),
            self.steps,
            step.context_requests,
            step.context_tokens,
            step.generation_requests,
            step.generation_tokens,
            1e3 * step.elapsed.as_s(),
            usage,
        );
        self.steps += 1;
        line.map_err(|e| self.problem(&e))
    }

    /// Writes buffered lines of the step log to the file, so that other programs can read them.
    pub fn flush(&mut self) -> Result<()> {
        self.to.flush().map_err(|e| self.problem(&e))
    }

    fn problem(&self, e: &std::io::Error) -> Box<Problem> {
        Problem::failed(format!("--step-log {}: {e}", self.path.display()))
    }
}
