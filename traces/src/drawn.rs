//! Generated requests that are drawn again at each use, so that a run need not hold them in memory.

use crate::build::{DrawnTimes, draw_request, drawn_times, fits, named_categories, set_priorities, too_few};
use crate::error::TraceError;
use crate::spec::{ArrivalSpec, LengthSpec, WorkloadSpec};
use foretoken_sim::{Arrivals, Request, Time, Workload};

/// The requests of a workload whose arrivals and lengths are drawn. [`build`](crate::build()) makes the same requests,
/// but holds all of them in memory.
#[derive(Clone, Debug)]
pub struct Drawn {
    spec: WorkloadSpec,
    seed: u64,
    /// A workload without requests. It has only the names of the categories that the drawn requests can have.
    pub shape: Workload,
    /// How the requests arrive: at their own times, or from the clients of a closed loop.
    pub arrivals: Arrivals,
    /// Number of requests of the workload.
    pub requests: usize,
    /// Tokens of the shortest prompt of all requests.
    pub shortest_prompt: u32,
    /// Tokens of the longest output of all requests.
    pub longest_output: u32,
    /// Priority of the requests of each category, by the category's index; empty if all priorities are 0.
    priorities: Vec<i32>,
}

impl Drawn {
    /// The requests that [`build`](crate::build()) makes from the workload description `spec` and `seed`. `None` if a
    /// file gives arrivals or lengths, if arrivals are transformed, or if requests come in sessions. Draws all requests
    /// once, to count them.
    ///
    /// # Errors
    /// The errors of [`build`](crate::build()): for example, a setting is out of range, or the requests do not fit into
    /// memory.
    pub fn of(spec: &WorkloadSpec, seed: u64) -> Result<Option<Drawn>, TraceError> {
        spec.check()?;
        let drawn = !matches!(spec.arrivals, ArrivalSpec::Trace(_))
            && spec.lengths.as_ref().is_some_and(|lengths| !matches!(lengths, LengthSpec::Trace(_)));
        if !drawn || !spec.transform.is_empty() || spec.sessions.is_some() {
            return Ok(None);
        }
        if let Some(asked) = spec.requests {
            fits(asked.into())?;
        }
        let seed = spec.seed.unwrap_or(seed);
        let mut shape = Workload { categories: named_categories(lengths_of(spec)), ..Workload::default() };
        set_priorities(&mut shape, &spec.priorities)?;
        let priority_of = |name: &String| spec.priorities.get(name).copied().unwrap_or(0);
        let priorities = match spec.priorities.is_empty() {
            true => Vec::new(),
            false => shape.categories.iter().map(priority_of).collect(),
        };
        let arrivals = match spec.arrivals {
            ArrivalSpec::ClosedLoop(clients) => Arrivals::Closed { clients },
            _ => Arrivals::Open,
        };
        let (requests, shortest_prompt, longest_output) = (0, u32::MAX, 0);
        let spec = spec.clone();
        let mut drawn = Drawn { spec, seed, shape, arrivals, requests, shortest_prompt, longest_output, priorities };
        drawn.count()?;
        Ok(Some(drawn))
    }

    fn count(&mut self) -> Result<(), TraceError> {
        let (mut requests, mut shortest, mut longest) = (0, u32::MAX, 0);
        for at in drawn_times(&self.spec, self.seed) {
            let request = self.request(requests as u64, at.map_err(|stalled| stalled.after(requests))?);
            requests += 1;
            fits(requests as u64)?;
            shortest = shortest.min(request.prompt_len);
            longest = longest.max(request.output_len);
        }
        too_few(&self.spec, requests)?;
        (self.requests, self.shortest_prompt, self.longest_output) = (requests, shortest, longest);
        Ok(())
    }

    /// True if at least one category of requests has a priority of its own.
    pub fn has_priorities(&self) -> bool {
        !self.priorities.is_empty()
    }

    /// Draws the requests again, in order of arrival.
    pub fn iter(&self) -> impl Iterator<Item = Request> + '_ {
        let times: DrawnTimes = drawn_times(&self.spec, self.seed);
        times.map_while(Result::ok).zip(0u64..).map(|(at, i)| self.request(i, at))
    }

    fn request(&self, i: u64, at: Time) -> Request {
        let request = draw_request(lengths_of(&self.spec), self.seed, i, at);
        let priority = self.priorities.get(usize::from(request.category)).copied().unwrap_or(0);
        Request { priority, ..request }
    }
}

fn lengths_of(spec: &WorkloadSpec) -> &LengthSpec {
    spec.lengths.as_ref().expect("drawn requests have drawn lengths")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build;

    fn spec(text: &str) -> WorkloadSpec {
        serde_json::from_str(text).expect("a workload")
    }

    /// For every kind of drawn arrivals and lengths, the requests that are drawn one at a time equal the requests of
    /// `build`.
    #[test]
    fn requests_drawn_one_at_a_time_are_the_workload() {
        let lengths = [
            r#"{"fixed": {"prompt": 5, "output": 7}}"#,
            r#"{"log-normal": {"prompt": {"mean": 200.0, "sigma": 1.0, "max": 900}, "output": {"mean": 60.0, "sigma": 1.0, "max": 300}}}"#,
            r#"{"spec-bench": {}}"#,
            r#"{"categories": {
                "a": {"share": 1.0, "lengths": {"fixed": {"prompt": 9, "output": 3}}},
                "b": {"share": 3.0, "lengths": {"log-normal": {
                    "prompt": {"mean": 90.0, "sigma": 1.0, "max": 999},
                    "output": {"mean": 5.0, "sigma": 0.5, "max": 99}
                }}}
            }}"#,
        ];
        let arrivals = [
            r#"{"poisson": {"rate": 8.0}}"#, r#"{"closed-loop": 3}"#, r#"{"gamma": {"rate": 8.0, "cv": 2.0}}"#,
            r#"{"azure-conv": {"rate": 8.0}}"#,
        ];
        for (arrivals, lengths) in arrivals.iter().flat_map(|a| lengths.iter().map(move |l| (a, l))) {
            let priorities = if lengths.contains("categories") { r#", "priorities": {"b": -2}"# } else { "" };
            let text = format!(r#"{{"arrivals": {arrivals}, "lengths": {lengths}, "requests": 500{priorities}}}"#);
            let spec = spec(&text);
            let built = build(&spec, 9, None).unwrap();
            let drawn = Drawn::of(&spec, 9).unwrap().expect(&text);
            let whole: Vec<Request> = (0..built.workload.len() as u32).map(|id| built.workload.get(id)).collect();
            assert_eq!(drawn.iter().collect::<Vec<_>>(), whole, "{text}");
            assert_eq!((drawn.requests, drawn.arrivals), (500, built.arrivals));
            assert_eq!(drawn.shape.categories, built.workload.categories);
            assert_eq!(drawn.has_priorities(), !built.workload.priority.is_empty());
            assert_eq!(Some(drawn.longest_output), built.workload.output_len.iter().copied().max());
            assert_eq!(Some(drawn.shortest_prompt), built.workload.prompt_len.iter().copied().min());
        }
        let file =
            r#"{"arrivals": {"poisson": {"rate": 1.0}}, "lengths": {"trace": {"path": "x.csv"}}, "requests": 5}"#;
        assert!(Drawn::of(&spec(file), 1).unwrap().is_none());
    }
}
