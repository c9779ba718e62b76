//! Pass times that are summed from the measured kernels of an installed package: what is said of them, and their copy
//! in a results folder.

use crate::plan::{Derived, Plan};
use crate::spec::experiment::Experiment;
use crate::spec::problem::{Problem, Result};
use foretoken_profiler::hardware::{KernelsSpec, LatencySpec, kernel_tables};
use std::path::Path;

/// Name of the file, in the results, with the pass times. With it, the results can be opened where the package is not.
pub const KERNELS: &str = "kernels.json";

/// What was chosen, repaired, held or borrowed in costs that are summed from measured kernels, and the front end of the
/// engine if it is derived.
pub fn notes(experiment: &Experiment, derived: Derived) -> Vec<String> {
    let costs = [("target", &experiment.hardware.target), ("draft", &experiment.hardware.draft)];
    let of = |(role, costs): (&str, &LatencySpec)| match costs {
        LatencySpec::Kernels(kernels) => kernels.provenance().map_or_else(
            |_| Vec::new(),
            |times| times.notes.iter().map(|note| format!("hardware.{role}.kernels: {note}")).collect(),
        ),
        _ => Vec::new(),
    };
    let front_end = match &experiment.hardware.target {
        LatencySpec::Kernels(kernels) if derived.frontend_s => Some(format!("engine.frontend_s: {}", kernels.host())),
        _ => None,
    };
    costs.into_iter().flat_map(of).chain(front_end).collect()
}

/// Takes the pass times of a results folder, in the place of the package's. Does nothing if the folder has none.
pub fn restore(folder: &Path) -> Result<()> {
    let file = folder.join(KERNELS);
    let Ok(stored) = std::fs::read_to_string(&file) else { return Ok(()) };
    kernel_tables::restore(&stored).map_err(|e| {
        Problem::bad_input(format!("{} cannot be read: {e}", file.display()))
            .help("the folder is not whole: run it again")
    })
}

impl Plan {
    /// The pass times that are summed from measured kernels, as JSON; `None` if no costs are.
    pub fn kernels(&self) -> Result<Option<String>> {
        let costs = self.variants.iter().map(|v| &v.experiment.hardware).flat_map(|h| [&h.target, &h.draft]);
        let mut specs: Vec<&KernelsSpec> = Vec::new();
        for costs in costs {
            match costs {
                LatencySpec::Kernels(spec) if !specs.contains(&spec) => specs.push(spec),
                _ => {}
            }
        }
        let stored = (!specs.is_empty()).then(|| kernel_tables::store(specs));
        stored.transpose().map_err(|e| Problem::failed(e.to_string()))
    }
}
