//! The driver's events, which mark a place in a stream.

use super::error::CudaError;
use cudarc::driver::result;
use cudarc::driver::sys;

/// Makes an event, which can be timed or not.
pub(super) fn event(timed: bool) -> Result<sys::CUevent, CudaError> {
    let flags = if timed { sys::CUevent_flags::CU_EVENT_DEFAULT } else { sys::CUevent_flags::CU_EVENT_DISABLE_TIMING };
    result::event::create(flags).map_err(CudaError::failed("making an event"))
}
