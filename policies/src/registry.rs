//! The table of policies: names, defaults, looks, checks and construction. It is the one place that lists them all, and
//! must hold no policy's logic.

use crate::look::{BLACK, BLUE, Colour, Dash, GREEN, GREY, Look, Marker, ORANGE, PURPLE, SKY_BLUE, VERMILLION};
use crate::preset::Preset;
use crate::profile::PassTimes;
use crate::stale::Stale;
use crate::{
    Adaedl, Adaserve, Adaspec, AdaspecCode, Aimd, Autoregressive, Banditspec, Belief, CascadeLike, ClairvoyantStatic,
    ConfidenceStop, DisableByBatchSize, Downshift, DraftConfidence, DraftLenSchedule, Dsde, Dspark, Eagle2, EmaTier,
    Exp3spec, Fixed, HfDynamic, MeasuredCostDepth, MeasuredTwoArm, MlcTable, MlxVlmExpand, NightjarLike, OffList,
    OracleGoodput, OracleLength, Random, SglangGen3, SglangThroughput, Smartspec, SmartspecConfidence, SmartspecDsd,
    SmartspecMedusa, SmartspecRequest, Specinfer, SpeculationGate, Svip, Tetris, Threshold, TrtllmAuto, Turbospec,
    VerifyBudget, VllmAdaptive, VllmDynamic,
};
use foretoken_sim::{MAX_SPEC_LEN, Speculation};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use serde::de::{Deserialize, Deserializer, EnumAccess, Error, VariantAccess, Visitor};
use std::borrow::Cow;

/// What a policy is built with.
#[derive(Clone, Copy)]
pub struct PolicyContext<'a> {
    /// What it believes passes cost.
    pub belief: Belief,
    /// What it may time before serving starts: policies with cost tables fill them from it.
    pub profile: &'a dyn PassTimes,
    /// Most draft tokens a request in a step (`engine.max_draft_len`): longer settings are cut to it.
    pub max_draft_len: u32,
    /// Most requests in the running list (`engine.max_num_seqs`): tables reach so far.
    pub max_num_seqs: u32,
    /// Token budget of a step (`engine.max_num_batched_tokens`): tables reach so far.
    pub max_num_batched_tokens: u32,
    /// The run's seed, for policies that draw.
    pub seed: u64,
    /// Steps after which a policy learns what a step brought; 0 is at its end.
    pub staleness_steps: u32,
    /// What it is told instead of learning it (`foretoken decide`): no warm-up, no staleness of its own.
    pub told: Option<Told<'a>>,
}

/// What a policy is told instead of learning it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Told<'a> {
    /// The conditional acceptance rate a of E(a, k).
    pub acceptance_rate: f64,
    /// The confidence expected of a token.
    pub prev_confidence: f64,
    /// The context of each request of the state: tables by tokens alone are of passes over these, not over the made-up
    /// requests that engines time when they start.
    pub contexts: &'a [u32],
}

/// A parameter that serde accepts and the policy does not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{policy}.{key}: {why}")]
pub struct BadParameter {
    /// The policy's name.
    pub policy: &'static str,
    /// The parameter.
    pub key: &'static str,
    /// What is wrong, and what would be right.
    pub why: String,
}

/// What each policy's file says about it. Implemented by the policy's parameters; several presets may share them.
pub trait Definition {
    /// A label of its own, where the name and the changed settings do not read well (`fixed-3`).
    fn short_label(&self) -> Option<String> {
        None
    }

    /// What it does, in one line.
    fn summary(&self) -> &'static str;

    /// Paper and section, or engine and file.
    fn source(&self) -> &'static str;

    /// What it sees when it decides (docs/model.md 8).
    fn sees(&self) -> &'static str;

    /// In what it differs from the published artefact, and why.
    fn differences(&self) -> &'static str;

    /// How it looks in figures; `usual` is the table's.
    fn look(&self, usual: Look) -> Look {
        usual
    }

    /// Does it see the hidden truth? Then it is a bound, not a policy a server can run.
    fn sees_hidden_truth(&self) -> bool {
        false
    }

    /// Does it learn from accepted counts alone, so that a history of them is all it needs (`foretoken decide`)?
    fn learns_from_counts(&self) -> bool {
        false
    }

    /// A length that the user asks for by number, and its key: an engine that clips it would run another policy.
    fn asks_for(&self) -> Option<(&'static str, u32)> {
        None
    }

    /// Policies to run in its place, of which the best one is taken in hindsight; none for all but clairvoyants.
    fn tries(&self, _max_draft_len: u32) -> Vec<PolicySpec> {
        Vec::new()
    }

