//! The settings of a fleet whose number of replicas changes.

use super::rule::ScalingRule;
use crate::report_board::Signals;
use serde::{Deserialize, Serialize};

/// How a fleet's number of replicas follows the load. The fleet starts with `fleet.replicas` replicas that serve.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Scaling {
    /// The rule that decides the number of replicas.
    pub rule: ScalingRule,
    /// The fewest replicas that serve or boot.
    #[serde(default = "one")]
    pub min_replicas: u32,
    /// The most replicas that serve or boot. Draining replicas do not count.
    pub max_replicas: u32,
    /// Seconds from the order of a replica until it serves, ≥ 0.
    pub boot_s: f64,
    /// Seconds between two decisions; absent: the interval of the rule's original program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval_s: Option<f64>,
    /// How old the loads are that the rule sees; absent: as old as in the rule's original program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signals: Option<Signals>,
}

fn one() -> u32 {
    1
}

/// The shortest allowed time between two decisions of the scaling rule, seconds.
const SHORTEST_S: f64 = 0.1;

impl Scaling {
    /// Seconds between two decisions of the scaling rule: the setting, or the interval of the rule's original program.
    pub fn interval_s(&self) -> f64 {
        self.interval_s.unwrap_or_else(|| self.rule.usual_interval_s())
    }

    /// How old the loads are that the rule sees: the setting, or the usual report interval of the rule's program, but
    /// at most the interval between decisions.
    pub fn signals(&self) -> Signals {
        let usual = self.rule.usual_report_interval_s().min(self.interval_s());
        self.signals.unwrap_or(Signals { interval_s: usual, delay_s: 0.0 })
    }

    /// Checks the settings. `replicas` is the number of replicas at the start.
    ///
    /// # Errors
    /// A setting is outside its range. The error is its key, what is wrong, and what helps.
    pub fn check(&self, replicas: u32) -> Result<(), (String, String, &'static str)> {
        let wrong = |key: &str, why: String, help| Err((key.to_owned(), why, help));
        if self.min_replicas == 0 {
            return wrong("min_replicas", "0 replicas serve nothing".into(), "give 1 or more");
        }
        if self.min_replicas > self.max_replicas {
            let why = format!("{} is more than max_replicas = {}", self.min_replicas, self.max_replicas);
            return wrong("min_replicas", why, "lower min_replicas or raise max_replicas");
        }
        if !(self.min_replicas..=self.max_replicas).contains(&replicas) {
            let why = format!(
                "the fleet starts with fleet.replicas = {replicas}, which is not from min_replicas = {} to {}",
                self.min_replicas, self.max_replicas
            );
            return wrong("max_replicas", why, "choose fleet.replicas between min_replicas and max_replicas");
        }
        if !(self.boot_s >= 0.0 && self.boot_s <= LONGEST_S) {
            let why = format!("{} is not a time from 0 to {LONGEST_S} s", self.boot_s);
            return wrong("boot_s", why, "give the seconds from the order of a replica until it serves");
        }
        if let Some(interval) = self.interval_s.filter(|s| !(*s >= SHORTEST_S && *s <= LONGEST_S)) {
            let why = format!("{interval} is not a time from {SHORTEST_S} to {LONGEST_S} s");
            return wrong("interval_s", why, "give the seconds between two decisions");
        }
        if let Some(Err((key, why))) = self.signals.map(|signals| signals.check()) {
            return wrong(&format!("signals.{key}"), why, "give times as for fleet.signals");
        }
        self.rule.check().map_err(|(key, why)| {
            (format!("rule.{}.{key}", self.rule.name()), why, "leave it out for the value of the rule's own program")
        })
    }
}

/// The longest allowed boot time and interval, seconds: a day.
const LONGEST_S: f64 = 86_400.0;
