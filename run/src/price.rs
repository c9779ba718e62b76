//! What tokens cost.

/// The price of a million output tokens of servers that cost `hour` an hour and make `tok_s` tokens a second.
pub fn million_tokens(hour: f64, tok_s: f64) -> f64 {
    hour / (3600.0 * tok_s) * 1e6
}
