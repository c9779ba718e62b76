//! The roles of a fleet's replicas (prefill, decode or both), and the `[fleet.split]` table: which prompts are computed
//! on prefill replicas.

use crate::spec::document::{Document, Path};
use crate::spec::problem::Result;
use foretoken_fleet::{HandOff, Link, Role, RouterSpec, Signals, SplitRule};
use serde::{Deserialize, Serialize};

/// The `[fleet.split]` table: which prompts prefill replicas compute for other replicas, and how.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SplitSpec {
    /// The rule that decides which prompts are computed on prefill replicas. Default: all prompts.
    pub when: SplitRule,
    /// Which replica gets a request first if a prefill replica computes its prompt. Default: the prefill replica.
    pub hand_off: HandOff,
    /// The router that chooses among the prefill replicas; absent: the router of `fleet.router`, which also chooses
    /// among all other replicas.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub router: Option<RouterSpec>,
    /// How often the prefill replicas report their loads to their router, and how late the reports arrive; absent: as
    /// in the program from which `router` comes, or as `fleet.signals` if `router` is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signals: Option<Signals>,
}

/// Facts about a whole fleet that the checks of its split (prefill and decode on different replicas) need.
pub(crate) struct Sharing<'s> {
    /// The role of each kind of replica: serve whole requests, compute prompts, or decode.
    pub roles: Vec<Role>,
    pub replicas: u32,
    pub split: Option<&'s SplitSpec>,
    pub link: Option<&'s Link>,
}

impl Sharing<'_> {
    /// Checks that the fleet has a replica for each half of a split request (prompt and output), that there is a link
    /// if KV is transferred, and that every number is in its range.
    pub fn check(&self, doc: &Document) -> Result<()> {
        let wrong = |key: &str, message: &str| {
            doc.problem_at(&Path::of(&format!("fleet.{key}")), format!("fleet.{key}: {message}"))
        };
        let first = |wanted: Role| self.roles.iter().position(|role| *role == wanted);
        let partner = |at: usize, message: &str| wrong(&format!("replicas[{at}].role"), message);
        let (prefill, decode) = (first(Role::Prefill), first(Role::Decode));
        if let (Some(at), 1) = (prefill.or(decode), self.replicas) {
            let problem = partner(at, "a single replica has no other to share requests with");
            return Err(problem.help("leave the role out, or add replicas"));
        }
        match (prefill, decode) {
            (Some(at), _) if self.roles.iter().all(|role| *role == Role::Prefill) => {
                let problem = partner(at, "no replica decodes what prefill replicas compute");
                return Err(problem.help("add replicas with role = \"decode\""));
            }
            (None, Some(at)) => {
                let problem = partner(at, "no replica computes prompts for decode replicas");
                return Err(problem.help("add replicas with role = \"prefill\", or leave the role out"));
            }
            _ => {}
        }
        let out_of_range = |table: &str, (key, why): (&'static str, String)| wrong(&format!("{table}.{key}"), &why);
        if let Some(link) = self.link {
            link.check().map_err(|e| out_of_range("link", e))?;
        } else if prefill.is_some() {
            let message = "fleet.link is missing: how does KV reach the decode replicas?";
            return Err(doc.problem_at(&Path::of("fleet"), message).help(
                "write link = { bandwidth_gb_s = 50.0, latency_s = 0.001 }; bandwidth_gb_s = inf takes no time",
            ));
        }
        let Some(split) = self.split else { return Ok(()) };
        split.when.check().map_err(|e| out_of_range("split.when", e))?;
        if let Some(router) = &split.router {
            let table = format!("split.router.{}", router.name());
            router.definition().check().map_err(|e| out_of_range(&table, e))?;
        }
        split.signals.as_ref().map_or(Ok(()), Signals::check).map_err(|e| out_of_range("split.signals", e))
    }
}
