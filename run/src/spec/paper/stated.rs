//! What a paper states for a claim: a number, a range that may be open at an end, names of policies, or only a figure.

use serde::{Deserialize, Serialize};

/// The value that a paper states for a claim.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "toml::Value", into = "toml::Value")]
pub enum Stated {
    /// The paper has only a figure, without a number or a statement to compare with.
    FigureOnly,
    Number(f64),
    /// The paper states a range: from one number to another. An infinite number stands for an open end.
    Range(f64, f64),
    /// The paper names a policy, such as the fastest one. Our result agrees if it is one of these policies.
    Policies(Vec<String>),
}

const FIGURE_ONLY: &str = "figure only";
const WANTED: &str = "a number, a range [low, high], \"figure only\", or a list of policies";

impl schemars::JsonSchema for Stated {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Stated".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "description": format!("What the document says: {WANTED}."),
            "anyOf": [
                { "type": "number" },
                { "type": "array", "items": { "type": "number" }, "minItems": 2, "maxItems": 2 },
                { "const": FIGURE_ONLY },
                { "type": "array", "items": { "type": "string" }, "minItems": 1 },
            ],
        })
    }
}

impl TryFrom<toml::Value> for Stated {
    type Error = String;

    fn try_from(value: toml::Value) -> Result<Stated, String> {
        let wrong = || format!("invalid value: {value}, expected {WANTED}");
        if let Some(x) = number(&value) {
            return Ok(Stated::Number(x));
        }
        if value.as_str() == Some(FIGURE_ONLY) {
            return Ok(Stated::FigureOnly);
        }
        let items = value.as_array().ok_or_else(wrong)?;
        match items.as_slice() {
            [low, high] if number(low).is_some() => {
                let (low, high) = number(low).zip(number(high)).ok_or_else(wrong)?;
                if low <= high { Ok(Stated::Range(low, high)) } else { Err(wrong()) }
            }
            [] => Err(wrong()),
            names => {
                let names = names.iter().map(|n| n.as_str().map(str::to_owned)).collect::<Option<_>>();
                names.map(Stated::Policies).ok_or_else(wrong)
            }
        }
    }
}

impl From<Stated> for toml::Value {
    fn from(stated: Stated) -> toml::Value {
        match stated {
            Stated::FigureOnly => FIGURE_ONLY.into(),
            Stated::Number(x) => x.into(),
            Stated::Range(low, high) => toml::Value::Array(vec![low.into(), high.into()]),
            Stated::Policies(names) => toml::Value::Array(names.into_iter().map(toml::Value::from).collect()),
        }
    }
}

/// Reads a number of a TOML file, finite or infinite, whole or not. NaN is refused.
pub fn number(value: &toml::Value) -> Option<f64> {
    let x = value.as_float().or_else(|| value.as_integer().map(|i| i as f64));
    x.filter(|x| !x.is_nan())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Stated, String> {
        let table: toml::Table = text.parse().unwrap();
        Stated::try_from(table["x"].clone())
    }

    #[test]
    fn every_form_is_read_and_written_back() {
        for (text, stated) in [
            ("x = 12", Stated::Number(12.0)),
            ("x = [0.07, 0.18]", Stated::Range(0.07, 0.18)),
            ("x = [1, inf]", Stated::Range(1.0, f64::INFINITY)),
            ("x = \"figure only\"", Stated::FigureOnly),
            ("x = [\"fixed-3\", \"fixed-5\"]", Stated::Policies(vec!["fixed-3".into(), "fixed-5".into()])),
        ] {
            assert_eq!(read(text), Ok(stated.clone()), "{text}");
            assert_eq!(Stated::try_from(toml::Value::from(stated.clone())), Ok(stated));
        }
    }

    #[test]
    fn anything_else_is_refused() {
        for text in
            ["x = \"guessed\"", "x = []", "x = [2, 1]", "x = [1, \"a\"]", "x = [1, 2, 3]", "x = nan", "x = true"]
        {
            assert!(read(text).is_err_and(|e| e.contains("expected a number, a range")), "{text}");
        }
    }
}
