//! A term in the cost of a target pass beside its line of tokens, and the curves that fitted terms make.

/// A term in the cost of a target pass, by the pass's requests or tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Term {
    /// A constant for each pass of more than this number of requests.
    Above(u32),
    /// A time for each request beyond this number.
    Beyond(u32),
    /// A time for each tile of this number of tokens behind the first tile. A pass computes whole tiles.
    Tiles(u32),
}

/// Most points of a curve with tiles. From there on it rises as a line.
const POINTS: u64 = 4096;

impl Term {
    /// The term's part of a pass of `requests` requests and `tokens` tokens, for one second.
    pub fn of(self, requests: u32, tokens: u64) -> f64 {
        match self {
            Term::Above(n) => f64::from(u8::from(requests > n)),
            Term::Beyond(n) => f64::from(requests.saturating_sub(n)),
            Term::Tiles(t) => tokens.max(1).div_ceil(t.into()) as f64 - 1.0,
        }
    }

    pub fn in_words(self, seconds: f64) -> String {
        match self {
            Term::Above(n) => format!("{:.2} ms above {n} requests", 1e3 * seconds),
            Term::Beyond(n) => format!("{:.1} us a request beyond {n}", 1e6 * seconds),
            Term::Tiles(t) => format!("{:.2} ms for each further {t} tokens, or a part of them", 1e3 * seconds),
        }
    }
}

/// The sum of the fitted terms of requests as points (requests, seconds) of a piecewise linear curve up to `far`
/// requests.
pub(crate) fn curve(terms: &[(Term, f64)], far: u64) -> Vec<(u64, f64)> {
    let edges = terms.iter().flat_map(|(term, _)| match *term {
        Term::Above(n) => vec![u64::from(n), u64::from(n) + 1],
        Term::Beyond(n) => vec![n.into()],
        Term::Tiles(_) => vec![],
    });
    let mut at: Vec<u64> = edges.collect();
    if at.is_empty() {
        return Vec::new();
    }
    at.extend([0, far]);
    at.sort_unstable();
    at.dedup();
    let of_requests = || terms.iter().filter(|(term, _)| !matches!(term, Term::Tiles(_)));
    at.into_iter().map(|n| (n, of_requests().map(|(term, s)| s * term.of(n as u32, 1)).sum())).collect()
}

/// The cost by tokens, `line`, with the tiles among the fitted terms: points (tokens, seconds) of a piecewise linear
/// curve. `line` gives the seconds without tiles at a number of tokens, and has its own points at `bends`. Behind `far`
/// tokens, or 4,096 points, each tile is a line.
pub(crate) fn stairs(terms: &[(Term, f64)], bends: &[u64], far: u64, line: impl Fn(u64) -> f64) -> Vec<(u64, f64)> {
    let tiles: Vec<(u64, f64)> = terms
        .iter()
        .filter_map(|(term, s)| match *term {
            Term::Tiles(t) => Some((t.into(), *s)),
            _ => None,
        })
        .collect();
    let seconds = |x: u64| line(x) + tiles.iter().map(|&(t, s)| s * (x.max(1).div_ceil(t) as f64 - 1.0)).sum::<f64>();
    let mut at = bends.to_vec();
    for &(t, _) in &tiles {
        let last = far.div_ceil(t).min(POINTS / (2 * tiles.len() as u64));
        at.extend((1..=last).flat_map(|i| [i * t, i * t + 1]));
    }
    if let Some(end) = at.iter().max().copied().filter(|_| !tiles.is_empty()) {
        // From the end of a tile of each kind to a far one, so that the last segment has the mean slope.
        let step = tiles.iter().map(|&(t, _)| t).product::<u64>();
        at.extend([end.next_multiple_of(step), end.next_multiple_of(step) + step]);
    }
    at.sort_unstable();
    at.dedup();
    at.into_iter().map(|x| (x, seconds(x))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_are_jumps_and_then_a_line() {
        let terms = [(Term::Tiles(20), 2e-3), (Term::Above(8), 1e-3)];
        let points = stairs(&terms, &[1, 40], 40, |x| 1e-4 * x as f64);
        let xs: Vec<u64> = points.iter().map(|p| p.0).collect();
        assert_eq!(xs, [1, 20, 21, 40, 41, 60, 80]);
        let at = |x: u64| points.iter().find(|p| p.0 == x).unwrap().1;
        for (x, tiles) in [(1, 0.0), (20, 0.0), (21, 1.0), (40, 1.0), (41, 2.0), (60, 2.0), (80, 3.0)] {
            assert!((at(x) - 1e-4 * x as f64 - 2e-3 * tiles).abs() < 1e-12, "{x}");
        }
        assert_eq!(curve(&terms, 99), [(0, 0.0), (8, 0.0), (9, 1e-3), (99, 1e-3)]);
        assert_eq!(curve(&terms[..1], 99), []);
        assert_eq!(stairs(&terms[1..], &[1, 40], 40, |x| x as f64), [(1, 1.0), (40, 40.0)]);
    }
}
