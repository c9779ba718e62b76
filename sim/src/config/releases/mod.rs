//! The releases of vLLM and SGLang that the engine follows, one file each: the numbers and switches in which they
//! differ. The scheduler's rules (`engine/scheduler/rules.rs`) and all others ask these switches, and never which
//! release it is.

mod release;
mod sglang_0_5_23;
mod v0;
mod v0_32;
mod v0_33;

use super::choices::Version;

pub use release::Release;

impl Version {
    /// All releases.
    pub const ALL: [Version; 4] = [Version::V0, Version::V0_32, Version::V0_33, Version::Sglang0_5_23];

    /// The numbers and switches of the release.
    pub fn release(self) -> &'static Release {
        match self {
            Version::V0 => &v0::RELEASE,
            Version::V0_32 => &v0_32::RELEASE,
            Version::V0_33 => &v0_33::RELEASE,
            Version::Sglang0_5_23 => &sglang_0_5_23::RELEASE,
        }
    }

    /// The version's name in experiment files, such as `vllm-0.33`.
    pub fn name(self) -> &'static str {
        self.release().name
    }
}
