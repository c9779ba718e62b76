//! Memory in large pages, where the system has them: weights and KV are read from end to end, and with small pages the processor
//! looks up an address every 4 KiB and stops asking ahead there.
//!
//! A large page is whole or it is none, and the matrices of a small model are parts of one. So they share regions that begin and end
//! with a large page. Mapped one by one, some of a model's came to lie in large pages and some did not, by chance: two copies of the shipped
//! pair in one process differed by a twentieth.

use bytemuck::{AnyBitPattern, NoUninit};
use memmap2::MmapMut;
use std::cell::RefCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::{Arc, Weak};

/// Bytes of a large page.
const LARGE: usize = 2 << 20;
/// Bytes of a region that many share; what does not fit has one of its own.
const SHARED: usize = 8 * LARGE;
/// Parts begin with a small page, as if each had been mapped by itself.
const ALIGNED: usize = 4 << 10;

/// A fixed number of `T`.
pub(super) struct Pages<T> {
    first: NonNull<T>,
    len: usize,
    /// Keeps the memory.
    _region: Arc<Region>,
    of: PhantomData<T>,
}

/// Mapped memory. It is handed out once, piece by piece, and given back when all pieces are.
struct Region(#[expect(dead_code, reason = "it is held, and used through pointers")] MmapMut);

/// The region at hand: its pieces are what keeps it, where it begins, how much is handed out, and its end.
struct Open {
    region: Weak<Region>,
    first: NonNull<u8>,
    used: usize,
    bytes: usize,
}

thread_local! {
    static OPEN: RefCell<Option<Open>> = const { RefCell::new(None) };
}

// SAFETY: nobody else has its part of the region, so that it may be sent and shared as a vector may.
#[expect(unsafe_code, reason = "parts of one mapping")]
unsafe impl<T: Send> Send for Pages<T> {}
// SAFETY: as above.
#[expect(unsafe_code, reason = "parts of one mapping")]
unsafe impl<T: Sync> Sync for Pages<T> {}

impl<T: AnyBitPattern + NoUninit> Pages<T> {
    /// Zeros. Like a vector's, this ends the process where there is no memory.
    pub(super) fn zeros(len: usize) -> Pages<T> {
        assert!(align_of::<T>() <= ALIGNED, "of a type with a larger alignment");
        let bytes = (len * size_of::<T>()).next_multiple_of(ALIGNED);
        let (region, first) = OPEN.with_borrow_mut(|open| {
            if let Some((region, first)) = open.as_mut().and_then(|open| open.take(bytes)) {
                return (region, first);
            }
            let (region, mut fresh) = Open::map(bytes);
            let (_, first) = fresh.take(bytes).expect("a region holds what it was made for");
            // What has most left stays open.
            if open.as_ref().is_none_or(|open| open.left() < fresh.left()) {
                *open = Some(fresh);
            }
            (region, first)
        });
        Pages { first: first.cast(), len, _region: region, of: PhantomData }
    }
}

impl Open {
    /// A region with room for so much.
    fn map(bytes: usize) -> (Arc<Region>, Open) {
        let bytes = bytes.next_multiple_of(LARGE).max(SHARED);
        let mut map = MmapMut::map_anon(bytes + LARGE).expect("memory for weights, KV or a measurement");
        // Only a wish: without large pages all is as it was, and slower.
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

    /// The next so many bytes, which nobody had before, so that they are zeros; `None` where there are not so many.
    fn take(&mut self, bytes: usize) -> Option<(Arc<Region>, NonNull<u8>)> {
        let region = self.region.upgrade().filter(|_| bytes <= self.bytes - self.used)?;
        #[expect(unsafe_code, reason = "parts of one mapping")]
        // SAFETY: within the mapping, which has `bytes` from `first` on.
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
        // SAFETY: its own part of a mapping that it keeps, aligned, of zeros or what was written to it, of a type that may be any bits.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.len) }
    }
}

impl<T: AnyBitPattern + NoUninit> DerefMut for Pages<T> {
    #[inline]
    #[expect(unsafe_code, reason = "parts of one mapping")]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and borrowed as this is.
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
        // Those that are large begin with a large page.
        assert_eq!(all[2].as_ptr() as usize % LARGE, 0);
    }

    #[test]
    fn a_region_is_given_back_with_its_last_part_and_never_handed_out_twice() {
        let mut one: Pages<u8> = Pages::zeros(100);
        one.fill(7);
        drop(one);
        assert!(Pages::<u8>::zeros(100).iter().all(|&x| x == 0));
        // Parts live on other threads, and longer than the one that made them.
        let moved = std::thread::spawn(|| {
            let mut pages: Pages<u8> = Pages::zeros(LARGE + 1);
            pages.fill(3);
            pages
        });
        assert!(moved.join().unwrap().iter().all(|&x| x == 3));
    }
}
