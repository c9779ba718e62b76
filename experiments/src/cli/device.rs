//! `--device`.

/// A device that models run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceName {
    /// The processor.
    Cpu,
    /// The NVIDIA GPU of this index.
    Cuda(u32),
}

impl std::str::FromStr for DeviceName {
    type Err = String;

    fn from_str(text: &str) -> Result<DeviceName, String> {
        match (text, text.strip_prefix("cuda:").map(str::parse)) {
            ("cpu", _) => Ok(DeviceName::Cpu),
            ("cuda", _) => Ok(DeviceName::Cuda(0)),
            (_, Some(Ok(index))) => Ok(DeviceName::Cuda(index)),
            _ => Err("expected cpu or cuda:N".to_owned()),
        }
    }
}
