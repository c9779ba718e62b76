//! Objects that are lent to a Python hook (a method of the policy) for one call: the hook may read such an object, but
//! must not store it. This file detects whether the hook stored a reference to the object.

use crate::arrays::holders;
use pyo3::PyClass;
use pyo3::prelude::*;
use pyo3::pyclass::boolean_struct::False;

/// An object that is lent to a Python hook for one call. The hook must not store a reference to it.
pub trait Lent: PyClass<Frozen = False> {
    /// Drops the references that the object itself holds to its arrays. Returns true if the hook read an array.
    fn take_back(&mut self) -> bool;

    /// Returns true if Python code still refers to one of the object's arrays.
    ///
    /// # Errors
    /// Never in practice: it only reads counts of references.
    fn is_kept(&self, py: Python<'_>) -> PyResult<bool>;
}

/// An object to lend to Python hooks, and the number of references to it while no hook has it.
pub struct Lending<T: Lent> {
    pub object: Py<T>,
    alone: usize,
}

impl<T: Lent> Lending<T> {
    /// Prepares `object` for lending. `others` is the number of references to it that other objects of this program
    /// hold all the time.
    pub fn new(py: Python<'_>, object: Py<T>, others: usize) -> PyResult<Lending<T>> {
        let alone = holders(py, object.bind(py).as_any())? + others;
        Ok(Lending { object, alone })
    }

    /// Takes the object back after a call of a hook. The object drops its own references to its arrays. Returns true if
    /// Python code still refers to the object or to one of its arrays.
    ///
    /// # Errors
    /// Never in practice: it only reads counts of references.
    pub fn is_kept(&self, py: Python<'_>) -> PyResult<bool> {
        if self.object.borrow_mut(py).take_back() && self.object.borrow(py).is_kept(py)? {
            return Ok(true);
        }
        Ok(holders(py, self.object.bind(py).as_any())? > self.alone)
    }

    /// Checks again, as [`is_kept`](Self::is_kept) does, whether Python code refers to the object or to one of its
    /// arrays. Garbage collection since the first check may have freed such references.
    ///
    /// # Errors
    /// Never in practice: it only reads counts of references.
    pub fn is_still_kept(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.object.borrow(py).is_kept(py)? || holders(py, self.object.bind(py).as_any())? > self.alone)
    }
}
