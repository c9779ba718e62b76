//! The memory that this program may use. From it follow limits on the sizes that input files and settings decide, such
//! as the number of requests. Sizes are checked before memory is allocated. If a limit is exceeded, the program refuses
//! the input; no result depends on a limit.

use std::sync::OnceLock;

/// The environment variable that sets the memory limit, in GiB.
pub const VARIABLE: &str = "FORETOKEN_MEMORY_GIB";

/// Bytes that one request takes during a run: in the workload, in its record, and in the data for tables and figures.
pub const REQUEST: u64 = 200;

/// Memory that is assumed, in bytes, if the system reports none.
const UNKNOWN: u64 = 16 << 30;

/// Bytes of memory that this program may use: the value of [`VARIABLE`] if it is valid. Otherwise three quarters of the
/// memory that the system reports, or of 16 GiB if it reports none.
pub fn memory() -> u64 {
    static LIMIT: OnceLock<u64> = OnceLock::new();
    *LIMIT.get_or_init(|| given().ok().flatten().unwrap_or_else(|| machine().unwrap_or(UNKNOWN) / 4 * 3))
}

/// The memory limit that the environment variable [`VARIABLE`] sets, bytes; `None` if it is not set or empty.
///
/// # Errors
/// The value is no amount of memory. The message says what is expected.
pub fn given() -> Result<Option<u64>, String> {
    let Some(text) = std::env::var_os(VARIABLE).filter(|text| !text.is_empty()) else { return Ok(None) };
    match text.to_str().and_then(|t| t.trim().parse::<f64>().ok()).filter(|gib| (0.01..1e9).contains(gib)) {
        Some(gib) => Ok(Some((gib * (1u64 << 30) as f64) as u64)),
        None => Err(format!("{VARIABLE}={}: expected GiB of memory, for example {VARIABLE}=16", text.display())),
    }
}

/// Number of requests that fit into the memory that this program may use.
pub(crate) fn requests() -> u64 {
    memory() / REQUEST
}

/// Longest line of a trace, and longest text of settings, bytes: 1/256 of the memory limit, at least 1 MiB.
pub fn text() -> u64 {
    (memory() / 256).max(1 << 20)
}

/// The hint for the user how to raise the memory limit.
pub fn raise() -> String {
    format!("this program may use {} of memory: {VARIABLE}=N in the environment allows N GiB", bytes(memory()))
}

/// An amount of memory as text, for example `1.5 GiB`.
pub fn bytes(n: u64) -> String {
    let units = [(1u64 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    let (unit, name) = units.into_iter().find(|(unit, _)| n >= *unit).unwrap_or((1, "bytes"));
    let amount = n as f64 / unit as f64;
    if amount < 10.0 && unit > 1 { format!("{amount:.1} {name}") } else { format!("{amount:.0} {name}") }
}

/// The memory of this machine as the program may use it: the smallest of the memory limits that Linux reports for the
/// machine, the container and this process, bytes. `None` on other systems, where reading it needs further libraries.
fn machine() -> Option<u64> {
    let read = |path: &str| std::fs::read_to_string(path).ok();
    let line = |path: &str, name: &str| {
        read(path)?.lines().find_map(|l| l.strip_prefix(name)?.split_whitespace().next()?.parse::<u64>().ok())
    };
    let number = |path: &str| read(path)?.trim().parse::<u64>().ok();
    let reported = [
        line("/proc/meminfo", "MemTotal:").map(|kib| kib << 10),
        number("/sys/fs/cgroup/memory.max"),
        number("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
        line("/proc/self/limits", "Max address space"),
    ];
    reported.into_iter().flatten().min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_readable() {
        assert_eq!(bytes(900), "900 bytes");
        assert_eq!(bytes(72 << 20), "72 MiB");
        assert_eq!(bytes(3 << 29), "1.5 GiB");
        assert_eq!(bytes(u64::MAX), "16777216 TiB");
    }

    #[test]
    fn a_machine_has_some_memory() {
        assert!(memory() > 1 << 24 && text() >= 1 << 20 && requests() > 1000);
    }
}