    /// Refuses settings it cannot work with.
    fn check(&self) -> Result<(), BadParameter>;

    /// Builds it. The settings have passed [`check`](Definition::check).
    fn build(&self, context: &PolicyContext) -> Speculation;
}

macro_rules! policies {
    ($($variant:ident($policy:ty) = $name:literal, $colour:ident $dash:ident $marker:ident, $preset:expr;)*) => {
        /// A policy and its settings, as an experiment gives them: `{ fixed = { k = 3 } }`, `{ adaspec = {} }`.
        #[derive(Clone, Debug, PartialEq, Serialize)]
        pub enum PolicySpec {
            $(#[doc = concat!("`", $name, "`: see [`", stringify!($policy), "`].")]
            #[serde(rename = $name)]
            $variant($policy)),*
        }

        impl PolicySpec {
            /// The names of all policies, in the table's order.
            pub fn all_names() -> &'static [&'static str] {
                &[$($name),*]
            }

            /// All policies with their default settings, in the table's order.
            pub fn all() -> Vec<PolicySpec> {
                vec![$(PolicySpec::$variant($preset)),*]
            }

            /// The policy's name.
            pub fn name(&self) -> &'static str {
                match self { $(PolicySpec::$variant(_) => $name),* }
            }

            /// What the policy's file says about it.
            pub fn definition(&self) -> &dyn Definition {
                match self { $(PolicySpec::$variant(p) => p),* }
            }

            /// Unique display label: the name and every setting that is not the preset's.
            pub fn label(&self) -> String {
                self.definition().short_label().unwrap_or_else(|| match self {
                    $(PolicySpec::$variant(p) => label($name, p, &$preset)),*
                })
            }

            /// How it looks in figures.
            pub fn look(&self) -> Look {
                let usual = match self {
                    $(PolicySpec::$variant(_) => Look::new($colour, Dash::$dash, Marker::$marker)),*
                };
                self.definition().look(usual)
            }
        }

        impl JsonSchema for PolicySpec {
            fn schema_name() -> Cow<'static, str> {
                "Policy".into()
            }

            fn json_schema(generator: &mut SchemaGenerator) -> Schema {
                let each: Vec<Schema> = vec![$({
                    let settings = generator.subschema_for::<$policy>();
                    named($name, PolicySpec::$variant($preset).summary(), settings)
                }),*];
                json_schema!({ "description": "A policy and its settings.", "oneOf": each })
            }
        }

        impl<'de> Deserialize<'de> for PolicySpec {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<PolicySpec, D::Error> {
                struct OneOf;

                impl<'de> Visitor<'de> for OneOf {
                    type Value = PolicySpec;

                    fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
                        f.write_str("a policy: { name = { settings } }")
                    }

                    fn visit_enum<A: EnumAccess<'de>>(self, data: A) -> Result<PolicySpec, A::Error> {
                        let (Name(name), settings) = data.variant::<Name>()?;
                        match name {
                            $($name => settings.newtype_variant_seed(Preset::<$policy>($preset)).map(PolicySpec::$variant),)*
                            _ => unreachable!("names were read from the table"),
                        }
                    }
                }

                deserializer.deserialize_enum("PolicySpec", PolicySpec::all_names(), OneOf)
            }
        }
    };
}

/// The schema of `{ name = { settings } }`.
fn named(name: &str, summary: &str, settings: Schema) -> Schema {
    json_schema!({
        "type": "object",
        "description": summary,
        "properties": { name: settings },
        "required": [name],
        "additionalProperties": false,
    })
}

/// A name of the table.
struct Name(&'static str);

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(name: D) -> Result<Name, D::Error> {
        struct Known;

        impl Visitor<'_> for Known {
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

        name.deserialize_identifier(Known)
    }
}

