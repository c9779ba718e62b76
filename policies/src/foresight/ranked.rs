//! Tokens of a batch, sorted into buckets by their survival (the probability that a token and all before it are
//! accepted). Adding a token is one addition, and no step needs to sort.

/// Number of buckets into which draft tokens are sorted by their survival (probability that a token and all before it
/// are accepted), from 0 to 1.
const BUCKETS: usize = 256;

/// The drafted tokens of a step, by their survival: the probability that a token and all before it are accepted. Tokens
/// of one bucket are verified together.
pub(crate) struct Ranked {
    count: [u32; BUCKETS],
    sum: [f64; BUCKETS],
    len: u64,
    /// Which buckets have a token, by its survival (the probability that a draft token and all before it are accepted):
    /// bit b of word w stands for the bucket 64 w + b.
    filled: [u64; BUCKETS / 64],
}

impl Default for Ranked {
    fn default() -> Ranked {
        Ranked { count: [0; BUCKETS], sum: [0.0; BUCKETS], len: 0, filled: [0; BUCKETS / 64] }
    }
}

fn bucket(survival: f64) -> usize {
    ((survival * BUCKETS as f64) as usize).min(BUCKETS - 1)
}

impl Ranked {
    /// Removes all draft tokens from the buckets, for a new step.
    pub fn clear(&mut self) {
        if self.len > 0 {
            self.count.fill(0);
            self.sum.fill(0.0);
        }
        (self.len, self.filled) = (0, [0; BUCKETS / 64]);
    }

    /// Adds a draft token with this survival, the probability that it and all before it are accepted.
    pub fn add(&mut self, survival: f64) {
        let at = bucket(survival);
        self.count[at] += 1;
        self.sum[at] += survival;
        self.len += 1;
        self.filled[at / 64] |= 1 << (at % 64);
    }

    /// Number of draft tokens in all buckets.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Calls `visit` for each choice of draft tokens to verify, with three values: the number of tokens, the sum of
    /// their survivals (the probability that a token and all before it are accepted), and the lower edge of the bucket
    /// that was added last. The first call is for no token, with the edge 1. Each later call adds one bucket, from the
    /// likeliest tokens down.
    pub fn prefixes(&self, mut visit: impl FnMut(u64, f64, f64)) {
        let (mut count, mut sum) = (0, 0.0);
        visit(0, 0.0, 1.0);
        for (word, &filled) in self.filled.iter().enumerate().rev() {
            let mut left = filled;
            while left > 0 {
                let bit = 63 - left.leading_zeros() as usize;
                left ^= 1 << bit;
                let at = 64 * word + bit;
                count += u64::from(self.count[at]);
                sum += self.sum[at];
                visit(count, sum, at as f64 / BUCKETS as f64);
            }
        }
    }

    /// Is a draft token with this survival (the probability that it and all before it are accepted) verified? `least`
    /// is a survival in the lowest bucket whose tokens are verified.
    pub fn is_kept(&self, survival: f64, least: f64) -> bool {
        bucket(survival) >= bucket(least)
    }
}
