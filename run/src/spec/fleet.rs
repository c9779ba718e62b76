//! The `[fleet]` table of an experiment: how many replicas serve the requests, and behind which router.

use crate::spec::document::{Document, Path};
use crate::spec::problem::Result;
use crate::spec::split::{Sharing, SplitSpec};
use foretoken_fleet::{Link, Role, RouterSpec, Scaling, ScalingRule, Signals};
use foretoken_policies::PolicySpec;
use foretoken_sim::{MOST_RANKS, PromptBalance};
use serde::de::value::SeqAccessDeserializer;
use serde::de::{Deserializer, Error, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};

/// The `[fleet]` table: replicas behind a router.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FleetSpec {
    /// The number of replicas, 1 to 1000, or a list of kinds of replicas with different settings. `foretoken fleet`
    /// searches for the number.
    #[serde(default = "one")]
    pub replicas: Replicas,
    /// The router: the rule that chooses the replica of each request. In a fleet with prefill replicas it chooses among
    /// all other replicas, and `split.router` among the prefill replicas.
    #[serde(default = "round_robin")]
    pub router: RouterSpec,
    /// How often replicas report their loads to the router, and how late the reports arrive; absent: as in the program
    /// from which the router comes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signals: Option<Signals>,
    /// Which prompts are computed on prefill replicas, and which replica gets such a request first; absent: all
    /// prompts, and the prefill replica. Without prefill replicas it has no effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<SplitSpec>,
    /// The link over which KV goes from prefill replicas to other replicas. It is required if there are prefill
    /// replicas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<Link>,
    /// How the number of replicas follows the load; absent: the number does not change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scaling: Option<Scaling>,
    /// Whether the replicas are the data-parallel ranks of one server of a mixture of experts. All target passes then
    /// begin when the last rank has planned its own and end with the longest, and a rank without work makes a dummy
    /// pass. Experts are priced at the tokens of all ranks if `hardware.target` says how many ranks share them
    /// (`data_parallel`). Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lock_step: bool,
    /// TensorRT-LLM's balance of prompts between ranks (`attention_dp_config`): prompts are held back until every rank
    /// has one. It needs `lock_step`. Absent: each rank begins its prompts as it can, as vLLM's do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_balance: Option<PromptBalance>,
    /// Price of one GPU for an hour, in any currency, above 0; `foretoken fleet` needs it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price_gpu_hour: Option<f64>,
    /// The most replicas that `foretoken fleet` tries, 1 to 1000. Default: 64.
    #[serde(default = "most", skip_serializing_if = "is_most")]
    pub most_replicas: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Replicas {
    /// This number of replicas, all with the experiment's engine, hardware and policy.
    Number(u32),
    /// Kinds of replicas with different settings.
    Kinds(Vec<Kind>),
}

/// A number of replicas with equal settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Kind {
    /// Number of replicas of this kind.
    pub count: u32,
    /// What the replicas of this kind do: serve whole requests (`both`), compute prompts for other replicas
    /// (`prefill`), or decode requests whose prompts other replicas computed (`decode`). Default: `both`.
    #[serde(default, skip_serializing_if = "is_both")]
    pub role: Role,
    /// The policy of the replicas of this kind, in place of the policies of the experiment; absent: each policy of the
    /// experiment in turn. In the autoregressive run no replica drafts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<PolicySpec>,
    /// Engine settings of the replicas of this kind that differ from `[engine]`. Empty: none differ.
    #[serde(default, skip_serializing_if = "toml::Table::is_empty")]
    #[schemars(with = "std::collections::BTreeMap<String, serde_json::Value>")]
    pub engine: toml::Table,
    /// Hardware settings of the replicas of this kind that differ from `[hardware]`. Empty: none differ.
    #[serde(default, skip_serializing_if = "toml::Table::is_empty")]
    #[schemars(with = "std::collections::BTreeMap<String, serde_json::Value>")]
    pub hardware: toml::Table,
}

/// Largest number of replicas that an experiment may state.
pub const MOST_REPLICAS: u32 = 1000;

/// The default of `most_replicas`: the most replicas that `foretoken fleet` tries.
const MOST_TRIED: u32 = 64;

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_both(role: &Role) -> bool {
    *role == Role::Both
}

fn one() -> Replicas {
    Replicas::Number(1)
}

fn most() -> u32 {
    MOST_TRIED
}

fn is_most(given: &u32) -> bool {
    *given == MOST_TRIED
}

fn round_robin() -> RouterSpec {
    RouterSpec::RoundRobin(Default::default())
}

impl Kind {
    /// True if the replicas of this kind have engine or hardware settings that differ from the experiment's.
    pub fn differs(&self) -> bool {
        !self.engine.is_empty() || !self.hardware.is_empty()
    }
}

