//! Compares an observed run with what the experiment states about the server: its policy and its release.

use crate::recordings::llama_cpp::is_llama_cpp;
use crate::recordings::request::Answer;
use crate::recordings::run::ObservedRun;
use foretoken_sim::config::Version;
use std::collections::BTreeMap;

/// How many tokens a server drafted for a request in a step.
#[derive(Clone, Debug, PartialEq)]
enum Drafted {
    /// For each draft length: (draft length, number of rounds with this length). A round is a request's draft tokens
    /// of one step. An empty map means that nothing was drafted.
    Lengths(BTreeMap<u32, u64>),
    /// Mean number of draft tokens of a request in a step.
    Mean(f64),
}

/// A message if the run's draft tokens contradict `label`, the policy that the experiment states; else `None`. There
/// is also a message if this policy drafts and nothing in the run shows draft tokens.
pub fn drafts(label: &str, run: &ObservedRun) -> Option<String> {
    if label.is_empty() {
        return None;
    }
    let says = format!("the experiment says that the server runs {label}");
    let other = |seen: String| Some(format!("{says}, and {seen}; state what it runs: --set 'policies=[…]'"));
    let length = match label {
        "autoregressive" => Some(0),
        _ => label.strip_prefix("fixed-").and_then(|k| k.parse::<u32>().ok()),
    };
    // Prompts alone do not show whether the server drafts. If an answer has a second chunk, the server ran a decode
    // step.
    let decoded = run.answers.iter().any(|a| a.chunks.len() > 1);
    match (drafted(run), length) {
        (None, Some(0)) => None,
        (None, _) if decoded => other(
            "nothing that the server says shows drafts: no rounds in its answers, no \
                                      counters in /metrics, no tokens of drafts in a step log"
                .to_owned(),
        ),
        (None, _) => None,
        (Some(Drafted::Mean(mean)), Some(k)) => match (mean - f64::from(k)).abs() > 0.5 {
            true => other(format!("its counters have {mean:.1} drafts a round in the mean")),
            false => None,
        },
        (Some(Drafted::Lengths(lengths)), stated) => {
            let usual = lengths.iter().max_by_key(|(_, n)| **n).map_or(0, |(k, _)| *k);
            match stated {
                None if usual > 0 => None,
                Some(k) if usual == k => None,
                _ if usual == 0 => other("it drafted nothing".to_owned()),
                _ => other(format!("it drafted {usual} tokens a round")),
            }
        }
        (Some(Drafted::Mean(_)), None) => None,
    }
}

/// How many tokens a run's server drafted per round. The numbers come from the rounds of the answers, else from the
/// server's counters, else from the step log. Rounds that an answer's end may have shortened are left out. `None` if
/// the run has no rounds, no counters and no step log.
fn drafted(run: &ObservedRun) -> Option<Drafted> {
    let mut lengths: BTreeMap<u32, u64> = BTreeMap::new();
    for k in run.answers.iter().flat_map(Answer::usual_lengths) {
        *lengths.entry(k).or_default() += 1;
    }
    if !lengths.is_empty() {
        return Some(Drafted::Lengths(lengths));
    }
    let m = &run.metrics;
    if let (Some(rounds), Some(tokens)) = (m.drafts.filter(|n| *n > 0), m.draft_tokens) {
        return Some(Drafted::Mean(tokens as f64 / rounds as f64));
    }
    for s in run.steps.iter().map(|s| s.logged).filter(|s| s.generation_requests > 0) {
        let drafts = s.generation_tokens / u64::from(s.generation_requests);
        *lengths.entry(drafts.saturating_sub(1) as u32).or_default() += 1;
    }
    // vLLM always exports the counter of preemptions, but exports the counters of draft tokens only if it uses
    // speculative decoding. llama.cpp always exports the counters of draft tokens.
    let counts = m.preemptions.is_some() || m.drafts.is_some();
    (counts || !lengths.is_empty()).then_some(Drafted::Lengths(lengths))
}

/// The vLLM release that a server's `/version` names; `None` if Foretoken does not implement this release's scheduling
/// rules.
pub fn release_of(server: &str) -> Option<Version> {
    let of_vllm = |version: &Version| !version.release().sglang;
    let server = series(server)?;
    Version::ALL.into_iter().filter(of_vllm).find(|version| series(version.release().number) == Some(server))
}

/// The first two numbers of a version of vLLM: `0.32.0+cpu` gives (0, 32).
pub fn series(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.trim().trim_start_matches('v').split('.').map(|n| n.parse::<u32>().ok());
    Some((numbers.next()??, numbers.next()??))
}

/// A message if the server's release differs from the experiment's `engine.version`, or if Foretoken does not know the
/// server's release. `None` if they agree, or if the server reports no version.
pub fn release(stated: Version, server: Option<&str>) -> Option<String> {
    let server = server?;
    let stated_name = stated.name();
    if is_llama_cpp(Some(server)) {
        return Some(format!(
            "the server is {server}, whose scheduler Foretoken does not have: a simulation by engine.version = \
             \"{stated_name}\" differs from it (docs/llama-cpp.md)"
        ));
    }
    match release_of(server) {
        Some(release) if release == stated => None,
        Some(release) => Some(format!(
            "the experiment says engine.version = \"{stated_name}\", and the server says that it is {server}: \
             --set engine.version={}",
            release.name()
        )),
        None => Some(format!(
            "the server says that it is version {server}, whose rules Foretoken does not know (it knows 0.6, 0.32 and \
             0.33): engine.version = \"{stated_name}\" stays"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_names_its_release() {
        for (server, release) in [
            ("0.32.0", Some(Version::V0_32)),
            ("v0.33.1rc2.dev3+cpu", Some(Version::V0_33)),
            ("0.6.3.post1", Some(Version::V0)),
            ("0.34.0", None),
            ("1.33.0", None),
            ("0.0.stub", None),
            ("", None),
        ] {
            assert_eq!(release_of(server), release, "{server}");
        }
    }

    #[test]
    fn another_release_and_an_unknown_one_are_named() {
        assert_eq!(release(Version::V0_32, None), None);
        assert_eq!(release(Version::V0_32, Some("0.32.1")), None);
        let other = release(Version::V0_32, Some("0.33.0")).unwrap();
        assert!(other.contains("engine.version = \"vllm-0.32\"") && other.contains("it is 0.33.0"), "{other}");
        let unknown = release(Version::V0_33, Some("0.41.0")).unwrap();
        assert!(unknown.contains("version 0.41.0, whose rules Foretoken does not know"), "{unknown}");
    }
}
