//! Objects that are lent to a hook for one call, and whether the hook kept a reference to one.

use crate::arrays::holders;
use pyo3::PyClass;
use pyo3::prelude::*;
use pyo3::pyclass::boolean_struct::False;

/// An object that is lent to a hook for one call.
pub trait Lent: PyClass<Frozen = False> {
    /// Drops the references to its arrays; returns whether an array was read.
    fn take_back(&mut self) -> bool;

    /// Does other code still refer to one of its arrays?
    ///
    /// # Errors
    /// Never in practice: it only reads counts of references.
    fn is_kept(&self, py: Python<'_>) -> PyResult<bool>;
}

/// A lent object, with its number of references while it is not lent.
pub struct Lending<T: Lent> {
    pub object: Py<T>,
    alone: usize,
}

impl<T: Lent> Lending<T> {
    /// Prepares `object` for lending. `others` is the number of objects that will refer to it while it is not lent.
    pub fn new(py: Python<'_>, object: Py<T>, others: usize) -> PyResult<Lending<T>> {
        let alone = holders(py, object.bind(py).as_any())? + others;
        Ok(Lending { object, alone })
    }

    /// Takes the object back after a call, which drops its own references to its arrays. Does other code still refer to
    /// the object or to one of the arrays?
    ///
    /// # Errors
    /// Never in practice: it only reads counts of references.
    pub fn is_kept(&self, py: Python<'_>) -> PyResult<bool> {
        if self.object.borrow_mut(py).take_back() && self.object.borrow(py).is_kept(py)? {
            return Ok(true);
        }
        Ok(holders(py, self.object.bind(py).as_any())? > self.alone)
    }

    /// Checks again without dropping references, since a hook may have released an array meanwhile.
    ///
    /// # Errors
    /// Never in practice: it only reads counts of references.
    pub fn is_still_kept(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.object.borrow(py).is_kept(py)? || holders(py, self.object.bind(py).as_any())? > self.alone)
    }
}
