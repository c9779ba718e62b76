//! Where weights and activations lie: rows padded with zeros to whole groups of lanes, so that no kernel has a tail.

use super::aligned::Aligned;
use super::lanes::{LANES, Lanes};
use crate::weights::{Dtype, TensorData};
use half::{bf16, f16};
use rayon::prelude::*;
use std::marker::PhantomData;

/// Sixteen f32 in one cache line.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(super) struct F32s([f32; LANES]);

/// Sixteen bf16 in half a cache line.
#[derive(Clone, Copy)]
#[repr(align(32))]
pub(super) struct Bf16s([u16; LANES]);

/// Sixteen numbers of one type.
pub(super) trait Group: Copy + Send + Sync {
    /// Zeros.
    const ZERO: Self;
    /// As lanes.
    fn lanes<L: Lanes>(&self) -> L;
    /// One of them.
    fn get(&self, lane: usize) -> f32;
    /// Puts one in, rounded to the type.
    fn set(&mut self, lane: usize, x: f32);
}

impl Group for F32s {
    const ZERO: F32s = F32s([0.0; LANES]);

    #[inline(always)]
    fn lanes<L: Lanes>(&self) -> L {
        L::load(&self.0)
    }

    #[inline(always)]
    fn get(&self, lane: usize) -> f32 {
        self.0[lane]
    }

    #[inline(always)]
    fn set(&mut self, lane: usize, x: f32) {
        self.0[lane] = x;
    }
}

impl Group for Bf16s {
    const ZERO: Bf16s = Bf16s([0; LANES]);

    #[inline(always)]
    fn lanes<L: Lanes>(&self) -> L {
        L::load_bf16(&self.0)
    }

    #[inline(always)]
    fn get(&self, lane: usize) -> f32 {
        bf16::from_bits(self.0[lane]).to_f32()
    }

    #[inline(always)]
    fn set(&mut self, lane: usize, x: f32) {
        self.0[lane] = bf16::from_f32(x).to_bits();
    }
}

/// Weights, outputs × inputs.
pub struct Matrix {
    pub(super) outputs: usize,
    pub(super) groups: Groups,
}

/// The numbers of a matrix, `row.len().div_ceil(16)` groups a row.
pub(super) enum Groups {
    F32(Vec<F32s>),
    Bf16(Vec<Bf16s>),
}

