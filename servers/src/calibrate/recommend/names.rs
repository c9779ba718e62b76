//! Names of policies in recommendations, such as `K = 3`.

use foretoken_policies::{BatchRange, PolicySpec};

/// The name of a policy: `plain decoding`, `K = 3`, `table by batch size`; other policies have their label.
pub fn name_of(spec: &PolicySpec) -> String {
    match spec {
        PolicySpec::Autoregressive(_) => "plain decoding".into(),
        PolicySpec::Fixed(p) => format!("K = {}", p.k),
        PolicySpec::VllmDynamic(_) => "table by batch size".into(),
        PolicySpec::SglangGen3(_) => "SGLang's adaptive policy".into(),
        other => other.label(),
    }
}

/// A table of draft lengths by batch size as text, such as `1 to 3: K = 5; 4 to 8: K = 2`.
pub fn table_in_words(ranges: &[BatchRange]) -> String {
    let words: Vec<String> = ranges
        .iter()
        .map(|(first, last, k)| match first == last {
            true => format!("{first}: K = {k}"),
            false => format!("{first} to {last}: K = {k}"),
        })
        .collect();
    if words.is_empty() { "none".into() } else { words.join("; ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_written_range_by_range() {
        assert_eq!(table_in_words(&[(1, 3, 5), (4, 8, 2), (9, 9, 0)]), "1 to 3: K = 5; 4 to 8: K = 2; 9: K = 0");
        assert_eq!(table_in_words(&[]), "none");
    }
}
