//! Operations on a single row or a single head: RMSNorm, rotation by rotary angles, SwiGLU, softmax and the choice of
//! the most likely tokens.

use super::exp::{exp, silu};
use super::lanes::{Kernel, LANES, Lanes};
use crate::accept::Choice;

/// Estimated cost of one number of a [`Norm`], in multiply-adds. The estimated cost of the whole operation decides
/// whether several threads share the work.
pub(super) const NORM: usize = 4;
/// Estimated cost of one output of a [`SwiGlu`], in multiply-adds. The estimated cost of the whole operation decides
/// whether several threads share the work.
pub(super) const SWIGLU: usize = 16;

/// RMSNorm of a row after a residual addition. If `delta` is given, the kernel first computes `x += delta`. Then it
/// computes `out = x / sqrt(mean(x²) + eps) · gains`. All slices have the same length.
pub(super) struct Norm<'a> {
    pub(super) x: &'a mut [f32],
    pub(super) delta: Option<&'a [f32]>,
    pub(super) gains: &'a [f32],
    pub(super) eps: f32,
    pub(super) out: &'a mut [f32],
}

impl Kernel for Norm<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        if let Some(delta) = self.delta {
            for (x, d) in self.x.iter_mut().zip(delta) {
                *x += d;
            }
        }
        let scale = rms_scale::<L>(self.x, self.eps);
        for ((out, x), gain) in self.out.iter_mut().zip(self.x.iter()).zip(self.gains) {
            *out = *x * scale * gain;
        }
    }
}

/// RMSNorm of one head's query or key: `x = x / sqrt(mean(x²) + eps) · gains`.
pub(super) struct NormInPlace<'a> {
    pub(super) x: &'a mut [f32],
    pub(super) gains: &'a [f32],
    pub(super) eps: f32,
}

impl Kernel for NormInPlace<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let scale = rms_scale::<L>(self.x, self.eps);
        for (x, gain) in self.x.iter_mut().zip(self.gains) {
            *x = *x * scale * gain;
        }
    }
}

/// The scale factor of an RMSNorm: `1 / sqrt(mean(x²) + eps)`.
#[inline(always)]
fn rms_scale<L: Lanes>(x: &[f32], eps: f32) -> f32 {
    let mut squares = L::zero();
    in_groups(x, 0.0, |group| {
        let x = L::load(group);
        squares = squares.fma(x, x);
    });
    1.0 / (squares.sum() / x.len() as f32 + eps).sqrt()
}

/// Calls `each` with sixteen numbers of `x` at a time. If the last group has fewer than sixteen numbers, `fill` takes
/// the places of the missing numbers.
#[inline(always)]
pub(super) fn in_groups(x: &[f32], fill: f32, mut each: impl FnMut(&[f32; LANES])) {
    let (groups, rest) = x.as_chunks();
    let mut last = [fill; LANES];
    last[..rest.len()].copy_from_slice(rest);
    // `each` is called at one place only, in a plain loop. Otherwise the compiler would not inline `each`, and would
    // compile it without the level's vector instructions.
    for i in 0..x.len().div_ceil(LANES) {
        each(groups.get(i).unwrap_or(&last));
    }
}

/// Rotates a query or key of one head by the rotary angles of its position. `head` is (first half, second half) of the
/// query's or key's numbers. Number `i` of the first half and number `i` of the second half form a pair. `angles` is
/// (cosines, sines), one number per pair.
pub(super) struct Turn<'a> {
    pub(super) head: (&'a mut [f32], &'a mut [f32]),
    pub(super) angles: (&'a [f32], &'a [f32]),
}

impl Kernel for Turn<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let turned = self.head.0.iter_mut().zip(self.head.1);
        for ((a, b), (cos, sin)) in turned.zip(self.angles.0.iter().zip(self.angles.1)) {
            (*a, *b) = (*a * cos - *b * sin, *b * cos + *a * sin);
        }
    }
}

/// Computes `out = silu(gate) · up` for one row. The first half of `gate_up` is the gate, the second half is `up`.
pub(super) struct SwiGlu<'a> {
    pub(super) gate_up: &'a [f32],
    pub(super) out: &'a mut [f32],
}

impl Kernel for SwiGlu<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let (gate, up) = self.gate_up.split_at(self.out.len());
        for ((out, &gate), up) in self.out.iter_mut().zip(gate).zip(up) {
            *out = silu(gate) * up;
        }
    }
}

