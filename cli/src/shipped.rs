//! The shipped experiments that need no other file. Their texts are part of the program, so that `foretoken run
//! quickstart` works without a checkout of the source. `foretoken new FILE --copy NAME` writes them.

use foretoken_run::load::parse_document;
use foretoken_run::plan::Plan;
use foretoken_run::spec::document::Document;
use foretoken_run::spec::problem::{Problem, Result, nearest};
use foretoken_run::spec::text;
use std::path::Path;

/// Name and text of each shipped experiment. The text is the file `experiments/NAME.toml`.
const SHIPPED: [(&str, &str); 13] = [
    ("quickstart", include_str!("../experiments/quickstart.toml")),
    ("capacity", include_str!("../experiments/capacity.toml")),
    ("fleet", include_str!("../experiments/fleet.toml")),
    ("fleet-day", include_str!("../experiments/fleet-day.toml")),
    ("prefill-decode", include_str!("../experiments/prefill-decode.toml")),
    ("capacity-slo", include_str!("../experiments/capacity-slo.toml")),
    ("orders", include_str!("../experiments/orders.toml")),
    ("observe", include_str!("../experiments/observe.toml")),
    ("observe-text", include_str!("../experiments/observe-text.toml")),
    ("serve", include_str!("../experiments/serve.toml")),
    ("live-cpu", include_str!("../experiments/live-cpu.toml")),
    ("bench-poisson", include_str!("../experiments/bench-poisson.toml")),
    ("bench-poisson-fixed4", include_str!("../experiments/bench-poisson-fixed4.toml")),
];

/// Name and text of each shipped file that is no experiment: vLLM's settings of its log, with times in microseconds.
const OTHERS: [(&str, &str); 1] = [("vllm-logging", include_str!("../experiments/vllm-logging.json"))];

/// The text of the shipped file with this name, for a copy of it.
pub fn text_of(name: &str) -> Result<&'static str> {
    let all = || SHIPPED.iter().chain(&OTHERS);
    let found = all().find(|(shipped, _)| *shipped == name).map(|(_, text)| *text);
    found.ok_or_else(|| {
        let names: Vec<&str> = all().map(|(name, _)| *name).collect();
        let near = nearest(name, names.iter().copied()).map_or(String::new(), |near| format!("did you mean {near}? "));
        Problem::bad_input(format!("no shipped file is called {name}"))
            .help(format!("{near}There are {}", names.join(", ")))
    })
}

/// The plan of an experiment with the overrides `sets`. `file` is a file or the name of a shipped experiment.
pub fn load(file: &Path, sets: &[String]) -> Result<Plan> {
    Plan::of(read_document(file, sets)?, folder(file))
}

/// Reads an experiment and applies the overrides `sets`. `file` is a path or the name of a shipped experiment. If a
/// file or folder of this name exists in the working directory, it is taken and not the shipped experiment. Keys and
/// values are not checked yet.
pub fn read_document(file: &Path, sets: &[String]) -> Result<Document> {
    let ending = if shipped(file).is_some() { ".toml" } else { "" };
    parse_document(&format!("{}{ending}", file.display()), &read(file)?, sets)
}

/// The text of an experiment. `file` is a file or the name of a shipped experiment.
pub fn read(file: &Path) -> Result<String> {
    if let Some(text) = shipped(file) {
        return Ok(text.to_owned());
    }
    if let Some(url) = file.to_str().filter(|name| name.starts_with("http://") || name.starts_with("https://")) {
        return Err(Problem::bad_input(format!("{url} is the address of a server, and an experiment is wanted")).help(
            format!("observe it first: foretoken observe {url} observe-text; for a quick answer: foretoken ask {url}"),
        ));
    }
    text::read(file).map_err(|e| {
        let names = SHIPPED.map(|(name, _)| name).join(", ");
        Problem::bad_input(format!("cannot read the experiment: {e}"))
            .help(format!("give a TOML file, or the name of a shipped experiment: {names}"))
    })
}

/// The folder to which relative paths in the experiment `file` refer.
pub fn folder(file: &Path) -> &Path {
    file.parent().unwrap_or(Path::new(""))
}

/// The text of the shipped experiment that `file` names. `None` if no shipped experiment has this name, or if `file`
/// exists as a path.
fn shipped(file: &Path) -> Option<&'static str> {
    let name = file.to_str().filter(|_| !file.exists())?;
    SHIPPED.iter().find(|(shipped, _)| *shipped == name).map(|(_, text)| *text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shipped_experiment_is_found_by_its_name_alone() {
        for (name, _) in SHIPPED {
            // This experiment has no number of requests, because `foretoken capacity` chooses it.
            let sets = name.starts_with("capacity").then(|| "workload.requests=100".to_owned());
            let document = read_document(Path::new(name), sets.as_slice()).unwrap();
            let plan_of = if name.starts_with("observe") { Plan::to_observe } else { Plan::of };
            plan_of(document, Path::new("")).unwrap_or_else(|e| panic!("{name}: {}", e.in_words()));
        }
        for other in ["Quickstart", "./quickstart"] {
            let refused = read_document(Path::new(other), &[]).map(drop).unwrap_err().in_words();
            assert!(refused.contains("the name of a shipped experiment: quickstart, "), "{refused}");
        }
    }

    /// The server is observed with drafts and without, by the same file (docs/your-server.md).
    #[test]
    fn a_server_without_drafts_is_observed_with_the_same_file() {
        for name in ["observe", "observe-text"] {
            let sets = ["policies=[{ autoregressive = {} }]".to_owned()];
            let plan = Plan::to_observe(read_document(Path::new(name), &sets).unwrap(), Path::new("")).unwrap();
            assert_eq!(plan.policies.len(), 1, "{name}");
        }
    }

    #[test]
    fn every_shipped_file_can_be_copied() {
        for (name, text) in SHIPPED.iter().chain(&OTHERS) {
            assert_eq!(text_of(name).unwrap(), *text);
        }
        let refused = text_of("vllm-loging").unwrap_err();
        assert!(refused.help_text().starts_with("did you mean vllm-logging? There are quickstart, "));
    }
}
