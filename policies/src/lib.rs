//! Foretoken's speculation policies: one file per policy, in folders by family, and the code that several policies
//! share.
//!
//! A policy is a pure state machine over [`foretoken_sim::BatchView`]. It never sees the future: output lengths and
//! later acceptance are not in its view. Only the oracles of this crate are built as [`foretoken_sim::OraclePolicy`],
//! the one type that sees the hidden truth. No policy reads a clock, does I/O or knows whether the engine is simulated
//! or live.
//!
//! This file is the table of policies: the modules by family, then one row per policy. `definition.rs` is the contract
//! that each policy's file fulfils; no policy's file imports the table. [`template`] writes the file of a new one,
//! [`register`] adds one from another crate.

mod definition;
mod look;
mod marks;
mod name;
mod preset;
mod registered;
#[macro_use]
pub mod registry;
pub mod seat;
mod stale;
pub mod template;

#[cfg(test)]
mod recorded;
#[cfg(test)]
mod registry_fuzz;
#[cfg(test)]
mod testing;

// The modules are declared here and not by the macro `policies!`, because rustfmt and editors do not find files that
// only a macro names.

/// Policies without speculation, with fixed lengths, or with lengths by a request's category or context.
mod plain {
    pub(crate) mod autoregressive;
    pub(crate) mod by_category;
    pub(crate) mod by_context;
    pub(crate) mod fixed;
}

/// Policies that are taken from SGLang.
mod sglang {
    pub(crate) mod dspark;
    pub(crate) mod dspark_relay;
    pub(crate) mod dspark_table;
    pub(crate) mod ema_tier;
    pub(crate) mod gen3;
    pub(crate) mod json;
    pub(crate) mod router;
    pub(crate) mod throughput;
}

/// Policies that are taken from vLLM's releases and branches.
mod vllm {
    pub(crate) mod acceptance_estimator;
    pub(crate) mod adaptive;
    pub(crate) mod confidence_history;
    pub(crate) mod confidence_stop;
    pub(crate) mod context_table;
    pub(crate) mod cost_table;
    pub(crate) mod disable_by_batch_size;
    pub(crate) mod draft_confidence;
    pub(crate) mod dynamic;
}

/// Policies of other engines: TensorRT-LLM, MLC-LLM, sfllm.
mod engines {
    pub(crate) mod draft_len_schedule;
    pub(crate) mod mlc_table;
    pub(crate) mod speculation_gate;
    pub(crate) mod trtllm_auto;
    pub(crate) mod verify_budget;
}

/// SmartSpec, TurboSpec and inference-lab's gates: policies that take the draft lengths with the greatest estimated
/// goodput.
mod goodput {
    pub(crate) mod gated;
    pub(crate) mod heads;
    pub(crate) mod ladder;
    pub(crate) mod request_rates;
    pub(crate) mod smartspec;
    pub(crate) mod smartspec_confidence;
    pub(crate) mod smartspec_dsd;
    #[cfg(test)]
    mod smartspec_family_tests;
    pub(crate) mod smartspec_medusa;
    pub(crate) mod smartspec_request;
    pub(crate) mod turbospec;
    pub(crate) mod turbospec_cost;
    pub(crate) mod zero_lengths;
}

/// AdaSpec: policies whose draft lengths meet latency targets.
mod slo {
    pub(crate) mod adaspec;
    pub(crate) mod adaspec_code;
    pub(crate) mod adaspec_code_cost;
    pub(crate) mod adaspec_verifier;
}

/// Policies of inference servers for laptops (2026). They choose lengths by measured time, or by accepted draft tokens
/// alone.
mod local {
    pub(crate) mod aimd;
    pub(crate) mod downshift;
    pub(crate) mod measured_cost_depth;
    pub(crate) mod measured_two_arm;
    pub(crate) mod mlx_vlm_expand;
    pub(crate) mod per_request;
}

/// Policies that choose what is drafted or verified by confidence, entropy or divergence.
mod confidence {
    pub(crate) mod adaedl;
    pub(crate) mod dsde;
    pub(crate) mod hf_dynamic;
    pub(crate) mod roc;
    pub(crate) mod specdec_plus_plus;
    pub(crate) mod svip;
    pub(crate) mod tetris;
    pub(crate) mod threshold;
}

/// Policies that draft token trees.
mod trees {
    pub(crate) mod adaserve;
    pub(crate) mod eagle2;
    pub(crate) mod specinfer;
}

