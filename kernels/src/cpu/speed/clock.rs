//! Measures the clock frequency at which a core runs now.

#[cfg(target_arch = "x86_64")]
use super::tries::best;

/// The clock frequency of the present core in cycles per second, the highest of `tries`. Times a chain of 64-bit
/// multiplications, each of which waits for the one before. Each takes three cycles on all x86-64 processors of Intel
/// from Nehalem on and of AMD from Zen on (Fog, "Instruction tables"). `None` on other architectures.
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

/// `None`: the duration of instructions is not known on this architecture.
#[cfg(not(target_arch = "x86_64"))]
pub fn clock(_: u32) -> Option<f64> {
    None
}
