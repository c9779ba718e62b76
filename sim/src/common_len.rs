//! Finds out whether all requests of a batch have the same value, such as the same draft length.

/// The value that all entries of `lens` have, for example the draft length of each request of a batch. `None` if they
/// differ, or if `lens` is empty.
#[inline]
pub(crate) fn common(lens: &[u32]) -> Option<u32> {
    let &first = lens.first()?;
    let differs = lens.iter().fold(0, |differs, len| differs | (len ^ first));
    (differs == 0).then_some(first)
}
