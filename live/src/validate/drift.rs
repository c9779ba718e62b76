//! The machine's speed from piece to piece: each piece's probes compared with the typical probe of the whole run.

use super::probe::{Probe, by_pass};
use foretoken_profiler::median;
use serde::{Deserialize, Serialize};

/// The typical probe of a run: for each probed pass the median over all probes, in seconds.
pub fn typical<'a>(probes: impl IntoIterator<Item = &'a Probe>) -> Vec<f64> {
    by_pass(probes).into_iter().map(median).collect()
}

/// Relative change of pass times in a piece against the typical probe: the mean over the probed passes of the median
/// over the piece's probes. `None` for a piece without probes.
pub fn drift(probes: &[Probe], typical: &[f64]) -> Option<f64> {
    let of = self::typical(probes);
    let changes: Vec<f64> = of.iter().zip(typical).map(|(now, usual)| now / usual - 1.0).collect();
    (!changes.is_empty()).then(|| changes.iter().sum::<f64>() / changes.len() as f64)
}

/// The range of the machine's speed over all pieces.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Drift {
    /// Drift of the piece with the shortest passes.
    pub smallest: f64,
    /// Drift of the piece with the longest passes.
    pub largest: f64,
}

impl Drift {
    /// The range over pieces; `None` without any.
    pub fn over(pieces: impl IntoIterator<Item = f64>) -> Option<Drift> {
        pieces.into_iter().fold(None, |range: Option<Drift>, d| {
            let Drift { smallest, largest } = range.unwrap_or(Drift { smallest: d, largest: d });
            Some(Drift { smallest: smallest.min(d), largest: largest.max(d) })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_is_held_to_the_typical_probe() {
        let probe = |a: f64, b: f64| Probe { seconds: vec![a, b] };
        let usual = [probe(1.0, 2.0), probe(1.0, 2.0), probe(1.0, 2.0)];
        let slow = [probe(1.1, 2.4), probe(1.1, 2.4), probe(9.0, 2.4)];
        let typical = typical(usual.iter().chain(&usual).chain(&slow));
        assert_eq!(typical, [1.0, 2.0]);
        assert_eq!(drift(&usual, &typical), Some(0.0));
        assert!((drift(&slow, &typical).unwrap() - 0.15).abs() < 1e-12);
        assert_eq!(drift(&[], &typical), None);
    }

    #[test]
    fn the_range_is_from_the_shortest_to_the_longest() {
        let range = Drift::over([0.02, -0.01, 0.005]).unwrap();
        assert_eq!((range.smallest, range.largest), (-0.01, 0.02));
        assert_eq!(Drift::over([]), None);
    }
}
