//! The option `--device`: the device on which models run.

use foretoken_run::spec::live::Device;

/// A device on which models run (`cpu`, `cuda:N`), parsed from a command-line argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceName(pub Device);

impl std::str::FromStr for DeviceName {
    type Err = String;

    fn from_str(text: &str) -> Result<DeviceName, String> {
        Device::parse(text).map(DeviceName).map_err(|why| format!("{why}: expected cpu or cuda:N"))
    }
}
