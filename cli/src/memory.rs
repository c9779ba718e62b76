//! Lets the program run with a limited address space (`ulimit -v`).
//!
//! glibc gives each thread an arena of its own and reserves 64 MiB of addresses for it. With a small limit, the arenas
//! leave no addresses for data, and the program would end in the middle of its work. If all threads share one arena,
//! 120 MiB are enough for the experiment `quickstart`.

/// The environment variable that limits the number of arenas. glibc reads it when a process starts.
const ARENAS: &str = "MALLOC_ARENA_MAX";
/// If the limit of the address space is below this number of bytes, all threads share one arena. The arenas of 16
/// threads would reserve 1 GiB.
const SMALL: u64 = 4 << 30;
/// If the limit of the address space is below this number of bytes, the program warns that ordinary experiments may not
/// fit.
const SHORT: u64 = 256 << 20;

/// On Linux, starts the program again with one arena, if the limit of its address space is below [`SMALL`] and
/// [`ARENAS`] is not set. Must be called before any other work.
pub fn with_one_arena() {
    #[cfg(target_os = "linux")]
    if limit().is_some_and(|bytes| bytes < SMALL) && std::env::var_os(ARENAS).is_none() {
        use std::os::unix::process::CommandExt;
        if let Ok(program) = std::env::current_exe() {
            let mut arguments = std::env::args_os();
            let mut again = std::process::Command::new(program);
            if let Some(name) = arguments.next() {
                again.arg0(name);
            }
            // `exec` returns only if it fails; the program then continues with many arenas.
            let _ = again.args(arguments).env(ARENAS, "1").exec();
        }
    }
}

/// A warning if the limit of the address space is below [`SHORT`]; else `None`.
pub fn short() -> Option<String> {
    let bytes = limit().filter(|&bytes| bytes < SHORT)?;
    Some(format!(
        "memory is short: this process may have {:.0} MiB of addresses (ulimit -v). If that is not enough, the program \
         ends with \"memory allocation failed\" and code 134, or 1. Give it more memory then: what is finished is kept, \
         and --resume goes on where there is a results folder",
        bytes as f64 / f64::from(1 << 20)
    ))
}

/// The limit of the address space in bytes. `None` without a limit, or if the system does not report one.
fn limit() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/limits").ok()?;
    soft_limit(&text)
}

fn soft_limit(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max address space"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_is_read() {
        let text = "Limit                     Soft Limit           Hard Limit           Units\n\
                    Max processes             63329                63329                processes\n\
                    Max address space         209715200            unlimited            bytes\n";
        assert_eq!(soft_limit(text), Some(200 << 20));
        assert_eq!(soft_limit(&text.replace("209715200", "unlimited")), None);
        assert_eq!(soft_limit(""), None);
    }
}
