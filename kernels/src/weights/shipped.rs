//! The files of the target and draft models that ship with this crate (`kernels/pair/` says how they were made).

use crate::model::SHIPPED;

/// Bytes of a file, aligned in memory. In the file the tensors begin at multiples of eight bytes, so an aligned file's
/// tensors can be read in place.
#[repr(C, align(64))]
struct Aligned<B: ?Sized>(B);

static TARGET: &Aligned<[u8]> = &Aligned(*include_bytes!("../../pair/target/model.safetensors"));
static DRAFT: &Aligned<[u8]> = &Aligned(*include_bytes!("../../pair/draft/model.safetensors"));

/// Returns the bytes of the `model.safetensors` of a model that ships with this crate; `None` for other names.
pub(super) fn file(name: &str) -> Option<&'static [u8]> {
    let at = SHIPPED.iter().position(|shipped| *shipped == name)?;
    Some(&[TARGET, DRAFT][at].0)
}
