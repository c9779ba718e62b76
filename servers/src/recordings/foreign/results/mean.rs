//! Mean latencies as load generators write them to their files.

use serde::{Deserialize, Deserializer};

/// A mean latency from a load generator's file. `None` if the tool did not measure it; the file then has 0, `NaN` or
/// `null`. For example, vLLM writes a TPOT of 0 if no request has a second token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Measured(Option<f64>);

impl<'de> Deserialize<'de> for Measured {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Measured, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "a number that is not negative")]
        enum Written {
            Number(f64),
            Word(String),
            Nothing(()),
        }
        match Written::deserialize(from)? {
            Written::Number(x) if x > 0.0 && x.is_finite() => Ok(Measured(Some(x))),
            Written::Number(0.0) | Written::Nothing(()) => Ok(Measured(None)),
            Written::Word(word) if word == "NaN" => Ok(Measured(None)),
            _ => Err(serde::de::Error::custom("is no number that is not negative")),
        }
    }
}

impl Measured {
    /// The mean latency in the file's unit; `None` if it was not measured.
    pub(super) fn get(self) -> Option<f64> {
        self.0
    }

    /// The mean latency in seconds, if the file's unit is milliseconds; `None` if it was not measured.
    pub(super) fn s_of_ms(self) -> Option<f64> {
        self.0.map(|ms| 1e-3 * ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_measured_is_none() {
        let read = |text| serde_json::from_str::<Measured>(text).ok().map(Measured::get);
        assert_eq!(read("2.5"), Some(Some(2.5)));
        assert_eq!((read("0.0"), read("null"), read("\"NaN\"")), (Some(None), Some(None), Some(None)));
        assert_eq!((read("-1"), read("\"x\""), read("[]")), (None, None, None));
        assert_eq!(serde_json::from_str::<Measured>("2500").unwrap().s_of_ms(), Some(2.5));
    }
}
