//! A term of the number of requests in the cost of a target pass, and the curve that fitted terms make.

/// A term of the number of requests in the cost of a target pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchTerm {
    /// A constant for each pass of more than this number of requests.
    Above(u32),
    /// A time for each request beyond this number.
    Beyond(u32),
}

impl BatchTerm {
    /// The term's part of a pass of `requests` requests, for one second.
    pub fn of(self, requests: u32) -> f64 {
        match self {
            BatchTerm::Above(n) => f64::from(u8::from(requests > n)),
            BatchTerm::Beyond(n) => f64::from(requests.saturating_sub(n)),
        }
    }

    /// The term with its seconds, as text.
    pub fn in_words(self, seconds: f64) -> String {
        match self {
            BatchTerm::Above(n) => format!("{:.2} ms above {n} requests", 1e3 * seconds),
            BatchTerm::Beyond(n) => format!("{:.1} us a request beyond {n}", 1e6 * seconds),
        }
    }
}

/// The sum of fitted terms as points (requests, seconds) of a piecewise linear curve up to `far` requests.
pub(crate) fn curve(terms: &[(BatchTerm, f64)], far: u64) -> Vec<(u64, f64)> {
    if terms.is_empty() {
        return Vec::new();
    }
    let edges = terms.iter().flat_map(|(term, _)| match *term {
        BatchTerm::Above(n) => [u64::from(n), u64::from(n) + 1],
        BatchTerm::Beyond(n) => [u64::from(n); 2],
    });
    let mut at: Vec<u64> = [0, far].into_iter().chain(edges).collect();
    at.sort_unstable();
    at.dedup();
    let seconds = |n: u64| terms.iter().map(|(term, seconds)| seconds * term.of(n as u32)).sum();
    at.into_iter().map(|n| (n, seconds(n))).collect()
}
