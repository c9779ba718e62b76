//! Two values that belong to the target and to the draft model.

/// A value for the target model and a value of the same kind for the draft model.
///
/// A tuple of two values of the same type would still compile if they were swapped by mistake. With named fields a swap
/// is visible.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Pair<T> {
    /// The target model's value.
    pub target: T,
    /// The value of the same kind for the draft model.
    pub draft: T,
}

impl<T> Pair<T> {
    /// The target's and the draft model's value, borrowed.
    pub fn as_ref(&self) -> Pair<&T> {
        Pair { target: &self.target, draft: &self.draft }
    }

    /// Applies `f` to the target's value and then to the draft model's value.
    pub fn map<U>(self, mut f: impl FnMut(T) -> U) -> Pair<U> {
        Pair { target: f(self.target), draft: f(self.draft) }
    }

    /// Applies `f` to the target's value and then to the draft model's value. Stops at the first error.
    ///
    /// # Errors
    /// `f` returns an error for a value.
    pub fn try_map<U, E>(self, mut f: impl FnMut(T) -> Result<U, E>) -> Result<Pair<U>, E> {
        Ok(Pair { target: f(self.target)?, draft: f(self.draft)? })
    }

    /// The target's value, then the draft model's.
    pub fn into_array(self) -> [T; 2] {
        [self.target, self.draft]
    }

    /// Pairs the target's value with the target's value in `other`, and the draft model's value with the draft model's
    /// value in `other`.
    pub fn zip<U>(self, other: Pair<U>) -> Pair<(T, U)> {
        Pair { target: (self.target, other.target), draft: (self.draft, other.draft) }
    }
}
