//! The option `--check-settings`: whether a command looks for settings that have no effect.

use clap::ValueEnum;
use foretoken_run::inert::Check;

/// Which settings are checked for an effect after a run. The check of a setting repeats the run without this setting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum CheckSettings {
    /// Check settings while the checks take at most a quarter of the run's work, or a few seconds if that is more
    #[default]
    Auto,
    /// Check all settings, each by a repetition of the whole run
    Always,
    /// Repeat no run; only swept settings are checked, from the runs that exist
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
