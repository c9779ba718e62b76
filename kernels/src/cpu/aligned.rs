//! Arrays of f32 that begin at a cache line. A group of sixteen numbers (64 bytes) then never lies across two cache
//! lines, which would need a second load.

use super::lanes::LANES;
use std::ops::{Deref, DerefMut};

/// An f32 array of fixed length that begins at a cache line.
#[derive(Debug)]
pub(super) struct Aligned {
    /// Memory with [`LANES`] more numbers than the array. The array begins at index `from`, the first number that
    /// begins a cache line. The vector must not grow, because growing could move the array off its cache line.
    numbers: Vec<f32>,
    from: usize,
    len: usize,
}

impl Aligned {
    pub(super) fn zeros(len: usize) -> Aligned {
        let numbers = vec![0.0; len + LANES];
        let from = numbers.as_ptr().align_offset(LANES * size_of::<f32>()).min(LANES);
        Aligned { numbers, from, len }
    }
}

impl Clone for Aligned {
    fn clone(&self) -> Aligned {
        let mut copy = Aligned::zeros(self.len);
        copy.copy_from_slice(self);
        copy
    }
}

impl Deref for Aligned {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        &self.numbers[self.from..][..self.len]
    }
}

impl DerefMut for Aligned {
    fn deref_mut(&mut self) -> &mut [f32] {
        &mut self.numbers[self.from..][..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_begins_at_a_line_too() {
        for len in [0, 1, 16, 1000] {
            let mut x = Aligned::zeros(len);
            x.iter_mut().zip((0..=u8::MAX).cycle()).for_each(|(x, i)| *x = i.into());
            let copy = x.clone();
            assert_eq!((copy.len(), &*copy), (len, &*x));
            assert!([&x, &copy].iter().all(|x| x.as_ptr().align_offset(64) == 0));
        }
    }
}
