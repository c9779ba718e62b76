//! The exponential function. It is written so that compilers vectorise a loop that calls it, and so that every
//! processor computes the same bits.

/// 1.5 · 2²³. Adding this constant to a small f32 rounds the f32 to an integer; the lowest bits of the sum hold this
/// integer.
const ROUNDER: f32 = 12_582_912.0;

/// Computes e^x. For x between −87 and 88 the relative error is at most 2⁻²² (2 units in the last place of 1.0). For x
/// below −87 the result is 0, and for x above 88 it is e^88. The argument is reduced to r = x − n · ln 2 with |r| ≤
/// ln 2 / 2. For accuracy, n · ln 2 is subtracted in two steps, with two constants that add up to ln 2. The polynomial
/// is that of Cephes' `expf` (Moshier, netlib).
#[inline(always)]
pub(super) fn exp(x: f32) -> f32 {
    let clamped = x.clamp(-87.0, 88.0);
    let shifted = clamped.mul_add(std::f32::consts::LOG2_E, ROUNDER);
    let n = shifted - ROUNDER;
    let r = n.mul_add(-0.693_359_4, clamped);
    let r = n.mul_add(2.121_944_4e-4, r);
    let mut p = 1.987_569_1e-4f32;
    for c in [1.398_2e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 5.000_000_3e-1] {
        p = p.mul_add(r, c);
    }
    let value = p.mul_add(r * r, r) + 1.0;
    // The low bits of `shifted` hold the integer n. If the bias 127 is added and the sum is moved to the exponent's
    // bits of an f32, the f32 is 2ⁿ.
    let power = f32::from_bits(shifted.to_bits().wrapping_add(127) << 23);
    if x < -87.0 { 0.0 } else { value * power }
}

/// The activation function SiLU: `x / (1 + e^−x)`.
#[inline(always)]
pub(super) fn silu(x: f32) -> f32 {
    x / (1.0 + exp(-x))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_exponential() {
        let mut worst = 0.0f64;
        for i in -8_700..=8_800 {
            let x = i as f32 * 0.01 + 1e-3;
            let exact = f64::from(x.clamp(-87.0, 88.0)).exp();
            worst = worst.max(((f64::from(exp(x)) - exact) / exact).abs());
        }
        // The allowed relative error is 2⁻²²: two units in the last place of 1.0.
        assert!(worst < 2.0 * 2f64.powi(-23), "{worst:e}");
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp(-88.0), 0.0);
        assert!(silu(-100.0).abs() < 1e-30 && silu(100.0) == 100.0);
    }
}
