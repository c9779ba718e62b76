//! The interface that carries out commands. A GPU implements it. Tests run everything above it without a GPU, on a
//! backend that emulates one.

use super::error::CudaError;
use super::program::{Command, Program};
use std::time::Duration;

/// The memory of a device, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceMemory {
    /// Bytes that are not in use by any process.
    pub free: u64,
    /// Bytes of memory in all.
    pub total: u64,
}

/// A device that carries out commands in order. A call returns before its command is done, and may report an error of
/// an earlier command.
pub trait Backend: Send + Sync {
    /// Returns the device's name.
    fn name(&self) -> String;

    /// Returns the device's memory.
    ///
    /// # Errors
    /// The driver's error.
    fn memory(&self) -> Result<DeviceMemory, CudaError>;

    /// Allocates zeroed memory, at an address that is a multiple of 256.
    ///
    /// # Errors
    /// The device has too little free memory.
    fn allocate(&self, bytes: u64) -> Result<u64, CudaError>;

    /// Frees memory once all commands are done.
    fn free(&self, address: u64);

    /// Copies to the device. `from` may be changed after the call.
    ///
    /// # Errors
    /// The driver's error.
    fn upload(&self, to: u64, from: &[u8]) -> Result<(), CudaError>;

    /// Copies from the device, after all earlier commands.
    ///
    /// # Errors
    /// The driver's error, of any earlier command.
    fn download(&self, from: u64, to: &mut [u8]) -> Result<(), CudaError>;

    /// Copies within the device's memory.
    ///
    /// # Errors
    /// The driver's error.
    fn copy(&self, to: u64, from: u64, bytes: u64) -> Result<(), CudaError>;

    /// Carries out one command.
    ///
    /// # Errors
    /// The driver's error.
    fn run(&self, command: &Command<'_>) -> Result<(), CudaError>;

    /// Makes a single launch of a whole program that has run before. Does not run it.
    ///
    /// # Errors
    /// The driver's error.
    fn capture(&self, program: &Program) -> Result<Box<dyn Graph>, CudaError>;

    /// Waits until all commands are done.
    ///
    /// # Errors
    /// The driver's error, of any earlier command.
    fn synchronize(&self) -> Result<(), CudaError>;

    /// Records the time, on the device's clock, at which all earlier commands are done.
    ///
    /// # Errors
    /// The driver's error.
    fn mark(&self, mark: Mark) -> Result<(), CudaError>;

    /// Returns the time from the last `Start` mark to the last `End` mark. Waits for the latter.
    ///
    /// # Errors
    /// The driver's error.
    fn elapsed(&self) -> Result<Duration, CudaError>;
}

/// The two ends of a time measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// The begin of the measurement.
    Start,
    /// The end of the measurement.
    End,
}

/// A program that is launched as one.
pub trait Graph: Send + Sync {
    /// Launches the program.
    ///
    /// # Errors
    /// The driver's error.
    fn launch(&self) -> Result<(), CudaError>;
}
