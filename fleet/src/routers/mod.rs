//! The routers, one file each, and their table.

mod checks;
mod clairvoyant;
mod dynamo_kv;
mod least_requests;
mod llm_d_default;
mod llm_d_slo;
mod power_of_two;
mod prefix_hash;
mod random;
mod round_robin;
mod smg_cache_aware;
mod smg_expected_wait;
mod smg_least_load;
mod verify_work;
mod vllm_dp;

#[cfg(test)]
mod tests;

pub use crate::router::{About, RouterDefinition};

use crate::report_board::Signals;
use crate::router::{Needs, Router, RouterContext};

/// The table of routers: for each the variant of [`RouterSpec`], its name in experiments, and the type of its settings.
/// The macro makes [`RouterSpec`] and the functions that match on its variants.
macro_rules! routers {
    ($($variant:ident = $name:literal, $module:ident::$settings:ident;)+) => {
        $(pub use $module::$settings;)+

        /// A router and its settings, as an experiment gives them: `"round-robin"`, or `{ round-robin = {} }`.
        #[derive(Clone, Debug, PartialEq, serde::Serialize)]
        pub enum RouterSpec {
            $(
                #[doc = concat!("`", $name, "`: see [`", stringify!($settings), "`].")]
                #[serde(rename = $name)]
                $variant($settings),
            )+
        }

        /// A router as an experiment writes it in a table: `{ name = { settings } }`.
        #[derive(serde::Deserialize, schemars::JsonSchema)]
        enum Table {
            $(#[serde(rename = $name)] $variant($settings),)+
        }

        impl From<Table> for RouterSpec {
            fn from(table: Table) -> RouterSpec {
                match table { $(Table::$variant(settings) => RouterSpec::$variant(settings),)+ }
            }
        }

        impl RouterSpec {
            /// All routers with their default settings, in the order of the table.
            pub fn all() -> Vec<RouterSpec> {
                vec![$(RouterSpec::$variant($settings::default()),)+]
            }

            /// The router's name in experiments, such as `round-robin`.
            pub fn name(&self) -> &'static str {
                match self { $(RouterSpec::$variant(_) => $name,)+ }
            }

            /// The router's definition: its summary, its source, the information that it needs, and the checks of its
            /// settings.
            pub fn definition(&self) -> &dyn RouterDefinition {
                match self { $(RouterSpec::$variant(settings) => settings,)+ }
            }
        }
    };
}

routers! {
    RoundRobin = "round-robin", round_robin::RoundRobin;
    Random = "random", random::Random;
    LeastRequests = "least-requests", least_requests::LeastRequests;
    PowerOfTwo = "power-of-two", power_of_two::PowerOfTwo;
    SmgCacheAware = "smg-cache-aware", smg_cache_aware::SmgCacheAware;
    SmgLeastLoad = "smg-least-load", smg_least_load::SmgLeastLoad;
    PrefixHash = "prefix-hash", prefix_hash::PrefixHash;
    VllmDp = "vllm-dp", vllm_dp::VllmDp;
    LlmDDefault = "llm-d-default", llm_d_default::LlmDDefault;
    LlmDSlo = "llm-d-slo", llm_d_slo::LlmDSlo;
    DynamoKv = "dynamo-kv", dynamo_kv::DynamoKv;
    VerifyWork = "verify-work", verify_work::VerifyWork;
    Clairvoyant = "clairvoyant", clairvoyant::Clairvoyant;
}

impl RouterSpec {
    /// The information that the router uses.
    pub fn needs(&self) -> Needs {
        self.definition().about().needs
    }

    /// The load signals of the original program: how often it queries the replicas' loads, and how late the answers
    /// arrive.
    pub fn usual_signals(&self) -> Signals {
        self.definition().about().usual_signals
    }

    /// Does the router use what no real router could know, such as a request's true number of steps?
    pub fn sees_hidden_truth(&self) -> bool {
        self.definition().about().sees_hidden_truth
    }

    /// Builds the router for a run.
    pub fn build(&self, context: &RouterContext) -> Box<dyn Router> {
        self.definition().build(context)
    }
}

impl<'de> serde::Deserialize<'de> for RouterSpec {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<RouterSpec, D::Error> {
        struct OneOf;

        impl<'de> serde::de::Visitor<'de> for OneOf {
            type Value = RouterSpec;

            fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
                f.write_str("a router: \"name\", or { name = { settings } }")
            }

            fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<RouterSpec, E> {
                let all = RouterSpec::all();
                let found = all.iter().find(|router| router.name() == name).cloned();
                found.ok_or_else(|| {
                    let names: Vec<String> = all.iter().map(|router| format!("`{}`", router.name())).collect();
                    E::custom(format!("unknown variant `{name}`, expected one of {}", names.join(", ")))
                })
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(self, map: A) -> Result<RouterSpec, A::Error> {
                use serde::de::value::MapAccessDeserializer;
                <Table as serde::Deserialize>::deserialize(MapAccessDeserializer::new(map)).map(RouterSpec::from)
            }
        }

        deserializer.deserialize_any(OneOf)
    }
}

impl schemars::JsonSchema for RouterSpec {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Router".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let names: Vec<&str> = RouterSpec::all().iter().map(RouterSpec::name).collect();
        let table = <Table as schemars::JsonSchema>::json_schema(generator);
        schemars::json_schema!({
            "description": "A router: its name, or its name with settings.",
            "anyOf": [{ "enum": names }, table]
        })
    }
}
