//! Measures the clock frequency at which a core runs now.

use std::time::{Duration, Instant};

/// Returns the present clock frequency of the core in cycles per second, the highest of `tries` tries. The function
/// times a chain of 64-bit multiplications, in which each multiplication waits for the result of the one before. A
/// multiplication takes three cycles on all x86-64 processors of Intel from Nehalem on and of AMD from Zen on (Fog,
/// "Instruction tables"). The result is `None` on other architectures.
#[cfg(target_arch = "x86_64")]
#[expect(unsafe_code, reason = "the compiler would compute what a chain of known instructions gives")]
pub fn clock(tries: u32) -> Option<f64> {
    let turn = best(tries, |turns| {
        let mut x = 3u64;
        for _ in 0..turns {
            // SAFETY: the assembly only computes in one register and reads no memory.
            unsafe {
                std::arch::asm!(
                    "imul {0}, {0}", "imul {0}, {0}", "imul {0}, {0}", "imul {0}, {0}",
                    "imul {0}, {0}", "imul {0}, {0}", "imul {0}, {0}", "imul {0}, {0}",
                    "imul {0}, {0}", "imul {0}, {0}", "imul {0}, {0}", "imul {0}, {0}",
                    "imul {0}, {0}", "imul {0}, {0}", "imul {0}, {0}", "imul {0}, {0}",
                    inout(reg) x, options(nomem, nostack)
                );
            }
        }
    });
    Some(16.0 * 3.0 / turn)
}

/// Always `None`: on this architecture, the number of cycles of an instruction is not known, so the clock cannot be
/// measured.
#[cfg(not(target_arch = "x86_64"))]
pub fn clock(_: u32) -> Option<f64> {
    None
}

/// A try must take at least this time. The number of turns (repeats of the timed work) in a try is raised until the try
/// takes this time.
const TRY: Duration = Duration::from_micros(300);

/// Returns the seconds per turn of the fastest of `tries` tries. `run(turns)` must repeat the timed work `turns` times.
pub(super) fn best(tries: u32, mut run: impl FnMut(u64)) -> f64 {
    let mut turns = 1;
    // Raises the number of turns of the timed work until a try takes long enough to be timed.
    loop {
        let begin = Instant::now();
        run(turns);
        let took = begin.elapsed();
        if took >= TRY || turns >= 1 << 40 {
            break;
        }
        turns = (turns as f64 * (TRY.as_secs_f64() / took.as_secs_f64().max(1e-9)).clamp(1.5, 100.0)).ceil() as u64;
    }
    let mut shortest = Duration::MAX;
    for _ in 0..tries {
        let begin = Instant::now();
        run(turns);
        shortest = shortest.min(begin.elapsed());
    }
    shortest.as_secs_f64() / turns as f64
}
