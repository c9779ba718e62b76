//! The Python objects that a policy's hooks (methods that the engine calls) receive. Every call gets the same objects
//! with new contents. A hook may therefore read an object and its arrays only during the call.

use crate::arrays::Columns;
use crate::lending::{Lending, Lent};
use crate::tree::trees;
use foretoken_sim::{BatchView, ChunkTotals, Drafts as SimDrafts, NewRequest as SimNewRequest, StepOutcome, Wants};
use pyo3::prelude::*;
use pyo3::types::PyList;

/// Number of requests for which the arrays of a batch have space before they are enlarged for the first time.
const ROWS: usize = 16;

/// The prompt chunks that one pass computes, as sums over the chunks.
#[pyclass(frozen, get_all, module = "foretoken")]
#[derive(Clone, Copy, Default)]
pub struct Chunks {
    /// Number of prompt chunks in the pass.
    chunks: u32,
    /// Number of new prompt tokens, summed over the chunks.
    tokens: u64,
    /// Tokens that are in KV before the chunks, summed over the chunks.
    context: u64,
    /// Query-key pairs of the attention of all chunks.
    pairs: u64,
}

impl From<ChunkTotals> for Chunks {
    fn from(of: ChunkTotals) -> Chunks {
        let ChunkTotals { chunks, tokens, context, pairs } = of;
        Chunks { chunks, tokens, context, pairs }
    }
}

/// A request that is admitted for the first time.
#[pyclass(frozen, get_all, module = "foretoken")]
pub struct NewRequest {
    /// Id of the request.
    id: u32,
    /// Number of tokens of its prompt.
    prompt_len: u32,
    /// Number of its prompt tokens that were found in the prefix cache.
    num_cached_tokens: u32,
    /// The most tokens that it may emit.
    max_tokens: u32,
    /// Its category, an index into the names of the workload's categories, or None.
    category: Option<u16>,
    /// Number of requests in the running list, including this one.
    num_running: u32,
    /// Number of requests that wait for admission.
    num_waiting: u32,
}

impl From<&SimNewRequest> for NewRequest {
    fn from(of: &SimNewRequest) -> NewRequest {
        let &SimNewRequest { id, prompt_len, num_cached_tokens, max_tokens, category, num_running, num_waiting } = of;
        NewRequest { id, prompt_len, num_cached_tokens, max_tokens, category, num_running, num_waiting }
    }
}

/// The decode requests of a step, in the order of the running list, and the server's load.
#[pyclass(module = "foretoken")]
pub struct Batch {
    /// The engine's clock at the start of the step, seconds.
    #[pyo3(get)]
    now: f64,
    /// Index of the step, from 0.
    #[pyo3(get)]
    step: u64,
    /// Sum of `context` (tokens in the target's KV) over the requests.
    #[pyo3(get)]
    context_sum: u64,
    /// Prompt chunks that the target pass of this step computes.
    #[pyo3(get)]
    prefill: Chunks,
    /// Prompt chunks that the first draft pass of this step computes.
    #[pyo3(get)]
    draft_prefill: Chunks,
    /// True if the draft model processes all catch-up tokens (tokens that it has not processed yet) in every step, even
    /// if it drafts nothing.
    #[pyo3(get)]
    always_extend: bool,
    /// Number of requests in the running list, including requests that are still in prefill.
    #[pyo3(get)]
    num_running: u32,
    /// Number of requests that wait for admission.
    #[pyo3(get)]
    num_waiting: u32,
    len: usize,
    counts: Columns<i64>,
    bounds: Columns<f64>,
}

#[pymethods]
impl Batch {
    fn __len__(&self) -> usize {
        self.len
    }

    /// Ids of the decode requests in this step.
    #[getter]
    fn ids(&mut self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.counts.view(py, 0, self.len)
    }

    /// Number of tokens of each request in the target's KV.
    #[getter]
    fn context(&mut self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.counts.view(py, 1, self.len)
    }

    /// Number of output tokens that each request has emitted so far.
    #[getter]
    fn emitted(&mut self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.counts.view(py, 2, self.len)
    }

    /// The most tokens that each request may draft in this step.
    #[getter]
    fn limit(&mut self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.counts.view(py, 3, self.len)
    }

    /// Number of catch-up tokens of each request: tokens that the draft model has not processed yet.
    #[getter]
    fn draft_gap(&mut self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.counts.view(py, 4, self.len)
    }

    /// The category of each request, an index into ``context.categories``; -1 for a request without a category.
    #[getter]
    fn category(&mut self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.counts.view(py, 5, self.len)
    }

    /// Each request's own TPOT bound, seconds; infinity for a request without a bound.
    #[getter]
    fn slo_tpot_s(&mut self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.bounds.view(py, 0, self.len)
    }
}

impl Lent for Batch {
    fn take_back(&mut self) -> bool {
        let seen = self.counts.is_seen() || self.bounds.is_seen();
        self.counts.forget();
        self.bounds.forget();
        seen
    }

