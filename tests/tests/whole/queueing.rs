//! The engine as a queue. With one sequence at a time, prompts of one token and a constant step time, the engine is an
//! M/D/1 queue. Its mean wait must be ρS / (2(1 − ρ)) at load ρ and service time S (Pollaczek-Khinchine).

use crate::setup::{Setup, mean_and_error, poisson};
use foretoken_sim::*;

#[test]
fn the_mean_wait_is_that_of_an_m_d_1_queue() {
    const STEP_S: f64 = 0.01;
    const OUTPUT: u32 = 3;
    // The 99.9 % quantile of Student's t for 20 runs. The waits within one run are correlated, so a standard error over
    // requests would be too small.
    const T: f64 = 3.883;
    let service = STEP_S * f64::from(OUTPUT);
    for load in [0.5, 0.8] {
        let waits: Vec<f64> = (0..20)
            .map(|seed| {
                let workload = poisson(20_000, load / service, 1, OUTPUT, seed);
                let mut setup = Setup::new(&workload);
                setup.config.max_num_seqs = 1;
                setup.target = Coefficients { alpha_s: 0.0, gamma_s: 0.0, delta_s: STEP_S };
                setup.summary(Speculation::Off).queue.unwrap().mean
            })
            .collect();
        let (mean, error) = mean_and_error(&waits);
        let theory = load * service / (2.0 * (1.0 - load));
        println!("load {load}: mean wait {mean:.5} s ± {:.5}, theory {theory:.5} s", T * error);
        assert!((mean - theory).abs() < T * error, "load {load}: {mean} against {theory} ± {}", T * error);
    }
}
