//! The settings of a measurement for a profile. They decide the planned visits. If a measurement is resumed, its
//! settings are compared with the settings at its beginning. The profile is made from the settings and the finished
//! visits.

use crate::assess::{assess, context_reads, failures};
use crate::busy::Busy;
use crate::fit::FitError;
use crate::measure::{Effort, Stop, Visit, collect, drift, schedule};
use crate::profile::{DeviceInfo, Measuring, ModelInfo, Profile, SCHEMA_VERSION};
use crate::shapes::{Density, Role, Room, grid};
use foretoken_sim::{ContextReads, Pair};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The settings of a measurement for a profile. The same settings give the same visits in the same order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setup {
    /// Version of the Foretoken that makes the measurement.
    pub foretoken: String,
    /// The machine that is measured.
    pub device: DeviceInfo,
    /// Name, size and weights of the target.
    pub target: ModelInfo,
    /// Name, size and weights of the draft model.
    pub draft: ModelInfo,
    /// Limits on the sizes of target passes that can be measured.
    pub target_room: Room,
    /// Limits on the sizes of draft passes that can be measured.
    pub draft_room: Room,
    /// Which share of the shapes is timed: all shapes, or about a quarter of them.
    pub density: Density,
    /// Time budget for the whole measurement, seconds. The measurement may take longer if passes are long.
    pub budget_s: f64,
    /// Seed that decides the order in which shapes are measured, and the fold of each shape.
    pub seed: u64,
}

/// An anchor is a shape that is timed again and again. If its time changes by more than this share during a
/// measurement, the machine counts as not steady.
pub const STEADY: f64 = 0.05;
/// If the coefficient of variation of the times of equal passes is above this bound, the profile gets a warning.
const WIDE_SPREAD: f64 = 0.10;
/// If other processes used more than this share of the machine's CPU time, the profile gets a warning.
const DISTURBED: f64 = 0.10;
/// If other virtual machines got more than this share of the machine's CPU time (steal time), the profile gets a
/// warning.
const STOLEN: f64 = 0.02;

impl Setup {
    /// Returns the planned visits, in order.
    pub fn stops(&self) -> Vec<Stop> {
        let shapes = Role::EACH.zip(self.rooms()).map(|(role, room)| grid(role, room, self.density));
        schedule(shapes.as_ref().map(Vec::as_slice), self.seed)
    }

    /// Returns the limits on the shapes of passes for the target and for the draft model.
    fn rooms(&self) -> Pair<&Room> {
        Pair { target: &self.target_room, draft: &self.draft_room }
    }

    /// Returns the time that one visit and all visits together may take, computed from the time budget.
    pub fn effort(&self) -> Effort {
        Effort::within(Duration::from_secs_f64(self.budget_s.max(0.0)), self.stops().len())
    }

    /// Returns the differences between these settings and the settings `now`, as texts like `target.name: was "a", now
    /// "b"`. Empty if there are no differences. The device's measured speed is not compared.
    pub fn differences(&self, now: &Setup) -> Vec<String> {
        // The device's measured speed varies from run to run and is not a setting, so it is not compared.
        let without_speed = |setup: &Setup| DeviceInfo { speed: None, ..setup.device.clone() };
        let as_toml = |setup: &Setup| {
            let setup = Setup { device: without_speed(setup), ..setup.clone() };
            toml::Value::try_from(setup).expect("plain data always serialises")
        };
        let mut out = Vec::new();
        differences(&as_toml(self), &as_toml(now), "", &mut out);
        out
    }