impl Replicas {
    /// The kinds of replicas. If `replicas` is a plain number, there is one kind with the experiment's settings.
    pub fn kinds(&self) -> Vec<Kind> {
        match self {
            Replicas::Number(count) => {
                let (engine, hardware) = (toml::Table::new(), toml::Table::new());
                vec![Kind { count: *count, role: Role::Both, policy: None, engine, hardware }]
            }
            Replicas::Kinds(kinds) => kinds.clone(),
        }
    }

    pub fn number(&self) -> u32 {
        self.kinds().iter().fold(0, |sum, kind| sum.saturating_add(kind.count))
    }
}

impl FleetSpec {
    /// How often replicas report their loads to the router, and how late the reports arrive: the setting `signals`, or
    /// else as in the program from which the router comes.
    pub fn signals(&self) -> Signals {
        self.signals.unwrap_or_else(|| self.router.usual_signals())
    }

    /// The most replicas that may serve or boot at a time: the number of replicas, or `scaling.max_replicas` if that is
    /// larger.
    pub fn most_at_a_time(&self) -> u32 {
        let number = self.replicas.number();
        self.scaling.as_ref().map_or(number, |scaling| scaling.max_replicas.max(number))
    }

    /// True if a rule changes the number of replicas.
    pub fn is_scaled(&self) -> bool {
        self.scaling.as_ref().is_some_and(|scaling| !matches!(scaling.rule, ScalingRule::Fixed(_)))
    }

    /// True if prefill replicas compute prompts for other replicas.
    pub fn is_split(&self) -> bool {
        self.replicas.kinds().iter().any(|kind| kind.role == Role::Prefill)
    }

    /// The `[fleet.split]` table, or its defaults if the experiment does not have the table.
    pub fn split(&self) -> SplitSpec {
        self.split.clone().unwrap_or_default()
    }

    /// The router that chooses among the prefill replicas: `split.router`, or else `fleet.router`.
    pub fn prefill_router(&self) -> &RouterSpec {
        self.split.as_ref().and_then(|split| split.router.as_ref()).unwrap_or(&self.router)
    }

    /// How often the prefill replicas report their loads to their router, and how late the reports arrive:
    /// `split.signals`, or else as in the program from which `split.router` comes, or else as for the router of all
    /// other replicas.
    pub fn prefill_signals(&self) -> Signals {
        let split = self.split.as_ref();
        let own = split.and_then(|split| split.router.as_ref()).map(RouterSpec::usual_signals);
        split.and_then(|split| split.signals).or(own).unwrap_or_else(|| self.signals())
    }

    /// Checks every value of the `[fleet]` table that serde cannot check.
    pub(crate) fn check(&self, doc: &Document) -> Result<()> {
        let problem_at = |key: &str, message: String| doc.problem_at(&Path::of(&format!("fleet.{key}")), message);
        let kinds = self.replicas.kinds();
        if let Some(i) = kinds.iter().position(|kind| kind.count == 0) {
            let key = if matches!(self.replicas, Replicas::Number(_)) { String::new() } else { format!("[{i}].count") };
            let problem =
                problem_at(&format!("replicas{key}"), format!("fleet.replicas{key}: 0 replicas serve nothing"));
            return Err(problem.help("give 1 or more"));
        }
        match self.replicas.number() {
            0 => {
                return Err(
                    problem_at("replicas", "fleet.replicas: the list is empty".into()).help("write replicas = 2")
                );
            }
            1..=MOST_REPLICAS => {}
            many => {
                let message = format!("fleet.replicas: {many} replicas are more than {MOST_REPLICAS}");
                return Err(
                    problem_at("replicas", message).help("simulate a part of the fleet with a part of the load")
                );
            }
        }
        let roles = kinds.iter().map(|kind| kind.role).collect();
        let (split, link) = (self.split.as_ref(), self.link.as_ref());
        Sharing { roles, replicas: self.replicas.number(), split, link }.check(doc)?;
        for (i, policy) in kinds.iter().enumerate().filter_map(|(i, kind)| Some((i, kind.policy.as_ref()?))) {
            let path = format!("replicas[{i}].policy");
            policy.check().map_err(|e| problem_at(&path, format!("fleet.{path}.{e}")))?;
        }
        self.router.definition().check().map_err(|(key, why)| {
            problem_at(&format!("router.{}.{key}", self.router.name()), format!("{}.{key}: {why}", self.router.name()))
        })?;
        self.check_scaling(doc)?;
        self.check_lock_step(doc)?;
        if let Some(price) = self.price_gpu_hour.filter(|price| !(*price > 0.0 && price.is_finite())) {
            let problem = problem_at("price_gpu_hour", format!("fleet.price_gpu_hour: {price} is not a price above 0"));
            return Err(problem.help("the price of one GPU for an hour, such as 2.5"));
        }
        if !(1..=MOST_REPLICAS).contains(&self.most_replicas) {
            let message = format!("fleet.most_replicas: {} is not from 1 to {MOST_REPLICAS}", self.most_replicas);
            return Err(problem_at("most_replicas", message));
        }
        let signals = self.signals.as_ref().map_or(Ok(()), Signals::check);
        signals.map_err(|(key, why)| problem_at(&format!("signals.{key}"), format!("fleet.signals.{key}: {why}")))
    }
}

