//! Compares a fleet with queueing theory. Round robin over c replicas that serve one request at a time, all requests of
//! equal length, is the queue M/D/c.
//!
//! With equal service times requests end in the order in which they arrive. So in M/D/c the requests n and n + c are
//! served by the same server. Serving in turn is therefore the same as serving first come, first served (Crommelin
//! 1932).

use crate::setup::Setup;
use foretoken_fleet::RouterSpec;
use foretoken_sim::metrics::Interval;
use foretoken_sim::{Luck, Request, Stream, Time, Workload};

/// Mean waiting time, as a multiple of the service time, in an M/D/c queue with `a` Erlangs offered (Crommelin 1932, in
/// the form of Molina).
fn crommelin(a: f64, c: u32) -> f64 {
    let tail = |mean: f64, from: u32| {
        let mut term = (-mean).exp();
        let mut below = 0.0;
        for n in 0..from {
            below += term;
            term *= mean / f64::from(n + 1);
        }
        1.0 - below
    };
    (1..400)
        .map(|i| {
            let mean = f64::from(i) * a;
            tail(mean, i * c) - f64::from(c) / a * tail(mean, i * c + 1)
        })
        .sum()
}

#[test]
fn the_formula_is_pollaczek_khinchines_for_one_server() {
    for load in [0.3, 0.5, 0.7] {
        assert!((crommelin(load, 1) - load / (2.0 * (1.0 - load))).abs() < 1e-6, "{load}");
    }
}

fn equal_requests(n: u32, rate: f64, seed: u64) -> Workload {
    let mut at = 0.0;
    let request = |i: u32| {
        at += -(1.0 - Luck::new(seed, Stream::Arrivals, i.into()).unit(0)).ln() / rate;
        Request::new(Time::from_s(at), 64, 12)
    };
    (0..n).map(request).collect()
}

#[test]
fn round_robin_with_equal_lengths_is_cyclic_m_d_c() {
    let round_robin = RouterSpec::RoundRobin(Default::default());
    for (c, load) in [(2u32, 0.7), (3, 0.6)] {
        let mut service_s = 0.0;
        let waits: Vec<f64> = (0..8)
            .map(|seed| {
                let mut setup = Setup::new(equal_requests(1, 1.0, 0));
                setup.config.max_num_seqs = 1;
                setup.config.draft_at = Some(foretoken_sim::DraftAt::StepStart);
                let alone = setup.alone(0).records;
                service_s = (alone.finish[0] - alone.first_scheduled[0]).as_s();
                let n = 6000;
                setup.workload = equal_requests(n, load * f64::from(c) / service_s, seed + 1);
                let run = setup.fleet(&round_robin, &vec![0; c as usize], 1).run;
                (500..n as usize).map(|i| run.records.queue_s(i)).sum::<f64>() / f64::from(n - 500)
            })
            .collect();
        let found = Interval::of(&waits).unwrap();
        let theory = crommelin(load * f64::from(c), c) * service_s;
        let half = found.half_width.unwrap();
        assert!((found.mean - theory).abs() < 1.5 * half, "c = {c}: {theory} in {} ± {half}", found.mean);
        assert!(half < 0.15 * theory, "the interval tells something: {half} of {theory}");
    }
}
