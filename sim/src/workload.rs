//! The requests of a run, in order of arrival, as a structure of arrays.

use crate::time::Time;

/// The id of a request: its index in its [`Workload`]. Ids are dense and in order of arrival. Only in an engine that
/// forgets ended requests a later request can have the id of an ended request ([`Workload::number`]).
pub type RequestId = u32;

/// One request, as a reader or generator makes it.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// When the request is sent (closed-loop arrivals ignore this).
    pub arrival: Time,
    /// Prompt length in tokens, at least 1.
    pub prompt_len: u32,
    /// Number of tokens that the request will emit, at least 1. Policies never see this.
    pub output_len: u32,
    /// Index into [`Workload::categories`]; 0 if the trace has no categories.
    pub category: u16,
    /// The request's own limit on the time per output token, seconds; `None` if the trace gives none.
    pub slo_tpot_s: Option<f64>,
    /// Priority of the request. Under priority scheduling the lowest number is served first.
    pub priority: i32,
    /// Index of the recorded acceptance that this request replays ([`Workload::recordings`]); `None` if it replays
    /// none.
    pub recording: Option<u32>,
    /// Ids of the request's shared prefix blocks, `prefix_block` tokens each; full blocks only. Requests whose lists
    /// begin with the same ids share KV.
    pub prefix: Vec<u64>,
}

impl Request {
    /// A request without category, SLO, recording or shared prefix.
    pub fn new(arrival: Time, prompt_len: u32, output_len: u32) -> Request {
        Request {
            arrival,
            prompt_len,
            output_len,
            category: 0,
            slo_tpot_s: None,
            priority: 0,
            recording: None,
            prefix: Vec::new(),
        }
    }
}

/// The draft model's recorded acceptance on one request, with one entry for each output position.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recording {
    /// For each output position: whether the draft model's first guess was right. `None` if this is not known, for
    /// example because nothing was drafted at the position.
    pub bits: Vec<Option<bool>>,
    /// For each unknown position: how many draft tokens were accepted just before it in the same recorded step. 0 at
    /// known positions. This number selects the probability (hazard) that the draft token at the position is right.
    pub accepted_before: Vec<u8>,
    /// For each unknown position: the probability that a draft token there is right for this request, which may accept
    /// more or less than others. 0 at known positions. Empty if only the probabilities of all recordings are known.
    pub chances: Vec<f32>,
    /// For each output position where a round may start: how many draft tokens of the round would be accepted, if a
    /// draft model drafts it, and if a lookup does. Empty if no two drafters were recorded.
    pub reach: [Vec<u8>; 2],
    /// Rank of the target's token among the draft model's guesses, from 1, for each output position. 255 stands for all
    /// ranks from 255 on. Empty if ranks were not recorded.
    pub ranks: Vec<u8>,
    /// The draft model's probability of its first guess, (0, 1], for each output position. Empty if probabilities were
    /// not recorded.
    pub confidences: Vec<f32>,
}

/// The mean rate of `requests` arrivals whose last comes `span_s` seconds after the first, requests per second: the
/// number of gaps over their time. With n / span instead, a load of 20 requests a second apart would have 1.05 a
/// second. `None` if all come at once.
pub fn arrival_rate(requests: usize, span_s: f64) -> Option<f64> {
    (span_s > 0.0).then(|| requests.saturating_sub(1) as f64 / span_s)
}

/// The output that a client asked for, which admission may count with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AskedOutput {
    /// The most output tokens that the client wants.
    pub max_new_tokens: u32,
    /// Whether the request goes on to `max_new_tokens` whatever its tokens are.
    pub ignore_eos: bool,
}

