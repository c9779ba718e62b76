//! Makes figures that show how well the fits of a profile (a file of pass times) match the measured pass times.

use foretoken_profiler::{Measurement, Profile, Region, Role, Truth};
use foretoken_report::{Figure, Profiled, ProfiledFit, ProfiledPass, profile_figures};

/// Figures of predicted against measured pass times and of relative errors, for four fits: the linear fit and the table
/// of pass times, each for the target and for the draft model.
pub fn figures(profile: &Profile) -> Vec<Figure> {
    let fits = [(Truth::Linear, "linear fit"), (Truth::Table, "table")];
    let fits_of = |role: Role| fits.map(|(truth, name)| fit(profile, role, truth, name));
    let shapes = profile.target.measured.len() + profile.draft.measured.len();
    profile_figures(&Profiled {
        title: format!("{} with {} on {}", profile.target.model.name, profile.draft.model.name, profile.device.name),
        source: format!(
            "profiled {}, means of {} passes over {shapes} shapes",
            profile.measured_at, profile.measuring.passes
        ),
        regions: Region::ALL.iter().map(|region| region.name()).collect(),
        fits: Role::BOTH.into_iter().flat_map(fits_of).collect(),
    })
}

fn fit(profile: &Profile, role: Role, truth: Truth, name: &str) -> ProfiledFit {
    let model = profile.truth(role, truth).build();
    let pass = |m: &Measurement| {
        let pass = m.shape.pass(profile.reads(role, truth));
        ProfiledPass {
            region: m.shape.region() as usize,
            batched: pass.batched,
            measured_s: m.seconds,
            predicted_s: model.pass(pass).as_s(),
        }
    };
    let passes = profile.of(role).measured.iter().map(pass).collect();
    ProfiledFit { title: format!("{}: {name}", role.name()), passes }
}
