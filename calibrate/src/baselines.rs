//! What one would predict without a simulator of the engine, fed with the same inputs: a prediction that is not
//! better than these is not worth its trouble.
//!
//! Both are a fluid: n requests that are served together each get a token every TPOT(n) seconds, after a first one
//! that takes TTFT(n). They differ in where TPOT comes from: `interpolated` draws a line in K through what closed
//! loops showed at two lengths, `formula` divides the fitted time of a step by the tokens that (1 − a^(k+1)) / (1 −
//! a) promises.

use foretoken_sim::{Outcome, RequestRecords, Time, Workload};

/// A server as a fluid.
pub struct Fluid<'a> {
    /// Seconds to the first token, by (requests in flight, tokens of the prompt).
    pub ttft: &'a dyn Fn(f64, u32) -> f64,
    /// Seconds a token after the first, by requests in flight.
    pub tpot: &'a dyn Fn(f64) -> f64,
    /// Requests that are served at once.
    pub most: usize,
}

#[derive(Clone, Copy)]
struct Active {
    request: usize,
    /// Seconds until the first token; then 0.
    first: f64,
    /// Tokens still to come behind the first.
    left: f64,
}

impl Fluid<'_> {
    /// Serves a workload; `clients` in a closed loop.
    pub fn serve(&self, workload: &Workload, clients: Option<u32>) -> RequestRecords {
        let n = workload.len();
        let mut r = RequestRecords::new(n);
        let (mut now, mut next) = (0.0f64, 0usize);
        let mut waiting: std::collections::VecDeque<usize> = Default::default();
        let mut active: Vec<Active> = Vec::new();
        let due = |i: usize| workload.arrival[i].as_s();
        loop {
            let in_flight = active.len() + waiting.len();
            let may = |next: usize, now: f64| match clients {
                Some(clients) => in_flight < clients as usize,
                None => due(next) <= now,
            };
            if next < n && may(next, now) {
                r.arrival[next] = Time::from_s(if clients.is_some() { now } else { due(next) });
                waiting.push_back(next);
                next += 1;
                continue;
            }
            if active.len() < self.most
                && let Some(request) = waiting.pop_front()
            {
                let served = active.len() as f64 + 1.0;
                r.first_scheduled[request] = Time::from_s(now);
                let first = (self.ttft)(served, workload.prompt_len[request]);
                active.push(Active { request, first, left: f64::from(workload.output_len[request]) - 1.0 });
                continue;
            }
            let tpot = (self.tpot)(active.len() as f64);
            let event = |a: &Active| if a.first > 0.0 { a.first } else { a.left * tpot };
            let soonest = active.iter().map(event).fold(f64::INFINITY, f64::min);
            let arrival = if next < n && clients.is_none() { due(next) - now } else { f64::INFINITY };
            let step = soonest.min(arrival.max(0.0));
            if !step.is_finite() {
                return r;
            }
            now += step;
            advance(&mut active, step, tpot, now, workload, &mut r);
        }
    }
}

/// Moves all that is served on by `step` seconds.
fn advance(active: &mut Vec<Active>, step: f64, tpot: f64, now: f64, workload: &Workload, r: &mut RequestRecords) {
    const NONE: f64 = 1e-9;
    for a in active.iter_mut() {
        match a.first > 0.0 {
            true => {
                a.first -= step;
                if a.first <= NONE {
                    a.first = 0.0;
                    r.first_token[a.request] = Time::from_s(now);
                }
            }
            false => a.left -= step / tpot,
        }
    }
    active.retain(|a| {
        let done = a.first == 0.0 && a.left <= NONE;
        if done {
            r.finish[a.request] = Time::from_s(now);
            r.emitted[a.request] = workload.output_len[a.request];
            r.outcome[a.request] = Outcome::Finished;
        }
        !done
    });
}

/// Tokens of a round of `k` drafts, each right with probability `a` whatever was before: (1 − a^(k+1)) / (1 − a)
/// (Leviathan et al., 2023).
pub fn tokens_a_round(a: f64, k: u32) -> f64 {
    if a >= 1.0 { f64::from(k + 1) } else { (1.0 - a.powi(k as i32 + 1)) / (1.0 - a) }
}

/// The line through points (x, y), gone on beyond its ends; a constant through one.
pub fn through(points: &[(f64, f64)], x: f64) -> f64 {
    match points {
        [] => f64::NAN,
        [(_, y)] => *y,
        _ => {
            let right = points.partition_point(|p| p.0 < x).clamp(1, points.len() - 1);
            let ((x0, y0), (x1, y1)) = (points[right - 1], points[right]);
            if x1 > x0 { y0 + (y1 - y0) * (x - x0) / (x1 - x0) } else { y0 }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use foretoken_sim::Request;

    #[test]
    fn a_fluid_by_hand() {
        let w: Workload =
            [Request::new(Time::ZERO, 10, 11), Request::new(Time::from_s(1.0), 10, 11)].into_iter().collect();
        // A second to the first token; a token every 0.1 s alone, every 0.2 s together.
        let fluid = Fluid { ttft: &|_, _| 1.0, tpot: &|n| 0.1 * n, most: 8 };
        let r = fluid.serve(&w, None);
        // The first one's second token onwards runs beside the other's prompt: 0.2 s a token for a second, then
        // together.
        assert_eq!((r.first_token[0].as_s(), r.first_token[1].as_s()), (1.0, 2.0));
        // It has 10 − 5 tokens left at 2 s and ends at 3 s; the other has 10 − 5 left then, alone: 3.5 s.
        assert!((r.finish[0].as_s() - 3.0).abs() < 1e-9, "{:?}", r.finish);
        assert!((r.finish[1].as_s() - 3.5).abs() < 1e-9, "{:?}", r.finish);
        // One client: one after the other, each alone.
        let r = fluid.serve(&w, Some(1));
        assert!((r.finish[0].as_s() - 2.0).abs() < 1e-9 && (r.finish[1].as_s() - 4.0).abs() < 1e-9);
        assert_eq!(r.arrival[1].as_s(), r.finish[0].as_s());
    }

    #[test]
    fn rounds_and_lines() {
        assert_eq!(tokens_a_round(0.5, 1), 1.5);
        assert_eq!(tokens_a_round(1.0, 3), 4.0);
        assert_eq!(tokens_a_round(0.0, 3), 1.0);
        let points = [(0.0, 1.0), (2.0, 5.0), (4.0, 6.0)];
        assert_eq!([-1.0, 1.0, 3.0, 6.0].map(|x| through(&points, x)), [-1.0, 3.0, 5.5, 7.0]);
        assert_eq!(through(&points[..1], 9.0), 1.0);
    }
}