policies! {
    // The plain engine and fixed lengths.
    Autoregressive(Autoregressive) = "autoregressive", BLACK Solid Cross, Autoregressive::default();
    Fixed(Fixed) = "fixed", BLUE Solid Ring, Fixed::default();

    // SGLang.
    EmaTier(EmaTier) = "ema-tier", ORANGE Solid Diamond, EmaTier::default();
    SglangGen1(EmaTier) = "sglang-gen1", ORANGE Dashed Ring, EmaTier::default();
    SglangGen2(EmaTier) = "sglang-gen2", ORANGE Dotted Square, EmaTier::gen2();
    SglangGen3(SglangGen3) = "sglang-gen3", ORANGE LongDash Triangle, SglangGen3::default();
    SglangThroughput(SglangThroughput) = "sglang-throughput", ORANGE Solid Plus, SglangThroughput::default();

    // SmartSpec and TurboSpec.
    Smartspec(Smartspec) = "smartspec", GREEN Solid Triangle, Smartspec::default();
    SmartspecJoint(Smartspec) = "smartspec-joint", GREEN Dashed Diamond, Smartspec::joint();
    SmartspecRequest(SmartspecRequest) = "smartspec-request", GREEN Dotted Square, SmartspecRequest::default();
    SmartspecConfidence(SmartspecConfidence) = "smartspec-confidence", GREEN LongDash Circle, Default::default();
    SmartspecDsd(SmartspecDsd) = "smartspec-dsd", GREEN Dashed Plus, SmartspecDsd::default();
    TurbospecV1(Turbospec) = "turbospec-v1", GREEN Dotted TriangleDown, Turbospec::default();
    SmartspecMedusa(SmartspecMedusa) = "smartspec-medusa", GREEN LongDash Ring, SmartspecMedusa::default();

    // AdaSpec.
    Adaspec(Adaspec) = "adaspec", VERMILLION Solid Square, Adaspec::default();
    AdaspecMinus(Adaspec) = "adaspec-", VERMILLION Dashed Ring, Adaspec::without_verifier();
    AdaspecCode(AdaspecCode) = "adaspec-code", VERMILLION LongDash Triangle, AdaspecCode::default();

    // Engines of today.
    VllmDynamic(VllmDynamic) = "vllm-dynamic", BLUE Dashed Diamond, VllmDynamic::default();
    VllmAdaptive(VllmAdaptive) = "vllm-adaptive", BLUE LongDash TriangleDown, VllmAdaptive::default();
    Dspark(Dspark) = "dspark", ORANGE LongDash Square, Dspark::default();
    DisableByBatchSize(DisableByBatchSize) = "disable-by-batch-size", BLACK Dotted Circle, Default::default();
    DraftLenSchedule(DraftLenSchedule) = "draft-len-schedule", BLACK LongDash Diamond, DraftLenSchedule::default();
    ConfidenceStop(ConfidenceStop) = "confidence-stop", PURPLE LongDash Circle, ConfidenceStop::default();
    VllmDraftConfidence(DraftConfidence) = "vllm-draft-confidence", PURPLE LongDash Cross, DraftConfidence::default();

    SpeculationGate(SpeculationGate) = "speculation-gate", BLACK Solid Square, SpeculationGate::default();
    TrtllmAuto(TrtllmAuto) = "trtllm-auto", BLACK LongDash Triangle, TrtllmAuto::default();
    MlcTable(MlcTable) = "mlc-table", BLUE Dotted Square, MlcTable::default();
    VerifyBudget(VerifyBudget) = "verify-budget", VERMILLION Dotted Diamond, VerifyBudget::default();

    // Servers on laptops, 2026: by measured time, and by accepted drafts alone.
    MeasuredTwoArm(MeasuredTwoArm) = "measured-two-arm", BLUE Dotted Triangle, MeasuredTwoArm::default();
    MeasuredCostDepth(MeasuredCostDepth) = "measured-cost-depth", BLUE Dashed Plus, MeasuredCostDepth::default();
    MlxVlmExpand(MlxVlmExpand) = "mlx-vlm-expand", GREEN Solid Plus, MlxVlmExpand::default();
    Aimd(Aimd) = "aimd", GREEN Dashed TriangleDown, Aimd::default();
    Downshift(Downshift) = "downshift", GREEN Dotted Diamond, Downshift::default();

    // Confidence, entropy and divergence.
    Threshold(Threshold) = "threshold", PURPLE Dotted Diamond, Threshold::default();
    ThresholdHf(Threshold) = "threshold-hf", PURPLE Solid TriangleDown, Threshold::hf();
    ThresholdAdaspecRepo(Threshold) = "threshold-adaspec-repo", PURPLE Dashed Plus, Threshold::adaspec_repo();
    HfDynamic(HfDynamic) = "hf-dynamic", PURPLE LongDash Square, HfDynamic::default();
    HfHeuristic(HfDynamic) = "hf-heuristic", PURPLE Dotted Ring, HfDynamic::heuristic();
    Svip(Svip) = "svip", GREY Dashed Circle, Svip::default();
    Adaedl(Adaedl) = "adaedl", GREY Dashed Square, Adaedl::default();
    Dsde(Dsde) = "dsde", GREY LongDash TriangleDown, Dsde::default();
    Tetris(Tetris) = "tetris", VERMILLION Dotted Plus, Tetris::default();

    // Trees.
    Specinfer(Specinfer) = "specinfer", GREY Solid Diamond, Specinfer::default();
    SpecinferStar(Specinfer) = "specinfer-star", GREY Dashed Diamond, Specinfer::star();
    Eagle2(Eagle2) = "eagle2", GREY Solid Square, Eagle2::default();
    AdaserveLike(Adaserve) = "adaserve-like", GREY LongDash Triangle, Adaserve::default();

    // Bandits.
    BanditspecLiteral(Banditspec) = "banditspec-literal", BLACK Dotted Ring, Banditspec::literal();
    Banditspec(Banditspec) = "banditspec", BLACK Dashed Circle, Banditspec::default();
    Exp3spec(Exp3spec) = "exp3spec", BLACK LongDash Plus, Exp3spec::default();
    CascadeLike(CascadeLike) = "cascade-like", BLACK Solid TriangleDown, CascadeLike::default();
    NightjarLike(NightjarLike) = "nightjar-like", BLACK Dashed Square, NightjarLike::default();

    // Bounds.
    OracleGoodput(OracleGoodput) = "oracle-goodput", SKY_BLUE LongDash Circle, OracleGoodput::default();
    OracleLength(OracleLength) = "oracle-length", SKY_BLUE Dotted Triangle, OracleLength::default();
    ClairvoyantStatic(ClairvoyantStatic) = "clairvoyant-static", SKY_BLUE Solid Diamond, ClairvoyantStatic::default();
    Random(Random) = "random", GREY Dotted Plus, Random::default();
}

