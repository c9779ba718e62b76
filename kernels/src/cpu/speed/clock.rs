//! The clock that a core runs at now.

#[cfg(target_arch = "x86_64")]
use super::tries::best;

/// Cycles a second of the core at hand, the best of `tries`, by a chain of 64-bit multiplications of which each waits for the one
/// before: three cycles each on every x86-64 processor since 2008 (Fog, "Instruction tables": Intel from Nehalem on, AMD from Zen
/// on). `None` on other processors.
#[cfg(target_arch = "x86_64")]
#[expect(unsafe_code, reason = "the compiler would compute what a chain of known instructions gives")]
pub fn clock(tries: u32) -> Option<f64> {
    let turn = best(tries, |turns| {
        let mut x = 3u64;
        for _ in 0..turns {
            // SAFETY: arithmetic on one register.
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

/// Not known here.
#[cfg(not(target_arch = "x86_64"))]
pub fn clock(_: u32) -> Option<f64> {
    None
}