impl FleetSpec {
    /// Checks that the replicas can be the ranks of one server, if they are.
    fn check_lock_step(&self, doc: &Document) -> Result<()> {
        let kinds = self.replicas.kinds();
        let why = match (&kinds[..], &self.scaling) {
            _ if !self.lock_step => return Ok(()),
            ([kind], _) if kind.role != Role::Both => "ranks serve whole requests: leave the role out",
            ([_], Some(_)) => "the ranks of a server do not change in number: remove fleet.scaling",
            ([kind], None) if kind.count as usize > MOST_RANKS => "a server has at most 128 ranks",
            ([_], None) => return Ok(()),
            _ => "the ranks of a server are alike: write replicas = 8",
        };
        Err(doc.problem_at(&Path::of("fleet.lock_step"), format!("fleet.lock_step: {why}")))
    }

    /// Checks the `[fleet.scaling]` table, and that the fleet can grow.
    fn check_scaling(&self, doc: &Document) -> Result<()> {
        let Some(scaling) = &self.scaling else { return Ok(()) };
        let wrong =
            |key: &str, why: String| doc.problem_at(&Path::of(&format!("fleet.{key}")), format!("fleet.{key}: {why}"));
        let kinds = self.replicas.kinds();
        if kinds.iter().any(|kind| kind.role != Role::Both) {
            let why = "replicas with roles cannot boot and drain".to_owned();
            return Err(wrong("scaling", why).help("leave the roles out, or remove fleet.scaling"));
        }
        if kinds.len() > 1 {
            let why = format!("the fleet has {} kinds of replicas, and one kind grows", kinds.len());
            return Err(wrong("scaling", why).help("write replicas = 2, or a list of one kind"));
        }
        if scaling.max_replicas > MOST_REPLICAS {
            let why = format!("{} replicas are more than {MOST_REPLICAS}", scaling.max_replicas);
            return Err(wrong("scaling.max_replicas", why).help("simulate a part of the fleet with a part of the load"));
        }
        if !self.router.definition().about().scales {
            let all = RouterSpec::all();
            let able: Vec<&str> =
                all.iter().filter(|router| router.definition().about().scales).map(RouterSpec::name).collect();
            let why = format!("replicas cannot join and leave the router {} while it runs", self.router.name());
            return Err(wrong("router", why).help(format!("choose one of {}", able.join(", "))));
        }
        scaling.check(self.replicas.number()).map_err(|(key, why, help)| {
            let key = format!("scaling.{key}");
            *wrong(&key, why).help(help)
        })?;
        Ok(())
    }
}

impl<'de> Deserialize<'de> for Replicas {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Replicas, D::Error> {
        struct NumberOrKinds;

        impl<'de> Visitor<'de> for NumberOrKinds {
            type Value = Replicas;

            fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
                f.write_str(
                    "a number of replicas, or a list of kinds: [{ count = 2 }, { count = 1, policy = { ... } }]",
                )
            }

            fn visit_i64<E: Error>(self, number: i64) -> std::result::Result<Replicas, E> {
                let fits = u32::try_from(number).map(Replicas::Number);
                fits.map_err(|_| E::custom(format!("invalid value: {number} is not a number of replicas")))
            }

            fn visit_u64<E: Error>(self, number: u64) -> std::result::Result<Replicas, E> {
                let fits = u32::try_from(number).map(Replicas::Number);
                fits.map_err(|_| E::custom(format!("invalid value: {number} is not a number of replicas")))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> std::result::Result<Replicas, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(seq)).map(Replicas::Kinds)
            }
        }

        deserializer.deserialize_any(NumberOrKinds)
    }
}

impl schemars::JsonSchema for Replicas {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Replicas".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let kind = generator.subschema_for::<Kind>();
        schemars::json_schema!({
            "description": "A number of replicas, or a list of kinds of replicas.",
            "anyOf": [
                { "type": "integer", "minimum": 1, "maximum": MOST_REPLICAS },
                { "type": "array", "items": kind, "minItems": 1 }
            ]
        })
    }
}
