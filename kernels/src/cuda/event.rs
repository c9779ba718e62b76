//! Events of the CUDA driver. An event marks a place in a stream of commands.

use super::error::CudaError;
use cudarc::driver::result;
use cudarc::driver::sys;

/// Makes an event. If `timed` is true, the time between this event and another timed event can be measured.
pub(super) fn event(timed: bool) -> Result<sys::CUevent, CudaError> {
    let flags = if timed { sys::CUevent_flags::CU_EVENT_DEFAULT } else { sys::CUevent_flags::CU_EVENT_DISABLE_TIMING };
    result::event::create(flags).map_err(CudaError::failed("making an event"))
}
