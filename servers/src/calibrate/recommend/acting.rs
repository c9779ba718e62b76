//! What acting by the policy in an engine's seat would bring: the policy and what the engine runs now are simulated on
//! the calibration, with the same requests and the same luck.

use super::at_load::described;
use super::candidates::evaluate;
use super::gain::Gain;
use super::now::Now;
use super::question::{Engine, Goal, Objective, Question};
use crate::calibrate::kept::{EXPERIMENT, Known};
use foretoken_policies::PolicySpec;
use foretoken_run::plan::Plan;
use foretoken_run::spec::problem::{Problem, Result};
use std::fmt::Write;
use std::path::Path;
use std::sync::atomic::AtomicBool;

/// What acting by the policy in the seat would bring.
#[derive(Clone, Debug, PartialEq)]
pub enum Acting {
    /// The calibration cannot say it; the text says why, and what to log next.
    Unknown(String),
    /// The gain in mean E2E over what the engine runs now, at each load of the log.
    Gains {
        policy: String,
        now: String,
        /// Each load with the gain; `None` without requests that finish.
        gains: Vec<(String, Option<Gain>)>,
        /// The calibration's error between runs, as a share.
        error: f64,
    },
}

/// Simulates the policy in the seat and what the engine runs now. `folder` holds a calibration from the log of a seat.
pub fn acting(folder: &Path, interrupt: &AtomicBool) -> Result<Acting> {
    let known = Known::read(folder)?;
    let Some(seat) = known.seat.clone() else {
        return Err(Problem::bad_input(format!("{} has no log of a seat", folder.display()))
            .help("calibrate on the file that FORETOKEN_LOG named"));
    };
    if let Some((why, _)) = known.cannot_say() {
        return Ok(Acting::Unknown(format!("{why}, or let the policy act for some hundred steps")));
    }
    let Some(spec) = seat.spec() else {
        return Ok(Acting::Unknown(format!("this version does not know the policy {}", seat.policy)));
    };
    let file = folder.join(EXPERIMENT);
    let text = fs_err::read_to_string(&file).map_err(|e| Problem::bad_input(e.to_string()))?;
    let now = Now::observed(&known);
    let longest = known.positions.max(now.k().unwrap_or(0)).max(1);
    let ask = Question {
        file,
        text,
        sets: vec![],
        engine: Engine::Vllm,
        objective: Objective { of: Goal::MeanE2e, p99_tpot_s: None },
        longest,
        now: now.clone(),
        method: None,
        model: None,
        known: Some(known),
    };
    let mut gains = Vec::new();
    for load in ask.loads() {
        let mut plan = ask.plan(&load)?;
        let costs = |plan: &Plan, spec: &PolicySpec| {
            let of = evaluate(plan, std::slice::from_ref(spec), ask.objective, ask.known.as_ref(), interrupt)?;
            Ok::<_, Box<Problem>>(of.into_iter().flat_map(|candidate| candidate.costs).collect::<Vec<_>>())
        };
        let before = costs(&plan, &now.spec)?;
        // SGLang always has one draft length for the batch, and no setting for it.
        let engine = &mut plan.variants[0].experiment.engine;
        engine.seated = !engine.release().sglang;
        let after = costs(&plan, &spec)?;
        gains.push((described(&load, &plan)?.0, Gain::of(&before, &after)));
    }
    let error = ask.known.as_ref().map_or(0.0, |known| known.between_runs);
    Ok(Acting::Gains { policy: spec.label(), now: now.name, gains, error })
}

impl Acting {
    /// The answer as lines of text.
    pub fn in_words(&self) -> String {
        let (policy, now, gains, error) = match self {
            Acting::Unknown(why) => return format!("acting                  cannot be simulated: {why}\n"),
            Acting::Gains { policy, now, gains, error } => (policy, now, gains, *error),
        };
        let mut text = String::new();
        for (load, gain) in gains {
            let gain = match gain {
                None => "no request finishes in the simulation".to_owned(),
                Some(gain) => {
                    // The band has the spread over seeds and the calibration's error between runs.
                    let half = gain.half_width.unwrap_or(0.0).hypot(error);
                    let end = |sign: f64| 100.0 * (-(gain.log() + sign * half)).exp_m1();
                    format!("mean E2E {:+.1} % ({:+.1} to {:+.1} %)", -100.0 * gain.mean, end(1.0), end(-1.0))
                }
            };
            writeln!(text, "acting, simulated       {policy} over {now}, {load}: {gain}").expect("a string grows");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_the_gain_with_its_band() {
        let gain = Gain::of(&[Some(4.0), Some(4.0)], &[Some(3.0), Some(3.0)]);
        let gains = vec![("Poisson 3/s".to_owned(), gain), ("closed loop of 4".to_owned(), None)];
        let answer = Acting::Gains { policy: "aimd".into(), now: "K = 3".into(), gains, error: 0.05 };
        let text = answer.in_words();
        assert!(text.contains("aimd over K = 3, Poisson 3/s: mean E2E -25.0 % (-28.7 to -21.2 %)"), "{text}");
        assert!(text.contains("closed loop of 4: no request finishes in the simulation"), "{text}");
        assert!(Acting::Unknown("why".into()).in_words().contains("cannot be simulated: why"));
    }
}
