//! A draft tree, as a Python policy's hooks receive it.

use foretoken_sim::DraftTree;
use pyo3::prelude::*;
use pyo3::types::PyList;

/// A draft tree of one request. Each array is a copy with one entry per node, parents before their children.
#[pyclass(frozen, get_all, module = "foretoken")]
pub struct Tree {
    /// Index of each node's parent; −1 for a node at depth 1, whose parent is the newest emitted token.
    parent: Py<PyAny>,
    /// Depth of each node, from 1. The children of the newest emitted token have depth 1.
    depth: Py<PyAny>,
    /// Rank of each node among its siblings, from 1. The sibling to which the draft model gives the largest probability
    /// has rank 1.
    rank: Py<PyAny>,
    /// The draft model's probability of each node's token, given the tokens of its ancestors.
    confidence: Py<PyAny>,
    /// Product of the confidences on the path from the root to each node, the node included.
    score: Py<PyAny>,
    /// Number of nodes in the tree.
    nodes: usize,
}

#[pymethods]
impl Tree {
    fn __len__(&self) -> usize {
        self.nodes
    }
}

/// Returns the draft trees of a batch as a Python list with one tree per request.
///
/// # Errors
/// numpy cannot be imported.
pub fn trees(py: Python<'_>, of: &[DraftTree]) -> PyResult<Py<PyList>> {
    let array = py.import("numpy")?.getattr("array")?;
    let ints = |values: Vec<i64>| array.call1((values, "int64")).map(Bound::unbind);
    let floats = |values: Vec<f64>| array.call1((values, "float64")).map(Bound::unbind);
    let tree = |tree: &DraftTree| {
        let nodes = tree.nodes();
        // In the engine's tree, the parent `u32::MAX` stands for the root, the newest emitted token, which is not among
        // the nodes.
        let parent = nodes.iter().map(|n| if n.parent == u32::MAX { -1 } else { i64::from(n.parent) });
        let tree = Tree {
            parent: ints(parent.collect())?,
            depth: ints(nodes.iter().map(|n| i64::from(n.depth)).collect())?,
            rank: ints(nodes.iter().map(|n| i64::from(n.rank)).collect())?,
            confidence: floats(nodes.iter().map(|n| n.confidence).collect())?,
            score: floats(nodes.iter().map(|n| n.score).collect())?,
            nodes: nodes.len(),
        };
        Py::new(py, tree)
    };
    let trees: Vec<Py<Tree>> = of.iter().map(tree).collect::<PyResult<_>>()?;
    Ok(PyList::new(py, trees)?.unbind())
}
