//! The length of a row: every length is held against the fastest one, on the same requests and the same luck.
//!
//! A length is as good as the fastest when it is within [`AS_GOOD`] of it, or when the seeds do not tell the two apart
//! and it is within [`FEW`]. The smallest of these is taken: it costs the least where the draft is worse than was
//! thought. A length that is further behind than [`FEW`] and still not told apart makes the row too noisy to say:
//! then the fastest is taken, and more seeds are asked for.
//!
//! Each comparison has an interval of 95 % of its own. They are not corrected for their number: a length is called
//! told apart from the fastest by chance in one comparison of forty, and then the two are nearly equal.

use foretoken_sim::metrics::Interval;

/// A length this near to the fastest, as a share, is as good.
pub const AS_GOOD: f64 = 0.01;
/// A length that is not told apart from the fastest is as good up to this share behind it.
pub const FEW: f64 = 0.03;

/// How a length stands against the fastest of its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It is the fastest.
    Fastest,
    /// It is within [`AS_GOOD`] of the fastest.
    Near,
    /// The seeds do not tell it from the fastest, and it is within [`FEW`].
    NotApart,
    /// The seeds do not tell it from the fastest, and it is further behind than [`FEW`].
    Noisy,
    /// It is slower.
    Behind,
}

/// A length of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Held {
    /// The length.
    pub k: u32,
    /// Logarithm of its rate over the fastest one's, paired by seed.
    pub over_fastest: Interval,
    /// What that says.
    pub standing: Standing,
}

/// The length of a row.
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
    /// The lengths with a standing.
    pub fn that_are(&self, standing: Standing) -> impl Iterator<Item = &Held> {
        self.all.iter().filter(move |held| held.standing == standing)
    }

    /// Some length is far behind the fastest and not told apart from it.
    pub fn is_noisy(&self) -> bool {
        self.that_are(Standing::Noisy).next().is_some()
    }
}

/// Chooses among lengths, in ascending order, with their rates by seed; `None` of no lengths.
pub fn choose(lengths: &[(u32, &[f64])]) -> Option<Choice> {
    let mean = |rates: &[f64]| rates.iter().map(|rate| rate.ln()).sum::<f64>() / rates.len() as f64;
    // Of equals the first, the shortest.
    let &(fastest, best) = lengths.iter().reduce(|a, b| if mean(b.1) > mean(a.1) { b } else { a })?;
    let held = |&(k, rates): &(u32, &[f64])| {
        let over_fastest = over(rates, best);
        let standing = if k == fastest { Standing::Fastest } else { standing(over_fastest) };
        Held { k, over_fastest, standing }
    };
    let all: Vec<Held> = lengths.iter().map(held).collect();
    let mut choice = Choice { k: fastest, fastest, all };
    if !choice.is_noisy() {
        choice.k = choice.all.iter().find(|held| held.standing != Standing::Behind)?.k;
    }
    Some(choice)
}

/// Logarithm of one policy's rate over another's, paired by seed.
///
/// # Panics
/// Without a seed.
pub fn over(rates: &[f64], others: &[f64]) -> Interval {
    let logs: Vec<f64> = rates.iter().zip(others).map(|(a, b)| (a / b).ln()).collect();
    Interval::of(&logs).expect("there is a seed")
}

/// Does the interval lie on one side of zero? One seed has no interval, and its number counts as it is.
pub fn told_apart(over: Interval) -> bool {
    over.half_width.is_none_or(|half| over.mean.abs() > half)
}

fn standing(over_fastest: Interval) -> Standing {
    let behind = -over_fastest.mean.exp_m1();
    if behind <= AS_GOOD {
        Standing::Near
    } else if told_apart(over_fastest) {
        Standing::Behind
    } else if behind <= FEW {
        Standing::NotApart
    } else {
        Standing::Noisy
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Standing::{Behind, Fastest, Near, Noisy, NotApart};

    fn chosen(lengths: &[(u32, &[f64])]) -> (u32, u32, Vec<Standing>) {
        let choice = choose(lengths).unwrap();
        (choice.k, choice.fastest, choice.all.iter().map(|held| held.standing).collect())
    }

    #[test]
    fn the_fastest_is_taken_when_every_other_length_is_behind() {
        let row: [(u32, &[f64]); 3] =
            [(0, &[100.0, 101.0, 99.0]), (1, &[149.0, 151.0, 150.0]), (2, &[170.0, 171.0, 169.0])];
        assert_eq!(chosen(&row), (2, 2, vec![Behind, Behind, Fastest]));
        let held = choose(&row).unwrap().all[1];
        assert!((held.over_fastest.mean - (150.0f64 / 170.0).ln()).abs() < 1e-3 && held.over_fastest.n == 3);
    }

    /// 1 and 3 are both equal to 2 as far as three seeds say; a comparison with the next best alone would not name 1.
    #[test]
    fn every_length_is_held_against_the_fastest() {
        let row: [(u32, &[f64]); 4] = [
            (0, &[90.0, 90.0, 90.0]),
            (1, &[98.5, 97.0, 99.5]),
            (2, &[100.0, 100.0, 100.0]),
            (3, &[98.0, 98.9, 100.5]),
        ];
        assert_eq!(chosen(&row), (1, 2, vec![Behind, NotApart, Fastest, Near]));
    }

    /// 1 is 6 % behind, and three seeds do not tell it from 2: its small size is no reason to take it.
    #[test]
    fn a_length_far_behind_is_not_taken_for_want_of_seeds() {
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
