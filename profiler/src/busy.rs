//! The CPU time that other processes and other virtual machines used during a measurement. The CPU time is known only
//! where Linux reports it.

/// Shares of the machine's CPU time, 0 to 1, that other processes and other virtual machines used during a measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Busy {
    /// Share of the CPU time that other processes used.
    pub others: f64,
    /// Share of the CPU time that the hypervisor gave to other virtual machines (steal time).
    pub stolen: f64,
}

/// CPU times since the system's start, in the kernel's ticks, summed over all cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuTime {
    own: u64,
    working: u64,
    stolen: u64,
    all: u64,
}

impl CpuTime {
    /// Reads the CPU time that all processes, and this process, have used so far; `None` if `/proc` does not have it.
    pub fn now() -> Option<CpuTime> {
        let read = |path| std::fs::read_to_string(path).ok();
        CpuTime::parse(&read("/proc/stat")?, &read("/proc/self/stat")?)
    }

    /// Parses the texts of `/proc/stat` and `/proc/self/stat` (proc(5)); `None` if a text does not have the expected
    /// form.
    fn parse(machine: &str, process: &str) -> Option<CpuTime> {
        let numbers = |text: &str| text.split_whitespace().map(|n| n.parse().unwrap_or(0)).collect::<Vec<u64>>();
        // The columns of `/proc/stat` are user, nice, system, idle, iowait, irq, softirq, steal. The columns after
        // these (time of guests) are already included in user and nice.
        let cpu = numbers(machine.lines().next()?.strip_prefix("cpu ")?);
        let [user, nice, system, _, _, irq, softirq, stolen] = *cpu.first_chunk()?;
        // In `/proc/self/stat` the process name in parentheses may contain any characters. After the name, utime is the
        // 12th number and stime the 13th.
        let (_, after) = process.rsplit_once(')')?;
        let after = numbers(after);
        Some(CpuTime {
            own: after.get(11)? + after.get(12)?,
            working: user + nice + system + irq + softirq,
            stolen,
            all: cpu[..8].iter().sum(),
        })
    }

    /// Returns the shares of CPU time that others used between this reading and the reading `later`; `None` if no time
    /// has passed.
    pub fn until(&self, later: &CpuTime) -> Option<Busy> {
        let all = later.all.saturating_sub(self.all) as f64;
        let own = later.own.saturating_sub(self.own);
        let others = later.working.saturating_sub(self.working).saturating_sub(own) as f64;
        let stolen = later.stolen.saturating_sub(self.stolen) as f64;
        (all > 0.0).then(|| Busy { others: others / all, stolen: stolen / all })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_a_second_on_two_cores() {
        let process = |utime| format!("17 (a (b) c) R 1 2 3 4 5 6 7 8 9 10 {utime} 20 0 0 20 0 1 0 99");
        let before = CpuTime::parse("cpu  100 0 50 800 0 0 0 10 0 0\ncpu0 1 2\n", &process(30)).unwrap();
        let after = CpuTime::parse("cpu  220 0 60 850 0 0 0 30 0 0\n", &process(130)).unwrap();
        // Between the two readings 200 ticks of CPU time have passed. Processes used 130 ticks: this process 100, other
        // processes 30. Other virtual machines got 20 ticks (steal time).
        assert_eq!(before.until(&after), Some(Busy { others: 0.15, stolen: 0.1 }));
        assert_eq!(before.until(&before), None);
    }

    #[test]
    fn other_texts_are_no_times() {
        assert_eq!(CpuTime::parse("", "1 (x) R 1"), None);
        assert_eq!(CpuTime::parse("cpu  1 2 3\n", "1 (x) R 1"), None);
        assert_eq!(CpuTime::parse("cpu  1 2 3 4 5 6 7 8\n", "1 x R 1"), None);
    }
}
