//! Two simple predictions of a server, without a simulation of its engine. A simulation must be better than these.
//!
//! Both predictions use a fluid model: each of n requests that are served together gets its first token after TTFT(n)
//! seconds and then a token every TPOT(n) seconds. The two predictions differ in the source of TPOT. The first
//! interpolates between the TPOT of closed loops that were observed at two draft lengths ([`line_through`]). The second
//! divides the fitted time of a step by the mean number of tokens that a request gets in a step ([`tokens_a_round`]).

use foretoken_sim::{Outcome, RequestRecords, Time, Workload};

/// A model of a server without steps. Latencies depend only on the number of requests that are served together; the
/// time to the first token also depends on the prompt.
pub struct Fluid<'a> {
    /// Seconds from the start of serving a request to its first token. The arguments are the number of requests that
    /// are then served together and the tokens of the prompt.
    pub ttft: &'a dyn Fn(f64, u32) -> f64,
    /// Seconds per token after the first. The argument is the number of requests that are served together.
    pub tpot: &'a dyn Fn(f64) -> f64,
    /// Largest number of requests that the server serves at the same time. Further requests wait.
    pub most: usize,
}

#[derive(Clone, Copy)]
struct Active {
    request: usize,
    /// Seconds that remain until the request's first token; 0 after the first token.
    first: f64,
    /// Number of output tokens after the first that the request still has to get. It may be a fraction, because tokens
    /// flow steadily.
    left: f64,
}

impl Fluid<'_> {
    /// Serves the requests of a workload by the fluid model. If `clients` is given, a closed loop of that many clients
    /// sends the requests. Otherwise they come at the workload's arrival times.
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

/// Serves all requests in service for `step` seconds, up to the time `now`; a token takes `tpot` seconds. Records first
/// tokens and finished requests in `r` and removes finished requests.
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

/// Mean number of tokens that a request gets in a step with `k` draft tokens, if each draft token is right with
/// probability `a`, independent of the others: (1 − a^(k+1)) / (1 − a) (Leviathan et al., 2023).
pub fn tokens_a_round(a: f64, k: u32) -> f64 {
    if a >= 1.0 { f64::from(k + 1) } else { (1.0 - a.powi(k as i32 + 1)) / (1.0 - a) }
}

/// A point (x, y) of a curve, such as a latency (y) that was observed with a number of clients (x).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CurvePoint {
    /// The position on the x axis. The points of a curve are sorted by ascending `x`.
    pub x: f64,
    pub y: f64,
}

/// The value at `x` by linear interpolation between `points`. Outside of the points, the first and the last segment
/// continue. One point gives a constant, no point gives NaN.
pub fn line_through(points: &[CurvePoint], x: f64) -> f64 {
    match points {
        [] => f64::NAN,
        [only] => only.y,
        _ => {
            let right = points.partition_point(|p| p.x < x).clamp(1, points.len() - 1);
            let (a, b) = (points[right - 1], points[right]);
            if b.x > a.x { a.y + (b.y - a.y) * (x - a.x) / (b.x - a.x) } else { a.y }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use foretoken_sim::Request;

    #[test]
    fn a_curve_is_straight_between_its_points_and_goes_on_beyond_them() {
        let at = |x: f64| line_through(&[(1.0, 10.0), (2.0, 20.0), (4.0, 0.0)].map(|(x, y)| CurvePoint { x, y }), x);
        assert_eq!([1.0, 1.5, 2.0, 3.0, 4.0].map(at), [10.0, 15.0, 20.0, 10.0, 0.0]);
        assert_eq!([0.0, 5.0].map(at), [0.0, -10.0]);
        let one = CurvePoint { x: 1.0, y: 7.0 };
        assert_eq!((line_through(&[one], 9.0), line_through(&[one, CurvePoint { y: 8.0, ..one }], 9.0)), (7.0, 7.0));
        assert!(line_through(&[], 1.0).is_nan());
    }

    #[test]
    fn a_fluid_serves_as_worked_out_by_hand() {
        let w: Workload =
            [Request::new(Time::ZERO, 10, 11), Request::new(Time::from_s(1.0), 10, 11)].into_iter().collect();
        // The time to the first token is 1 s. After that, a token takes 0.1 s with one request in flight and 0.2 s with
        // two.
        let fluid = Fluid { ttft: &|_, _| 1.0, tpot: &|n| 0.1 * n, most: 8 };
        let r = fluid.serve(&w, None);
        // From 1 s to 2 s two requests are in flight, so the first request gets a token every 0.2 s.
        assert_eq!((r.first_token[0].as_s(), r.first_token[1].as_s()), (1.0, 2.0));
        // At 2 s the first request has 5 of its 10 further tokens, so it ends at 3 s. The second request then has 5 of
        // its 10 further tokens. It is alone and ends at 3.5 s.
        assert!((r.finish[0].as_s() - 3.0).abs() < 1e-9, "{:?}", r.finish);
        assert!((r.finish[1].as_s() - 3.5).abs() < 1e-9, "{:?}", r.finish);
        // With one client, the requests follow each other, and each is served alone.
        let r = fluid.serve(&w, Some(1));
        assert!((r.finish[0].as_s() - 2.0).abs() < 1e-9 && (r.finish[1].as_s() - 4.0).abs() < 1e-9);
        assert_eq!(r.arrival[1].as_s(), r.finish[0].as_s());
    }

    #[test]
    fn a_round_has_one_token_and_the_accepted_drafts() {
        assert_eq!(tokens_a_round(0.5, 1), 1.5);
        assert_eq!(tokens_a_round(1.0, 3), 4.0);
        assert_eq!(tokens_a_round(0.0, 3), 1.0);
    }

    #[test]
    fn a_line_goes_on_beyond_its_ends() {
        let points = [(0.0, 1.0), (2.0, 5.0), (4.0, 6.0)].map(|(x, y)| CurvePoint { x, y });
        assert_eq!([-1.0, 1.0, 3.0, 6.0].map(|x| line_through(&points, x)), [-1.0, 3.0, 5.5, 7.0]);
        assert_eq!(line_through(&points[..1], 9.0), 1.0);
    }
}
