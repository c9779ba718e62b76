//! What policies believe about costs (pass times): a linear model of draft and target passes, and the pass times that
//! policies may measure before serving starts. The settings `belief.*` of an experiment can make both wrong on purpose.

use crate::spec::experiment::{BeliefSpec, Hardware, Tables};
use crate::spec::problem::{Problem, Result};
use foretoken_policies::{Belief, PassTimes};
use foretoken_sim::{Coefficients, ContextReads, Draws, LatencyModel, Luck, PassShape, Stream};
use rand_distr::{Distribution, LogNormal};

/// What policies are given about the costs of passes in one run: a linear model, and measured pass times. The random
/// errors that an experiment may put into them depend on the run's seed.
pub struct Believed {
    /// The linear model of pass times: α per context token, γ per token and δ per pass, for the target model and for
    /// the draft model.
    pub linear: Belief,
    /// Number of steps after which a policy learns how many draft tokens were accepted in a step.
    pub staleness_steps: u32,
    tables: Tables,
    scale_target: f64,
    scale_draft: f64,
    noise_cv: f64,
    luck: Luck,
    /// The latency models (draft, target) of another machine, to which the policies' linear cost model is fitted
    /// (`belief.fitted_to`). Cost tables are then measured on that machine too. `None`: the simulated machine.
    elsewhere: Option<(Box<dyn LatencyModel>, Box<dyn LatencyModel>)>,
}

impl Believed {
    /// Makes what policies believe about pass times from the `[belief]` table `spec`. `seed` decides the random errors.
    /// Adds a warning to `notes` if a linear cost model fits the simulated machine's pass times badly.
    pub fn new(spec: &BeliefSpec, hardware: &Hardware, seed: u64, notes: &mut Vec<String>) -> Result<Believed> {
        let (target, draft) = match &spec.fitted_to {
            Some(other) => (&other.target, &other.draft),
            None => (&hardware.target, &hardware.draft),
        };
        let (target, draft) = (target.build(), draft.build());
        let mut fitted = |given, truth: &dyn LatencyModel, model| believe(given, truth, model, notes);
        let target_s = fitted(spec.target, &*target, "target")?;
        let draft_s = fitted(spec.draft, &*draft, "draft")?;
        let luck = Luck::new(seed, Stream::Belief, 0);
        Ok(Believed {
            linear: Belief {
                target: wrong(target_s, spec.scale.target, spec.noise_cv, seed, 0),
                draft: wrong(draft_s, spec.scale.draft, spec.noise_cv, seed, 1),
                context_reads: spec.context_reads.unwrap_or(hardware.context_reads),
                drafting: hardware.drafting,
            },
            staleness_steps: spec.staleness_steps,
            tables: spec.tables,
            scale_target: spec.scale.target,
            scale_draft: spec.scale.draft,
            noise_cv: spec.noise_cv,
            luck,
            elsewhere: spec.fitted_to.as_ref().map(|_| (draft, target)),
        })
    }

    /// The pass times that policies may measure before serving starts. `draft` and `target` are the simulated machine's
    /// true pass times of the two models; they are not used if the policies' cost model is fitted to another machine.
    /// `reads` says whether the true verify pass reads a request's context once, or once for each verified position.
    pub fn profile<'a>(
        &'a self,
        draft: &'a dyn LatencyModel,
        target: &'a dyn LatencyModel,
        reads: ContextReads,
    ) -> Profile<'a> {
        let (draft, target) = self.elsewhere.as_ref().map_or((draft, target), |(d, t)| (&**d, &**t));
        Profile { believed: self, draft, target, reads }
    }
}

/// The pass times that policies may measure before serving starts, to fill their cost tables. The setting
/// `belief.tables` chooses which times these are: times by the linear cost model, or true times × scale × random error.
pub struct Profile<'a> {
    believed: &'a Believed,
    draft: &'a dyn LatencyModel,
    target: &'a dyn LatencyModel,
    /// Does the simulated machine's verify pass read a request's context once, or once per verified position?
    reads: ContextReads,
}

impl Profile<'_> {
    fn time(&self, costs: &dyn LatencyModel, shape: PassShape, scale: f64, model: u64) -> f64 {
        // The random error depends only on the pass's numbers of new tokens and of context tokens, so a pass that is
        // timed twice has the same error both times.
        let key = shape.batched << 32 ^ shape.context;
        costs.pass(shape).as_s() * scale * error(self.believed.noise_cv, self.believed.luck.narrow(model).bits(key))
    }
}