    /// Makes the profile with its warnings from the finished visits `visits` (a few timed passes of one shape each).
    /// `wall` is the time that the visits took together. `busy` has the shares of CPU time that other processes and
    /// virtual machines used. `measured_at` is the end of the measurement (RFC 3339, UTC).
    pub fn profile(
        &self,
        visits: &[Visit],
        wall: Duration,
        busy: Option<Busy>,
        measured_at: String,
    ) -> Result<Profile, FitError> {
        let timed = Role::EACH.map(|role| collect(visits, role));
        let reads = context_reads(&timed.target);
        let infos = Pair { target: &self.target, draft: &self.draft };
        let reads_of = Pair { target: reads, draft: ContextReads::Once };
        let models = Role::EACH.zip(infos).zip(timed.as_ref()).zip(reads_of).zip(self.rooms()).try_map(
            |((((role, info), timed), reads), room)| {
                assess(role, info.clone(), timed, reads, self.seed, &room.graph_sizes)
            },
        )?;
        let (mut warnings, mut notes) = (Vec::new(), Vec::new());
        for (role, model) in Role::EACH.zip(models.as_ref()).into_array() {
            let (distrust, more_notes) = failures(role, model);
            warnings.extend(distrust);
            notes.extend(more_notes);
        }
        let trusted = warnings.is_empty();
        let drifts = Role::BOTH.map(|role| drift(visits, role).unwrap_or(0.0));
        let drift = drifts.into_iter().max_by(|a, b| a.abs().total_cmp(&b.abs())).unwrap_or(0.0);
        if drift.abs() > STEADY {
            let change = if drift > 0.0 { "slower" } else { "faster" };
            warnings.push(format!(
                "the machine is not steady: the same pass was {:.0} % {change} at the end than at the beginning (a clock that throttles, or other work)",
                drift.abs() * 100.0
            ));
        }
        for (role, model) in Role::EACH.zip(models.as_ref()).into_array() {
            if model.noise_cv > WIDE_SPREAD {
                let spread = model.noise_cv * 100.0;
                warnings.push(format!("{}: equal passes spread by {spread:.0} %", role.name()));
            }
        }
        if let Some(busy) = busy {
            let share = |what: &str, share: f64, bound: f64| {
                (share > bound).then(|| format!("{what} took {:.0} % of the CPU while it was measured", share * 100.0))
            };
            warnings.extend(share("other processes", busy.others, DISTURBED));
            warnings.extend(share("other virtual machines", busy.stolen, STOLEN));
        }
        warnings.extend(notes);
        Ok(Profile {
            schema_version: SCHEMA_VERSION,
            foretoken: self.foretoken.clone(),
            measured_at,
            trusted,
            warnings,
            context_reads: reads,
            device: self.device.clone(),
            measuring: Measuring {
                seed: self.seed,
                passes: visits.iter().map(|v| v.seconds.len() as u64).sum(),
                wall_s: wall.as_secs_f64(),
                drift,
                others_cpu: busy.map(|b| b.others),
                stolen_cpu: busy.map(|b| b.stolen),
            },
            target: models.target,
            draft: models.draft,
        })
    }
}

fn differences(was: &toml::Value, now: &toml::Value, path: &str, out: &mut Vec<String>) {
    match (was, now) {
        (toml::Value::Table(a), toml::Value::Table(b)) => {
            let mut keys: Vec<&String> = a.keys().chain(b.keys()).collect();
            keys.sort();
            keys.dedup();
            for key in keys {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                match (a.get(key), b.get(key)) {
                    (Some(was), Some(now)) => differences(was, now, &path, out),
                    (was, now) => {
                        let say = |value: Option<&toml::Value>| value.map_or("absent".into(), ToString::to_string);
                        out.push(format!("{path}: was {}, now {}", say(was), say(now)));
                    }
                }
            }
        }
        _ if was != now => out.push(format!("{path}: was {was}, now {now}")),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{line, setup, steps, visits};

    fn profile(visits: &[Visit], busy: Option<Busy>) -> Profile {
        setup().profile(visits, Duration::from_secs(9), busy, "2026-01-01T00:00:00Z".into()).unwrap()
    }

    #[test]
    fn the_same_setup_makes_the_same_visits_and_another_says_what_differs() {
        let (a, mut b) = (setup(), setup());
        assert_eq!((a.stops(), a.differences(&b)), (b.stops(), vec![]));
        b.target.name = "other".into();
        b.device.driver = Some("13.0".into());
        b.seed = 2;
        let said = a.differences(&b);
        assert_eq!(said.len(), 3, "{said:?}");
        assert!(said.iter().any(|d| d == r#"target.name: was "big", now "other""#), "{said:?}");
        assert!(said.iter().any(|d| d == r#"device.driver: was absent, now "13.0""#), "{said:?}");
        assert_ne!(a.stops(), b.stops());
    }

    #[test]
    fn a_steady_machine_with_linear_costs_gives_no_warning() {
        let p = profile(&visits(line, 0.0), Some(Busy { others: 0.01, stolen: 0.0 }));
        assert!(p.trusted && p.warnings.is_empty(), "{:?}", p.warnings);
        assert_eq!(p.check(), Ok(()));
        assert!(p.measuring.passes > 100 && p.measuring.drift.abs() < 1e-9);
    }

    #[test]
    fn every_problem_gives_a_warning_and_distrust_comes_first() {
        let mut slowing = visits(steps, 0.3);
        let n = slowing.len() as f64;
        slowing.iter_mut().enumerate().for_each(|(i, v)| v.seconds.iter_mut().for_each(|s| *s *= 1.0 + i as f64 / n));
        let p = profile(&slowing, Some(Busy { others: 0.4, stolen: 0.1 }));
        assert!(!p.trusted);
        let all = p.warnings.join("\n");
        assert!(p.warnings[0].contains("held-out"), "{all}");
        for part in
            ["not steady", "slower at the end", "spread by", "other processes took 40 %", "virtual machines took 10 %"]
        {
            assert!(all.contains(part), "{part} in {all}");
        }
    }
}
