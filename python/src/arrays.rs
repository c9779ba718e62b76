//! The columns of a batch as numpy arrays. Python owns the arrays. The program fills them before it calls a hook (a
//! method of the policy), and the hook may read them during the call. If a hook stored an array, the next call would
//! change the numbers in the stored array. Therefore the program counts references to find out whether a hook stored an
//! array.

use pyo3::buffer::{Element, PyBuffer};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PySlice;

/// Returns the number of references to a Python object, including the reference that this call itself takes.
pub fn holders(py: Python<'_>, object: &Bound<'_, PyAny>) -> PyResult<usize> {
    static COUNT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let count = COUNT.get_or_try_init(py, || py.import("sys")?.getattr("getrefcount").map(Bound::unbind))?;
    count.bind(py).call1((object,))?.extract()
}

/// Several columns of a batch in one numpy array. A column has `width` numbers per request.
pub struct Columns<T: Element> {
    dtype: &'static str,
    width: usize,
    rows: usize,
    filled: Vec<T>,
    owner: Py<PyAny>,
    /// Write access to the numpy array. It was taken before the array was made read-only for all other code.
    buffer: PyBuffer<T>,
    /// For each column, the slice of the array that the hook got in this call; `None` if the hook did not read the
    /// column. A slice that the hook makes of this slice also refers to `owner`.
    seen: Vec<Option<Py<PyAny>>>,
    /// Number of references to the numpy array `owner` while no hook has a slice of it.
    alone: usize,
}

impl<T: Element + Default> Columns<T> {
    /// Makes columns with space for `rows` requests.
    ///
    /// # Errors
    /// If numpy is missing or memory runs out.
    pub fn new(py: Python<'_>, dtype: &'static str, columns: usize, width: usize, rows: usize) -> PyResult<Self> {
        let numbers = columns * width * rows;
        let owner = py.import("numpy")?.call_method1("zeros", (numbers, dtype))?;
        let buffer = PyBuffer::get(&owner)?;
        owner.getattr("flags")?.setattr("writeable", false)?;
        let alone = holders(py, &owner)?;
        let (filled, seen) = (vec![T::default(); numbers], (0..columns).map(|_| None).collect());
        Ok(Columns { dtype, width, rows, filled, owner: owner.unbind(), buffer, seen, alone })
    }

    /// Enlarges the columns if they are too small for a batch of `n` requests.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn reserve(&mut self, py: Python<'_>, n: usize) -> PyResult<()> {
        if n > self.rows {
            *self = Columns::new(py, self.dtype, self.seen.len(), self.width, 2 * n)?;
        }
        Ok(())
    }

    /// Writes `values` into the first rows of a column (one row per request). Python sees the values after
    /// [`show`](Self::show).
    pub fn set(&mut self, column: usize, values: impl Iterator<Item = T>) {
        let size = self.width * self.rows;
        self.filled[column * size..][..size].iter_mut().zip(values).for_each(|(cell, value)| *cell = value);
    }

    /// Copies the values that [`set`](Self::set) wrote to the numpy array that Python sees.
    ///
    /// # Errors
    /// Never in practice: the buffer was checked when it was made.
    pub fn show(&self, py: Python<'_>) -> PyResult<()> {
        self.buffer.copy_from_slice(py, &self.filled)
    }

    /// Returns the first `n` rows of a column (one row per request) as a numpy array. The array has one dimension, or
    /// two dimensions if a row has several numbers.
    ///
    /// # Errors
    /// If memory runs out.
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

    /// Drops the slices of the array that this object stored while a hook ran. Call this method after each call of a
    /// hook.
    pub fn forget(&mut self) {
        self.seen.iter_mut().for_each(|seen| *seen = None);
    }

    /// Returns true if Python code still refers to a slice of the array. Call [`forget`](Self::forget) first.
    ///
    /// # Errors
    /// Never in practice: it only reads a count of references.
    pub fn is_kept(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(holders(py, self.owner.bind(py))? > self.alone)
    }

    /// Returns true if the hook read any of these columns in this call.
    pub fn is_seen(&self) -> bool {
        self.seen.iter().any(Option::is_some)
    }
}