/// All requests of a run, sorted by arrival time.
#[derive(Clone, Debug, Default)]
pub struct Workload {
    /// Arrival time of each request, non-decreasing.
    pub arrival: Vec<Time>,
    /// Prompt length of each request, tokens.
    pub prompt_len: Vec<u32>,
    /// Output length of each request, tokens.
    pub output_len: Vec<u32>,
    /// Category of each request: an index into `categories`.
    pub category: Vec<u16>,
    /// TPOT limit of each request, seconds, infinity for none. Empty if no request has a limit of its own.
    pub slo_tpot_s: Vec<f64>,
    /// Priority of each request; the lowest number is served first. Empty if all are 0.
    pub priority: Vec<i32>,
    /// The output that each client asked for. Empty if this is not known; SGLang's scheduler alone looks at it.
    pub asked: Vec<AskedOutput>,
    /// Recorded acceptance that each request replays: an index into `recordings`, `u32::MAX` for none. Empty if no
    /// request has one.
    pub recording: Vec<u32>,
    /// Prefix block ids of all requests, one after another. Empty if no request shares a prefix.
    pub prefix_ids: Vec<u64>,
    /// For each request the index in `prefix_ids` of its first prefix block id. One further entry at the end has the
    /// end of the last request's ids. Empty if no request shares a prefix.
    pub prefix_start: Vec<u32>,
    /// The prefix block ids of each request, in an engine in which later requests take the ids of ended requests.
    /// Otherwise empty.
    pub own_prefix: Vec<Vec<u64>>,
    /// The number of each request (how many requests came before it), in an engine in which later requests take the ids
    /// of ended requests. Otherwise empty.
    pub numbers: Vec<RequestId>,
    /// Whether requests that share prefixes may still come, in an engine to which requests come while it runs.
    pub awaits_prefixes: bool,
    /// Tokens in a prefix block (512 for Mooncake).
    pub prefix_block: u32,
    /// For each request the next turn of its session; `u32::MAX` if there is none. Empty if the workload has no
    /// sessions.
    pub next_turn: Vec<RequestId>,
    /// For each request the time from its end until the next turn of its session is sent. Empty if the workload has no
    /// sessions.
    pub gap: Vec<Time>,
    /// Names of the request categories, such as chat, code and documents.
    pub categories: Vec<String>,
    /// Recorded acceptance of a real run: which draft tokens were right. `recording` has for each request the index in
    /// this list.
    pub recordings: Vec<Recording>,
    /// For positions where the recordings do not say whether the draft token is right: P(right | i − 1 draft tokens of
    /// the round were accepted), i = 1, 2, …. Empty if the recordings have no such probabilities.
    pub hazards: Vec<f64>,
}

impl Workload {
    /// Number of requests in the workload.
    pub fn len(&self) -> usize {
        self.arrival.len()
    }

    /// Whether there are no requests.
    pub fn is_empty(&self) -> bool {
        self.arrival.is_empty()
    }

    /// Appends a request. Panics if the request arrives before the last request of the workload, so readers of traces
    /// must sort the requests or refuse the trace first.
    pub fn push(&mut self, r: Request) {
        assert!(
            self.arrival.last().is_none_or(|&last| last <= r.arrival),
            "requests must be pushed in order of arrival"
        );
        let n = self.len();
        if r.slo_tpot_s.is_some() && self.slo_tpot_s.is_empty() {
            self.slo_tpot_s.resize(n, f64::INFINITY);
        }
        if r.slo_tpot_s.is_some() || !self.slo_tpot_s.is_empty() {
            self.slo_tpot_s.push(r.slo_tpot_s.unwrap_or(f64::INFINITY));
        }
        if r.priority != 0 && self.priority.is_empty() {
            self.priority.resize(n, 0);
        }
        if r.priority != 0 || !self.priority.is_empty() {
            self.priority.push(r.priority);
        }
        if r.recording.is_some() && self.recording.is_empty() {
            self.recording.resize(n, u32::MAX);
        }
        if r.recording.is_some() || !self.recording.is_empty() {
            self.recording.push(r.recording.unwrap_or(u32::MAX));
        }
        if !r.prefix.is_empty() && self.prefix_start.is_empty() {
            self.prefix_start.resize(n + 1, 0);
        }
        if !self.prefix_start.is_empty() {
            self.prefix_ids.extend_from_slice(&r.prefix);
            self.prefix_start.push(u32::try_from(self.prefix_ids.len()).expect("fewer than 2^32 prefix blocks"));
        }
        self.arrival.push(r.arrival);
        self.prompt_len.push(r.prompt_len);
        self.output_len.push(r.output_len);
        self.category.push(r.category);
    }

    /// Stores request `r` under the id `id`, which is unused or the id of an ended request. `number` says how many
    /// requests came before it ([`number`](Workload::number)). `goes_on` says whether its session has a next turn.
    pub(crate) fn put(&mut self, id: RequestId, number: RequestId, r: Request, goes_on: bool) {
        let i = id as usize;
        set(&mut self.arrival, i, r.arrival, Time::ZERO);
        set(&mut self.prompt_len, i, r.prompt_len, 0);
        set(&mut self.output_len, i, r.output_len, 0);
        set(&mut self.category, i, r.category, 0);
        set(&mut self.numbers, i, number, 0);
        set_unless(&mut self.slo_tpot_s, i, r.slo_tpot_s.unwrap_or(f64::INFINITY), f64::INFINITY);
        set_unless(&mut self.priority, i, r.priority, 0);
        set_unless(&mut self.recording, i, r.recording.unwrap_or(u32::MAX), u32::MAX);
        set_unless(&mut self.own_prefix, i, r.prefix, Vec::new());
        set_unless(&mut self.next_turn, i, if goes_on { id } else { RequestId::MAX }, RequestId::MAX);
    }

    /// The number of a request: how many requests came before it. Random draws are keyed by this number. The number
    /// equals the id, unless the request took the id of an ended request.
    pub fn number(&self, id: RequestId) -> RequestId {
        self.numbers.get(id as usize).copied().unwrap_or(id)
    }