    fn is_kept(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.counts.is_kept(py)? || self.bounds.is_kept(py)?)
    }
}

impl Batch {
    /// Makes the batch object that hooks receive. [`fill`](Self::fill) fills it before each call of a hook.
    ///
    /// # Errors
    /// If numpy is missing.
    pub fn lending(py: Python<'_>) -> PyResult<Lending<Batch>> {
        let batch = Batch {
            now: 0.0,
            step: 0,
            context_sum: 0,
            prefill: Chunks::default(),
            draft_prefill: Chunks::default(),
            always_extend: false,
            num_running: 0,
            num_waiting: 0,
            len: 0,
            counts: Columns::new(py, "int64", 6, 1, ROWS)?,
            bounds: Columns::new(py, "float64", 1, 1, ROWS)?,
        };
        Lending::new(py, Py::new(py, batch)?, 0)
    }

    /// Fills the batch object with the requests of the batch `of`.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn fill(&mut self, py: Python<'_>, of: &BatchView) -> PyResult<()> {
        let n = of.len();
        (self.now, self.step, self.len) = (of.now.as_s(), of.step, n);
        (self.context_sum, self.always_extend) = (of.context_sum, of.always_extend);
        (self.prefill, self.draft_prefill) = (of.prefill.into(), of.draft_prefill.into());
        (self.num_running, self.num_waiting) = (of.num_running, of.num_waiting);
        self.counts.reserve(py, n)?;
        for (column, values) in [of.ids, of.context, of.emitted, of.limit, of.draft_gap].into_iter().enumerate() {
            self.counts.set(column, values.iter().map(|&v| i64::from(v)));
        }
        self.counts.set(5, (0..n).map(|i| of.category(i).map_or(-1, i64::from)));
        self.counts.show(py)?;
        self.bounds.reserve(py, n)?;
        self.bounds.set(0, of.slo_tpot_s.iter().copied());
        self.bounds.show(py)
    }
}

/// The draft tokens of this step.
#[pyclass(module = "foretoken")]
pub struct Drafts {
    /// Number of draft passes in this step so far.
    #[pyo3(get)]
    passes: u32,
    /// The draft tree of each request; `None` if chains are drafted.
    #[pyo3(get)]
    trees: Option<Py<PyList>>,
    wants: Wants,
    in_chains: bool,
    len: usize,
    depth: usize,
    lens: Columns<i64>,
    said: Columns<f64>,
}

#[pymethods]
impl Drafts {
    fn __len__(&self) -> usize {
        self.len
    }

    /// Number of draft tokens that each request has now; for a draft tree, its depth.
    #[getter]
    fn draft_len(&mut self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.lens.view(py, 0, self.len)
    }

    /// The draft model's probability of each drafted token, one row per request; NaN where no token was drafted. `None`
    /// if `wants` lacks `confidence`, or if trees are drafted.
    #[getter]
    fn confidence(&mut self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        self.table(py, 0, self.wants.confidence)
    }

    /// The entropy of the draft model's distribution at each drafted token, nats, one row per request; NaN where no
    /// token was drafted. `None` if `wants` lacks `entropy`, or if trees are drafted.
    #[getter]
    fn entropy(&mut self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        self.table(py, 1, self.wants.entropy)
    }

    /// KL(target ‖ draft), nats, at each verified position up to and including the first rejected position; NaN
    /// elsewhere. Known only in `observe`; NaN in other hooks. `None` if `wants` lacks `divergence`, or if trees are
    /// drafted.
    #[getter]
    fn divergence(&mut self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        self.table(py, 2, self.wants.divergence)
    }
}

impl Lent for Drafts {
    fn take_back(&mut self) -> bool {
        let seen = self.lens.is_seen() || self.said.is_seen();
        self.lens.forget();
        self.said.forget();
        seen
    }

    fn is_kept(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.lens.is_kept(py)? || self.said.is_kept(py)?)
    }
}

impl Drafts {
    /// Makes the drafts object that hooks receive (the draft tokens of a step), with room for `depth` tokens per
    /// request. `others` is the number of objects that will refer to the drafts object.
    ///
    /// # Errors
    /// If numpy is missing.
    pub fn lending(py: Python<'_>, depth: u32, wants: Wants, others: usize) -> PyResult<Lending<Drafts>> {
        let depth = (depth as usize).max(1);
        let drafts = Drafts {
            passes: 0,
            trees: None,
            wants,
            in_chains: true,
            len: 0,
            depth,
            lens: Columns::new(py, "int64", 1, 1, ROWS)?,
            said: Columns::new(py, "float64", 3, depth, ROWS)?,
        };
        Lending::new(py, Py::new(py, drafts)?, others)
    }

    fn table(&mut self, py: Python<'_>, column: usize, wanted: bool) -> PyResult<Option<Py<PyAny>>> {
        if wanted && self.in_chains { self.said.view(py, column, self.len).map(Some) } else { Ok(None) }
    }