impl Matrix {
    /// The parts, each with its outputs, below each other. Made on the threads of the pool it is called in.
    pub(super) fn new(parts: &[(TensorData<'_>, usize)], inputs: usize, dtype: Dtype) -> Matrix {
        let outputs = parts.iter().map(|p| p.1).sum();
        let groups = match dtype {
            Dtype::Bf16 => Groups::Bf16(filled(parts, inputs, |x| Bf16s(x.map(|x| bf16::from_f32(x).to_bits())))),
            Dtype::F32 | Dtype::F16 => Groups::F32(filled(parts, inputs, F32s)),
        };
        Matrix { outputs, groups }
    }

    /// Bytes of the numbers, padding included.
    pub fn bytes(&self) -> usize {
        match &self.groups {
            Groups::F32(groups) => size_of_val(groups.as_slice()),
            Groups::Bf16(groups) => size_of_val(groups.as_slice()),
        }
    }

    /// One row, widened.
    pub(super) fn row(&self, row: usize, out: &mut [f32]) {
        let per_row = out.len().div_ceil(LANES);
        for (i, x) in out.iter_mut().enumerate() {
            let group = row * per_row + i / LANES;
            *x = match &self.groups {
                Groups::F32(groups) => groups[group].get(i % LANES),
                Groups::Bf16(groups) => groups[group].get(i % LANES),
            };
        }
    }
}

/// The groups of all parts, row by row, the last of a row filled up with zeros.
fn filled<G: Send>(
    parts: &[(TensorData<'_>, usize)],
    inputs: usize,
    group: impl Fn([f32; LANES]) -> G + Send + Sync,
) -> Vec<G> {
    let per_row = inputs.div_ceil(LANES);
    let rows = parts.iter().flat_map(|&(data, rows)| (0..rows).map(move |row| (data, row))).collect::<Vec<_>>();
    let one = |i: usize| {
        let ((data, row), first) = (rows[i / per_row], i % per_row * LANES);
        let within = |column: usize| if column < inputs { number(data, row * inputs + column) } else { 0.0 };
        group(std::array::from_fn(|lane| within(first + lane)))
    };
    (0..rows.len() * per_row).into_par_iter().map(one).collect()
}

/// Number `i` of a tensor.
pub(crate) fn number(data: TensorData<'_>, i: usize) -> f32 {
    match data {
        TensorData::Stored { dtype: Dtype::F32, bytes } => {
            f32::from_le_bytes(bytes[4 * i..4 * i + 4].try_into().expect("four bytes"))
        }
        TensorData::Stored { dtype: Dtype::Bf16, bytes } => {
            bf16::from_le_bytes([bytes[2 * i], bytes[2 * i + 1]]).into()
        }
        TensorData::Stored { dtype: Dtype::F16, bytes } => f16::from_le_bytes([bytes[2 * i], bytes[2 * i + 1]]).into(),
        TensorData::Random { luck, scale, dtype } => {
            let x = scale * (2.0 * luck.unit(i as u64) - 1.0) as f32;
            if dtype == Dtype::F32 { x } else { bf16::from_f32(x).into() }
        }
        TensorData::Ones => 1.0,
    }
}

/// Activations. Numbers between `width` and the padded width are zero and stay so.
#[derive(Clone, Debug)]
pub struct Buffer {
    pub(super) width: usize,
    /// `width` rounded up to whole groups of lanes.
    pub(super) stride: usize,
    /// Rows in use.
    pub(super) rows: usize,
    numbers: Aligned,
}

impl Buffer {
    pub(super) fn new(rows: usize, width: usize) -> Buffer {
        let stride = width.next_multiple_of(LANES);
        Buffer { width, stride, rows: 0, numbers: Aligned::zeros(rows * stride) }
    }

    /// Width of a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Rows in use.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// One row.
    pub fn row(&self, row: usize) -> &[f32] {
        &self.numbers[row * self.stride..][..self.width]
    }

    /// One row, to be written.
    pub fn row_mut(&mut self, row: usize) -> &mut [f32] {
        &mut self.numbers[row * self.stride..][..self.width]
    }

    /// Puts all rows it was made for to use.
    pub(super) fn use_all(&mut self) {
        self.rows = self.numbers.len() / self.stride;
    }

    /// Says how many rows are in use.
    pub fn set_rows(&mut self, rows: usize) {
        assert!(rows * self.stride <= self.numbers.len(), "{rows} rows in a buffer made for fewer");
        self.rows = rows;
    }

    /// One row as groups of lanes, padding included.
    #[inline]
    pub(super) fn groups(&self, row: usize) -> &[[f32; LANES]] {
        self.numbers[row * self.stride..][..self.stride].as_chunks().0
    }

    /// The rows in use, for tasks that write different parts of them.
    pub(super) fn shared(&mut self) -> Shared<'_> {
        let numbers = &mut self.numbers[..self.rows * self.stride];
        Shared {
            numbers: numbers.as_mut_ptr(),
            rows: self.rows,
            width: self.width,
            stride: self.stride,
            of: PhantomData,
        }
    }
}

/// Rows that tasks on several threads write, each its own part.
#[derive(Clone, Copy)]
pub(super) struct Shared<'a> {
    numbers: *mut f32,
    rows: usize,
    pub(super) width: usize,
    stride: usize,
    of: PhantomData<&'a mut [f32]>,
}

// SAFETY: it is a mutable borrow of numbers, which may be sent, and `part` makes its callers keep writers apart.
#[expect(unsafe_code, reason = "outputs are split by columns, which no safe split of a slice can do")]
unsafe impl Send for Shared<'_> {}
// SAFETY: as above.
#[expect(unsafe_code, reason = "outputs are split by columns, which no safe split of a slice can do")]
unsafe impl Sync for Shared<'_> {}

impl<'a> Shared<'a> {
    /// `len` numbers of a row from column `from` on.
    ///
    /// # Safety
    /// While the slice lives, no other may exist that holds one of its numbers.
    #[expect(unsafe_code, reason = "outputs are split by columns, which no safe split of a slice can do")]
    pub(super) unsafe fn part(&self, row: usize, from: usize, len: usize) -> &'a mut [f32] {
        assert!(row < self.rows && from + len <= self.width, "part outside of the rows");
        // SAFETY: within the borrowed numbers, by the assertion; alone, by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.numbers.add(row * self.stride + from), len) }
    }
}
