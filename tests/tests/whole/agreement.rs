//! Compares our simulator with another one on one experiment without speculation. 10,000 requests of 512 prompt and 256
//! output tokens arrive at a Poisson rate of 4/s. The engine runs 256 sequences with a token budget of 2048. A step
//! takes 0.3 µs · context + 55 µs · batched tokens + 11 ms. The fastest public simulator reports a mean TTFT of 56.1 ms
//! and a mean E2E of 4.59 s. Our means must be within 2 % of these.

use crate::setup::{Setup, mean_and_error, poisson};
use foretoken_sim::*;

#[test]
fn the_autoregressive_yardstick() {
    let runs: Vec<Summary> = (0..10)
        .map(|seed| {
            let workload = poisson(10_000, 4.0, 512, 256, seed);
            Setup::new(&workload).summary(Speculation::Off)
        })
        .collect();
    let mean = |f: fn(&Summary) -> f64| mean_and_error(&runs.iter().map(f).collect::<Vec<_>>());
    let (ttft, ttft_error) = mean(|s| s.ttft.unwrap().mean);
    let (e2e, e2e_error) = mean(|s| s.e2e.unwrap().mean);
    println!(
        "TTFT {:.3} ± {:.3} ms, E2E {e2e:.4} ± {e2e_error:.4} s (ten seeds, ± one standard error)",
        ttft * 1e3,
        ttft_error * 1e3
    );
    assert!((ttft / 56.1e-3 - 1.0).abs() < 0.02, "TTFT {ttft}");
    assert!((e2e / 4.59 - 1.0).abs() < 0.02, "E2E {e2e}");
}
