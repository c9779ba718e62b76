//! Measures the clock at which a core runs now.

#[cfg(target_arch = "x86_64")]
use super::tries::best;

/// The present core's clock in cycles per second, the best of `tries`. It times a chain of 64-bit multiplications, each
/// of which waits for the one before: three cycles each on every x86-64 processor since 2008 (Fog, "Instruction
/// tables": Intel from Nehalem on, AMD from Zen on). `None` on other processors.
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

/// The clock is not known on this processor.
#[cfg(not(target_arch = "x86_64"))]
pub fn clock(_: u32) -> Option<f64> {
    None
}
