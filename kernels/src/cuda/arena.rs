//! Device memory for the integers that describe the batch of a pass, such as tokens and block tables. The host collects
//! them and copies them to the device together.

use super::backend::Backend;
use super::error::CudaError;
use super::memory::Memory;
use std::sync::Arc;

/// The collected integers of a batch, and the device memory to which they are copied. Some arrays, such as tokens and
/// positions, have lengths that depend only on the padded numbers of rows and of rows with logits. These arrays come
/// first. Two passes with equal padded numbers therefore have them at the same device addresses, and can be replayed as
/// the same CUDA graph.
pub(super) struct Arena {
    memory: Memory,
    words: Vec<u32>,
    /// How many of the collected `words` are already copied to the device.
    sent: usize,
}

/// Size in bytes of the arena, the device memory for the integers of a batch. Block tables are the largest part of a
/// batch: 32 MiB hold block tables for 128 million tokens.
const CAPACITY: u64 = 32 << 20;

impl Arena {
    pub(super) fn new(backend: &Arc<dyn Backend>) -> Result<Arena, CudaError> {
        Ok(Arena { memory: Memory::new(backend, CAPACITY)?, words: Vec::new(), sent: 0 })
    }

    /// Removes all collected numbers, so that the numbers of the next pass can be added.
    pub(super) fn clear(&mut self) {
        self.words.clear();
        self.sent = 0;
    }

    /// Returns the device address that the next added array will have.
    pub(super) fn next(&self) -> u64 {
        self.memory.address + 4 * self.words.len() as u64
    }

    /// Adds an array: the numbers `words`, then `fill` until the array has at least `length` numbers. Zeros up to a
    /// multiple of 16 bytes follow. Returns the array's device address.
    pub(super) fn push(&mut self, words: impl IntoIterator<Item = u32>, length: usize, fill: u32) -> u64 {
        let (address, begins) = (self.next(), self.words.len());
        self.words.extend(words);
        let end = self.words.len().max(begins + length);
        self.words.resize(end, fill);
        // Zeros fill the array up to a multiple of 16 bytes, where the next array begins.
        self.words.resize(end.next_multiple_of(4), 0);
        address
    }

    /// True if the arena has collected the numbers `words`, and they will be at the device address `address`.
    pub(super) fn holds(&self, address: u64, words: &[u32]) -> bool {
        let at = (address - self.memory.address) as usize / 4;
        self.words.get(at..at + words.len()) == Some(words)
    }

    /// Copies the numbers that were added since the last call of `send` to the device. Fails if all collected numbers
    /// together exceed the reserved device memory.
    pub(super) fn send(&mut self, backend: &Arc<dyn Backend>) -> Result<(), CudaError> {
        if 4 * self.words.len() as u64 > self.memory.bytes {
            let (needed, most) = (4 * self.words.len(), self.memory.bytes);
            let why =
                format!("a pass whose batch takes {needed} bytes to describe, {most} at most: fewer requests fit");
            return Err(CudaError::Unsupported(why));
        }
        let news = &self.words[self.sent..];
        if !news.is_empty() {
            let bytes: Vec<u8> = news.iter().flat_map(|word| word.to_le_bytes()).collect();
            backend.upload(self.memory.address + 4 * self.sent as u64, &bytes)?;
            self.sent = self.words.len();
        }
        Ok(())
    }
}
