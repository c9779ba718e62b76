//! Chooses the draft length for a row of vLLM's table of draft lengths by batch size. Every length is compared with the
//! row's fastest length, on the same requests and the same random draws.
//!
//! A length is as good as the fastest if it is at most [`AS_GOOD`] slower. It is also as good if it is at most [`FEW`]
//! slower and the difference is not significant over the seeds. The row takes the smallest of these lengths, because it
//! loses least if the draft model is worse than expected. A row is too noisy if some length is more than [`FEW`] slower
//! and the difference is not significant. Then the row takes the fastest length, and a warning asks for more seeds.
//!
//! Each comparison has its own 95 % interval. The intervals are not corrected for the number of comparisons: by chance,
//! one comparison in forty finds an equally fast length to be slower.

use foretoken_sim::metrics::Interval;

/// A draft length is as good as the fastest length if its rate (output tokens per second) is at most this share lower.
pub const AS_GOOD: f64 = 0.01;
/// If the difference is not significant over the seeds, a draft length is as good as the fastest length if its rate
/// (output tokens per second) is at most this share lower.
pub const FEW: f64 = 0.03;

/// How a fixed draft length compares with the fastest length at the same number of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// This draft length is the fastest.
    Fastest,
    /// The draft length is slower than the fastest, but by at most [`AS_GOOD`].
    Near,
    /// The draft length is slower than the fastest by more than [`AS_GOOD`] and at most [`FEW`], and the difference is
    /// not significant over the seeds.
    NotApart,
    /// The draft length is slower than the fastest by more than [`FEW`], and the difference is not significant over the
    /// seeds.
    Noisy,
    /// The draft length is slower than the fastest by more than [`AS_GOOD`], and the difference is significant over the
    /// seeds.
    Behind,
}

/// A draft length, compared with the fastest length at the same number of clients.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ComparedLength {
    pub k: u32,
    /// ln(output tokens per second of this draft length / of the fastest length): mean over seeds and 95 % interval.
    pub over_fastest: Interval,
    /// How this draft length compares with the fastest length, by the ratio of their rates and its interval.
    pub verdict: Verdict,
}

/// The draft length chosen for a row of the table (a number of clients), and the comparison of all lengths.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// The chosen draft length, tokens.
    pub k: u32,
    /// The draft length, in tokens, with the most output tokens per second.
    pub fastest: u32,
    /// Every draft length, compared with the fastest one, ascending by length.
    pub all: Vec<ComparedLength>,
}

impl Choice {
    /// The draft lengths whose comparison with the fastest length has the verdict `verdict`.
    pub fn with_verdict(&self, verdict: Verdict) -> impl Iterator<Item = &ComparedLength> {
        self.all.iter().filter(move |length| length.verdict == verdict)
    }

    /// Is some draft length more than [`FEW`] slower than the fastest, without a significant difference over the seeds?
    pub fn is_noisy(&self) -> bool {
        self.with_verdict(Verdict::Noisy).next().is_some()
    }
}

/// Chooses a draft length. `lengths` are (length, its output tokens per second with each seed), ascending by length.
/// `None` if there are no lengths.
pub fn choose(lengths: &[(u32, &[f64])]) -> Option<Choice> {
    let mean = |rates: &[f64]| rates.iter().map(|rate| rate.ln()).sum::<f64>() / rates.len() as f64;
    // If several draft lengths have equal rates, the first one is the fastest, which is the shortest.
    let &(fastest, best) = lengths.iter().reduce(|a, b| if mean(b.1) > mean(a.1) { b } else { a })?;
    let compare = |&(k, rates): &(u32, &[f64])| {
        let over_fastest = over(rates, best);
        let verdict = if k == fastest { Verdict::Fastest } else { verdict(over_fastest) };
        ComparedLength { k, over_fastest, verdict }
    };
    let mut choice = Choice { k: fastest, fastest, all: lengths.iter().map(compare).collect() };
    if !choice.is_noisy() {
        choice.k = choice.all.iter().find(|length| length.verdict != Verdict::Behind)?.k;
    }
    Some(choice)
}

/// ln(`rates` / `others`), both in output tokens per second and paired by seed: mean over seeds and 95 % interval.
pub fn over(rates: &[f64], others: &[f64]) -> Interval {
    let logs: Vec<f64> = rates.iter().zip(others).map(|(a, b)| (a / b).ln()).collect();
    Interval::of(&logs).expect("there is a seed")
}

