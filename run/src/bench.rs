//! Measures how fast this program simulates an experiment: the wall time of each run. One run is made at a time, and no
//! results are written.

use crate::plan::Plan;
use crate::setting::Setting;
use crate::spec::problem::Result;
use foretoken_policies::PolicySpec;
use serde::Serialize;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

/// Wall times of repeated simulations of one policy at one combination of swept values, for `foretoken bench`.
#[derive(Clone, Debug, Serialize)]
pub struct Timed {
    /// The swept settings' values in the timed runs, each as `name=value`, separated by spaces.
    pub sweep: String,
    /// The label of the policy that was timed.
    pub policy: String,
    /// Request-steps of one run: the number of decoding requests, summed over steps.
    pub request_steps: u64,
    /// Median wall time of the repeated simulations, seconds. For an even number of repeats, the larger of the two
    /// middle values.
    pub median_s: f64,
    /// Wall time of the fastest of the repeated simulations, seconds.
    pub min_s: f64,
    /// Wall time of the slowest of the repeated simulations, seconds.
    pub max_s: f64,
}

/// Times every policy that the experiment lists, under every combination of swept values, with the first seed. Each
/// policy at each combination is run `repeats` times, and at least once.
pub fn time(plan: &Plan, repeats: u16) -> Result<Vec<Timed>> {
    let mut all = Vec::new();
    for variant in &plan.variants {
        let setting = Setting::new(variant, plan.seeds[0])?;
        let choices: Vec<String> = variant.choices.iter().map(|c| format!("{}={}", c.name, c.value)).collect();
        let sweep = choices.join(" ");
        all.extend(
            plan.policies.iter().filter(|e| !e.implied).map(|e| time_policy(&setting, &sweep, &e.spec, repeats)),
        );
    }
    Ok(all)
}

fn time_policy(setting: &Setting, sweep: &str, policy: &PolicySpec, repeats: u16) -> Timed {
    let never = AtomicBool::new(false);
    let mut request_steps = 0;
    let mut times: Vec<f64> = (0..repeats.max(1))
        .map(|_| {
            let started = Instant::now();
            let (run, _) = setting.run(policy, f64::INFINITY, &never);
            let seconds = started.elapsed().as_secs_f64();
            request_steps = run.totals.request_steps;
            seconds
        })
        .collect();
    times.sort_by(f64::total_cmp);
    Timed {
        sweep: sweep.to_owned(),
        policy: policy.label(),
        request_steps,
        median_s: times[times.len() / 2],
        min_s: times[0],
        max_s: times[times.len() - 1],
    }
}
