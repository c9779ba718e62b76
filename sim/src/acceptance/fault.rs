//! The error for a wrong setting of `acceptance`, and the checks that several laws of acceptance share.

/// The error for a setting from which no acceptance source can be built.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("acceptance.{key}: {why}")]
pub struct BadAcceptance {
    /// The path of the setting below `acceptance`, such as `source.constant.rate`.
    pub key: String,
    /// What is wrong with the setting, and which value would be accepted.
    pub why: String,
}

/// Returns the error for the setting `key`, a path below `acceptance`.
pub(super) fn bad<T>(key: &str, why: impl Into<String>) -> Result<T, BadAcceptance> {
    Err(BadAcceptance { key: key.into(), why: why.into() })
}

/// Refuses an empty list of acceptance rates (probabilities that a draft token is right), and rates outside [0, 1].
pub(super) fn check_rates(key: &str, rates: &[f64]) -> Result<(), BadAcceptance> {
    if rates.is_empty() {
        return bad(key, "needs at least one rate");
    }
    match rates.iter().find(|r| !(0.0..=1.0).contains(*r)) {
        Some(r) => bad(key, format!("{r} is not a probability in [0, 1]")),
        None => Ok(()),
    }
}

/// Refuses an empty list of `[tokens, rate]` (acceptance rate by tokens of context), tokens that do not rise, and rates
/// outside [0, 1].
pub(super) fn check_points(key: &str, points: &[(u32, f64)]) -> Result<(), BadAcceptance> {
    if points.is_empty() {
        return bad(key, "needs at least one [tokens, rate]");
    }
    if let Some(w) = points.windows(2).find(|w| w[0].0 >= w[1].0) {
        return bad(key, format!("{} tokens come behind {}: tokens must rise", w[1].0, w[0].0));
    }
    match points.iter().find(|(_, rate)| !(0.0..=1.0).contains(rate)) {
        Some((_, rate)) => bad(key, format!("{rate} is not a probability in [0, 1]")),
        None => Ok(()),
    }
}
