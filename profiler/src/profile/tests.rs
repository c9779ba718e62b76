use super::*;
use crate::hardware::LatencySpec;
use crate::testing::{line, profile, steps};
use foretoken_sim::{LatencyModel, PassShape};
use proptest::prelude::*;

#[test]
fn a_written_profile_is_read_back() {
    for profile in [profile(line, 0.03), profile(steps, 0.0)] {
        let text = profile.to_toml();
        assert_eq!(Profile::parse(&text), Ok(profile.clone()), "{text}");
        let rows = text.lines().filter(|l| l.starts_with("    [\"")).count();
        assert_eq!(rows, profile.target.measured.len() + profile.draft.measured.len(), "rows have lines of their own");
    }
}

proptest! {
    /// If a profile is written and read again, its numbers keep the same bits.
    #[test]
    fn numbers_come_back(alpha in 0f64..1.0, seconds in 1e-9f64..1e3, noise in 0f64..2.0, name in "[ -~]{0,20}") {
        let mut p = profile(line, 0.0);
        p.target.linear.alpha_s = alpha;
        p.draft.measured[0].seconds = seconds;
        p.target.noise_cv = noise;
        p.target.model.name = name;
        prop_assert_eq!(Profile::parse(&p.to_toml()), Ok(p));
    }
}

fn broken(from: &str, to: &str) -> String {
    let text = profile(line, 0.0).to_toml();
    assert!(text.contains(from), "{from} in {text}");
    Profile::parse(&text.replacen(from, to, 1)).unwrap_err().to_string()
}

#[test]
fn a_text_that_is_no_profile_gives_a_reason() {
    let newer = broken("schema_version = 2", "schema_version = 3\nnew_key = 3");
    assert!(newer.contains("schema_version is 3") && newer.contains("update"), "{newer}");
    let older = broken("schema_version = 2", "schema_version = 1");
    assert!(older.contains("schema_version is 1") && older.contains("profile again"), "{older}");
    assert!(broken("schema_version = 2", "schema_version = 0").contains("0 is no version"));
    assert!(broken("schema_version = 2", "").contains("not a profile"));
    assert!(broken("trusted = true", "trusted = 1").contains("expected a boolean"));
    assert!(broken("trusted = true", "trust = true").contains("unknown field `trust`"));
    assert!(broken("trusted = true", "trusted = ").contains("line"));
    assert!(broken("noise_cv = 0.0", "noise_cv = -1.0").starts_with("target.noise_cv: -1"));
    assert!(broken("delta_s = 0.001", "delta_s = -0.001").starts_with("target.linear.delta_s"));
    assert!(broken("[\"decode\", ", "[\"encode\", ").contains("unknown variant `encode`"));
    let text = profile(line, 0.0).to_toml();
    let cut = &text[..text.len() / 2];
    assert!(Profile::parse(cut).is_err(), "a file that ends early");
}

/// Each of these changes of a profile's text must be reported: a flipped bit in any byte of the text, a cut before any
/// byte, an edited number, a missing seal.
#[test]
fn an_edit_or_damage_is_reported() {
    let text = profile(line, 0.0).to_toml();
    assert_eq!(Profile::changed(&text), None);
    let edited = text.replacen("delta_s = 0.001", "delta_s = 0.002", 1);
    assert!(edited != text && Profile::parse(&edited).is_ok());
    let said = Profile::changed(&edited).unwrap();
    assert!(said.starts_with("it was edited or damaged since it was measured: its checksum is "), "{said}");
    let unsealed = &text[..text.trim_end().rfind('\n').unwrap() + 1];
    assert!(Profile::parse(unsealed).is_ok());
    assert!(Profile::changed(unsealed).unwrap().starts_with("its last line is no seal"));
    for at in 0..text.len() {
        let mut bytes = text.clone().into_bytes();
        bytes[at] ^= 1 << (at % 7);
        let other = String::from_utf8(bytes).expect("still ASCII");
        assert!(Profile::changed(&other).is_some(), "byte {at}");
        assert!(Profile::changed(&text[..at]).is_some(), "cut at {at}");
    }
}

#[test]
fn every_truth_can_be_built_and_stays_near_what_was_measured() {
    let p = profile(line, 0.0);
    for truth in [Truth::Table, Truth::Linear, Truth::Staircase] {
        for role in Role::BOTH {
            let spec = p.truth(role, truth);
            assert_eq!(spec.check(), Ok(()));
            let model = spec.build();
            for m in &p.of(role).measured {
                let pass = m.shape.pass(p.context_reads);
                // In a staircase, a pass is padded to the next larger number of tokens in the fitted table, and takes
                // the time of that number of tokens.
                let batched = match &spec {
                    LatencySpec::Staircase(s) => s.steps.iter().map(|s| s.0).find(|&s| s >= pass.batched),
                    _ => None,
                };
                let seconds = m.seconds + 50e-6 * (batched.unwrap_or(pass.batched) - pass.batched) as f64;
                let error = model.pass(pass).as_s() / seconds - 1.0;
                assert!(error.abs() < 0.05, "{truth:?} {role:?} {:?}: {error}", m.shape);
            }
        }
    }
    let LatencySpec::Staircase(s) = p.truth(Role::Target, Truth::Staircase) else { panic!() };
    // Between two steps of the staircase (numbers of tokens), a pass takes the time of the next larger step. Above the
    // largest step, the pass time rises like the last segment of the fitted table.
    let model = s.build().unwrap();
    let at = |batched| model.pass(PassShape { requests: 1, batched, context: 0, pairs: 0 }).as_s();
    let (size, seconds) = s.steps[s.steps.len() - 2];
    assert!((at(size - 1) - seconds).abs() < 1e-9);
    assert!(at(s.steps.last().unwrap().0 * 2) > at(s.steps.last().unwrap().0));
}

#[test]
fn distrust_has_a_reason() {
    assert_eq!(profile(line, 0.0).distrust(), None);
    let why = profile(steps, 0.0).distrust().unwrap();
    assert!(why.starts_with("the profile is not trusted: target: alpha, gamma, delta are off by"), "{why}");
}
