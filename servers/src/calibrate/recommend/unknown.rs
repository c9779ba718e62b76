//! Draws the uncertain values of a calibration for each seed. These values are: acceptance rates, which come from
//! finitely many rounds; rates at positions deeper than any drafted position; and, in a calibration from a table of
//! benchmark results, the costs. A seed also draws arrivals and lengths, so an interval over seeds includes the
//! uncertainty of values, arrivals and lengths. All candidates get the same draw from a seed. The recordings of a truth
//! table are not drawn, because they are the observed requests themselves.

use crate::calibrate::kept::Known;
use crate::calibrate::unknown_costs::{CostFactors, normal};
use foretoken_profiler::hardware::LatencySpec;
use foretoken_run::plan::Variant;
use foretoken_run::setting::Setting;
use foretoken_run::spec::experiment::Experiment;
use foretoken_run::spec::problem::Result;
use foretoken_sim::acceptance::Rates;
use foretoken_sim::{Coefficients, Luck, Stream};

/// Assumed correlation between the outcomes of two rounds of one request (a round is its draft tokens of one step).
/// Because of this correlation, n rounds of one request contain less information than n rounds of n requests.
const ALIKE: f64 = 0.05;
/// Assumed standard deviation of the acceptance rate at a position that was never drafted. Published rates of
/// neighbouring positions lie up to 0.16 apart (docs/model.md 6.5).
const DEEPER: f64 = 0.1;

/// Makes the setting (requests, server and SLO bounds) of an experiment's variant for `seed`. The seed also draws the
/// uncertain values (such as acceptance rates) of the calibration `known`.
pub fn setting(variant: &Variant, seed: u64, known: Option<&Known>) -> Result<Setting> {
    let Some(known) = known else { return Setting::new(variant, seed) };
    let luck = Luck::new(seed, Stream::Noise, u64::MAX);
    let mut drawn = variant.clone();
    let e = &mut drawn.experiment;
    if let Rates::ByDepth { rates } = &mut e.acceptance.source {
        *rates = drawn_rates(rates, known, &luck);
    }
    let factors = (!known.costs.is_empty()).then(|| known.costs[seed as usize % known.costs.len()]);
    if let Some(factors) = factors {
        multiply(e, factors);
    }
    Setting::new(&drawn, seed)
}

/// The acceptance rates `rates` with random errors added. The more rounds reached the position of a rate, the smaller
/// is the rate's error. At a position that no round reached, the standard deviation of the error is [`DEEPER`].
fn drawn_rates(rates: &[f64], known: &Known, luck: &Luck) -> Vec<f64> {
    let drawn_rate = |(at, &rate): (usize, &f64)| {
        let deviation = match known.acceptance.get(at) {
            Some(p) if !p.extrapolated && p.reached > 0 => {
                let of_a_request = p.reached as f64 / known.requests.max(1) as f64;
                let alike = 1.0 + ALIKE * (of_a_request - 1.0).max(0.0);
                (rate * (1.0 - rate) * alike / p.reached as f64).sqrt()
            }
            _ => DEEPER,
        };
        (rate + deviation * normal(luck, at as u64)).clamp(0.0, 1.0)
    };
    rates.iter().enumerate().map(drawn_rate).collect()
}

fn multiply(e: &mut Experiment, f: CostFactors) {
    scale(&mut e.hardware.target, f.pass, f.token);
    scale(&mut e.hardware.draft, f.draft, f.draft);
    e.engine.host.speculating.step_s *= f.step;
    e.engine.host.speculating.request_s *= f.request;
    e.engine.host.without_graph.speculating_s *= f.launch;
}

