//! Reads and checks the values that the hooks of a Python policy return. A hook is a method of the policy that the
//! engine calls at one moment of a step. Error messages use the Python names of the hooks and of their values.

use foretoken_sim::{Drafts, Growth, MAX_SPEC_LEN, MAX_TREE_TOKENS, Wants};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat, PyInt, PyString};

/// The value that a hook of a Python policy returns: one value for the whole batch, or one value per request.
pub enum Answer<T> {
    All(T),
    Each(Vec<T>),
}

impl Answer<u32> {
    /// Writes the draft or verify lengths that a hook returned into `lens`, one per request. It is an error if the
    /// length of request i is above `most(i)`.
    pub fn into(self, lens: &mut [u32], most: impl Fn(usize) -> u32, what: &str, whose: &str) -> PyResult<()> {
        for (i, len) in lens.iter_mut().enumerate() {
            let given = match &self {
                Answer::All(given) => *given,
                Answer::Each(each) => each[i],
            };
            let most = most(i);
            if given > most {
                return Err(wrong(format!(
                    "it returned a {what} length of {given} for request {i} of the batch, and {whose} {most}"
                )));
            }
            *len = given;
        }
        Ok(())
    }
}

fn wrong(what: String) -> PyErr {
    PyValueError::new_err(what)
}

/// Returns the text of a value for error messages: at most the first 80 characters of its `repr`.
fn shown(value: &Bound<'_, PyAny>) -> String {
    let text = value.repr().map_or_else(|_| "something".to_owned(), |r| r.to_string());
    match text.char_indices().nth(80) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}

/// Reads a whole number of at least 0. Accepts numpy's integers; refuses `True` and floats.
fn whole(value: &Bound<'_, PyAny>) -> PyResult<u32> {
    let no = || wrong(format!("it returned {}, and lengths are whole numbers from 0", shown(value)));
    if value.is_instance_of::<PyBool>() || value.is_instance_of::<PyFloat>() {
        return Err(no());
    }
    let given: i64 = value.extract().map_err(|_| no())?;
    u32::try_from(given).map_err(|_| no())
}

fn of_batch<T>(n: usize, each: Vec<T>) -> PyResult<Answer<T>> {
    match each.len() == n {
        true => Ok(Answer::Each(each)),
        false => Err(wrong(format!("it returned {} values for a batch of {n} requests", each.len()))),
    }
}

/// Returns the values of a Python sequence. Refuses a `str`, and a value that is not a sequence.
fn items<'py>(value: &Bound<'py, PyAny>, expected: &str) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let no = |_| PyTypeError::new_err(format!("it returned {}, and {expected}", shown(value)));
    if value.is_instance_of::<PyString>() {
        return Err(no(()));
    }
    value.try_iter().map_err(|_| no(()))?.collect()
}

/// Reads the draft or verify lengths of a batch of `n` requests: one number for all requests, or one number per
/// request.
pub fn lengths(value: &Bound<'_, PyAny>, n: usize) -> PyResult<Answer<u32>> {
    if value.is_instance_of::<PyInt>() || value.is_instance_of::<PyFloat>() {
        return Ok(Answer::All(whole(value)?));
    }
    if let Ok(buffer) = PyBuffer::<i64>::get(value)
        && buffer.dimensions() == 1
    {
        let narrow = |v: i64| u32::try_from(v).map_err(|_| wrong(format!("it returned {v} as a length")));
        return of_batch(n, buffer.to_vec(value.py())?.into_iter().map(narrow).collect::<PyResult<_>>()?);
    }
    if value.hasattr("__index__")? && value.len().is_err() {
        return Ok(Answer::All(whole(value)?));
    }
    let each = items(value, "lengths are a whole number, or one for each request")?;
    of_batch(n, each.iter().map(whole).collect::<PyResult<_>>()?)
}

