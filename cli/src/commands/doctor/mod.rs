//! The arguments of `foretoken doctor`.

#[cfg(feature = "live")]
pub mod work;

use crate::cli::format::Format;
use clap::Args;

pub const EXAMPLES: &str = "Examples:
  foretoken doctor
  foretoken doctor --format json
  foretoken doctor --need cuda:0";

#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// How to print the devices
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
    /// Exit with code 4 unless models can run on this device: cpu, cuda or cuda:N
    #[arg(long, value_name = "DEVICE")]
    pub need: Option<String>,
}
