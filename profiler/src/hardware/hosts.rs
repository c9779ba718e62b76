//! The way of a request from its client to the scheduler and back, by engine: what the TTFT of measured servers has
//! beside the kernels and the queue. HTTP, tokenizer and processes are in it, and the host's launches of a prompt's
//! kernels. What SGLang's servers wait until they look for new requests (`scheduler_recv_interval`) is not in it.

use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::LazyLock;

const TEXT: &str = include_str!("../../hosts.json");

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    /// The measurements that the numbers are fitted to, with version and licence.
    #[allow(dead_code, reason = "a file names its source")]
    source: String,
    engines: BTreeMap<String, Host>,
}

static TABLE: LazyLock<Table> =
    LazyLock::new(|| serde_json::from_str(TEXT).unwrap_or_else(|e| panic!("hosts.json is a table of hosts: {e}")));

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// Time of a request's way to the scheduler and of its answer's way back, seconds.
    pub frontend_s: f64,
    /// The quartiles of this time over the measured servers.
    pub low_s: f64,
    /// See `low_s`.
    pub high_s: f64,
    /// Number of measured servers.
    pub rows: u32,
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [way, low, high] = [self.frontend_s, self.low_s, self.high_s].map(|s| 1e3 * s);
        write!(
            f,
            "{way:.0} ms for a request's way to the scheduler and back, since none is given ({low:.0} to {high:.0} ms on \
             half of {} measured servers)",
            self.rows
        )
    }
}

/// The host of the engine `name`. Panics if there is no such engine.
pub fn of(name: &str) -> &'static Host {
    TABLE.engines.get(name).unwrap_or_else(|| panic!("hosts.json has {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_engine_has_a_time_within_its_band() {
        for engine in crate::hardware::kernel_tables::ENGINES {
            let host = of(engine);
            assert!(0.0 < host.low_s && host.low_s <= host.frontend_s && host.frontend_s <= host.high_s, "{host:?}");
        }
        assert_eq!(TABLE.engines.len(), crate::hardware::kernel_tables::ENGINES.len());
    }
}
