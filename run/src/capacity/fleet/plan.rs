//! Reads the input of a search for the smallest fleet: the experiment with its fleet, and the same experiment with
//! one replica alone.

use crate::capacity::plan::load as load_capacity;
use crate::plan::Plan;
use crate::spec::capacity::CapacitySpec;
use crate::spec::document::{Document, Path};
use crate::spec::fleet::Replicas;
use crate::spec::problem::Result;
use std::path::Path as FilePath;

/// The input of a search for the smallest fleet: the experiment with its `[fleet]` table, the experiment without this
/// table, and the `[capacity]` table.
pub struct Question {
    /// The experiment with its `[fleet]` table.
    pub plan: Plan,
    /// The experiment without its `[fleet]` table. The capacity of one replica alone is searched with this experiment.
    pub alone: Plan,
    /// The `[capacity]` table, such as the share of requests that must keep their SLO bounds.
    pub spec: CapacitySpec,
}

/// Reads the input of a search for the smallest fleet from an experiment's TOML, `document`. Relative paths in the TOML
/// start at `folder`.
pub fn load(document: &Document, folder: &FilePath) -> Result<Question> {
    let plan = Plan::of(document.clone(), folder)?;
    for variant in &plan.variants {
        let wrong = |path: &str, message: &str| variant.document().problem_at(&Path::of(path), message.to_owned());
        let Some(fleet) = &variant.experiment.fleet else {
            return Err(wrong("fleet", "the experiment has no [fleet]").help(
                "say which router and what a GPU costs: --set fleet.router=round-robin --set fleet.price_gpu_hour=2.5",
            ));
        };
        if let Replicas::Kinds(_) = fleet.replicas {
            return Err(wrong("fleet.replicas", "the search is for the number of replicas, and fleet.replicas lists kinds of them")
                .help("leave it out; `foretoken run` compares mixes: fleet.replicas = { sweep = [8, [{ count = 6 }, { count = 2, ... }]] }"));
        }
        if fleet.lock_step {
            let message = "the search is for a number of replicas, and these are the ranks of one server";
            return Err(
                wrong("fleet.lock_step", message).help("`foretoken capacity` finds the rate that one server carries")
            );
        }
        if fleet.scaling.is_some() {
            return Err(wrong(
                "fleet.scaling",
                "the search is for a fixed number of replicas, and a rule scales the fleet",
            )
            .help("remove fleet.scaling; `foretoken run` says what a fleet that is scaled costs"));
        }
        if fleet.price_gpu_hour.is_none() {
            return Err(wrong("fleet", "fleet.price_gpu_hour is missing: fleets are compared by what they cost")
                .help("write price_gpu_hour = 2.5, what one GPU costs for an hour"));
        }
    }
    let mut one = document.clone();
    for key in ["fleet", "sweep_order", "paper", "question"] {
        one.remove(&Path::of(key));
    }
    let (alone, spec) = load_capacity(&one, folder)?;
    Ok(Question { plan, alone, spec })
}

impl Question {
    pub fn price_gpu_hour(&self, variant: usize) -> f64 {
        let fleet = self.plan.variants[variant].experiment.fleet.as_ref();
        fleet.and_then(|fleet| fleet.price_gpu_hour).expect("`load` refuses fleets without a price")
    }

    /// The index in `alone` of the variant that belongs to variant number `variant` in `plan`. The two variants have
    /// the same swept values, except swept settings of the fleet. 0 if there is no such variant.
    pub fn alone_of(&self, variant: usize) -> usize {
        let choices: Vec<_> =
            self.plan.variants[variant].choices.iter().filter(|c| !c.path.starts_with("fleet.")).collect();
        let same = |v: &crate::plan::Variant| {
            choices.iter().all(|c| v.choices.iter().any(|other| other.path == c.path && other.value == c.value))
        };
        self.alone.variants.iter().position(same).unwrap_or(0)
    }
}