/// Policies that learn a draft length with a bandit; one learns a rule that stops drafting.
mod bandits {
    pub(crate) mod bandit;
    pub(crate) mod banditspec;
    pub(crate) mod cascade;
    pub(crate) mod exp3spec;
    pub(crate) mod nightjar;
    pub(crate) mod tapout;
    pub(crate) mod ucb_specstop;
}

/// `foresight`, Foretoken's own policy.
mod foresight {
    pub(crate) mod asking;
    pub(crate) mod cost;
    pub(crate) mod door;
    pub(crate) mod lateness;
    pub(crate) mod memo;
    pub(crate) mod next_prompts;
    pub(crate) mod odds;
    pub(crate) mod options;
    pub(crate) mod pass_times;
    pub(crate) mod policy;
    pub(crate) mod price;
    pub(crate) mod ranked;
    pub(crate) mod round;
    pub(crate) mod settings;
    pub(crate) mod trips;
}

/// Policies that show how well a server could do at best (bounds), that give a policy the truth in place of an
/// assumption (wrappers), or that draw draft lengths at random.
mod bounds {
    pub(crate) mod ahead;
    pub(crate) mod ahead_steps;
    pub(crate) mod clairvoyant_static;
    pub(crate) mod frontier;
    pub(crate) mod knows;
    pub(crate) mod oracle_goodput;
    pub(crate) mod oracle_length;
    pub(crate) mod oracle_tree;
    pub(crate) mod posterior;
    pub(crate) mod price;
    pub(crate) mod random;
    pub(crate) mod survivals;
    pub(crate) mod true_beliefs;
    pub(crate) mod true_cost;
}

/// Code that several families of policies share: cost estimates (beliefs), acceptance rates, tables by batch size.
mod shared {
    pub(crate) mod acceptance;
    pub(crate) mod belief;
    pub(crate) mod by_batch_size;
    pub(crate) mod by_request;
    pub(crate) mod estimator;
    pub(crate) mod profile;
    pub(crate) mod slots;
    pub(crate) mod survival;
    pub(crate) mod timed_batch;
    pub(crate) mod weighed;
}

