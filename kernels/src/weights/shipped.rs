//! The files of the target and draft that ship with this crate (`kernels/pair/` says how they were made).

use crate::model::SHIPPED;

/// Aligns the bytes of a file. The offsets of its tensors are multiples of eight, so the tensors can then be read in
/// place.
#[repr(C, align(64))]
struct Aligned<B: ?Sized>(B);

static TARGET: &Aligned<[u8]> = &Aligned(*include_bytes!("../../pair/target/model.safetensors"));
static DRAFT: &Aligned<[u8]> = &Aligned(*include_bytes!("../../pair/draft/model.safetensors"));

/// The bytes of the `model.safetensors` of a shipped model; `None` for other names.
pub(super) fn file(name: &str) -> Option<&'static [u8]> {
    let at = SHIPPED.iter().position(|shipped| *shipped == name)?;
    Some(&[TARGET, DRAFT][at].0)
}
