//! Fuzzes the readers of model shapes (sizes of layers, in `config.json`) and of profiles (times of passes on a
//! device).

use crate::said;
use foretoken_profiler::Profile;
use foretoken_profiler::hardware::models::{ModelChoice, ModelShape};
use foretoken_profiler::hardware::{LatencySpec, RooflineSpec, config};
use foretoken_run::profiled::{Either, read_either};
use foretoken_sim::PassShape;

/// Reads a Hugging Face `config.json`. The shapes of the model and of its MTP module must have finite numbers. They
/// must be equal after they are written as TOML and read again. The roofline must predict a pass of each shape, or
/// refuse the shape with an error.
pub fn config_json(data: &[u8]) {
    let Some(text) = said::text(data) else { return };
    match config::read(text, "model") {
        Err(error) => said::names(&error.to_string(), &error.key),
        Ok(read) => {
            read.warnings.iter().for_each(|warning| said::message(warning));
            modelled(read.shape);
            read.mtp.into_iter().for_each(modelled);
        }
    }
}

fn modelled(shape: ModelShape) {
    let counted = (shape.parameters(), shape.active_parameters(), shape.work(), shape.work().kv_bytes_token(8.0));
    said::finite(&counted);
    let toml = toml::to_string(&shape).expect("a shape can be written");
    assert_eq!(toml::from_str::<ModelShape>(&toml).as_ref(), Ok(&shape), "{toml}");
    let mut spec = RooflineSpec::new("h100", "llama-3.1-8b");
    spec.model = ModelChoice::Shape(Box::new(shape));
    let spec = LatencySpec::Roofline(spec);
    match spec.check() {
        Err(error) => said::names(&error.to_string(), &error.key),
        Ok(()) => {
            spec.build().pass(PassShape { requests: 4, batched: 16, context: 4000, pairs: 16_000 });
            spec.memory();
        }
    }
}

/// Reads a measured profile (costs fitted to passes that were timed one by one). A profile that is accepted must be
/// equal after it is written and read again. The seal (the checksum in the text) of the written profile must be right.
pub fn profile(data: &[u8]) {
    let Some(text) = said::text(data) else { return };
    Profile::changed(text).into_iter().for_each(|why| said::message(&why));
    match Profile::parse(text) {
        Err(error) => said::message(&error.to_string()),
        Ok(profile) => {
            let written = profile.to_toml();
            assert_eq!(Profile::parse(&written).as_ref(), Ok(&profile), "{written}");
            assert_eq!(Profile::changed(&written), None);
            profile.distrust().into_iter().for_each(|why| said::message(&why));
        }
    }
}

/// Reads a profile as an experiment does: the file may hold a measured profile (fitted to timed passes) or a calibrated
/// profile (fitted to a running server). A calibrated profile must be equal after it is written and read again.
pub fn calibrated_profile(data: &[u8]) {
    const FILE: &str = "profile.toml";
    let Some(text) = said::text(data) else { return };
    match read_either(FILE, text) {
        Err(problem) => said::problem(&problem, FILE),
        Ok(Either::Measured(_)) => {}
        Ok(Either::Calibrated(calibrated)) => {
            let written = calibrated.to_toml();
            match read_either(FILE, &written) {
                Ok(Either::Calibrated(again)) => assert_eq!(again, calibrated, "{written}"),
                _ => panic!("what was written does not read: {written}"),
            }
        }
    }
}
