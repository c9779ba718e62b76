//! A random number generator over keyed draws (`Luck`), for the distributions of `rand_distr`.
//!
//! The only state of the generator is a counter, so a sequence is a pure function of (seed, stream, key).

use crate::luck::{Luck, Stream};
use rand::TryRng;
use std::convert::Infallible;

/// A sequence of random numbers for one key. Each call gives the next number.
#[derive(Clone, Debug)]
pub struct Draws {
    luck: Luck,
    position: u64,
}

impl Draws {
    /// The sequence of draws for (seed, stream, key). `key` is the request's id for draws of a request, and 0 for an
    /// arrival process.
    pub fn new(seed: u64, stream: Stream, key: u64) -> Draws {
        Draws { luck: Luck::new(seed, stream, key), position: 0 }
    }

    /// The next random number of the sequence, uniform in [0, 1).
    pub fn unit(&mut self) -> f64 {
        self.position += 1;
        self.luck.unit(self.position - 1)
    }
}

impl TryRng for Draws {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        self.try_next_u64().map(|bits| (bits >> 32) as u32)
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        self.position += 1;
        Ok(self.luck.bits(self.position - 1))
    }

    fn try_fill_bytes(&mut self, out: &mut [u8]) -> Result<(), Infallible> {
        for chunk in out.chunks_mut(8) {
            let bits = self.try_next_u64()?.to_le_bytes();
            chunk.copy_from_slice(&bits[..chunk.len()]);
        }
        Ok(())
    }
}
