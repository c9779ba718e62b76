//! Chooses the requests of a piece. The pieces of a cell serve one part of the workload after the other, so that
//! together they serve the requests of one longer run.

use foretoken_run::spec::problem::{Problem, Result};
use foretoken_run::workload::stretch;
use foretoken_sim::{Time, Workload};

/// Neighbouring requests of a workload, with new ids from 0.
#[derive(Clone, Debug)]
pub struct PieceRequests {
    /// The id that the first request of the piece has in the whole workload.
    pub first: u32,
    /// The requests of the piece as a workload. If arrivals are set, the first request arrives at time 0.
    pub workload: Workload,
}

/// Scales the workload's arrival times to a mean of `rate` requests per second. Returns the requests that arrive in the
/// `nth` interval (from 0) of `run_s` seconds, but at least two requests. The first of them arrives at time 0.
pub fn arriving(own: &Workload, rate: f64, run_s: f64, nth: usize) -> Result<PieceRequests> {
    let span = own.arrival.last().zip(own.arrival.first()).map_or(0.0, |(last, first)| (*last - *first).as_s());
    if span <= 0.0 {
        return Err(no_arrivals());
    }
    let factor = (own.len() - 1) as f64 / span / rate;
    let start = own.arrival[0].as_s();
    let scaled: Vec<Time> = own.arrival.iter().map(|at| Time::from_s((at.as_s() - start) * factor)).collect();
    let until = |seconds: f64| scaled.partition_point(|at| at.as_s() < seconds);
    let (begin, end) = (nth as f64 * run_s, (nth + 1) as f64 * run_s);
    let from = until(begin);
    // A run needs at least two requests.
    let to = until(end).max(from + 2);
    if to >= own.len() {
        let message = format!("validate: {} requests are too few for {end} s at {rate:.1} requests/s", own.len());
        return Err(
            Problem::bad_input(message).help("raise workload.requests, or lower validate.run_s or validate.pieces")
        );
    }
    let mut workload = stretch(own, from..to);
    workload.arrival = scaled[from..to].iter().map(|at| *at - scaled[from]).collect();
    Ok(PieceRequests { first: from as u32, workload })
}

/// The error for a workload without arrival times that can be scaled to a rate, such as a closed loop, in which a fixed
/// number of clients send requests.
pub fn no_arrivals() -> Box<Problem> {
    Problem::bad_input("validate: the workload has no arrivals whose rate could be set")
        .help("take arrivals = { poisson = { rate = 1.0 } } with requests = 2000; the rate is set by the loads")
}

/// The `nth` group (from 0) of `requests` neighbouring requests. If the workload ends before the group's end, the
/// result is the last `requests` requests of the workload, or the whole workload if it has fewer.
pub fn counted(own: &Workload, requests: usize, nth: usize) -> PieceRequests {
    let first = (nth * requests).min(own.len().saturating_sub(requests));
    PieceRequests { first: first as u32, workload: stretch(own, first..first + requests) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use foretoken_run::plan::Plan;
    use foretoken_run::setting::Setting;
    use std::path::Path;

    fn workload(sets: &[&str]) -> Workload {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../experiments/quickstart.toml");
        let sets: Vec<String> = sets.iter().map(|s| (*s).to_owned()).collect();
        let plan = Plan::load(&file, &sets).unwrap();
        Setting::new(&plan.variants[0], 1).unwrap().workload
    }

    const POISSON: [&str; 2] = ["workload.arrivals={ poisson = { rate = 1.0 } }", "workload.requests=4000"];

    #[test]
    fn arrivals_are_scaled_to_the_rate() {
        let own = workload(&POISSON);
        let PieceRequests { first, workload: w } = arriving(&own, 50.0, 20.0, 0).unwrap();
        assert!((900..=1100).contains(&w.len()), "{} requests in 20 s at 50 a second", w.len());
        assert_eq!((first, w.arrival[0]), (0, Time::ZERO));
        assert!(*w.arrival.last().unwrap() < Time::from_s(20.0));
        let few = arriving(&own, 50.0, 1e6, 0).unwrap_err();
        assert!(few.message().contains("too few for 1000000 s"), "{}", few.message());
    }

    #[test]
    fn successive_pieces_make_the_longer_run() {
        let own = workload(&POISSON);
        let whole = arriving(&own, 10.0, 12.0, 0).unwrap();
        let parts: Vec<PieceRequests> = (0..4).map(|nth| arriving(&own, 10.0, 3.0, nth).unwrap()).collect();
        assert_eq!(parts.iter().map(|p| p.workload.len()).sum::<usize>(), whole.workload.len());
        let mut next = 0;
        for part in &parts {
            assert_eq!((part.first, part.workload.arrival[0]), (next, Time::ZERO));
            let at = part.first as usize;
            let gaps = |w: &Workload, from: usize| {
                let arrivals = &w.arrival[from..from + part.workload.len()];
                arrivals.windows(2).map(|pair| pair[1] - pair[0]).collect::<Vec<_>>()
            };
            assert_eq!(gaps(&part.workload, 0), gaps(&whole.workload, at));
            assert_eq!(part.workload.prompt_len, own.prompt_len[at..at + part.workload.len()]);
            next += part.workload.len() as u32;
        }
        // At a rate of 0.01 per second, hardly any request arrives in an interval of 1 s. A piece still has at least
        // two requests.
        assert_eq!(arriving(&own, 0.01, 1.0, 3).unwrap().workload.len(), 2);
    }

    #[test]
    fn a_closed_loop_has_no_rate_to_set() {
        let own = workload(&["workload.arrivals={ closed-loop = 4 }", "workload.requests=40"]);
        assert!(arriving(&own, 1.0, 1.0, 0).unwrap_err().message().contains("no arrivals whose rate"));
        let (second, last) = (counted(&own, 15, 1), counted(&own, 15, 2));
        assert_eq!((second.first, second.workload.len()), (15, 15));
        assert_eq!((last.first, last.workload.len()), (25, 15));
        assert_eq!(counted(&own, 100, 3).workload.len(), 40);
    }
}