/// The value that the hook `limit` of a Python policy returned: for each request, the most tokens of a chain or levels
/// of a tree that the policy may draft (`depth`), and the most nodes of a tree to verify (`tree_tokens`). `depth` and
/// `tree_tokens` hold for this step; `max_depth` and `max_tree_tokens` hold for the whole run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limit {
    pub depth: u32,
    pub tree_tokens: u32,
    pub max_depth: u32,
    pub max_tree_tokens: u32,
}

impl Limit {
    /// Checks that this limit is at most the maximum that `ever` states. `ever` is the first value that the policy's
    /// hook `limit` returned.
    pub fn within(&self, ever: &Limit) -> PyResult<()> {
        let limits = [("depth", self.depth, ever.max_depth), ("tree_tokens", self.tree_tokens, ever.max_tree_tokens)];
        match limits.into_iter().find(|(_, now, most)| now > most) {
            None => Ok(()),
            Some((what, now, most)) => Err(wrong(format!(
                "{what} is {now} now, and the first answer said that it is never more than {most}: say so from the beginning \
                 (`foretoken.Limit(depth, max_depth=…)`)"
            ))),
        }
    }
}

/// Reads the value that the hook `limit` returned: a number, or a `foretoken.Limit`. A limit above the most that any
/// engine can draft is an error.
pub fn limit(value: Bound<'_, PyAny>) -> PyResult<Limit> {
    let limit = if value.hasattr("max_tree_tokens")? {
        let number_at = |key: &str| whole(&value.getattr(key)?);
        Limit {
            depth: number_at("depth")?,
            tree_tokens: number_at("tree_tokens")?,
            max_depth: number_at("max_depth")?,
            max_tree_tokens: number_at("max_tree_tokens")?,
        }
    } else {
        let depth = whole(&value)?;
        Limit { depth, max_depth: depth, ..Limit::default() }
    };
    for (what, given, most) in
        [("max_depth", limit.max_depth, MAX_SPEC_LEN), ("max_tree_tokens", limit.max_tree_tokens, MAX_TREE_TOKENS)]
    {
        if given > most {
            return Err(wrong(format!("{what} is {given}, and an engine drafts at most {most}")));
        }
    }
    Ok(limit)
}

/// The value that the hook `propose` of a Python policy returned: draft lengths, or depths of draft trees.
pub struct Proposal {
    /// How draft trees grow; `None` if the policy drafts chains.
    pub growth: Option<Growth>,
    pub lengths: Answer<u32>,
}

/// Reads the value that the hook `propose` returned for `n` requests. For chains the value has draft lengths. For trees
/// it is a `foretoken.Beam` or a `foretoken.Expansion`, which has the depths.
pub fn propose(value: Bound<'_, PyAny>, n: usize) -> PyResult<Proposal> {
    let growth = if let Some(topk) = value.getattr_opt("topk")? {
        Some(Growth::Beam { topk: at_least_one("topk", whole(&topk)?)? })
    } else if let Some(children) = value.getattr_opt("children")? {
        let each = items(&children, "children is one number a level")?;
        let each: Vec<u32> = each.iter().map(|c| at_least_one("children", whole(c)?)).collect::<PyResult<_>>()?;
        if each.is_empty() {
            return Err(wrong("children is empty: it has a number a level".into()));
        }
        Some(Growth::Expansion(each.into()))
    } else {
        None
    };
    let lengths = match &growth {
        Some(_) => lengths(&value.getattr("depth")?, n)?,
        None => lengths(&value, n)?,
    };
    Ok(Proposal { growth, lengths })
}

fn at_least_one(what: &str, value: u32) -> PyResult<u32> {
    if (1..=MAX_TREE_TOKENS).contains(&value) {
        return Ok(value);
    }
    Err(wrong(format!("{what} is {value}, and it is from 1 to {MAX_TREE_TOKENS}")))
}