policies! {
    // Presets (policies with default settings under a name) of the family (folder) `plain`: the engine without
    // speculation, fixed draft lengths, and draft lengths by a request's category or context.
    plain::autoregressive::Autoregressive { Autoregressive = "autoregressive" in BLACK Solid Cross; }
    plain::fixed::Fixed { Fixed = "fixed" in BLUE Solid Ring; }
    plain::by_category::ByCategory { ByCategory = "by-category" in BLUE LongDash Square; }
    plain::by_context::ByContext { ByContext = "by-context" in BLUE LongDash Triangle; }

    // Presets (policies with default settings) of SGLang's adaptive speculation.
    sglang::ema_tier::EmaTier {
        EmaTier = "ema-tier" in ORANGE Solid Diamond;
        SglangGen1 = "sglang-gen1" in ORANGE Dashed Ring;
        SglangGen2 = "sglang-gen2" in ORANGE Dotted Square, with EmaTier::gen2();
    }
    sglang::gen3::SglangGen3 { SglangGen3 = "sglang-gen3" in ORANGE LongDash Triangle; }
    sglang::throughput::SglangThroughput { SglangThroughput = "sglang-throughput" in ORANGE Solid Plus; }

    // Presets (policies with default settings) of SmartSpec and TurboSpec, which take the draft length with the
    // greatest estimated goodput.
    goodput::smartspec::Smartspec {
        Smartspec = "smartspec" in GREEN Solid Triangle;
        SmartspecJoint = "smartspec-joint" in GREEN Dashed Diamond, with Smartspec::joint();
    }
    goodput::smartspec_request::SmartspecRequest { SmartspecRequest = "smartspec-request" in GREEN Dotted Square; }
    goodput::smartspec_confidence::SmartspecConfidence {
        SmartspecConfidence = "smartspec-confidence" in GREEN LongDash Circle;
    }
    goodput::smartspec_dsd::SmartspecDsd { SmartspecDsd = "smartspec-dsd" in GREEN Dashed Plus; }
    goodput::turbospec::Turbospec { TurbospecV1 = "turbospec-v1" in GREEN Dotted TriangleDown; }
    goodput::smartspec_medusa::SmartspecMedusa { SmartspecMedusa = "smartspec-medusa" in GREEN LongDash Ring; }
    goodput::gated::Gated {
        GatedAggregate = "gated-aggregate";
        GatedBudget = "gated-budget", with Gated::budget();
    }

    // Presets (policies with default settings) of AdaSpec, whose draft lengths meet latency targets.
    slo::adaspec::Adaspec {
        Adaspec = "adaspec" in VERMILLION Solid Square;
        AdaspecMinus = "adaspec-" in VERMILLION Dashed Ring, with Adaspec::without_verifier();
    }
    slo::adaspec_code::AdaspecCode { AdaspecCode = "adaspec-code" in VERMILLION LongDash Triangle; }

    // Presets (policies with default settings) of serving engines: vLLM, SGLang's DSpark, TensorRT-LLM, MLC-LLM, sfllm.
    vllm::dynamic::VllmDynamic { VllmDynamic = "vllm-dynamic" in BLUE Dashed Diamond; }
    vllm::context_table::VllmContext { VllmContext = "vllm-context" in BLUE Dotted Diamond; }
    vllm::adaptive::VllmAdaptive { VllmAdaptive = "vllm-adaptive" in BLUE LongDash TriangleDown; }
    sglang::dspark::Dspark { Dspark = "dspark" in ORANGE LongDash Square; }
    vllm::disable_by_batch_size::DisableByBatchSize {
        DisableByBatchSize = "disable-by-batch-size" in BLACK Dotted Circle;
    }
    engines::draft_len_schedule::DraftLenSchedule { DraftLenSchedule = "draft-len-schedule" in BLACK LongDash Diamond; }
    vllm::confidence_stop::ConfidenceStop { ConfidenceStop = "confidence-stop" in PURPLE LongDash Circle; }
    vllm::draft_confidence::DraftConfidence { VllmDraftConfidence = "vllm-draft-confidence" in PURPLE LongDash Cross; }

    engines::speculation_gate::SpeculationGate { SpeculationGate = "speculation-gate" in BLACK Solid Square; }
    engines::trtllm_auto::TrtllmAuto { TrtllmAuto = "trtllm-auto" in BLACK LongDash Triangle; }
    engines::mlc_table::MlcTable { MlcTable = "mlc-table" in BLUE Dotted Square; }
    engines::verify_budget::VerifyBudget { VerifyBudget = "verify-budget" in VERMILLION Dotted Diamond; }

    // Presets (policies with default settings) from inference servers for laptops (2026), which choose lengths by
    // measured time or by accepted draft tokens alone.
    local::measured_two_arm::MeasuredTwoArm { MeasuredTwoArm = "measured-two-arm" in BLUE Dotted Triangle; }
    local::measured_cost_depth::MeasuredCostDepth { MeasuredCostDepth = "measured-cost-depth" in BLUE Dashed Plus; }
    local::mlx_vlm_expand::MlxVlmExpand { MlxVlmExpand = "mlx-vlm-expand" in GREEN Solid Plus; }
    local::aimd::Aimd { Aimd = "aimd" in GREEN Dashed TriangleDown; }
    local::downshift::Downshift { Downshift = "downshift" in GREEN Dotted Diamond; }

    // Presets (policies with default settings) that decide by the confidence, the entropy or the divergence of draft
    // tokens.
    confidence::threshold::Threshold {
        Threshold = "threshold" in PURPLE Dotted Diamond;
        ThresholdHf = "threshold-hf" in PURPLE Solid TriangleDown, with Threshold::hf();
        ThresholdAdaspecRepo = "threshold-adaspec-repo" in PURPLE Dashed Plus, with Threshold::adaspec_repo();
    }
    confidence::hf_dynamic::HfDynamic {
        HfDynamic = "hf-dynamic" in PURPLE LongDash Square;
        HfHeuristic = "hf-heuristic" in PURPLE Dotted Ring, with HfDynamic::heuristic();
    }
    confidence::svip::Svip { Svip = "svip" in BROWN Dashed Circle; }
    confidence::adaedl::Adaedl { Adaedl = "adaedl" in BROWN Dashed Square; }
    confidence::dsde::Dsde { Dsde = "dsde" in BROWN LongDash TriangleDown; }
    confidence::specdec_plus_plus::SpecdecPlusPlus { SpecdecPlusPlus = "specdec-plus-plus"; }
    confidence::tetris::Tetris { Tetris = "tetris" in VERMILLION Dotted Plus; }

    // Presets (policies with default settings) that draft token trees.
    trees::specinfer::Specinfer {
        Specinfer = "specinfer" in BROWN Solid Diamond;
        SpecinferStar = "specinfer-star" in BROWN Dashed Diamond, with Specinfer::star();
    }
    trees::eagle2::Eagle2 { Eagle2 = "eagle2" in BROWN Solid Square; }
    trees::adaserve::Adaserve { AdaserveLike = "adaserve-like" in BROWN LongDash Triangle; }

    // Presets (policies with default settings) that learn a draft length or a stopping rule with a bandit.
    bandits::banditspec::Banditspec {
        BanditspecLiteral = "banditspec-literal" in BLACK Dotted Ring, with Banditspec::literal();
        Banditspec = "banditspec" in BLACK Dashed Circle;
    }
    bandits::exp3spec::Exp3spec { Exp3spec = "exp3spec" in BLACK LongDash Plus; }
    bandits::cascade::CascadeLike { CascadeLike = "cascade-like" in BLACK Solid TriangleDown; }
    bandits::nightjar::NightjarLike { NightjarLike = "nightjar-like" in BLACK Dashed Square; }
    bandits::tapout::TapoutLike { TapoutLike = "tapout-like"; }
    bandits::ucb_specstop::UcbSpecstopLike { UcbSpecstopLike = "ucb-specstop-like"; }

    // The preset (default settings under a name) of Foretoken's own policy.
    foresight::settings::Foresight { Foresight = "foresight" in PURPLE Solid Circle; }

    // Presets (policies with default settings) that show how well a server could do at best (bounds), that give a
    // policy the truth (wrappers), or that draw lengths at random.
    bounds::oracle_goodput::OracleGoodput { OracleGoodput = "oracle-goodput" in SKY_BLUE LongDash Circle; }
    bounds::oracle_tree::OracleTree { OracleTree = "oracle-tree" in SKY_BLUE Solid Square; }
    bounds::knows::Knows {
        KnowsRates = "knows-rates" in SKY_BLUE Dotted Square, with Knows::with(Knowledge::Rates);
        KnowsConfidences = "knows-confidences" in SKY_BLUE Dashed Diamond;
        KnowsLengths = "knows-lengths" in SKY_BLUE Dashed TriangleDown, with Knows::with(Knowledge::Lengths);
    }
    bounds::ahead::OneStepAhead { OneStepAhead = "one-step-ahead" in SKY_BLUE Solid Plus; }
    bounds::oracle_length::OracleLength { OracleLength = "oracle-length" in SKY_BLUE Dotted Triangle; }
    bounds::clairvoyant_static::ClairvoyantStatic {
        ClairvoyantStatic = "clairvoyant-static" in SKY_BLUE Solid Diamond;
    }
    bounds::random::Random { Random = "random" in BROWN Dotted Plus; }
    bounds::true_beliefs::TrueBelief {
        TrueCost = "true-cost";
        TrueCalibration = "true-calibration", with TrueBelief::in_place_of(Right::Calibration);
        TrueRates = "true-rates", with TrueBelief::in_place_of(Right::Rates);
    }
}

