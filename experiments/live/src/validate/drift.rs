//! Is the machine after the runs the one that was profiled before them?

use foretoken_profiler::{ModelProfile, Profile, Role, median};
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
    let changes = after.measured.iter().filter_map(|now| Some(now.seconds / was(now.shape)?.seconds - 1.0));
    let changes: Vec<f64> = changes.collect();
    (!changes.is_empty()).then(|| median(changes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use itertools::zip_eq;

    /// The shipped profile with these times of the target's first shapes, and the draft's all `draft` times as long.
    fn profile(first: &[f64], draft: f64) -> Profile {
        let mut profile = Profile::parse(include_str!("../../../profiles/tiny-cpu.toml")).unwrap();
        profile.target.measured.truncate(first.len());
        for (m, &seconds) in zip_eq(&mut profile.target.measured, first) {
            m.seconds = seconds;
        }
        profile.draft.measured.iter_mut().for_each(|m| m.seconds *= draft);
        profile
    }

    #[test]
    fn the_change_is_the_median_of_shared_shapes() {
        let before = profile(&[1.0, 2.0, 4.0, 1.0], 1.0);
        // Changes of +50, -10 and +20 %, in another order; the fourth shape was not measured again, and one is new.
        let mut after = profile(&[1.5, 1.8, 4.8], 0.5);
        after.target.measured.reverse();
        let mut new = after.target.measured[0];
        (new.shape.context, new.seconds) = (77_777, 1e6);
        after.target.measured.push(new);
        let drift = Drift::between(&before, &after);
        let [(target, grown), (draft, shrunk)] = drift.models.as_slice() else { panic!("{drift:?}") };
        assert_eq!((target.as_str(), draft.as_str()), ("target", "draft"));
        assert!((grown - 0.2).abs() < 1e-12 && (shrunk + 0.5).abs() < 1e-12, "{drift:?}");
        assert_eq!(drift.largest, shrunk.abs(), "the largest has no sign");
        assert_eq!(Drift::between(&after, &after).largest, 0.0);
    }

    #[test]
    fn a_model_without_a_shared_shape_has_no_change() {
        let (before, mut after) = (profile(&[1.0], 1.0), profile(&[1.0], 1.1));
        after.target.measured[0].shape.context += 1;
        let drift = Drift::between(&before, &after);
        assert!(drift.models.len() == 1 && drift.models[0].0 == "draft" && (drift.largest - 0.1).abs() < 1e-12);
    }
}
