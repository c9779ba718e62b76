//! Chooses the autoregressive run that gives the TPOT bound. The bound may be a fixed factor times the P90 TPOT of an
//! autoregressive run. If the experiment sweeps settings, it has several autoregressive runs.
//!
//! A bound should not change with the load, so the run at one load gives the bound for all loads. In the AdaSpec paper,
//! each load has a bound of its own, a factor times the P90 TPOT of the run at that load. A bound of this kind grows
//! with the queue, and 90 % of the requests of autoregressive decoding meet it at every load.

use crate::plan::{Plan, choice, picks};
use crate::spec::document::{Choice, Path};
use crate::spec::experiment::Reference;
use crate::spec::problem::{Result, nearest};

/// Checks the table `slo.reference.at`, which gives the swept values of the autoregressive run whose P90 TPOT times a
/// factor is the TPOT bound: every setting that it names must be swept, and the sweep must take the given value.
pub fn check(plan: &Plan) -> Result<()> {
    for variant in &plan.variants {
        let Some(Reference::At(at)) = &variant.experiment.slo.reference else { continue };
        let wrong = |message: String| variant.document().problem_at(&Path::of("slo.reference.at"), message);
        for (path, value) in at {
            if choice(variant, path).is_none() {
                let swept: Vec<&str> = variant.choices.iter().map(|c| c.path.as_str()).collect();
                let problem = wrong(format!("slo.reference.at: `{path}` is not swept, so it names no run"));
                return Err(match (nearest(path, swept.iter().copied()), swept.as_slice()) {
                    (Some(near), _) => problem.help(format!("did you mean `{near}`? Swept here: {}", swept.join(", "))),
                    (None, []) => problem.help("nothing is swept: leave slo.reference out"),
                    (None, _) => problem.help(format!("swept here: {}", swept.join(", "))),
                });
            }
            if !(0..plan.variants.len()).any(|v| picks(plan, v, path, value)) {
                let values: Vec<&str> = values(plan, path).map(|c| c.value.as_str()).collect();
                let problem = wrong(format!("slo.reference.at: the sweep of {path} never takes {value}"));
                return Err(problem.help(format!("it takes {}", values.join(", "))));
            }
        }
    }
    Ok(())
}

impl Plan {
    /// The index of the variant whose autoregressive run gives the TPOT bound of variant `variant`, with the same seed.
    /// `None` if the experiment does not take the TPOT bound from an autoregressive run.
    pub fn bound_from(&self, variant: usize) -> Option<usize> {
        let own = &self.variants[variant];
        own.experiment.slo.adaspec_scale?;
        let reference = own.experiment.slo.reference.as_ref().unwrap_or(&Reference::LowestLoad);
        let named = |path: &str, value: &toml::Value| {
            let v = (0..self.variants.len()).find(|&v| picks(self, v, path, value))?;
            choice(&self.variants[v], path)
        };
        let wanted = own.choices.iter().map(|c| match reference {
            Reference::At(at) if at.contains_key(&c.path) => named(&c.path, &at[&c.path]).unwrap_or(c),
            Reference::EachLoad => c,
            _ => self.lowest(c),
        });
        let wanted: Vec<&Choice> = wanted.collect();
        // Sweeps make all combinations of their values, so exactly one variant has the `wanted` values.
        self.variants.iter().position(|v| v.choices.iter().eq(wanted.iter().copied()))
    }

    /// `own` is a swept setting with one of its values. If the setting changes the load and all its values are numbers,
    /// returns the setting with its lowest value. Otherwise returns `own`.
    fn lowest<'a>(&'a self, own: &'a Choice) -> &'a Choice {
        let numbers = || values(self, &own.path).map(|c| c.number.filter(|n| n.is_finite()));
        if !is_load(&own.path) || numbers().any(|n| n.is_none()) {
            return own;
        }
        values(self, &own.path).min_by(|a, b| a.number.partial_cmp(&b.number).expect("finite")).unwrap_or(own)
    }
}

fn values<'a>(plan: &'a Plan, path: &'a str) -> impl Iterator<Item = &'a Choice> {
    plan.variants.iter().filter_map(move |v| choice(v, path))
}

/// Does the setting with this path change how fast requests arrive?
fn is_load(path: &str) -> bool {
    path.starts_with("workload.arrivals.") || path.ends_with(".rate-scale") || path.ends_with(".thin.keep")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(sets: &[&str]) -> Result<Plan> {
        let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../experiments/quickstart.toml");
        Plan::load(&file, &sets.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>())
    }

    const RATES: &str = "workload.transform=[{ rate-scale = { sweep = [2.0, 0.5, 1.0] } }]";
    const SEQS: &str = "engine.max_num_seqs={ sweep = [16, 64] }";

    fn origins(sets: &[&str]) -> Vec<Option<usize>> {
        let plan = plan(sets).unwrap();
        (0..plan.variants.len()).map(|v| plan.bound_from(v)).collect()
    }

    #[test]
    fn the_lowest_load_gives_the_bound_of_all() {
        assert_eq!(origins(&[RATES]), [Some(1), Some(1), Some(1)]);
        assert_eq!(origins(&[RATES, "slo.reference=lowest-load"]), [Some(1); 3]);
        assert_eq!(origins(&[]), [Some(0)]);
    }

    #[test]
    fn settings_other_than_the_load_keep_their_value() {
        let all = origins(&[RATES, SEQS]);
        assert_eq!(all.len(), 6);
        let plan = plan(&[RATES, SEQS]).unwrap();
        for (v, from) in all.iter().enumerate() {
            let value = |v: usize, path: &str| choice(&plan.variants[v], path).unwrap().value.clone();
            let from = from.unwrap();
            assert_eq!(value(from, "engine.max_num_seqs"), value(v, "engine.max_num_seqs"));
            assert_eq!(value(from, "workload.transform[0].rate-scale"), "0.5");
        }
    }

    #[test]
    fn a_reference_can_be_named_and_each_load_can_have_its_own() {
        let named = r#"slo.reference={ at = { "workload.transform[0].rate-scale" = 1.0 } }"#;
        assert_eq!(origins(&[RATES, named]), [Some(2); 3]);
        assert_eq!(origins(&[RATES, "slo.reference=each-load"]), [Some(0), Some(1), Some(2)]);
        let bound = ["slo={ tpot_s = 0.02 }", RATES];
        assert_eq!(origins(&bound), [None; 3]);
    }

    #[test]
    fn a_reference_to_a_value_that_no_sweep_takes_is_refused() {
        let refused = |reference: &str| {
            let Err(problem) = plan(&[RATES, &format!("slo.reference={reference}")]) else { panic!("{reference}") };
            format!("{} {}", problem.message(), problem.help_text())
        };
        let typo = refused(r#"{ at = { "workload.transform[0].rate_scale" = 1.0 } }"#);
        assert!(
            typo.contains("is not swept") && typo.contains("did you mean `workload.transform[0].rate-scale`"),
            "{typo}"
        );
        let absent = refused(r#"{ at = { "workload.transform[0].rate-scale" = 3.0 } }"#);
        assert!(absent.contains("never takes 3.0") && absent.contains("it takes 2.0, 0.5, 1.0"), "{absent}");
        let Err(alone) = plan(&["slo={ reference = \"each-load\" }"]) else { panic!("a reference of nothing") };
        assert!(alone.message().contains("slo.adaspec-scale is not"), "{}", alone.message());
    }
}