    /// Fills the drafts object that hooks receive with the draft tokens of `n` requests. `accepted` is the number of
    /// accepted draft tokens of each request; `None` if the draft tokens are not verified yet.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn fill(&mut self, py: Python<'_>, n: usize, of: &SimDrafts, accepted: Option<&[u32]>) -> PyResult<()> {
        (self.passes, self.len, self.in_chains) = (of.passes, n, !of.in_trees());
        self.lens.reserve(py, n)?;
        self.lens.set(0, of.draft_len[..n].iter().map(|&v| i64::from(v)));
        self.lens.show(py)?;
        self.trees = match self.in_chains {
            true => None,
            false => Some(trees(py, &of.trees[..n])?),
        };
        if !self.in_chains || self.wants == Wants::default() {
            return Ok(());
        }
        self.said.reserve(py, n)?;
        let depth = self.depth;
        let cells = || (0..n).flat_map(move |i| (0..depth).map(move |j| (i, j)));
        let drafted = |i: usize, j: usize| j < of.draft_len[i] as usize;
        // The divergence KL(target ‖ draft) is known for the verified positions up to and including the first rejected
        // position.
        let known = |i: usize, j: usize| accepted.is_some_and(|a| j <= a[i] as usize && j < of.verify_len[i] as usize);
        if self.wants.confidence {
            let at = |(i, j)| if drafted(i, j) { of.confidence(i, j) } else { f64::NAN };
            self.said.set(0, cells().map(at));
        }
        if self.wants.entropy {
            let at = |(i, j)| if drafted(i, j) { of.entropy(i, j) } else { f64::NAN };
            self.said.set(1, cells().map(at));
        }
        if self.wants.divergence {
            let at = |(i, j)| if known(i, j) { of.divergence(i, j) } else { f64::NAN };
            self.said.set(2, cells().map(at));
        }
        self.said.show(py)
    }
}

/// The outcome of a step: what was drafted, verified and accepted, and how long it took.
#[pyclass(module = "foretoken")]
pub struct Outcome {
    /// The drafts of the step: confidences, number of draft passes, draft trees.
    #[pyo3(get)]
    drafts: Py<Drafts>,
    /// Time of the step's draft passes and of the policy's decisions, seconds.
    #[pyo3(get)]
    draft_time: f64,
    /// Time of the step's target pass, seconds.
    #[pyo3(get)]
    verify_time: f64,
    len: usize,
    counts: Columns<i64>,
}

#[pymethods]
impl Outcome {
    fn __len__(&self) -> usize {
        self.len
    }

    /// Ids of the decode requests, in the order of the step's batch.
    #[getter]
    fn ids(&mut self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.counts.view(py, 0, self.len)
    }

    /// Number of drafted tokens of each request; for a draft tree, its depth.
    #[getter]
    fn drafted(&mut self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.counts.view(py, 1, self.len)
    }

    /// Number of verified draft tokens of each request; for a draft tree, the depth of its verified part.
    #[getter]
    fn verified(&mut self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.counts.view(py, 2, self.len)
    }

    /// Number of accepted draft tokens of each request, without the bonus token.
    #[getter]
    fn accepted(&mut self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.counts.view(py, 3, self.len)
    }
}

impl Lent for Outcome {
    fn take_back(&mut self) -> bool {
        let seen = self.counts.is_seen();
        self.counts.forget();
        seen
    }

    fn is_kept(&self, py: Python<'_>) -> PyResult<bool> {
        self.counts.is_kept(py)
    }
}

impl Outcome {
    /// Makes the outcome object that hooks receive. It refers to the drafts object `drafts`. [`fill`](Self::fill) fills
    /// it before each call of a hook.
    ///
    /// # Errors
    /// If numpy is missing.
    pub fn lending(py: Python<'_>, drafts: &Py<Drafts>) -> PyResult<Lending<Outcome>> {
        let drafts = drafts.clone_ref(py);
        let counts = Columns::new(py, "int64", 4, 1, ROWS)?;
        Lending::new(py, Py::new(py, Outcome { drafts, draft_time: 0.0, verify_time: 0.0, len: 0, counts })?, 0)
    }

    /// Fills the outcome object that hooks receive with the outcome of a step. It does not fill the drafts object
    /// `drafts`, which has its own `fill`.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn fill(&mut self, py: Python<'_>, of: &StepOutcome) -> PyResult<()> {
        let n = of.ids.len();
        (self.draft_time, self.verify_time, self.len) = (of.draft_time.as_s(), of.verify_time.as_s(), n);
        self.counts.reserve(py, n)?;
        for (column, values) in [of.ids, of.drafted, of.verified, of.accepted].into_iter().enumerate() {
            self.counts.set(column, values.iter().map(|&v| i64::from(v)));
        }
        self.counts.show(py)
    }
}
