//! Measures the clock frequency at which a core runs now.

#[cfg(target_arch = "x86_64")]
use super::tries::best;

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
