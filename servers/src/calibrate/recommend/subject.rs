//! What a recommendation is about: the observed server, or the models and hardware of an experiment.

use super::question::Question;
use foretoken_run::plan::Plan;
use serde::Serialize;

/// What a recommendation is about: the observed server, or the models and hardware of an experiment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Subject {
    /// The observed server's URL without passwords or keys; `None` if no server was observed.
    pub url: Option<String>,
    /// The observed server, or the experiment's models and hardware, as text.
    pub name: String,
    /// Number of seeds with which each candidate policy was simulated; 0 if nothing was simulated.
    pub seeds: usize,
}

impl Subject {
    /// The server whose runs the question's calibration was made from. If no server is known, the name is the path of
    /// the experiment's file.
    pub fn observed(ask: &Question) -> Subject {
        let server = ask.known.as_ref().and_then(|known| known.server.as_ref());
        let name = server.map_or_else(
            || ask.file.display().to_string(),
            |s| {
                let version = s.version.as_ref().map_or(String::new(), |v| format!(" (version {v})"));
                format!("{} at {}{version}", s.model, s.url)
            },
        );
        Subject { url: server.map(|s| s.url.clone()), name, seeds: 0 }
    }

    /// The server whose runs the question's calibration was made from. If the question has no calibration, the models
    /// and hardware of the experiment in `plan`.
    pub fn of(ask: &Question, plan: &Plan) -> Subject {
        let seeds = plan.seeds.len();
        if ask.known.is_some() {
            return Subject { seeds, ..Subject::observed(ask) };
        }
        let e = &plan.variants[0].experiment;
        let hardware = &e.hardware;
        let name = match (&hardware.profile, &hardware.target, &hardware.draft) {
            (Some(profile), ..) => format!("{} on the costs of {}", ask.file.display(), profile.display()),
            (None, target, draft) if let Some(target) = target.machine() => {
                let gpus = match target.tensor_parallel {
                    1 => target.gpu.to_string(),
                    n => format!("{n} × {}", target.gpu),
                };
                let with = draft.machine().map_or(String::new(), |draft| format!(" with {}", draft.model));
                format!("{}{with} on {gpus}", target.model)
            }
            _ => format!("the costs that {} states", ask.file.display()),
        };
        Subject { url: None, name: format!("{name}, at most {} requests at once", e.engine.max_num_seqs), seeds }
    }
}