fn scale(cost: &mut LatencySpec, pass: f64, token: f64) {
    if let LatencySpec::Linear(c) = cost {
        *c = Coefficients { delta_s: c.delta_s * pass, gamma_s: c.gamma_s * token, ..*c };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calibrate::acceptance::Position;
    use foretoken_run::plan::Plan;
    use foretoken_sim::PassShape;
    use std::path::Path;

    fn known(reached: u64, extrapolated: bool, requests: usize) -> Known {
        let rate = 0.6;
        let accepted = (rate * reached as f64) as u64;
        Known {
            server: None,
            loads: vec![],
            lengths: vec![0, 3],
            separated: true,
            steps: 1,
            positions: 1,
            between_runs: 0.0,
            acceptance: vec![Position { position: 1, reached, accepted, rate, extrapolated }],
            requests,
            costs: vec![],
            verdict: None,
            seat: None,
        }
    }

    fn spread(known: &Known) -> f64 {
        let drawn = |seed| drawn_rates(&[0.6], known, &Luck::new(seed, Stream::Noise, u64::MAX))[0];
        let all: Vec<f64> = (0..4000).map(drawn).collect();
        let mean = all.iter().sum::<f64>() / all.len() as f64;
        (all.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / all.len() as f64).sqrt()
    }

    #[test]
    fn each_cost_is_multiplied_by_its_own_factor() {
        let host = "{ speculating = { step_s = 1e-3, request_s = 2e-4, token_s = 1e-4 }, \
                    without_graph = { above = 3, speculating_s = 4e-3 } }";
        let sets = ["hardware.target.linear.alpha_s=1e-7".to_owned(), format!("engine.host={host}")];
        let mut plan = Plan::of_text("x.toml", include_str!("../stated.toml"), &sets, Path::new("")).unwrap();
        let variant = &mut plan.variants[0];
        let before = variant.experiment.clone();
        let factors = CostFactors { pass: 2.0, token: 3.0, draft: 5.0, step: 7.0, request: 11.0, launch: 13.0 };
        let known = Known { costs: vec![CostFactors::NONE, factors], ..known(400, false, 400) };
        let made = setting(variant, 5, Some(&known)).unwrap();
        let pass_s = |tokens| made.costs().target.pass(PassShape { batched: tokens, ..PassShape::default() }).as_s();
        assert!((pass_s(0) - 2.0 * 0.02).abs() < 1e-9 && (pass_s(10) - pass_s(0) - 10.0 * 3.0 * 2e-4).abs() < 1e-9);
        let costs = |e: &Experiment| (e.hardware.target.clone(), e.hardware.draft.clone(), e.engine.host);
        assert_eq!(costs(&variant.experiment), costs(&before), "the factors count for one setting alone");
        let mut e = before;
        multiply(&mut e, factors);
        let linear = |alpha_s, gamma_s, delta_s| LatencySpec::Linear(Coefficients { alpha_s, gamma_s, delta_s });
        assert_eq!(e.hardware.target, linear(1e-7, 3.0 * 2e-4, 2.0 * 0.02));
        assert_eq!(e.hardware.draft, linear(0.0, 5.0 * 1e-5, 5.0 * 0.002));
        let host = e.engine.host;
        assert_eq!((host.speculating.step_s, host.speculating.request_s), (7.0 * 1e-3, 11.0 * 2e-4));
        assert_eq!((host.speculating.token_s, host.without_graph.speculating_s), (1e-4, 13.0 * 4e-3));
    }

    #[test]
    fn the_spread_of_a_rate_falls_with_its_rounds() {
        // 400 rounds of 400 requests: the standard deviation of the drawn acceptance rate is the binomial's, sqrt(0.6 ·
        // 0.4 / 400).
        let sure = spread(&known(400, false, 400));
        assert!((sure / 0.0245 - 1.0).abs() < 0.05, "{sure}");
        // 400 rounds of 4 requests, 100 each: the standard deviation is larger by a factor of sqrt(1 + 0.05 · 99),
        // because rounds of one request are alike.
        let alike = spread(&known(400, false, 4));
        assert!((alike / sure / 2.44 - 1.0).abs() < 0.05, "{alike}");
        let deeper = spread(&known(0, true, 400));
        assert!((deeper / 0.1 - 1.0).abs() < 0.05, "{deeper}");
    }
}
