//! The shipped experiments that need no other file, inside the program: `foretoken run quickstart` works without a
//! checkout.

use std::path::Path;

/// Name and text of each shipped experiment; `experiments/` has a file of this name.
const SHIPPED: [(&str, &str); 7] = [
    ("quickstart", include_str!("../../experiments/quickstart.toml")),
    ("capacity", include_str!("../../experiments/capacity.toml")),
    ("capacity-slo", include_str!("../../experiments/capacity-slo.toml")),
    ("orders", include_str!("../../experiments/orders.toml")),
    ("observe", include_str!("../../experiments/observe.toml")),
    ("bench-poisson", include_str!("../../experiments/bench-poisson.toml")),
    ("bench-poisson-fixed4", include_str!("../../experiments/bench-poisson-fixed4.toml")),
];

/// The names of the shipped experiments.
pub fn names() -> impl Iterator<Item = &'static str> {
    SHIPPED.iter().map(|(name, _)| *name)
}

/// The text of a shipped experiment. A file or folder of that name in the working directory comes first.
pub fn text(file: &Path) -> Option<&'static str> {
    let name = file.to_str().filter(|_| !file.exists())?;
    SHIPPED.iter().find(|(shipped, _)| *shipped == name).map(|(_, text)| *text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Plan;

    #[test]
    fn a_shipped_experiment_is_found_by_its_name_alone() {
        for name in names() {
            let read = if name == "observe" { Plan::load_to_observe } else { Plan::load };
            // `foretoken capacity` chooses the number of requests itself.
            let sets = name.starts_with("capacity").then(|| "workload.requests=100".to_owned());
            read(Path::new(name), sets.as_slice()).unwrap_or_else(|e| panic!("{name}: {}", e.in_words()));
        }
        assert!(text(Path::new("quickstart.toml")).is_none() && text(Path::new("./quickstart")).is_none());
    }
}