impl PolicySpec {
    /// What it does, in one line.
    pub fn summary(&self) -> &'static str {
        match self {
            // Two names for the same settings.
            PolicySpec::SglangGen1(p) if p.off_list == OffList::Snap => {
                "SGLang's first generation of adaptive draft lengths: ema-tier by another name"
            }
            other => other.definition().summary(),
        }
    }

    /// Paper and section, or engine and file.
    pub fn source(&self) -> &'static str {
        self.definition().source()
    }

    /// Its colour in figures.
    pub fn colour(&self) -> Colour {
        self.look().colour
    }

    /// The dash of its lines.
    pub fn dash(&self) -> Dash {
        self.look().dash
    }

    /// The marker of its points.
    pub fn marker(&self) -> Marker {
        self.look().marker
    }

    /// Does it see the hidden truth?
    pub fn sees_hidden_truth(&self) -> bool {
        self.definition().sees_hidden_truth()
    }

    /// Refuses settings it cannot work with, naming the key.
    pub fn check(&self) -> Result<(), BadParameter> {
        self.definition().check().map_err(|e| BadParameter { policy: self.name(), ..e })
    }

    /// Builds it. Call [`check`](PolicySpec::check) first.
    pub fn build(&self, context: &PolicyContext) -> Speculation {
        match self.definition().build(context) {
            Speculation::Policy(policy) if context.staleness_steps > 0 => {
                Speculation::Policy(Box::new(Stale::new(policy, context.staleness_steps)))
            }
            other => other,
        }
    }
}

/// `stem`, and in brackets every setting in which `settings` differs from `usual`.
fn label<T: Serialize>(stem: &str, settings: &T, usual: &T) -> String {
    let plain = |t: &T| serde_json::to_value(t).expect("a policy's settings are plain values");
    let (settings, usual) = (plain(settings), plain(usual));
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

/// Checks of one policy's parameters, in the order of its fields.
pub(crate) struct Check(pub &'static str);

impl Check {
    /// An error about `key` unless `ok`.
    pub fn that(&self, key: &'static str, ok: bool, why: impl Fn() -> String) -> Result<(), BadParameter> {
        if ok { Ok(()) } else { Err(BadParameter { policy: self.0, key, why: why() }) }
    }

    /// A share from 0 to 1; NaN is none.
    pub fn share(&self, key: &'static str, value: f64) -> Result<(), BadParameter> {
        self.that(key, (0.0..=1.0).contains(&value), || format!("{value} is not a share from 0 to 1"))
    }

    /// A draft length of at least 1 that an engine can run.
    pub fn length(&self, key: &'static str, value: u32) -> Result<(), BadParameter> {
        self.that(key, (1..=MAX_SPEC_LEN).contains(&value), || {
            format!("{value} is not a draft length from 1 to {MAX_SPEC_LEN}")
        })
    }
}

#[cfg(test)]
#[path = "registry_tests.rs"]
mod tests;