/// Reads the value that the hook `keep_drafting` returned for `n` requests: one boolean for all requests, or one
/// boolean per request.
pub fn keep_drafting(value: &Bound<'_, PyAny>, n: usize) -> PyResult<Answer<bool>> {
    const EXPECTED: &str = "keep_drafting says True or False, for all or for each request";
    let truth = |value: &Bound<'_, PyAny>| -> PyResult<Option<bool>> {
        // Numpy's boolean type `bool_` is accepted besides Python's `bool`.
        let named = value.get_type().name()?;
        match named.to_string_lossy().as_ref() {
            "bool" | "bool_" if value.len().is_err() => value.is_truthy().map(Some),
            _ => Ok(None),
        }
    };
    if let Some(all) = truth(value)? {
        return Ok(Answer::All(all));
    }
    let each = |item: &Bound<'_, PyAny>| {
        truth(item)?.ok_or_else(|| wrong(format!("it returned {} for a request, and {EXPECTED}", shown(item))))
    };
    of_batch(n, items(value, EXPECTED)?.iter().map(each).collect::<PyResult<_>>()?)
}

/// Reads the value that the hook `max_batch` returned: how many of the batch's `n` requests take part in the step,
/// counted from the first request. `None` if all take part.
pub fn count(value: &Bound<'_, PyAny>, n: usize) -> PyResult<Option<usize>> {
    if value.is_none() {
        return Ok(None);
    }
    match whole(value)? as usize {
        taking_part if (1..=n).contains(&taking_part) => Ok(Some(taking_part)),
        given => Err(wrong(format!("it lets {given} of {n} requests take part: at least one does"))),
    }
}

/// Reads the value that the hook `select` returned for draft trees, and marks the nodes to verify in `drafts`. The
/// value has one entry per request: a number n, to verify the n nodes with the highest scores, or a boolean per node. A
/// single number holds for all requests; `None` verifies all nodes. It is an error to verify more than `limit[i]` nodes
/// of request i.
pub fn select_trees(value: &Bound<'_, PyAny>, drafts: &mut Drafts, limit: &[u32]) -> PyResult<()> {
    if value.is_none() {
        return Ok(());
    }
    const EXPECTED: &str =
        "of trees it says for each request how many of the best nodes are verified, or a True or False a node";
    let n = limit.len();
    let each = match value.is_instance_of::<PyInt>() {
        true => vec![value.clone(); n],
        false => items(value, EXPECTED)?,
    };
    if each.len() != n {
        return Err(wrong(format!("it returned {} values for a batch of {n} requests", each.len())));
    }
    let mut order = Vec::new();
    for (i, (kept, tree)) in each.iter().zip(&mut drafts.trees).enumerate() {
        if kept.len().is_err() {
            tree.keep_best(whole(kept)?, &mut order);
        } else {
            let nodes = tree.nodes().len();
            let Answer::Each(kept) = keep_drafting(kept, nodes)? else { unreachable!("it has a length") };
            let orphan = tree
                .nodes()
                .iter()
                .zip(&kept)
                .position(|(node, keep)| *keep && kept.get(node.parent as usize).is_some_and(|parent| !parent));
            if let Some(node) = orphan {
                return Err(wrong(format!("of request {i} it keeps node {node} without its parent")));
            }
            tree.keep(|at, _| kept[at]);
        }
        if tree.kept() > limit[i] {
            let kept = tree.kept();
            return Err(wrong(format!(
                "of request {i} it keeps {kept} nodes, and the request's limit is {}",
                limit[i]
            )));
        }
    }
    Ok(())
}

/// Reads `wants`, the policy's tuple of names of the draft data that it wants to see (such as `confidence`).
pub fn wants(value: &Bound<'_, PyAny>) -> PyResult<Wants> {
    let mut wants = Wants::default();
    let names = match value.extract::<String>() {
        Ok(one) => vec![one],
        Err(_) => value
            .extract::<Vec<String>>()
            .map_err(|_| PyTypeError::new_err(format!("`wants` is {}, and it is a tuple of names", shown(value))))?,
    };
    for name in names {
        match name.as_str() {
            "confidence" => wants.confidence = true,
            "entropy" => wants.entropy = true,
            "divergence" => wants.divergence = true,
            _ => {
                return Err(wrong(format!(
                    "`wants` names `{name}`: a policy can want `confidence`, `entropy` and `divergence`"
                )));
            }
        }
    }
    Ok(wants)
}
