//! The request rate that the user of a benchmark asked for.

use serde::de::{Deserialize, Deserializer, Error, Visitor};
use std::fmt;

/// The rate at which a benchmark sent its requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rate {
    /// The benchmark sent this number of requests per second on average.
    PerSecond(f64),
    /// The benchmark sent all requests at once: the file's rate is infinite.
    AtOnce,
    /// The benchmark sent requests at the times of a trace.
    Trace,
}

impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Rate, D::Error> {
        from.deserialize_any(Reading)
    }
}

struct Reading;

impl Visitor<'_> for Reading {
    type Value = Rate;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a positive number, \"inf\" or \"trace\"")
    }

    fn visit_f64<E: Error>(self, x: f64) -> Result<Rate, E> {
        match x.is_finite() && x > 0.0 {
            true => Ok(Rate::PerSecond(x)),
            false => Err(E::invalid_value(serde::de::Unexpected::Float(x), &self)),
        }
    }

    fn visit_u64<E: Error>(self, x: u64) -> Result<Rate, E> {
        self.visit_f64(x as f64)
    }

    fn visit_i64<E: Error>(self, x: i64) -> Result<Rate, E> {
        self.visit_f64(x as f64)
    }

    /// vLLM writes `inf` if the rate is not limited. SGLang writes Python's `Infinity`, or `trace` if requests follow
    /// a trace.
    fn visit_str<E: Error>(self, word: &str) -> Result<Rate, E> {
        match word {
            "inf" | "Infinity" => Ok(Rate::AtOnce),
            "trace" => Ok(Rate::Trace),
            other => Err(E::invalid_value(serde::de::Unexpected::Str(other), &self)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rates_of_vllm_and_sglang_are_read() {
        let read = |text| serde_json::from_str::<Rate>(text).ok();
        assert_eq!(read("2.5"), Some(Rate::PerSecond(2.5)));
        assert_eq!(read("4"), Some(Rate::PerSecond(4.0)));
        assert_eq!(read("\"inf\""), Some(Rate::AtOnce));
        assert_eq!(read("\"Infinity\""), Some(Rate::AtOnce));
        assert_eq!(read("\"trace\""), Some(Rate::Trace));
        for bad in ["0", "-1", "\"NaN\"", "null", "[]"] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
