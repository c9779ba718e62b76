//! The option `--check-settings`: whether a command looks for settings that have no effect.

use clap::ValueEnum;
use foretoken_run::inert::Check;

/// When a run is repeated with one setting left out at a time, to find settings without effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum CheckSettings {
    /// For settings that fit into a quarter of the run's work, or a few seconds
    #[default]
    Auto,
    /// For all settings, on the whole run
    Always,
    /// For none; swept settings are still compared, which needs no further run
    Never,
}

impl From<CheckSettings> for Check {
    fn from(when: CheckSettings) -> Self {
        match when {
            CheckSettings::Auto => Self::Auto,
            CheckSettings::Always => Self::Always,
            CheckSettings::Never => Self::Never,
        }
    }
}
