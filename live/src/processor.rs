//! Opens the CPU as a device with a number of threads and a level of vector instructions, and measures the speed of a
//! core.

use foretoken_kernels::cpu::speed::Speed;
use foretoken_kernels::cpu::{Cpu, Level};
use foretoken_run::machine;
use foretoken_run::spec::live::Instructions;
use foretoken_run::spec::problem::{Exit, Problem, Result};

/// Opens the CPU. `threads` is the number of threads (`None`: one per core). `instructions` are the vector instructions
/// (`None`: the best that the processor has).
pub fn open(threads: Option<usize>, instructions: Option<Instructions>) -> Result<Cpu> {
    let cores = machine::cores() as usize;
    let threads = threads.unwrap_or(cores);
    if threads > cores {
        let message = format!("{threads} threads on {cores} cores would take turns: what they measure is the waiting");
        return Err(Problem::bad_input(message).help(format!("ask for at most {cores}; nothing is all of them")));
    }
    let level = match instructions {
        None => Level::best(),
        Some(wanted) => Level::of(wanted.key()).ok_or_else(|| lacks(wanted))?,
    };
    Cpu::at(level, threads).map_err(|e| Problem::failed(format!("cannot start {threads} threads: {e}")))
}

fn lacks(wanted: Instructions) -> Box<Problem> {
    let has: Vec<&str> = Level::all().into_iter().map(Level::key).collect();
    let message = format!("this processor has no {} instructions", wanted.key());
    let help = format!("it has {}: ask for one of them, or for nothing, which is the best", has.join(", "));
    Problem::new(Exit::NoHardware, message).help(help)
}

/// A text with the vector instructions of the kernels and the speed of a core. The speed is measured, which takes some
/// tenths of a second.
pub fn speed(cpu: &Cpu) -> String {
    format!("{}, {}", cpu.level().name(), Speed::measure(cpu.level()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_and_kernels_call_levels_by_the_same_names() {
        assert_eq!(Instructions::ALL.map(Instructions::key), Level::KEYS);
        for level in Level::all() {
            let wanted = level.key().parse().unwrap();
            assert_eq!(open(Some(1), Some(wanted)).unwrap().level(), level);
        }
        assert!("avx".parse::<Instructions>().unwrap_err().contains("avx-512"));
    }

    #[test]
    fn what_is_not_there_is_refused() {
        let many = machine::cores() as usize + 1;
        let said = open(Some(many), None).err().expect("more threads than cores");
        assert!(said.exit == Exit::BadInput && said.message().contains(&format!("{many} threads on")), "{said}");
        let said = lacks(Instructions::Avx512);
        assert!(said.exit == Exit::NoHardware && said.help_text().contains("it has plain"), "{said}");
    }
}
