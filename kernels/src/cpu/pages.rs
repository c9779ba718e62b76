//! Memory of whole pages, large ones where the system has them: weights and KV are read from end to end, and with small pages the
//! processor looks up an address every 4 KiB and stops asking ahead there.

use bytemuck::AnyBitPattern;
use memmap2::MmapMut;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

/// A fixed number of `T`, from the start of a page on.
pub(super) struct Pages<T> {
    bytes: MmapMut,
    of: PhantomData<T>,
}

impl<T: AnyBitPattern + bytemuck::NoUninit> Pages<T> {
    /// Zeros. Like a vector's, this ends the process where there is no memory.
    pub(super) fn zeros(len: usize) -> Pages<T> {
        let bytes = MmapMut::map_anon((len * size_of::<T>()).max(1)).expect("memory for weights, KV or a measurement");
        // Only a wish: without large pages all is as it was, and slower.
        #[cfg(target_os = "linux")]
        let _ = bytes.advise(memmap2::Advice::HugePage);
        Pages { bytes, of: PhantomData }
    }
}

impl<T: AnyBitPattern + bytemuck::NoUninit> Deref for Pages<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        let whole = self.bytes.len() / size_of::<T>() * size_of::<T>();
        bytemuck::cast_slice(&self.bytes[..whole])
    }
}

impl<T: AnyBitPattern + bytemuck::NoUninit> DerefMut for Pages<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        let whole = self.bytes.len() / size_of::<T>() * size_of::<T>();
        bytemuck::cast_slice_mut(&mut self.bytes[..whole])
    }
}
