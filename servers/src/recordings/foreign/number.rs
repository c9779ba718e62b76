//! Number types for reading files of vLLM, SGLang and load generators, each with a range. A value outside the range is
//! an error that names the field.

use serde::Deserialize;

/// A finite number that is not negative, read from a file: a time, a rate, a variance.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(try_from = "f64")]
pub(super) struct Amount(pub(super) f64);

impl TryFrom<f64> for Amount {
    type Error = &'static str;

    fn try_from(x: f64) -> Result<Amount, &'static str> {
        match x {
            x if !x.is_finite() => Err("is not a finite number"),
            x if x < 0.0 => Err("is negative"),
            x => Ok(Amount(x)),
        }
    }
}

/// The numbers of `list` as plain `f64`; their type has checked their range.
pub(super) fn amounts(list: Vec<Amount>) -> Vec<f64> {
    list.into_iter().map(|x| x.0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_hold() {
        assert_eq!(serde_json::from_str::<Vec<Amount>>("[0, 2.5]").map(amounts).unwrap(), [0.0, 2.5]);
        for bad in ["-1", "1e999", "\"NaN\"", "null"] {
            assert!(serde_json::from_str::<Amount>(bad).is_err(), "{bad}");
        }
        assert!(Amount::try_from(f64::NAN).is_err());
    }
}