/// Replaces each score by `e^(score − largest score)`, and returns the sum of these exponentials. Lane `i` (0 to 15)
/// sums the exponentials `i`, `i + 16`, `i + 32` and so on; then the sixteen lanes are added.
pub(super) struct Exponentials<'a>(pub(super) &'a mut [f32]);

impl Kernel for Exponentials<'_> {
    type Output = f32;

    #[inline(always)]
    fn run<L: Lanes>(self) -> f32 {
        let largest = largest::<L>(self.0);
        let (one, mut sum) = (L::splat(1.0), L::zero());
        let (groups, rest) = self.0.as_chunks_mut();
        for group in groups {
            // The compiler turns this loop over sixteen numbers into operations on two registers of eight numbers. The
            // computations in the two registers do not wait for each other.
            for x in group.iter_mut() {
                *x = exp(*x - largest);
            }
            sum = sum.fma(L::load(group), one);
        }
        let mut last = [0.0; LANES];
        for (x, last) in rest.iter_mut().zip(&mut last) {
            *x = exp(*x - largest);
            *last = *x;
        }
        sum.fma(L::load(&last), one).sum()
    }
}

/// Returns the largest number of `x`. Sixteen lanes are compared at a time, so that the comparisons do not wait for
/// each other in one long chain.
#[inline(always)]
fn largest<L: Lanes>(x: &[f32]) -> f32 {
    let mut most = L::splat(f32::NEG_INFINITY);
    in_groups(x, f32::NEG_INFINITY, |group| most = L::load(group).larger(most));
    let mut lanes = [0.0; LANES];
    most.store(&mut lanes);
    for apart in [8, 4, 2, 1] {
        for i in 0..apart {
            lanes[i] = f32::max(lanes[i], lanes[i + apart]);
        }
    }
    lanes[0]
}

/// Probabilities of a row of logits: `out = softmax(logits / temperature)`.
pub(super) struct Softmax<'a> {
    pub(super) logits: &'a [f32],
    pub(super) temperature: f32,
    pub(super) out: &'a mut [f32],
}

impl Kernel for Softmax<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        for (out, x) in self.out.iter_mut().zip(self.logits) {
            *out = x / self.temperature;
        }
        let scale = 1.0 / Exponentials(self.out).run::<L>();
        for x in self.out.iter_mut() {
            *x *= scale;
        }
    }
}

/// Computes the largest logit of a row, and the sum of `e^(logit − largest)`.
pub(super) struct SumOfExponentials<'a>(pub(super) &'a [f32]);

impl Kernel for SumOfExponentials<'_> {
    type Output = (f32, f32);

    /// Returns (the row's largest logit, the sum of `e^(logit − largest)` over the row).
    #[inline(always)]
    fn run<L: Lanes>(self) -> (f32, f32) {
        let largest = largest::<L>(self.0);
        let (one, mut sum) = (L::splat(1.0), L::zero());
        in_groups(self.0, f32::NEG_INFINITY, |group| {
            // The compiler vectorises this loop over sixteen numbers, but would not vectorise a `map`.
            let mut powers = *group;
            powers.iter_mut().for_each(|x| *x = exp(*x - largest));
            sum = sum.fma(L::load(&powers), one);
        });
        (largest, sum.sum())
    }
}

/// Fills `out` with the tokens that have the largest logits, the largest first, and their probabilities. Of two equal
/// logits, the smaller token comes first. (`largest`, `sum`) is the result of [`SumOfExponentials`] for these logits;
/// the probabilities are computed from it.
pub(super) fn likeliest(logits: &[f32], (largest, sum): (f32, f32), out: &mut [Choice]) {
    if let [only] = out {
        let token = logits.iter().position(|&logit| logit == largest).unwrap_or(0) as u32;
        *only = Choice { token, probability: 1.0 / sum };
        return;
    }
    let mut found = 0;
    for (token, &logit) in logits.iter().enumerate() {
        if found == out.len() && logit <= out[found - 1].probability {
            continue;
        }
        let at = out[..found].iter().position(|c| logit > c.probability).unwrap_or(found);
        found = (found + 1).min(out.len());
        out[at..found].rotate_right(1);
        // Until the loop below, the field `probability` holds the token's logit. The loop replaces the logit by the
        // probability.
        out[at] = Choice { token: token as u32, probability: logit };
    }
    for choice in out {
        choice.probability = exp(choice.probability - largest) / sum;
    }
}

/// Returns the token with the largest logit. Of two equal logits, the smaller token wins.
pub(super) fn choice(logits: &[f32]) -> u32 {
    let mut best = 0;
    for (token, &logit) in logits.iter().enumerate() {
        if logit > logits[best] {
            best = token;
        }
    }
    best as u32
}
