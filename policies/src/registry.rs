//! The macro that declares the table of policies, and what can be asked of a policy by name: defaults, looks, checks
//! and construction. This file knows all policies and must hold no policy's logic.

pub use crate::PolicySpec;
pub use crate::definition::{BadParameter, Definition, PolicyContext, Told};

use crate::look::{self, Colour, Dash, Look, Marker};
use crate::registered;
use crate::stale::Stale;
use foretoken_sim::Speculation;
use schemars::{Schema, json_schema};
use serde::Serialize;
use serde::de::{Deserialize, Deserializer, Error, Visitor};
use serde_json::Value;
use std::sync::LazyLock;

/// Declares the table of policies. Each block is headed by `family::module::Type`, where the type holds a policy's
/// parameters. A block has one row per preset (a policy with default settings under a name): the preset's variant of
/// [`PolicySpec`] and its name. A row may also state the preset's look in figures (`in COLOUR Dash Marker`); without
/// it, the preset gets the next free look of its family (folder of policies). A row may also state its settings
/// (`with`); without them, the preset has the type's defaults. The macro exports the types, and makes [`PolicySpec`]
/// with all functions that match on its variants.
macro_rules! policies {
    ($(
        $family:ident::$module:ident::$settings:ident {
            $($variant:ident = $name:literal $(in $colour:ident $dash:ident $marker:ident)? $(, with $preset:expr)?;)+
        }
    )+) => {
        $(pub use $family::$module::$settings;)+

        /// A policy and its settings, as an experiment gives them: `{ fixed = { k = 3 } }`, `{ adaspec = {} }`.
        #[derive(Clone, Debug, PartialEq, serde::Serialize)]
        pub enum PolicySpec {
            $($(
                #[doc = concat!("`", $name, "`: see [`", stringify!($settings), "`].")]
                #[serde(rename = $name)]
                $variant($settings),
            )+)+
            /// A policy that another crate [registered](crate::register), with its settings.
            #[serde(untagged)]
            Registered(registered::Registered),
        }

        /// The rows of the table of policies, one for each preset (a policy with default settings under a name).
        pub(crate) const ROWS: &[registry::Row] = &[$($(registry::Row {
            name: $name,
            family: stringify!($family),
            look: registry::stated!($($colour $dash $marker)?),
        }),+),+];

        impl PolicySpec {
            /// The policies in this crate's table with their default settings, in the order of the table.
            pub(crate) fn of_table() -> Vec<PolicySpec> {
                vec![$($(PolicySpec::$variant(registry::preset!($settings $(, $preset)?))),+),+]
            }

            /// The policy's name in experiments, such as `fixed`.
            pub fn name(&self) -> &'static str {
                match self {
                    $($(PolicySpec::$variant(_) => $name,)+)+
                    PolicySpec::Registered(other) => other.name(),
                }
            }

            /// The policy's definition: what its file says about it, its check and its construction.
            pub fn definition(&self) -> &dyn Definition {
                match self {
                    $($(PolicySpec::$variant(settings) => settings,)+)+
                    PolicySpec::Registered(other) => other.definition(),
                }
            }

            /// Unique display label. It is the policy's own short label, or the name followed by every setting that
            /// differs from the policy's default settings.
            pub fn label(&self) -> String {
                self.definition().short_label().unwrap_or_else(|| match self {
                    $($(
                        PolicySpec::$variant(settings) => {
                            let preset: $settings = registry::preset!($settings $(, $preset)?);
                            registry::label($name, registry::plain(settings), registry::plain(&preset))
                        }
                    )+)+
                    PolicySpec::Registered(other) => registry::label(other.name(), other.settings(), other.preset()),
                })
            }
        }

        impl schemars::JsonSchema for PolicySpec {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                "Policy".into()
            }

            fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                let mut each: Vec<schemars::Schema> = vec![$($({
                    let settings = generator.subschema_for::<$settings>();
                    let preset = PolicySpec::$variant(registry::preset!($settings $(, $preset)?));
                    registry::named($name, preset.summary(), settings)
                }),+),+];
                each.extend(registered::schemas(generator));
                schemars::json_schema!({ "description": "A policy and its settings.", "oneOf": each })
            }
        }

        impl<'de> serde::Deserialize<'de> for PolicySpec {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<PolicySpec, D::Error> {
                struct OneOf;

                impl<'de> serde::de::Visitor<'de> for OneOf {
                    type Value = PolicySpec;

                    fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
                        f.write_str("a policy: { name = { settings } }")
                    }

                    fn visit_enum<A: serde::de::EnumAccess<'de>>(self, data: A) -> Result<PolicySpec, A::Error> {
                        use serde::de::VariantAccess;
                        let (registry::Name(name), settings) = data.variant::<registry::Name>()?;
                        match name {
                            $($(
                                $name => {
                                    let preset: $settings = registry::preset!($settings $(, $preset)?);
                                    settings.newtype_variant_seed(preset::Preset(preset)).map(PolicySpec::$variant)
                                }
                            )+)+
                            other => settings.newtype_variant_seed(registered::Named(other)).map(PolicySpec::Registered),
                        }
                    }
                }

                deserializer.deserialize_enum("PolicySpec", PolicySpec::all_names(), OneOf)
            }
        }
    };
}

/// Gives the look (colour, dash and marker in figures) that a row of the table of policies states, as an `Option`.
macro_rules! stated {
    () => {
        None
    };
    ($colour:ident $dash:ident $marker:ident) => {
        Some(look::Look::new(look::$colour, look::Dash::$dash, look::Marker::$marker))
    };
}
pub(crate) use stated;

