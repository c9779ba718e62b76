//! The policy that the server runs now, and how this is known. Candidates are compared with this policy.

use super::names::name_of;
use crate::calibrate::kept::Known;
use foretoken_policies::{Fixed, PolicySpec, VllmDynamic};
use foretoken_run::load::with_defaults;
use serde::Serialize;

/// The policy that the server runs now.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Now {
    /// The server's present policy with all parameters.
    #[serde(skip)]
    pub spec: PolicySpec,
    /// The name of the server's present policy in advice, such as `K = 3`.
    pub name: String,
    /// How it is known that the server runs this policy, as text.
    pub why: String,
}

impl Now {
    /// Makes the server's present policy from the policy `spec`. `why` is a text that says how it is known that the
    /// server runs this policy.
    pub fn of(spec: PolicySpec, why: impl Into<String>) -> Now {
        Now { name: name_of(&spec), spec, why: why.into() }
    }

    /// Makes the server's present policy from the fixed draft length `k`; 0 is plain decoding. `why` is a text that
    /// says how it is known that the server runs this policy.
    pub fn fixed(k: u32, why: impl Into<String>) -> Now {
        Now::of(fixed(k), why)
    }

    /// The policy of the latest observed run; plain decoding if no run was observed. If this run drafted several
    /// lengths and states no table by batch size, the policy is the longest observed draft length. If other runs had
    /// another policy, `why` says so.
    pub fn observed(known: &Known) -> Now {
        let Some(run) = known.last_run() else {
            return Now::fixed(0, "no observed run says what the server drafts, so plain decoding is taken");
        };
        let (spec, doubt) = match (run.k, &run.table) {
            (Some(k), _) => (fixed(k), ""),
            (None, Some(table)) => {
                let table = VllmDynamic { num_speculative_tokens_per_batch_size: table.clone() };
                (PolicySpec::VllmDynamic(table), "")
            }
            (None, None) => {
                let k = known.lengths.last().copied().unwrap_or(0);
                (fixed(k), "; it drafted several lengths, of which the longest is taken")
            }
        };
        let mut others: Vec<String> = Vec::new();
        for other in known.loads.iter().flat_map(|load| &load.runs).filter(|other| other.k != run.k) {
            let did = other.k.map_or("several lengths".to_owned(), |k| name_of(&fixed(k)));
            if !others.contains(&did) {
                others.push(did);
            }
        }
        let others = match others.is_empty() {
            true => String::new(),
            false => format!("; {} observed too, and --now K takes another", was(&others)),
        };
        Now::of(spec, format!("as in {}, the run that was observed last{doubt}{others}", run.name))
    }

    /// The fixed draft length of the server's present policy; `None` if this policy has no fixed draft length.
    pub fn k(&self) -> Option<u32> {
        match &self.spec {
            PolicySpec::Autoregressive(_) => Some(0),
            PolicySpec::Fixed(p) => Some(p.k),
            _ => None,
        }
    }
}

fn was(names: &[String]) -> String {
    format!("{} {}", names.join(", "), if names.len() == 1 { "was" } else { "were" })
}

/// The policy with the fixed draft length `k`; plain decoding for 0.
pub fn fixed(k: u32) -> PolicySpec {
    match k {
        0 => with_defaults("autoregressive").expect("the registry has the baseline"),
        k => PolicySpec::Fixed(Fixed { k }),
    }
}
