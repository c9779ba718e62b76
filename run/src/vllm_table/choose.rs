//! Chooses the draft length of a row of the table. Every length is compared with the fastest one, on the same requests
//! and the same random draws.
//!
//! A length is as good as the fastest if it is within [`AS_GOOD`] of it. It is also as good if it is within [`FEW`] and
//! the difference is not significant over the seeds. The smallest of these lengths is taken, because it loses least if
//! the draft is worse than expected. If a length is further behind than [`FEW`] and the difference is still not
//! significant, the row is too noisy: then the fastest is taken, and a warning asks for more seeds.
//!
//! Each comparison has a 95 % interval of its own. The intervals are not corrected for the number of comparisons: by
//! chance, one comparison in forty calls an equal length slower.

use foretoken_sim::metrics::Interval;

/// A length that is at most this share slower than the fastest is as good.
pub const AS_GOOD: f64 = 0.01;
/// A length that is not significantly slower than the fastest is as good if it is at most this share behind.
pub const FEW: f64 = 0.03;

/// The result of comparing a length with the fastest of its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is the fastest length.
    Fastest,
    /// It is within [`AS_GOOD`] of the fastest.
    Near,
    /// The difference is not significant over the seeds, and the length is within [`FEW`].
    NotApart,
    /// The difference is not significant over the seeds, and the length is further behind than [`FEW`].
    Noisy,
    /// It is slower than the fastest.
    Behind,
}

/// A length of a row, compared with the fastest one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Held {
    /// The draft length, tokens.
    pub k: u32,
    /// Logarithm of the length's rate over the fastest one's, paired by seed.
    pub over_fastest: Interval,
    /// The conclusion from the interval.
    pub verdict: Verdict,
}

/// The chosen length of a row, and the comparison of all lengths.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// The length that is taken.
    pub k: u32,
    /// The length with the highest rate.
    pub fastest: u32,
    /// Every length, in the order given.
    pub all: Vec<Held>,
}

impl Choice {
    /// The lengths with this verdict.
    pub fn that_are(&self, verdict: Verdict) -> impl Iterator<Item = &Held> {
        self.all.iter().filter(move |held| held.verdict == verdict)
    }

    /// Is some length far behind the fastest, without a significant difference?
    pub fn is_noisy(&self) -> bool {
        self.that_are(Verdict::Noisy).next().is_some()
    }
}

/// Chooses among `lengths`: pairs of a length and its rates by seed, in ascending order. `None` without lengths.
pub fn choose(lengths: &[(u32, &[f64])]) -> Option<Choice> {
    let mean = |rates: &[f64]| rates.iter().map(|rate| rate.ln()).sum::<f64>() / rates.len() as f64;
    // Of equal rates the first length is kept, which is the shortest.
    let &(fastest, best) = lengths.iter().reduce(|a, b| if mean(b.1) > mean(a.1) { b } else { a })?;
    let held = |&(k, rates): &(u32, &[f64])| {
        let over_fastest = over(rates, best);
        let verdict = if k == fastest { Verdict::Fastest } else { verdict(over_fastest) };
        Held { k, over_fastest, verdict }
    };
    let all: Vec<Held> = lengths.iter().map(held).collect();
    let mut choice = Choice { k: fastest, fastest, all };
    if !choice.is_noisy() {
        choice.k = choice.all.iter().find(|held| held.verdict != Verdict::Behind)?.k;
    }
    Some(choice)
}

/// Mean and interval of the logarithm of `rates` / `others`, paired by seed.
///
/// # Panics
/// There is no seed.
pub fn over(rates: &[f64], others: &[f64]) -> Interval {
    let logs: Vec<f64> = rates.iter().zip(others).map(|(a, b)| (a / b).ln()).collect();
    Interval::of(&logs).expect("there is a seed")
}

/// Is the difference significant: does the interval exclude 0? One seed has no interval, and any difference counts.
pub fn told_apart(over: Interval) -> bool {
    over.half_width.is_none_or(|half| over.mean.abs() > half)
}

fn verdict(over_fastest: Interval) -> Verdict {
    let behind = -over_fastest.mean.exp_m1();
    if behind <= AS_GOOD {
        Verdict::Near
    } else if told_apart(over_fastest) {
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
        (choice.k, choice.fastest, choice.all.iter().map(|held| held.verdict).collect())
    }

    #[test]
    fn the_fastest_is_taken_when_every_other_length_is_behind() {
        let row: [(u32, &[f64]); 3] =
            [(0, &[100.0, 101.0, 99.0]), (1, &[149.0, 151.0, 150.0]), (2, &[170.0, 171.0, 169.0])];
        assert_eq!(chosen(&row), (2, 2, vec![Behind, Behind, Fastest]));
        let held = choose(&row).unwrap().all[1];
        assert!((held.over_fastest.mean - (150.0f64 / 170.0).ln()).abs() < 1e-3 && held.over_fastest.n == 3);
    }

    /// Over three seeds, neither 1 nor 3 differs significantly from 2. A comparison with the second best alone would
    /// not find 1.
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

    /// 1 is 6 % behind 2, but not significantly over three seeds. It is not taken although it is the smallest.
    #[test]
    fn a_noisy_length_far_behind_is_not_taken() {
        let row: [(u32, &[f64]); 3] =
            [(1, &[80.0, 97.0, 105.0]), (2, &[100.0, 100.0, 100.0]), (3, &[99.5, 99.5, 99.5])];
        assert_eq!(chosen(&row), (2, 2, vec![Noisy, Fastest, Near]));
        assert!(choose(&row).unwrap().is_noisy());
    }

    #[test]
    fn within_a_percent_the_smaller_is_taken_though_it_is_told_apart() {
        let row: [(u32, &[f64]); 2] = [(3, &[10_000.0, 20_000.0, 30_000.0]), (4, &[10_090.0, 20_180.0, 30_270.0])];
        assert_eq!(chosen(&row), (3, 4, vec![Near, Fastest]));
    }

    /// Seeds differ threefold. Paired by seed, 4 is 2 % faster than 3, and the interval excludes 0.
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
