//! The option `--device`.

use foretoken_spec::live::Device;

/// A device that models run on (`cpu`, `cuda:N`), parsed from an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceName(pub Device);

impl std::str::FromStr for DeviceName {
    type Err = String;

    fn from_str(text: &str) -> Result<DeviceName, String> {
        Device::parse(text).map(DeviceName).map_err(|why| format!("{why}: expected cpu or cuda:N"))
    }
}
