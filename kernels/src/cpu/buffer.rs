//! Activations in rows. Each row is padded with zeros to whole groups of [`LANES`] numbers, so that no kernel has to
//! handle a remainder.

use super::aligned::Aligned;
use super::lanes::LANES;
use std::marker::PhantomData;

/// A matrix of activations, one row per token. The numbers between `width` and the padded width of a row are always
/// zero.
#[derive(Clone, Debug)]
pub struct Buffer {
    pub(super) width: usize,
    /// Distance between the beginnings of two successive rows, counted in f32 values, not in bytes: `width` rounded up
    /// to a multiple of [`LANES`].
    pub(super) stride: usize,
    /// Number of rows in use, at most the number of allocated rows.
    pub(super) rows: usize,
    numbers: Aligned,
}

impl Buffer {
    pub(super) fn new(rows: usize, width: usize) -> Buffer {
        let stride = width.next_multiple_of(LANES);
        Buffer { width, stride, rows: 0, numbers: Aligned::zeros(rows * stride) }
    }

    /// Returns the width of a row: its number of activations, without padding.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Returns the number of rows (tokens) in use.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Returns one row of activations without its padding.
    pub fn row(&self, row: usize) -> &[f32] {
        &self.numbers[row * self.stride..][..self.width]
    }

    /// Returns one row of activations without its padding, for writing.
    pub fn row_mut(&mut self, row: usize) -> &mut [f32] {
        &mut self.numbers[row * self.stride..][..self.width]
    }

    /// Sets the number of rows in use to the number of rows that are allocated.
    pub(super) fn use_all(&mut self) {
        self.rows = self.numbers.len() / self.stride;
    }

    /// Sets the number of rows in use to `rows`. Panics if fewer rows are allocated.
    pub fn set_rows(&mut self, rows: usize) {
        assert!(rows * self.stride <= self.numbers.len(), "{rows} rows in a buffer made for fewer");
        self.rows = rows;
    }

    /// Returns one row of activations with its padding.
    #[inline]
    pub(super) fn padded_row(&self, row: usize) -> &[f32] {
        &self.numbers[row * self.stride..][..self.stride]
    }

    /// Returns a handle through which tasks on several threads write different parts of the buffer's rows in use.
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

/// The rows of a buffer while tasks on several threads write them; each task writes its own part.
#[derive(Clone, Copy)]
pub(super) struct Shared<'a> {
    numbers: *mut f32,
    rows: usize,
    pub(super) width: usize,
    stride: usize,
    of: PhantomData<&'a mut [f32]>,
}

// SAFETY: `Shared` is a mutable borrow of numbers, which may be sent to another thread. Callers of `part` must not take
// overlapping parts.
#[expect(unsafe_code, reason = "outputs are split by columns, which no safe split of a slice can do")]
unsafe impl Send for Shared<'_> {}
// SAFETY: threads use a shared `Shared` only to take parts, and callers of `part` must not take overlapping parts.
#[expect(unsafe_code, reason = "outputs are split by columns, which no safe split of a slice can do")]
unsafe impl Sync for Shared<'_> {}

impl<'a> Shared<'a> {
    /// Returns `len` numbers of the row `row`, from column `from` on.
    ///
    /// # Safety
    /// While the returned slice lives, no other slice of this buffer's rows may overlap it.
    #[expect(unsafe_code, reason = "outputs are split by columns, which no safe split of a slice can do")]
    pub(super) unsafe fn part(&self, row: usize, from: usize, len: usize) -> &'a mut [f32] {
        assert!(row < self.rows && from + len <= self.width, "part outside of the rows");
        // SAFETY: the assertion keeps the slice within the borrowed numbers. The caller promises that no other slice
        // overlaps it.
        unsafe { std::slice::from_raw_parts_mut(self.numbers.add(row * self.stride + from), len) }
    }
}