impl PassTimes for Profile<'_> {
    fn draft_s(&self, shape: PassShape) -> f64 {
        match self.believed.tables {
            Tables::Linear => self.believed.linear.draft_s(shape),
            Tables::Profiled => self.time(self.draft, shape, self.believed.scale_draft, 1),
        }
    }

    fn target_s(&self, shape: PassShape) -> f64 {
        match self.believed.tables {
            Tables::Linear => self.believed.linear.target_s(shape),
            Tables::Profiled => self.time(self.target, shape, self.believed.scale_target, 0),
        }
    }

    fn context_reads(&self) -> ContextReads {
        match self.believed.tables {
            Tables::Linear => self.believed.linear.context_reads,
            Tables::Profiled => self.reads,
        }
    }
}

/// The linear cost coefficients `c` × `scale` × random factors, as a policy with wrong knowledge gets them. Each
/// coefficient has a factor of its own, with mean 1 and coefficient of variation `cv`. `model` is 0 for the target
/// model and 1 for the draft model.
fn wrong(c: Coefficients, scale: f64, cv: f64, seed: u64, model: u64) -> Coefficients {
    let luck = Luck::new(seed, Stream::Belief, 1 + model);
    let distorted = |value: f64, which: u64| value * scale * error(cv, luck.bits(which));
    Coefficients {
        alpha_s: distorted(c.alpha_s, 0),
        gamma_s: distorted(c.gamma_s, 1),
        delta_s: distorted(c.delta_s, 2),
    }
}

/// A random log-normal factor with mean 1 and coefficient of variation `cv`. `key` seeds the draw, so that equal keys
/// give equal factors.
fn error(cv: f64, key: u64) -> f64 {
    if cv == 0.0 {
        return 1.0;
    }
    let variance = (1.0 + cv * cv).ln();
    let law = LogNormal::new(-variance / 2.0, variance.sqrt()).expect("it is checked to be at most 1000");
    law.sample(&mut Draws::new(key, Stream::Belief, 0))
}

/// Returns the linear cost coefficients `given` if there are any. Otherwise fits a linear cost model to the true pass
/// times `truth`, and adds a warning to `notes` if the fit is bad.
fn believe(
    given: Option<Coefficients>,
    truth: &dyn LatencyModel,
    model: &str,
    notes: &mut Vec<String>,
) -> Result<Coefficients> {
    if let Some(c) = given {
        return Ok(c);
    }
    let fit = foretoken_profiler::fit_truth(truth)
        .map_err(|e| Problem::failed(format!("no linear belief fits the {model}'s true costs: {e}")))?;
    if !fit.trusted {
        notes.push(format!(
            "the policies' linear belief fits the {model}'s true cost badly: {}; they decide by this belief, as they would on \
            such a machine; belief.{model} = {{ alpha_s, gamma_s, delta_s }} gives them another",
            fit.reasons.join("; ")
        ));
    }
    Ok(fit.coefficients)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_mean_one_and_the_asked_spread() {
        let n = 50_000u64;
        let x: Vec<f64> = (0..n).map(|key| error(0.2, key)).collect();
        let mean = x.iter().sum::<f64>() / n as f64;
        let sd = (x.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n as f64).sqrt();
        assert!((mean - 1.0).abs() < 0.005 && (sd - 0.2).abs() < 0.005, "{mean} {sd}");
        assert_eq!(error(0.0, 3), 1.0);
    }

    #[test]
    fn coefficients_are_scaled_and_each_has_its_own_error() {
        let c = Coefficients { alpha_s: 1.0, gamma_s: 1.0, delta_s: 1.0 };
        assert_eq!(wrong(c, 2.0, 0.0, 1, 0), Coefficients { alpha_s: 2.0, gamma_s: 2.0, delta_s: 2.0 });
        let noisy = wrong(c, 1.0, 0.3, 1, 0);
        assert!(noisy.alpha_s != noisy.gamma_s && noisy != wrong(c, 1.0, 0.3, 2, 0));
        assert_eq!(noisy, wrong(c, 1.0, 0.3, 1, 0));
    }

    /// In cost tables, a verify pass reads context as the simulated machine does (once, or per position); in the linear
    /// cost model that policies get, it reads context as `belief.context_reads` says.
    #[test]
    fn timed_and_believed_passes_count_context_each_in_their_own_way() {
        let linear = "{ linear = { alpha_s = 1e-6, gamma_s = 1e-5, delta_s = 1e-3 } }";
        let text = format!("target = {linear}\ndraft = {linear}\ncontext_reads = \"once\"");
        let hardware: Hardware = toml::from_str(&text).unwrap();
        for (tables, counts) in [(Tables::Linear, ContextReads::PerPosition), (Tables::Profiled, ContextReads::Once)] {
            let spec = BeliefSpec { context_reads: Some(ContextReads::PerPosition), tables, ..BeliefSpec::default() };
            let believed = Believed::new(&spec, &hardware, 1, &mut Vec::new()).unwrap();
            let (draft, target) = (hardware.draft.build(), hardware.target.build());
            assert_eq!(believed.profile(&*draft, &*target, hardware.context_reads).context_reads(), counts);
        }
    }
}
