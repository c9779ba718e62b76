//! The length that all requests of a batch have.

/// The length that all of `lens` have; `None` if they differ, or if there are none.
#[inline]
pub(crate) fn common(lens: &[u32]) -> Option<u32> {
    let &first = lens.first()?;
    let differs = lens.iter().fold(0, |differs, len| differs | (len ^ first));
    (differs == 0).then_some(first)
}
