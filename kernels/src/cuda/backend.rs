//! What carries out commands: a GPU. Whatever is above it can be run and tested without one, over a backend that
//! emulates.

use super::error::CudaError;
use super::program::{Command, Program};
use std::time::Duration;

/// Memory of a device, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceMemory {
    /// Not in use by anybody.
    pub free: u64,
    /// All of it.
    pub total: u64,
}

/// A device that does what it is told, in the order it was told. Commands return before they are done, and may then
/// report an error that an earlier one made.
pub trait Backend: Send + Sync {
    /// Its name.
    fn name(&self) -> String;

    /// Its memory.
    ///
    /// # Errors
    /// The driver's.
    fn memory(&self) -> Result<DeviceMemory, CudaError>;

    /// Zeroed memory, at an address that is a multiple of 256.
    ///
    /// # Errors
    /// There is not so much.
    fn allocate(&self, bytes: u64) -> Result<u64, CudaError>;

    /// Gives memory back, once all commands are done.
    fn free(&self, address: u64);

    /// Copies to the device. `from` may be changed when it returns.
    ///
    /// # Errors
    /// The driver's.
    fn upload(&self, to: u64, from: &[u8]) -> Result<(), CudaError>;

    /// Copies from the device, after everything before.
    ///
    /// # Errors
    /// The driver's, of any command before.
    fn download(&self, from: u64, to: &mut [u8]) -> Result<(), CudaError>;

    /// Copies within the device's memory.
    ///
    /// # Errors
    /// The driver's.
    fn copy(&self, to: u64, from: u64, bytes: u64) -> Result<(), CudaError>;

    /// Does one command.
    ///
    /// # Errors
    /// The driver's.
    fn run(&self, command: &Command<'_>) -> Result<(), CudaError>;

    /// Makes one launch of a whole program that has been run before. Does not run it.
    ///
    /// # Errors
    /// The driver's.
    fn capture(&self, program: &Program) -> Result<Box<dyn Graph>, CudaError>;

    /// Waits until everything is done.
    ///
    /// # Errors
    /// The driver's, of any command before.
    fn synchronize(&self) -> Result<(), CudaError>;

    /// Notes the time, on the device's clock, at which everything before is done.
    ///
    /// # Errors
    /// The driver's.
    fn mark(&self, mark: Mark) -> Result<(), CudaError>;

    /// From the last mark at the start to the last at the end. Waits for the latter.
    ///
    /// # Errors
    /// The driver's.
    fn elapsed(&self) -> Result<Duration, CudaError>;
}

/// Ends of a time that is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// Where it begins.
    Start,
    /// Where it ends.
    End,
}

/// A program that is launched as one.
pub trait Graph: Send + Sync {
    /// Launches it.
    ///
    /// # Errors
    /// The driver's.
    fn launch(&self) -> Result<(), CudaError>;
}
