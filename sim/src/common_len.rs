//! Finds out whether all requests of a batch have the same length.

/// The common value of all `lens`. `None` if they differ, or if `lens` is empty.
#[inline]
pub(crate) fn common(lens: &[u32]) -> Option<u32> {
    let &first = lens.first()?;
    let differs = lens.iter().fold(0, |differs, len| differs | (len ^ first));
    (differs == 0).then_some(first)
}
