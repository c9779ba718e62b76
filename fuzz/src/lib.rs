//! A fuzz target for every reader of Foretoken. A reader parses what a file, a command line, a client or a server
//! says. It must never panic, hang or take memory without bound.
//!
//! A target takes any bytes and gives them to the reader. It also checks the results: numbers that come out are
//! finite; a value that was read, written and read again is equal; an error names the file at fault, and its message
//! has fewer than 10,000 bytes ([`said`]). `fuzz/libfuzzer` runs the targets with new inputs. `tests/replay.rs` runs
//! the stored inputs (fuzz/README.md).

mod calibration;
mod experiment;
mod foreign;
mod framed;
mod hardware;
mod intact;
#[cfg(feature = "live")]
mod live;
#[cfg(feature = "observe")]
mod network;
mod policies;
mod recordings;
mod results;
pub mod said;
mod traces;
mod truth;

/// A fuzz target: it gives any bytes to a reader, and panics if a check of the results fails.
pub type Target = fn(&[u8]);

/// Every fuzz target with its name. A fuzz target's inputs are in the archive `corpus/NAME.tar.gz` (seeds in its folder
/// `seeds`) and the folder `seeds/NAME`.
pub const TARGETS: &[(&str, Target)] = &[
    ("experiment", experiment::experiment),
    ("overrides", experiment::overrides),
    ("decide-state", experiment::decide_state),
    ("sglang-json", policies::sglang_json),
    ("config-json", hardware::config_json),
    ("profile", hardware::profile),
    ("calibrated-profile", hardware::calibrated_profile),
    ("calibration-table", calibration::table),
    ("truth-table", truth::truth_table),
    ("trace-any", traces::any),
    ("trace-burstgpt", traces::burstgpt),
    ("trace-azure", traces::azure),
    ("trace-mooncake", traces::mooncake),
    ("trace-spec-bench", traces::spec_bench),
    ("trace-columns", traces::columns),
    ("trace-opentelemetry", traces::opentelemetry),
    ("trace-litellm", traces::litellm),
    ("frames", intact::frames),
    ("seal", intact::seal),
    ("recording", recordings::recording),
    ("step-log", recordings::step_log),
    ("manifest", results::manifest),
    ("cell", results::cell),
    ("vllm-bench", foreign::vllm_bench),
    ("vllm-forward", foreign::vllm_forward),
    ("sglang-bench", foreign::sglang_bench),
    ("sglang-requests", foreign::sglang_requests),
    ("aiperf-records", foreign::aiperf_records),
    ("load-results", foreign::load_results),
    #[cfg(feature = "live")]
    ("tape", live::tape),
    #[cfg(feature = "live")]
    ("live-prompts", live::prompts),
    #[cfg(feature = "live")]
    ("device-config", live::device_config),
    #[cfg(feature = "observe")]
    ("observe-prompts", network::prompts),
    #[cfg(feature = "observe")]
    ("answer-stream", network::answer_stream),
    #[cfg(feature = "observe")]
    ("metrics", network::metrics),
    #[cfg(feature = "observe")]
    ("request-body", network::request_body),
];
