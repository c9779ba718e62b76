//! The host time (scheduler, Python, launches) of a real server's steps. It is used to warn if an experiment counts no
//! host time.
//!
//! A roofline counts only the device's time. Only one GPU was measured completely enough to show the effect
//! (`experiments/validation/gh200/README.md`): there, host time decides whether speculation pays. A roofline alone
//! predicts that speculation pays at all five measured numbers of clients. In the measurements, speculation costs 35 to
//! 59 % of the throughput at three of them.

use crate::plan::{Plan, Variant};
use foretoken_hardware::LatencySpec;
use foretoken_sim::HostLaw;
use foretoken_sim::host::{SpeculatingSeconds, WithoutGraph};
use foretoken_spec::document::Path;
use foretoken_spec::problem::Result;
use serde::{Deserialize, Serialize};

/// The server whose host time (scheduler, Python, kernel launches) [`measured`] returns.
pub const SOURCE: &str = "SGLang, EAGLE-3, Llama-3.1-8B on a GH200";

/// The host time of the server [`SOURCE`]. `foretoken calibrate` fitted it to the throughputs that were measured
/// without drafting and with 3 draft tokens; the numbers are rounded.
pub fn measured() -> HostLaw {
    HostLaw {
        speculating: SpeculatingSeconds { step_s: 0.96e-3, request_s: 230e-6, token_s: 0.0 },
        without_graph: WithoutGraph { above: 8, step_s: 0.0, speculating_s: 10.4e-3 },
        ..HostLaw::default()
    }
}

/// Does some variant (combination of swept values) of the plan take the target's costs from a roofline and count no
/// host time (scheduler, Python, kernel launches)? Then host time might change whether drafting pays. False for live
/// and observed runs.
pub fn is_left_out(plan: &Plan) -> bool {
    plan.measured.is_none() && plan.variants.iter().any(leaves_out)
}

/// Does this variant (combination of swept values) take the target's costs from a roofline and count no host time?
pub fn leaves_out(variant: &Variant) -> bool {
    let e = &variant.experiment;
    let no_host = e.engine.host.is_zero() && e.engine.step_overhead_s == 0.0;
    no_host && matches!(e.hardware.target, LatencySpec::Roofline(_))
}

/// What an answer begins with that host time turns around.
pub const DEPENDS: &str = "Depends on your host: calibrate.";

/// The plan of variant number `variant` (a combination of swept values) alone, with the host time of the server
/// [`SOURCE`].
///
/// # Errors
/// The variant is wrong with that host time.
pub fn counted(plan: &Plan, variant: usize) -> Result<Plan> {
    let law = toml::Value::try_from(measured()).expect("plain data is TOML").to_string();
    plan.altered(variant, |document| document.replace(&Path::of("engine.host"), SOURCE, &law))
}

/// How host time (scheduler, Python, kernel launches) would change the result of a run that counts none. The report
/// says so next to the headline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostBand {
    /// Name of the server from which the host time is taken.
    pub source: String,
    /// The fastest policy that drafts, with its speedups without and with host time (scheduler, Python, kernel
    /// launches). `None` if the policy was not simulated with host time.
    pub tried: Option<Tried>,
}

/// The speedups of one policy without and with host time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tried {
    /// The label of the policy that was simulated with and without host time.
    pub policy: String,
    /// The policy's speedup over plain decoding, simulated without host time.
    pub without: f64,
    /// The policy's speedup over plain decoding with the host time of the measured server.
    pub with: f64,
    /// The seed with which both speedups were simulated.
    pub seed: u64,
}

impl HostBand {
    /// The sentences of the report on how host time would change the policy's speedup.
    pub fn in_words(&self) -> String {
        let source = &self.source;
        let begin = "Costs are a roofline, and no host time is counted ([engine.host])";
        match &self.tried {
            None => format!(
                "{begin}: on the one GPU that was measured completely ({source}) such a run says \"speculate\" where \
                 speculation loses a third of the throughput and more."
            ),
            Some(Tried { policy, without, with, seed }) => {
                let turns = match (*without > 1.0, *with > 1.0) {
                    (true, false) => " The answer turns within this band: it is no recommendation.",
                    _ => "",
                };
                let (with, without) = (format!("{with:.2}"), format!("{without:.2}"));
                let becomes = match with == without {
                    true => format!("stays {with}"),
                    false => format!("is {with} and not {without}"),
                };
                format!(
                    "{begin}. With that of a measured server ({source}) the speedup of {policy} {becomes} (seed {seed}).{turns}"
                )
            }
        }
    }
}
