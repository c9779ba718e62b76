//! Rates of acceptance between requests: how far requests differ, and how much each one accepts, from its rounds.
//!
//! The log-odds that the draft token at depth d of a round (0 is the first) is right are v + b(d). The value v is a
//! request's own; b(d) is the same for all requests, and b(0) = 0. The distribution of v over requests is a histogram
//! over [`GRID`], so that it may be wide, narrow or have two heaps. Expectation maximisation finds the histogram and
//! b together. The steps are few: more of them would move the histogram onto a few sharp points.
//!
//! A position behind a round that was accepted as a whole was not drafted. Such positions belong to requests that
//! accept much. With the mean rate of all requests in their place, a longer or shorter draft length, whose rounds
//! begin elsewhere, would accept too little.

/// Smallest and largest value of v, and the number of values between which the histogram divides the requests.
const GRID: (f64, f64, usize) = (-5.0, 6.0, 45);
/// Number of steps of expectation maximisation.
const STEPS: usize = 60;
/// Prior standard deviation of the difference of two neighbouring b(d), for depths that few rounds reached.
const PRIOR: f64 = 1.0;

/// The rounds of a request: (rounds that reached the depth, rounds that accepted it), by depth.
pub type Counts = Vec<(u64, u64)>;

/// The rates of a group of requests.
#[derive(Clone, Debug, PartialEq)]
pub struct Spread {
    /// The share of requests at each value of the grid.
    shares: Vec<f64>,
    /// b(d) for each depth that was drafted.
    offsets: Vec<f64>,
}

fn value(i: usize) -> f64 {
    let (least, most, n) = GRID;
    least + (most - least) * i as f64 / (n - 1) as f64
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

impl Spread {
    /// Estimates the rates of requests with these rounds. `None` if no rounds were drafted.
    pub fn of(requests: &[Counts]) -> Option<Spread> {
        let reached = |c: &Counts| c.iter().take_while(|at| at.0 > 0).count();
        let depths = requests.iter().map(reached).max().filter(|&depths| depths > 0)?;
        let mut spread = Spread { shares: vec![1.0 / GRID.2 as f64; GRID.2], offsets: vec![0.0; depths] };
        for _ in 0..STEPS {
            let weights: Vec<Vec<f64>> = requests.iter().map(|r| spread.posterior(r)).collect();
            for (i, share) in spread.shares.iter_mut().enumerate() {
                *share = weights.iter().map(|w| w[i]).sum::<f64>() / requests.len() as f64;
            }
            for d in 1..depths {
                spread.offsets[d] += spread.newton_step(d, requests, &weights);
            }
        }
        Some(spread)
    }

    /// One step of Newton's method towards the most probable b(d), given the distribution of v of each request.
    fn newton_step(&self, d: usize, requests: &[Counts], weights: &[Vec<f64>]) -> f64 {
        let precision = PRIOR.powi(-2);
        let (mut slope, mut curve) = (precision * (self.offsets[d - 1] - self.offsets[d]), precision);
        for i in 0..GRID.2 {
            let p = sigmoid(value(i) + self.offsets[d]);
            let sum = |of: fn(&(u64, u64)) -> u64| -> f64 {
                requests.iter().zip(weights).map(|(r, w)| r.get(d).map_or(0.0, |at| of(at) as f64 * w[i])).sum()
            };
            let (n, accepted) = (sum(|at| at.0), sum(|at| at.1));
            slope += accepted - n * p;
            curve += n * p * (1.0 - p);
        }
        slope / curve
    }

    /// The distribution of v over the grid, for a request with these rounds.
    fn posterior(&self, rounds: &Counts) -> Vec<f64> {
        let log = |i: usize| {
            let at = |(d, &(n, a)): (usize, &(u64, u64))| {
                let p = sigmoid(value(i) + self.offset(d)).clamp(1e-9, 1.0 - 1e-9);
                a as f64 * p.ln() + (n - a) as f64 * (1.0 - p).ln()
            };
            self.shares[i].max(1e-300).ln() + rounds.iter().enumerate().map(at).sum::<f64>()
        };
        let logs: Vec<f64> = (0..GRID.2).map(log).collect();
        let most = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let all: Vec<f64> = logs.iter().map(|x| (x - most).exp()).collect();
        let sum: f64 = all.iter().sum();
        all.into_iter().map(|x| x / sum).collect()
    }

    /// b(d); that of the deepest drafted token for all deeper ones.
    fn offset(&self, depth: usize) -> f64 {
        self.offsets[depth.min(self.offsets.len() - 1)]
    }

    /// The probabilities, by depth, that a draft token of a request with these rounds is right.
    pub fn chances<'a>(&'a self, rounds: &Counts) -> impl Fn(u8) -> f64 + use<'a> {
        let posterior = self.posterior(rounds);
        move |depth| {
            let at = |(i, w): (usize, &f64)| w * sigmoid(value(i) + self.offset(usize::from(depth)));
            posterior.iter().enumerate().map(at).sum()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use foretoken_sim::{Luck, Stream};

    /// Two kinds of requests, half of them with a rate of 0.8 and half with 0.4, drafted at K = 3. The mean rate of the
    /// rounds at depth 2 is near 0.72, because the requests with 0.8 reach it more often. Each request gets its own.
    #[test]
    fn each_of_two_kinds_of_requests_gets_its_own_rate() {
        let of = |id: u64| -> Counts {
            let (luck, rate) = (Luck::new(7, Stream::Request, id), if id.is_multiple_of(2) { 0.8 } else { 0.4 });
            let mut counts = vec![(0, 0); 3];
            for round in 0..30u64 {
                for (d, at) in counts.iter_mut().enumerate() {
                    at.0 += 1;
                    if luck.unit(16 * round + d as u64) >= rate {
                        break;
                    }
                    at.1 += 1;
                }
            }
            counts
        };
        let all: Vec<Counts> = (0..400).map(of).collect();
        let spread = Spread::of(&all).unwrap();
        let mean = |kind: u64, depth: u8| -> f64 {
            let own = |id: u64| spread.chances(&all[id as usize])(depth);
            (0..400).filter(|id| id % 2 == kind).map(own).sum::<f64>() / 200.0
        };
        for depth in [0, 2, 7] {
            let (easy, hard) = (mean(0, depth), mean(1, depth));
            assert!((easy - 0.8).abs() < 0.02 && (hard - 0.4).abs() < 0.035, "depth {depth}: {easy}, {hard}");
        }
    }

    /// One rate for all requests: the estimated rates of requests differ little, though their counts do.
    #[test]
    fn equal_requests_get_nearly_equal_rates() {
        let of = |id: u64| -> Counts {
            let luck = Luck::new(9, Stream::Request, id);
            vec![(20, (0..20).filter(|&i| luck.unit(i) < 0.6).count() as u64)]
        };
        let all: Vec<Counts> = (0..400).map(of).collect();
        let spread = Spread::of(&all).unwrap();
        let own: Vec<f64> = all.iter().map(|r| spread.chances(r)(0)).collect();
        let mean = own.iter().sum::<f64>() / 400.0;
        let sd = (own.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 400.0).sqrt();
        assert!((mean - 0.6).abs() < 0.01 && sd < 0.04, "{mean} {sd}; the counts alone have 0.11");
        assert_eq!(Spread::of(&[vec![(0, 0)]]), None);
    }
}
