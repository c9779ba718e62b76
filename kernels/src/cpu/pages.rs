//! Arrays in large pages of memory (2 MiB), if the system has them. Weights and KV are read from end to end. With small
//! pages the processor translates an address every 4 KiB and stops prefetching there.
//!
//! The system gives only whole large pages, and the matrices of a small model are smaller than a large page. Matrices
//! therefore share regions that begin and end with a large page. When each matrix had a mapping to itself, chance
//! decided which lay in large pages: two copies of the shipped pair in one process differed in speed by a twentieth.

use bytemuck::{AnyBitPattern, NoUninit};
use memmap2::MmapMut;
use std::cell::RefCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::{Arc, Weak};

/// Bytes of a large page.
const LARGE: usize = 2 << 20;
/// Bytes of a region that several arrays share. A larger array gets a region of at least its size.
const SHARED: usize = 8 * LARGE;
/// Bytes of a small page. Every array begins at a multiple of this, as if it had a mapping to itself.
const ALIGNED: usize = 4 << 10;

/// An array of fixed length in a [`Region`].
pub(super) struct Pages<T> {
    first: NonNull<T>,
    len: usize,
    /// Keeps the array's memory mapped.
    _region: Arc<Region>,
    of: PhantomData<T>,
}

/// Mapped memory, handed out in parts. A part is never handed out twice. The memory is unmapped when all parts are
/// dropped.
struct Region(#[expect(dead_code, reason = "it is held, and used through pointers")] MmapMut);

/// The region from which the next arrays are taken: the region (its arrays keep it alive), its first byte, the number
/// of bytes handed out, and its size in bytes.
struct Open {
    region: Weak<Region>,
    first: NonNull<u8>,
    used: usize,
    bytes: usize,
}

thread_local! {
    static OPEN: RefCell<Option<Open>> = const { RefCell::new(None) };
}

// SAFETY: no other array has its part of the region, so it may be sent and shared as a vector may.
#[expect(unsafe_code, reason = "parts of one mapping")]
unsafe impl<T: Send> Send for Pages<T> {}
// SAFETY: as above.
#[expect(unsafe_code, reason = "parts of one mapping")]
unsafe impl<T: Sync> Sync for Pages<T> {}

impl<T: AnyBitPattern + NoUninit> Pages<T> {
    /// Makes an array of `len` zeros. Panics if the system gives no memory.
    pub(super) fn zeros(len: usize) -> Pages<T> {
        assert!(align_of::<T>() <= ALIGNED, "of a type with a larger alignment");
        let bytes = (len * size_of::<T>()).next_multiple_of(ALIGNED);
        let (region, first) = OPEN.with_borrow_mut(|open| {
            if let Some((region, first)) = open.as_mut().and_then(|open| open.take(bytes)) {
                return (region, first);
            }
            let (region, mut fresh) = Open::map(bytes);
            let (_, first) = fresh.take(bytes).expect("a region holds what it was made for");
            // Of the old and the fresh region, the one with more bytes left serves the next arrays.
            if open.as_ref().is_none_or(|open| open.left() < fresh.left()) {
                *open = Some(fresh);
            }
            (region, first)
        });
        Pages { first: first.cast(), len, _region: region, of: PhantomData }
    }
}

impl Open {
    /// Maps a region with room for at least `bytes` bytes.
    fn map(bytes: usize) -> (Arc<Region>, Open) {
        let bytes = bytes.next_multiple_of(LARGE).max(SHARED);
        let mut map = MmapMut::map_anon(bytes + LARGE).expect("memory for weights, KV or a measurement");
        // Asks for large pages. If the system refuses, everything works, but slower.
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::HugePage);
        let skipped = map.as_ptr().align_offset(LARGE);
        let first = NonNull::new(map[skipped..].as_mut_ptr()).expect("mapped memory is somewhere");
        let region = Arc::new(Region(map));
        let open = Open { region: Arc::downgrade(&region), first, used: 0, bytes };
        (region, open)
    }

    fn left(&self) -> usize {
        if self.region.strong_count() > 0 { self.bytes - self.used } else { 0 }
    }

    /// Hands out the next `bytes` bytes: the region and their first byte. They were never handed out before, so they
    /// are zeros. `None` if fewer are left, or if all arrays of the region were dropped.
    fn take(&mut self, bytes: usize) -> Option<(Arc<Region>, NonNull<u8>)> {
        let region = self.region.upgrade().filter(|_| bytes <= self.bytes - self.used)?;
        #[expect(unsafe_code, reason = "parts of one mapping")]
        // SAFETY: it is within the mapping, which has `bytes` from `first` on.
        let first = unsafe { self.first.add(self.used) };
        self.used += bytes;
        Some((region, first))
    }
}

impl<T: AnyBitPattern + NoUninit> Deref for Pages<T> {
    type Target = [T];

    #[inline]
    #[expect(unsafe_code, reason = "parts of one mapping")]
    fn deref(&self) -> &[T] {
        // SAFETY: it is the array's own part of a mapping that it keeps alive. The part is aligned, has zeros or
        // written values, and the type allows any bits.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.len) }
    }
}

impl<T: AnyBitPattern + NoUninit> DerefMut for Pages<T> {
    #[inline]
    #[expect(unsafe_code, reason = "parts of one mapping")]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, with the mutable borrow of `self`.
        unsafe { std::slice::from_raw_parts_mut(self.first.as_ptr(), self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_zeros_apart_and_aligned() {
        let mut all: Vec<Pages<u64>> = [1, 600, SHARED / 8 + 5, 0, 3 * LARGE / 8, 4 * LARGE / 8, 2 * LARGE / 8, 7]
            .map(Pages::zeros)
            .into_iter()
            .collect();
        for (i, pages) in all.iter_mut().enumerate() {
            assert!(pages.iter().all(|&x| x == 0), "part {i}");
            assert_eq!(pages.as_ptr() as usize % ALIGNED, 0);
            pages.fill(i as u64 + 1);
        }
        for (i, pages) in all.iter().enumerate() {
            assert!(pages.iter().all(|&x| x == i as u64 + 1), "part {i} was written by another");
        }
        // Large arrays begin at a large page.
        assert_eq!(all[2].as_ptr() as usize % LARGE, 0);
    }

    #[test]
    fn a_region_is_given_back_with_its_last_part_and_never_handed_out_twice() {
        let mut one: Pages<u8> = Pages::zeros(100);
        one.fill(7);
        drop(one);
        assert!(Pages::<u8>::zeros(100).iter().all(|&x| x == 0));
        // Parts may move to other threads, and outlive the thread that made them.
        let moved = std::thread::spawn(|| {
            let mut pages: Pages<u8> = Pages::zeros(LARGE + 1);
            pages.fill(3);
            pages
        });
        assert!(moved.join().unwrap().iter().all(|&x| x == 3));
    }
}
