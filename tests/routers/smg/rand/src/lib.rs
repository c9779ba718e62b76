//! Stands in for the crate `rand` in the policies of SMG (a router for LLM servers). It gives them the random numbers
//! that our routers draw for the same request.

use foretoken_sim::{Luck, Stream};
use std::cell::Cell;
use std::ops::{Range, RangeInclusive};

thread_local! {
    /// The seed, the id of the request that is routed, and the number of draws for this request so far.
    static NOW: Cell<(u64, u64, u64)> = const { Cell::new((0, 0, 0)) };
}

/// Begins the random draws for the routing of a request.
pub fn begin(seed: u64, request: u64) {
    NOW.set((seed, request, 0));
}

fn unit() -> f64 {
    let (seed, request, draw) = NOW.get();
    NOW.set((seed, request, draw + 1));
    Luck::new(seed, Stream::Router, request).unit(draw)
}

pub struct Drawn;

pub fn rng() -> Drawn {
    Drawn
}

/// A range of whole numbers from which one of SMG's routing policies draws a number.
pub trait Whole<T> {
    fn scaled(self, unit: f64) -> T;
}

macro_rules! whole {
    ($($t:ty)+) => {$(
        impl Whole<$t> for Range<$t> {
            fn scaled(self, unit: f64) -> $t {
                let size = self.end - self.start;
                self.start + ((unit * size as f64) as $t).min(size - 1)
            }
        }

        impl Whole<$t> for RangeInclusive<$t> {
            fn scaled(self, unit: f64) -> $t {
                (*self.start()..*self.end() + 1).scaled(unit)
            }
        }
    )+};
}

whole!(u32 u64 usize);

pub trait RngExt {
    fn random_range<T, R: Whole<T>>(&mut self, range: R) -> T {
        range.scaled(unit())
    }

    fn random<T: From<f64>>(&mut self) -> T {
        T::from(unit())
    }
}

impl RngExt for Drawn {}
impl RngExt for rngs::StdRng {}

pub trait SeedableRng {
    fn seed_from_u64(seed: u64) -> Self;
}

pub mod rngs {
    #[derive(Debug)]
    pub struct StdRng;

    impl super::SeedableRng for StdRng {
        fn seed_from_u64(_: u64) -> StdRng {
            StdRng
        }
    }
}
