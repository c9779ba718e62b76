//! The waiting requests, in the order in which they are considered.

use crate::config::SchedulingPolicy;
use crate::engine::request::WaitingRequest;
use crate::time::Time;
use crate::workload::RequestId;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// The waiting list.
#[derive(Clone, Debug)]
pub enum RequestQueue {
    /// First come, first served; a preempted request goes to the front.
    Fcfs(VecDeque<WaitingRequest>),
    /// The lowest priority number first, then the first to arrive.
    Priority(BinaryHeap<Reverse<Ranked>>),
}

/// A waiting request, ordered by its rank.
#[derive(Clone, Copy, Debug)]
pub struct Ranked(WaitingRequest);

impl Ranked {
    fn rank(&self) -> (i32, Time, RequestId) {
        (self.0.priority, self.0.arrival, self.0.id)
    }
}

impl PartialEq for Ranked {
    fn eq(&self, other: &Ranked) -> bool {
        self.rank() == other.rank()
    }
}

impl Eq for Ranked {}

impl PartialOrd for Ranked {
    fn partial_cmp(&self, other: &Ranked) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ranked {
    fn cmp(&self, other: &Ranked) -> std::cmp::Ordering {
        self.rank().cmp(&other.rank())
    }
}

impl RequestQueue {
    /// An empty list, first come, first served.
    pub fn fcfs() -> RequestQueue {
        RequestQueue::Fcfs(VecDeque::new())
    }

    /// Sorts an FCFS list by rank, once.
    pub fn sort(&mut self) {
        if let RequestQueue::Fcfs(queue) = self {
            queue.make_contiguous().sort_by_key(|r| (r.priority, r.arrival));
        }
    }

    /// An empty list with this policy.
    pub fn new(policy: SchedulingPolicy) -> RequestQueue {
        match policy {
            SchedulingPolicy::Fcfs => RequestQueue::fcfs(),
            SchedulingPolicy::Priority => RequestQueue::Priority(BinaryHeap::new()),
        }
    }

    /// Adds a request that has arrived.
    pub fn push(&mut self, r: WaitingRequest) {
        match self {
            RequestQueue::Fcfs(queue) => queue.push_back(r),
            RequestQueue::Priority(heap) => heap.push(Reverse(Ranked(r))),
        }
    }

    /// Puts a request in front that was preempted, or put aside for this step.
    pub fn prepend(&mut self, r: WaitingRequest) {
        match self {
            RequestQueue::Fcfs(queue) => queue.push_front(r),
            RequestQueue::Priority(heap) => heap.push(Reverse(Ranked(r))),
        }
    }

    /// The next request, which stays in the list.
    pub fn peek(&self) -> Option<WaitingRequest> {
        match self {
            RequestQueue::Fcfs(queue) => queue.front().copied(),
            RequestQueue::Priority(heap) => heap.peek().map(|r| r.0.0),
        }
    }

    /// Takes the next request.
    pub fn pop(&mut self) -> Option<WaitingRequest> {
        match self {
            RequestQueue::Fcfs(queue) => queue.pop_front(),
            RequestQueue::Priority(heap) => heap.pop().map(|r| r.0.0),
        }
    }

    /// Calls `change` on the request if it waits. The request is taken out if `change` returns false.
    pub fn change(&mut self, id: RequestId, mut change: impl FnMut(&mut WaitingRequest) -> bool) {
        match self {
            RequestQueue::Fcfs(queue) => {
                if let Some(at) = queue.iter().position(|r| r.id == id)
                    && !change(&mut queue[at])
                {
                    queue.remove(at);
                }
            }
            RequestQueue::Priority(heap) => {
                let mut all = std::mem::take(heap).into_vec();
                all.retain_mut(|r| r.0.0.id != id || change(&mut r.0.0));
                *heap = all.into();
            }
        }
    }

    /// All requests, in no particular order.
    pub fn iter(&self) -> Box<dyn Iterator<Item = &WaitingRequest> + '_> {
        match self {
            RequestQueue::Fcfs(queue) => Box::new(queue.iter()),
            RequestQueue::Priority(heap) => Box::new(heap.iter().map(|r| &r.0.0)),
        }
    }

    /// Number of waiting requests.
    pub fn len(&self) -> usize {
        match self {
            RequestQueue::Fcfs(queue) => queue.len(),
            RequestQueue::Priority(heap) => heap.len(),
        }
    }

    /// Whether no request waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