/// The settings of one row of the table of policies: the settings that the row states, or the defaults of its type.
macro_rules! preset {
    ($settings:ty) => {
        <$settings>::default()
    };
    ($settings:ty, $preset:expr) => {
        $preset
    };
}
pub(crate) use preset;

/// A row of the table of policies. A row is one preset: a policy with certain default settings and a name.
pub(crate) struct Row {
    /// The name of the row's policy in experiments, such as `fixed`.
    pub name: &'static str,
    /// The policy's family: the name of the folder that holds its file, such as `goodput`.
    pub family: &'static str,
    /// Colour, dash and marker of the row's policy in figures, if the table of policies states them.
    pub look: Option<Look>,
}

/// The looks (colour, dash and marker in figures) of all policies of the table, in the table's order.
static LOOKS: LazyLock<Vec<Look>> = LazyLock::new(|| look::of_rows(crate::ROWS));

/// Colour, dash and marker in figures of each policy in this crate's table, in the order of the table.
pub(crate) fn looks() -> &'static [Look] {
    &LOOKS
}

/// The JSON schema of a policy with its settings: `{ name = { settings } }`.
pub(crate) fn named(name: &str, summary: &str, settings: Schema) -> Schema {
    json_schema!({
        "type": "object",
        "description": summary,
        "properties": { name: settings },
        "required": [name],
        "additionalProperties": false,
    })
}

/// Reads the name of a policy and refuses a name that no policy has.
pub(crate) struct Name(pub &'static str);

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(name: D) -> Result<Name, D::Error> {
        struct ExistingName;

        impl Visitor<'_> for ExistingName {
            type Value = Name;

            fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
                f.write_str("the name of a policy")
            }

            fn visit_str<E: Error>(self, given: &str) -> Result<Name, E> {
                let names = PolicySpec::all_names();
                let known = names.iter().copied().find(|&name| name == given);
                known.map(Name).ok_or_else(|| E::unknown_variant(given, names))
            }
        }

        name.deserialize_identifier(ExistingName)
    }
}

impl PolicySpec {
    /// The names of all policies: first the policies of the table in its order, then the [registered](crate::register)
    /// policies.
    pub fn all_names() -> &'static [&'static str] {
        registered::all_names()
    }

    /// All policies with their default settings, in the order of [`all_names`](PolicySpec::all_names).
    pub fn all() -> Vec<PolicySpec> {
        PolicySpec::of_table().into_iter().chain(registered::all().map(PolicySpec::Registered)).collect()
    }

    /// Colour, dash and marker of the policy in figures.
    pub fn look(&self) -> Look {
        let usual = match self {
            PolicySpec::Registered(other) => other.usual_look(),
            row => looks()[crate::ROWS.iter().position(|r| r.name == row.name()).expect("a row each")],
        };
        self.definition().look(usual)
    }

    /// What the policy does, in one line, for lists and reports.
    pub fn summary(&self) -> &'static str {
        self.definition().summary_of(self.name())
    }

    /// Paper and section, or engine and file, that the policy is taken from.
    pub fn source(&self) -> &'static str {
        self.definition().about().source
    }

    /// The policy's colour in figures.
    pub fn colour(&self) -> Colour {
        self.look().colour
    }

    /// The dash of the policy's lines in figures.
    pub fn dash(&self) -> Dash {
        self.look().dash
    }

    /// The marker of the policy's points in figures.
    pub fn marker(&self) -> Marker {
        self.look().marker
    }

    /// True if the policy sees the hidden truth, which no server knows (such as which draft tokens will be accepted).
    pub fn sees_hidden_truth(&self) -> bool {
        self.definition().sees_hidden_truth()
    }

    /// Refuses settings that the policy cannot work with.
    ///
    /// # Errors
    /// A setting has a bad value. The error has the policy, the key and the reason.
    pub fn check(&self) -> Result<(), BadParameter> {
        self.definition().check().map_err(|e| BadParameter { policy: self.name(), ..e })
    }

    /// Builds the policy. The policy observes outcomes `context.staleness_steps` steps late, unless it is an oracle (a
    /// policy that knows more than a server can). Call [`check`](PolicySpec::check) first.
    pub fn build(&self, context: &PolicyContext) -> Speculation {
        match self.definition().build(context) {
            Speculation::Policy(policy) if context.staleness_steps > 0 => {
                Speculation::Policy(Box::new(Stale::new(policy, context.staleness_steps)))
            }
            other => other,
        }
    }
}

/// The settings of a policy as a JSON value.
pub(crate) fn plain(settings: &impl Serialize) -> Value {
    serde_json::to_value(settings).expect("a policy's settings are plain values")
}

/// A policy's label: `stem`, followed in brackets by every setting of `settings` whose value differs from the value in
/// `usual`.
pub(crate) fn label(stem: &str, settings: Value, usual: Value) -> String {
    let changed: Vec<String> = settings
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(key, value)| usual.get(key.as_str()) != Some(value))
        .map(|(key, value)| match value.as_str() {
            Some(word) => format!("{key}={word}"),
            None => format!("{key}={value}"),
        })
        .collect();
    match changed.is_empty() {
        true => stem.to_string(),
        false => format!("{stem}[{}]", changed.join(" ")),
    }
}

#[cfg(test)]
#[path = "registry_tests.rs"]
mod tests;
