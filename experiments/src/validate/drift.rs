//! Is the machine after the runs the one that was profiled before them?

use foretoken_profiler::{ModelProfile, Profile, Role};
use serde::{Deserialize, Serialize};

/// How steady the machine was.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Drift {
    /// The largest of the changes below, without sign.
    pub largest: f64,
    /// Model, and the median change of its passes' times from the profile before the runs to the one after them.
    pub models: Vec<(String, f64)>,
}

impl Drift {
    /// Between two profiles of one pair: over the shapes that both measured.
    pub fn between(before: &Profile, after: &Profile) -> Drift {
        let of = |role: Role| Some((role.name().to_owned(), change(before.of(role), after.of(role))?));
        let models: Vec<(String, f64)> = Role::BOTH.into_iter().filter_map(of).collect();
        Drift { largest: models.iter().map(|m| m.1.abs()).fold(0.0, f64::max), models }
    }
}

/// The median of the relative changes of shapes' times.
fn change(before: &ModelProfile, after: &ModelProfile) -> Option<f64> {
    let was = |shape| before.measured.iter().find(|m| m.shape == shape);
    median(after.measured.iter().filter_map(|now| Some(now.seconds / was(now.shape)?.seconds - 1.0)).collect())
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    let n = values.len();
    (n > 0).then(|| (values[(n - 1) / 2] + values[n / 2]) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_change_is_the_median_of_shared_shapes() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0]), Some(2.5));
        assert_eq!(median(vec![]), None);
    }
}