pub use bandits::banditspec::Bonus;
pub use bounds::knows::Knowledge;
pub use bounds::oracle_goodput::Form;
pub use bounds::price::Price;
pub use bounds::true_beliefs::Right;
pub use confidence::hf_dynamic::Schedule;
pub use confidence::threshold::{Cost, Scope};
pub use definition::{About, BadParameter, Beliefs, Check, Definition, PolicyContext, Told, Truths};
pub use foresight::settings::PriceOfTime;
pub use goodput::smartspec_dsd::Proposer;
pub use goodput::turbospec_cost::Coefficients as TurbospecCoefficients;
pub use look::{Colour, Dash, Look, Marker, RAMP};
pub use name::BadName;
pub use registered::{CannotRegister, Registered, register, register_again};
pub use sglang::dspark_table::SpsTable;
pub use sglang::ema_tier::OffList;
pub use sglang::gen3::Slot;
pub use sglang::json::{BadSglangJson, from_sglang_json, to_sglang_json};
pub use sglang::throughput::CandidateSlot;
pub use shared::acceptance::{Rate, expected_tokens};
pub use shared::belief::Belief;
pub use shared::estimator::{Depth, Depths, Estimate};
pub use shared::profile::PassTimes;
pub use slo::adaspec::{Drafter, SloMode};
pub use slo::adaspec_code::Eliminate;
pub use vllm::context_table::{ContextRange, to_rfc_48627};
pub use vllm::cost_table::CostLookup;
pub use vllm::dynamic::{BatchRange, to_vllm_speculative_config};
