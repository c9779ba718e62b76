//! How many draft tokens were accepted, read from the numbers that load generators report.

use super::run::Acceptance;

/// The acceptance as the mean number of accepted draft tokens of a request in a step, which is `tokens` − 1, but at
/// least 0. `tokens` is the mean number of tokens that a request gets in a step, with the target's own token.
pub(super) fn of_length(tokens: f64) -> Acceptance {
    Acceptance::Mean((tokens - 1.0).max(0.0))
}

/// For each draft position: the share of rounds that accepted the draft token at this position. `rounds[n]` is the
/// number of rounds that accepted n draft tokens. `None` if there was no round.
pub(super) fn of_counts(rounds: &[u64]) -> Option<Acceptance> {
    let all: u64 = rounds.iter().sum();
    let at_least = |n: usize| rounds[n..].iter().sum::<u64>() as f64 / all as f64;
    (all > 0 && rounds.len() > 1).then(|| Acceptance::ByPosition((1..rounds.len()).map(at_least).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_come_from_counts() {
        // 10 rounds: 4 accepted no token, 2 one token, 1 two tokens, 3 three tokens.
        assert_eq!(of_counts(&[4, 2, 1, 3]), Some(Acceptance::ByPosition(vec![0.6, 0.4, 0.3])));
        assert_eq!((of_counts(&[]), of_counts(&[0, 0])), (None, None));
        assert_eq!(of_length(2.5), Acceptance::Mean(1.5));
    }
}