/// Is a difference of two rates significant, that is, does the 95 % interval `over` of the logarithm of their ratio
/// exclude 0? With one seed there is no interval; then every difference counts as significant.
pub fn is_significant(over: Interval) -> bool {
    over.half_width.is_none_or(|half| over.mean.abs() > half)
}

fn verdict(over_fastest: Interval) -> Verdict {
    let behind = -over_fastest.mean.exp_m1();
    if behind <= AS_GOOD {
        Verdict::Near
    } else if is_significant(over_fastest) {
        Verdict::Behind
    } else if behind <= FEW {
        Verdict::NotApart
    } else {
        Verdict::Noisy
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Verdict::{Behind, Fastest, Near, Noisy, NotApart};

    fn chosen(lengths: &[(u32, &[f64])]) -> (u32, u32, Vec<Verdict>) {
        let choice = choose(lengths).unwrap();
        (choice.k, choice.fastest, choice.all.iter().map(|length| length.verdict).collect())
    }

    #[test]
    fn the_fastest_is_taken_when_every_other_length_is_behind() {
        let row: [(u32, &[f64]); 3] =
            [(0, &[100.0, 101.0, 99.0]), (1, &[149.0, 151.0, 150.0]), (2, &[170.0, 171.0, 169.0])];
        assert_eq!(chosen(&row), (2, 2, vec![Behind, Behind, Fastest]));
        let slower = choose(&row).unwrap().all[1];
        assert!((slower.over_fastest.mean - (150.0f64 / 170.0).ln()).abs() < 1e-3 && slower.over_fastest.n == 3);
    }

    /// Over three seeds, neither draft length 1 nor 3 differs significantly from length 2, the fastest. A comparison
    /// with the second best length alone would not find length 1.
    #[test]
    fn every_length_is_compared_with_the_fastest() {
        let row: [(u32, &[f64]); 4] = [
            (0, &[90.0, 90.0, 90.0]),
            (1, &[98.5, 97.0, 99.5]),
            (2, &[100.0, 100.0, 100.0]),
            (3, &[98.0, 98.9, 100.5]),
        ];
        assert_eq!(chosen(&row), (1, 2, vec![Behind, NotApart, Fastest, Near]));
    }

    /// Draft length 1 is 6 % slower than length 2, but not significantly over three seeds. The comparison is too noisy,
    /// so the fastest length is taken.
    #[test]
    fn a_noisy_length_far_behind_is_not_taken() {
        let row: [(u32, &[f64]); 3] =
            [(1, &[80.0, 97.0, 105.0]), (2, &[100.0, 100.0, 100.0]), (3, &[99.5, 99.5, 99.5])];
        assert_eq!(chosen(&row), (2, 2, vec![Noisy, Fastest, Near]));
        assert!(choose(&row).unwrap().is_noisy());
    }

    #[test]
    fn within_a_percent_the_smaller_is_taken_though_the_difference_is_significant() {
        let row: [(u32, &[f64]); 2] = [(3, &[10_000.0, 20_000.0, 30_000.0]), (4, &[10_090.0, 20_180.0, 30_270.0])];
        assert_eq!(chosen(&row), (3, 4, vec![Near, Fastest]));
    }

    /// Rates differ threefold between seeds. Paired by seed, draft length 4 is 2 % faster than length 3, and the
    /// interval excludes 0.
    #[test]
    fn seeds_are_paired() {
        let row: [(u32, &[f64]); 2] = [(3, &[10_000.0, 20_000.0, 30_000.0]), (4, &[10_200.0, 20_410.0, 30_590.0])];
        assert_eq!(chosen(&row), (4, 4, vec![Behind, Fastest]));
    }

    #[test]
    fn one_seed_has_no_interval_and_counts_as_it_is() {
        assert_eq!(chosen(&[(0, &[100.0]), (2, &[102.0])]), (2, 2, vec![Behind, Fastest]));
        assert_eq!(chosen(&[(0, &[100.0]), (2, &[100.5])]), (0, 2, vec![Near, Fastest]));
        assert_eq!(choose(&[]), None);
    }
}
