//! Arrays in large pages of memory (2 MiB), if the system has them. A pass reads all weights and KV. With small pages
//! the processor must translate an address every 4 KiB, and it stops prefetching at the end of each page.
//!
//! The system gives only whole large pages, but the matrices of a small model are smaller than a large page. Matrices
//! therefore share regions that begin and end at the borders of large pages. When each matrix had a mapping of its own,
//! chance decided which matrices lay in large pages: two copies of the same model pair in one process then differed in
//! speed by 5 %.

use bytemuck::{AnyBitPattern, NoUninit};
use memmap2::MmapMut;
use std::cell::RefCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::{Arc, Weak};

/// Bytes of a large page.
const LARGE: usize = 2 << 20;
/// Bytes of a region of mapped memory that several arrays share. An array that is larger than this gets a region of at
/// least its own size.
const SHARED: usize = 8 * LARGE;
/// Bytes of a small page. Every array begins at a multiple of this number, as if it had a mapping of its own.
const ALIGNED: usize = 4 << 10;

/// An array of fixed length in a [`Region`], a piece of mapped memory.
pub(super) struct Pages<T> {
    first: NonNull<T>,
    len: usize,
    /// Keeps the array's memory mapped.
    _region: Arc<Region>,
    of: PhantomData<T>,
}

/// Mapped memory whose parts are handed out to arrays. No part is handed out twice. The memory is unmapped when all
/// parts are dropped.
struct Region(#[expect(dead_code, reason = "it is held, and used through pointers")] MmapMut);

/// The region of mapped memory that the next arrays come from. The fields are: the region (a weak pointer, so that only
/// the region's arrays keep it alive), the address of its first byte, the number of bytes handed out, and its size in
/// bytes.
struct Open {
    region: Weak<Region>,
    first: NonNull<u8>,
    used: usize,
    bytes: usize,
}

thread_local! {
    static OPEN: RefCell<Option<Open>> = const { RefCell::new(None) };
}

// SAFETY: no other array has the same part of the region, so the array may be sent to another thread and shared like a
// vector.
#[expect(unsafe_code, reason = "parts of one mapping")]
unsafe impl<T: Send> Send for Pages<T> {}
// SAFETY: no other array has the same part of the region, so threads may share the array like a vector.
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
            // `open` is the region that arrays have used so far. It has too few bytes left for this array, so `fresh`
            // was mapped. The next arrays use the region that has more bytes left.
            if open.as_ref().is_none_or(|open| open.left() < fresh.left()) {
                *open = Some(fresh);
            }
            (region, first)
        });
        Pages { first: first.cast(), len, _region: region, of: PhantomData }
    }
}

impl Open {
    /// Maps a region of memory with room for at least `bytes` bytes. Returns the region, and the [`Open`] that hands
    /// out its parts to arrays.
    fn map(bytes: usize) -> (Arc<Region>, Open) {
        let bytes = bytes.next_multiple_of(LARGE).max(SHARED);
        let mut map = MmapMut::map_anon(bytes + LARGE).expect("memory for weights, KV or a measurement");
        // `advise` asks the system for large pages. If the system refuses, the arrays lie in small pages, and passes
        // are slower.
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

    /// Hands out the next `bytes` bytes of the region: returns the region and the address of the first of these bytes.
    /// The bytes are zero, because they were never handed out before. `None` if fewer bytes are left, or if all arrays
    /// of the region were dropped.
    fn take(&mut self, bytes: usize) -> Option<(Arc<Region>, NonNull<u8>)> {
        let region = self.region.upgrade().filter(|_| bytes <= self.bytes - self.used)?;
        #[expect(unsafe_code, reason = "parts of one mapping")]
        // SAFETY: the address is within the mapping, which has `self.bytes` bytes from `first` on.
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
        // SAFETY: the slice is the array's own part of a mapping, and the array keeps the mapping alive. The part is
        // aligned and has zeros or written values, and the type allows any bits.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.len) }
    }
}

impl<T: AnyBitPattern + NoUninit> DerefMut for Pages<T> {
    #[inline]
    #[expect(unsafe_code, reason = "parts of one mapping")]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: the slice is the array's own part of a mapping, as in `deref`, and `self` is borrowed mutably.
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
        // Array 2 is larger than a shared region. It gets a region of its own, which begins at a large page.
        assert_eq!(all[2].as_ptr() as usize % LARGE, 0);
    }

    #[test]
    fn a_region_is_given_back_with_its_last_part_and_never_handed_out_twice() {
        let mut one: Pages<u8> = Pages::zeros(100);
        one.fill(7);
        drop(one);
        assert!(Pages::<u8>::zeros(100).iter().all(|&x| x == 0));
        // An array may move to another thread, and may outlive the thread that made it.
        let moved = std::thread::spawn(|| {
            let mut pages: Pages<u8> = Pages::zeros(LARGE + 1);
            pages.fill(3);
            pages
        });
        assert!(moved.join().unwrap().iter().all(|&x| x == 3));
    }
}
