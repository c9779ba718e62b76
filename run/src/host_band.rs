//! Host time that was measured, for experiments that state none.
//!
//! A roofline counts the device only. On the one grid of a GPU that was measured completely enough, host time decided
//! whether speculation pays: there, a roofline alone says "speculate" in all five rows, and in three of them following
//! it costs 35 to 59 % of the throughput (`experiments/validation/gh200/README.md`).

use crate::plan::{Plan, Variant};
use foretoken_hardware::LatencySpec;
use foretoken_sim::HostLaw;
use foretoken_sim::host::{SpeculatingSeconds, WithoutGraph};
use serde::{Deserialize, Serialize};

/// The server of [`measured`].
pub const SOURCE: &str = "SGLang, EAGLE-3, Llama-3.1-8B on a GH200";

/// The host law of that server, as `foretoken calibrate` fits it to the rows K = 0 and 3 of the grid; rounded.
pub fn measured() -> HostLaw {
    HostLaw {
        speculating: SpeculatingSeconds { step_s: 0.96e-3, request_s: 230e-6, token_s: 0.0 },
        without_graph: WithoutGraph { above: 8, step_s: 0.0, speculating_s: 10.4e-3 },
        ..HostLaw::default()
    }
}

/// True if costs are a roofline's, and the experiment counts no host time: whether drafts pay may turn with it.
pub fn is_left_out(plan: &Plan) -> bool {
    plan.measured.is_none() && plan.variants.iter().any(leaves_out)
}

/// The same of one combination of swept values.
pub fn leaves_out(variant: &Variant) -> bool {
    let e = &variant.experiment;
    let no_host = e.engine.host.is_zero() && e.engine.step_overhead_s == 0.0;
    no_host && matches!(e.hardware.target, LatencySpec::Roofline(_))
}

/// A statement that stands beside the headline of a run without host time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostBand {
    /// The server whose host time is taken.
    pub source: String,
    /// The fastest policy that drafts, with its speedups; `None` if it was not tried.
    pub tried: Option<Tried>,
}

/// A policy without host time and with it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tried {
    /// The policy's label.
    pub policy: String,
    /// Its speedup over plain decoding without host time, in one seed.
    pub without: f64,
    /// The same with the host time of the measured server.
    pub with: f64,
    /// The seed.
    pub seed: u64,
}

impl HostBand {
    /// The statement.
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
