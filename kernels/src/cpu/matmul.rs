//! The row kernels: `x · weightsᵀ`, where each weight is read from memory once for up to eight rows.
//!
//! A result is the fixed-order dot product of one row with one output's weights. Which rows share a read of the
//! weights, and which thread does it, is not part of that order.

use super::lanes::{Kernel, LANES, Lanes};
use super::level::Level;
use super::memory::{Buffer, Group, Groups, Matrix, Shared};
use super::threads::share;

/// Rows that share one read of the weights.
pub(super) const ROWS: usize = 8;

/// Bytes of weights a task takes: they stay in the second-level cache for the rows after the first eight.
const TASK_BYTES: usize = 256 << 10;

/// `x · weightsᵀ`.
pub(super) fn matmul(level: Level, x: &Buffer, weights: &Matrix, out: &mut Buffer) {
    assert_eq!(weights.outputs, out.width, "outputs of the weights and width of the result");
    out.set_rows(x.rows);
    match &weights.groups {
        Groups::F32(groups) => spread(level, x, groups, out),
        Groups::Bf16(groups) => spread(level, x, groups, out),
    }
}

fn spread<G: Group>(level: Level, x: &Buffer, weights: &[G], out: &mut Buffer) {
    let (outputs, per_row) = (out.width, x.stride / LANES);
    assert_eq!(weights.len(), outputs * per_row, "inputs of the weights and width of the activations");
    let fair = outputs.div_ceil(4 * rayon::current_num_threads());
    let task = fair.min(TASK_BYTES / (per_row * size_of::<G>())).next_multiple_of(4).max(4);
    let shared = out.shared();
    let work = x.rows * outputs * x.stride;
    share(outputs.div_ceil(task), work, |i| {
        let first = i * task;
        let end = (first + task).min(outputs);
        level.run(Outputs { x, weights: &weights[first * per_row..end * per_row], first, per_row, out: shared });
    });
}

/// How many groups ahead of its use a weight is asked for: the time to memory, which the processor's own guesses do
/// not hide when several rows keep it busy. It makes 4 rows cost little more than one.
const AHEAD: usize = 128;

/// Some neighbouring outputs, for all rows.
struct Outputs<'a, G> {
    x: &'a Buffer,
    weights: &'a [G],
    first: usize,
    per_row: usize,
    out: Shared<'a>,
}

impl<G: Group> Kernel for Outputs<'_, G> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let outputs = self.weights.len() / self.per_row;
        for block in (0..self.x.rows).step_by(ROWS) {
            let end = (block + ROWS).min(self.x.rows);
            let mut done = 0;
            while L::TILE == 4 && done + 4 <= outputs {
                self.rows::<L, 4>(block, end, done);
                done += 4;
            }
            while L::TILE == 2 && done + 2 <= outputs {
                self.rows::<L, 2>(block, end, done);
                done += 2;
            }
            while done < outputs {
                self.rows::<L, 1>(block, end, done);
                done += 1;
            }
        }
    }
}

impl<G: Group> Outputs<'_, G> {
    /// `O` outputs for rows `at..end`, a tile at a time. The second tile finds the weights in a near cache.
    #[inline(always)]
    fn rows<L: Lanes, const O: usize>(&self, mut at: usize, end: usize, output: usize) {
        while at < end {
            let rows = (end - at).min(L::TILE);
            match rows {
                1 => self.tile::<L, 1, O>(at, output),
                2 => self.tile::<L, 2, O>(at, output),
                3 => self.tile::<L, 3, O>(at, output),
                _ => self.tile::<L, 4, O>(at, output),
            }
            at += rows;
        }
    }

    /// `O` outputs for `R` rows: every number loaded is used as often as it can be.
    #[inline(always)]
    fn tile<L: Lanes, const R: usize, const O: usize>(&self, row: usize, output: usize) {
        let n = self.per_row;
        // Plain loops, here and below: a closure that is not inlined is not compiled for the processor at hand.
        let (mut weights, mut x): ([&[G]; O], [&[[f32; LANES]]; R]) = ([&[]; O], [&[]; R]);
        for (o, weights) in weights.iter_mut().enumerate() {
            *weights = &self.weights[(output + o) * n..][..n];
        }
        for (r, x) in x.iter_mut().enumerate() {
            *x = &self.x.groups(row + r)[..n];
        }
        let mut sums = [[L::zero(); O]; R];
        for i in 0..n {
            let (mut w, mut xs) = ([L::zero(); O], [L::zero(); R]);
            // Bounds checks of a dozen slices would cost as much as the arithmetic, and the compiler keeps them.
            #[expect(unsafe_code, reason = "checked once for the loop, not in each turn")]
            // SAFETY: every slice was just cut to `n` groups, and `i < n`.
            unsafe {
                for (group, weights) in w.iter_mut().zip(&weights) {
                    *group = weights.get_unchecked(i).lanes();
                }
                for (group, x) in xs.iter_mut().zip(&x) {
                    *group = L::load(x.get_unchecked(i));
                }
            }
            // Once a cache line.
            if row == 0 && (size_of::<G>() == 64 || i % 2 == 0) {
                for w in &weights {
                    L::prefetch(w.as_ptr().wrapping_add(i + AHEAD));
                }
            }
            for r in 0..R {
                for o in 0..O {
                    sums[r][o] = sums[r][o].fma(w[o], xs[r]);
                }
            }
        }
        let mut dots = [[0.0; O]; R];
        for r in 0..R {
            if let [a, b, c, d] = sums[r][..] {
                dots[r].copy_from_slice(&L::sums([a, b, c, d]));
            } else {
                for o in 0..O {
                    dots[r][o] = sums[r][o].sum();
                }
            }
        }
        for (r, dots) in dots.iter().enumerate() {
            #[expect(unsafe_code, reason = "outputs are split by columns")]
            // SAFETY: tasks have different outputs, and a task's calls come one after the other.
            let out = unsafe { self.out.part(row + r, self.first + output, O) };
            out.copy_from_slice(dots);
        }
    }
}
