//! The host time (scheduler, Python, launches) of a real server's steps. It is used to warn if an experiment counts no
//! host time.
//!
//! A roofline counts only the device's time. Only one GPU was measured completely enough to show the effect
//! (`experiments/validation/gh200/README.md`): there, host time decides whether speculation pays. A roofline alone
//! predicts that speculation pays at all five measured numbers of clients. In the measurements, speculation costs 35 to
//! 59 % of the throughput at three of them.

use crate::plan::{Plan, Variant};
use crate::spec::document::Path;
use crate::spec::problem::Result;
use foretoken_sim::HostLaw;
use foretoken_sim::host::{SpeculatingSeconds, WithoutGraph};
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

/// Does some variant of the plan take the target's costs from a roofline and count no host time (scheduler, Python,
/// kernel launches)? Then host time might change whether drafting pays. False for live and observed runs.
pub fn is_left_out(plan: &Plan) -> bool {
    plan.measured.is_none() && plan.variants.iter().any(leaves_out)
}

/// Does this variant take the target's costs from a roofline or from kernels, and count no host time?
pub fn leaves_out(variant: &Variant) -> bool {
    let e = &variant.experiment;
    let no_host = e.engine.host.is_zero() && e.engine.step_overhead_s == 0.0;
    no_host && e.hardware.target.machine().is_some()
}

/// What an answer begins with that host time turns around.
pub const DEPENDS: &str = "Depends on your host: calibrate.";

/// The plan of variant number `variant` alone, with the host time of the server [`SOURCE`].
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
    /// The policy that the headline names first.
    pub policy: String,
    /// The seed with which all speedups were simulated.
    pub seed: u64,
    /// The policy's speedups with host time, at each combination of swept values that was tried. Empty if none was.
    pub tried: Vec<Tried>,
}

/// The speedups of a policy over plain decoding without and with host time, at one combination of swept values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tried {
    /// The combination of swept values as text, such as `load = 2`. Empty if nothing is swept.
    pub at: String,
    /// The policy's speedup without host time.
    pub without: f64,
    /// The policy's speedup with the host time of the measured server.
    pub with: f64,
}

impl Tried {
    /// Does host time turn the answer around? Drafting wins without it and loses with it, or the reverse.
    fn turns(&self) -> bool {
        (self.without > 1.0) != (self.with > 1.0)
    }

    fn becomes(&self) -> String {
        let (with, without) = (format!("{:.2}×", self.with), format!("{:.2}×", self.without));
        if with == without { format!("stays {with}") } else { format!("is {with} and not {without}") }
    }
}

impl HostBand {
    /// The sentences of the report on how host time would change the policy's speedup.
    pub fn in_words(&self) -> String {
        let HostBand { source, policy, seed, tried } = self;
        let begin = "No host time is counted";
        let becomes = match tried.as_slice() {
            [] => {
                return format!(
                    "{begin}: on the one GPU that was measured completely ({source}) such a run says \"speculate\" where \
                     speculation loses a third of the throughput and more."
                );
            }
            [one] => one.becomes(),
            all => all.iter().map(|t| format!("{} at {}", t.becomes(), t.at)).collect::<Vec<_>>().join(", "),
        };
        let turned: Vec<&Tried> = tried.iter().filter(|t| t.turns()).collect();
        let to_the_end = tried.iter().skip_while(|t| !t.turns()).all(|t| t.with <= 1.0);
        let turns = match turned.as_slice() {
            [] => String::new(),
            [_] if tried.len() == 1 => " The answer turns within this band.".to_owned(),
            [first, ..] if to_the_end => {
                format!(" From {} on the answer turns within this band.", first.at)
            }
            all => {
                let at: Vec<&str> = all.iter().map(|t| t.at.as_str()).collect();
                format!(" The answer turns within this band at {}.", at.join(", "))
            }
        };
        let depends = if turned.is_empty() { String::new() } else { format!("{DEPENDS} ") };
        format!(
            "{depends}{begin}. With that of a measured server ({source}) the speedup of {policy} {becomes} (seed {seed}).{turns}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn band(tried: &[(f64, f64)]) -> HostBand {
        let tried =
            (1..).zip(tried).map(|(load, &(without, with))| Tried { at: format!("load = {load}"), without, with });
        HostBand { source: "a server".into(), policy: "fixed-3".into(), seed: 1, tried: tried.collect() }
    }

    #[test]
    fn the_load_from_which_the_answer_turns_is_named() {
        let said = band(&[(1.94, 1.6), (2.1, 0.97), (0.9, 0.7)]).in_words();
        assert!(
            said.contains("fixed-3 is 1.60× and not 1.94× at load = 1, is 0.97× and not 2.10× at load = 2"),
            "{said}"
        );
        assert!(
            said.starts_with(DEPENDS) && said.ends_with("From load = 2 on the answer turns within this band."),
            "{said}"
        );
        let said = band(&[(1.94, 0.9), (2.1, 1.2)]).in_words();
        assert!(said.ends_with("turns within this band at load = 1."), "{said}");
        let said = band(&[(1.5, 1.2), (1.4, 1.1)]).in_words();
        assert!(said.starts_with("No host time is counted") && said.ends_with("(seed 1)."), "{said}");
        let said = band(&[(0.9, 1.2)]).in_words();
        assert!(said.starts_with(DEPENDS) && said.ends_with("turns within this band."), "{said}");
        let said = band(&[(1.5, 0.8)]).in_words();
        assert!(said.contains("fixed-3 is 0.80× and not 1.50× (seed 1). The answer turns"), "{said}");
        assert!(band(&[]).in_words().contains("loses a third"));
    }
}