    /// Whether any request's prompt begins with a prefix that other requests may share.
    pub fn shares_prefixes(&self) -> bool {
        !self.prefix_ids.is_empty() || !self.own_prefix.is_empty()
    }

    /// Whether any request that has come or may come shares a prefix.
    pub fn may_share_prefixes(&self) -> bool {
        self.awaits_prefixes || self.shares_prefixes()
    }

    /// A copy of the request `id`, prefix ids included.
    pub fn get(&self, id: RequestId) -> Request {
        let i = id as usize;
        Request {
            arrival: self.arrival[i],
            prompt_len: self.prompt_len[i],
            output_len: self.output_len[i],
            category: self.category[i],
            slo_tpot_s: self.slo_tpot_s.get(i).copied().filter(|s| s.is_finite()),
            priority: self.priority.get(i).copied().unwrap_or(0),
            recording: self.recording.get(i).copied().filter(|&r| r != u32::MAX),
            prefix: self.prefix(id).to_vec(),
        }
    }

    /// Whether the request has a next turn in its session.
    #[inline]
    pub fn goes_on(&self, id: RequestId) -> bool {
        self.next_turn.get(id as usize).is_some_and(|&next| next != RequestId::MAX)
    }

    /// The next turn of the request's session, and the gap from the request's end until this turn is sent. `None` if
    /// there is no next turn.
    #[inline]
    pub fn following(&self, id: RequestId) -> Option<(RequestId, Time)> {
        let next = self.next_turn.get(id as usize).copied().filter(|&next| next != RequestId::MAX)?;
        Some((next, self.gap[id as usize]))
    }

    /// The requests that are the first turn of a session, in order of arrival. All requests if there are no sessions.
    pub fn first_turns(&self) -> Vec<RequestId> {
        let mut first = vec![true; self.len()];
        self.next_turn.iter().filter(|&&next| next != RequestId::MAX).for_each(|&next| first[next as usize] = false);
        (0..self.len() as RequestId).filter(|&id| first[id as usize]).collect()
    }

    /// The ids of the request's shared prefix blocks; empty if the request shares no prefix.
    pub fn prefix(&self, id: RequestId) -> &[u64] {
        match (self.own_prefix.get(id as usize), self.prefix_start.get(id as usize..id as usize + 2)) {
            (Some(own), _) => own,
            (None, Some(&[start, end])) => &self.prefix_ids[start as usize..end as usize],
            _ => &[],
        }
    }
}

/// Sets entry `i` of a column of the workload, which has one entry for each request. Entries between the column's end
/// and `i` become `fill`.
fn set<T: Clone>(column: &mut Vec<T>, i: usize, value: T, fill: T) {
    if column.len() <= i {
        column.resize(i + 1, fill);
    }
    column[i] = value;
}

/// Like [`set`], which sets an entry of a column. But if the value is `fill` and `i` is beyond the column's end, the
/// column stays as it is.
fn set_unless<T: Clone + PartialEq>(column: &mut Vec<T>, i: usize, value: T, fill: T) {
    if i < column.len() || value != fill {
        set(column, i, value, fill);
    }
}

impl FromIterator<Request> for Workload {
    fn from_iter<I: IntoIterator<Item = Request>>(requests: I) -> Workload {
        let mut w = Workload::default();
        requests.into_iter().for_each(|r| w.push(r));
        w
    }
}

/// How requests arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrivals {
    /// Open arrivals: each request arrives at its time in the workload.
    Open,
    /// A fixed number of clients. Each client sends a request when its request before that has ended. Arrival times in
    /// the workload are ignored.
    Closed {
        /// Number of clients, which is also the most requests that are in the system at any time.
        clients: u32,
    },
    /// Sessions: the first turn of each session arrives at its time in the workload. Each further turn is sent when the
    /// turn before it has ended and the client has waited for a time, the gap ([`Workload::following`]).
    Sessions,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn optional_columns_appear_with_the_first_request_that_needs_them() {
        let mut with = Request::new(Time(2), 20, 2);
        with.slo_tpot_s = Some(0.05);
        with.priority = -1;
        with.prefix = vec![7, 8];
        let w: Workload =
            [Request::new(Time(1), 10, 1), with.clone(), Request::new(Time(3), 30, 3)].into_iter().collect();
        assert_eq!(w.get(1), with);
        assert_eq!((w.get(0).slo_tpot_s, w.get(0).priority, w.get(2).priority), (None, 0, 0));
        assert_eq!(w.prefix(0), &[] as &[u64]);
        assert_eq!(w.prefix(1), &[7, 8]);
        assert_eq!(w.get(2), Request::new(Time(3), 30, 3));
    }
}
