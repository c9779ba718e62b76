//! Columns of a batch as numpy arrays. Python owns them; they are filled before a hook is called and can be read
//! during the call. What a hook keeps would change under its hands, so that is found out.

use pyo3::buffer::{Element, PyBuffer};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PySlice;

/// How many refer to an object, the question included.
pub fn holders(py: Python<'_>, object: &Bound<'_, PyAny>) -> PyResult<usize> {
    static COUNT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let count = COUNT.get_or_try_init(py, || py.import("sys")?.getattr("getrefcount").map(Bound::unbind))?;
    count.bind(py).call1((object,))?.extract()
}

/// Several columns of `width` numbers a request in one array.
pub struct Columns<T: Element> {
    dtype: &'static str,
    width: usize,
    rows: usize,
    filled: Vec<T>,
    owner: Py<PyAny>,
    /// Taken before the array was made read-only, so that no other code can write to it.
    buffer: PyBuffer<T>,
    /// What was asked for in this call: slices of `owner`, to which all slices of them refer as well.
    seen: Vec<Option<Py<PyAny>>>,
    /// References to `owner` while no slice is lent.
    alone: usize,
}

impl<T: Element + Default> Columns<T> {
    /// Columns with room for `rows` requests.
    ///
    /// # Errors
    /// numpy is not there, or has no memory.
    pub fn new(py: Python<'_>, dtype: &'static str, columns: usize, width: usize, rows: usize) -> PyResult<Self> {
        let numbers = columns * width * rows;
        let owner = py.import("numpy")?.call_method1("zeros", (numbers, dtype))?;
        let buffer = PyBuffer::get(&owner)?;
        owner.getattr("flags")?.setattr("writeable", false)?;
        let alone = holders(py, &owner)?;
        let (filled, seen) = (vec![T::default(); numbers], (0..columns).map(|_| None).collect());
        Ok(Columns { dtype, width, rows, filled, owner: owner.unbind(), buffer, seen, alone })
    }

    /// Makes room for a batch of `n` requests.
    ///
    /// # Errors
    /// There is no memory.
    pub fn reserve(&mut self, py: Python<'_>, n: usize) -> PyResult<()> {
        if n > self.rows {
            *self = Columns::new(py, self.dtype, self.seen.len(), self.width, 2 * n)?;
        }
        Ok(())
    }

    /// Sets the first numbers of a column.
    pub fn set(&mut self, column: usize, values: impl Iterator<Item = T>) {
        let size = self.width * self.rows;
        self.filled[column * size..][..size].iter_mut().zip(values).for_each(|(cell, value)| *cell = value);
    }

    /// Python sees what was set.
    ///
    /// # Errors
    /// None that can happen.
    pub fn show(&self, py: Python<'_>) -> PyResult<()> {
        self.buffer.copy_from_slice(py, &self.filled)
    }

    /// The first `n` rows of a column: one dimension, or two where a row has several numbers.
    ///
    /// # Errors
    /// There is no memory.
    pub fn view(&mut self, py: Python<'_>, column: usize, n: usize) -> PyResult<Py<PyAny>> {
        if self.seen[column].is_none() {
            let from = column * self.width * self.rows;
            let view =
                self.owner.bind(py).get_item(PySlice::new(py, from as isize, (from + n * self.width) as isize, 1))?;
            let view = match self.width {
                1 => view,
                width => view.call_method1(intern!(py, "reshape"), (n, width))?,
            };
            self.seen[column] = Some(view.unbind());
        }
        Ok(self.seen[column].as_ref().expect("just made").clone_ref(py))
    }

    /// The call is over.
    pub fn forget(&mut self) {
        self.seen.iter_mut().for_each(|seen| *seen = None);
    }

    /// Does anybody still have a column? To be asked once they were forgotten.
    ///
    /// # Errors
    /// None that can happen.
    pub fn is_kept(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(holders(py, self.owner.bind(py))? > self.alone)
    }

    /// Was a column asked for in this call?
    pub fn is_seen(&self) -> bool {
        self.seen.iter().any(Option::is_some)
    }
}
