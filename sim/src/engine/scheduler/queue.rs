//! The waiting requests, in the order in which the scheduler considers them.

use crate::config::SchedulingPolicy;
use crate::engine::request::WaitingRequest;
use crate::time::Time;
use crate::workload::RequestId;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// The waiting requests: those that have arrived or were preempted, and do not run.
#[derive(Clone, Debug)]
pub struct RequestQueue {
    requests: Ordered,
    /// Number of waiting requests that the scheduler has passed over (skipped in a step) since they last ran.
    num_passed_over: u32,
    /// Number of waiting requests for which a step in flight still has output.
    num_stale: u32,
}

/// The waiting requests in the order in which the scheduler admits them.
#[derive(Clone, Debug)]
enum Ordered {
    /// In order of arrival (first come, first served). A preempted request goes to the front.
    Fcfs(VecDeque<WaitingRequest>),
    /// The lowest priority number first, then the first to arrive.
    Priority(BinaryHeap<Reverse<Ranked>>),
}

/// A waiting request, ordered by priority number, then arrival, then the request's number.
#[derive(Clone, Copy, Debug)]
struct Ranked(WaitingRequest);

impl Ranked {
    fn rank(&self) -> (i32, Time, RequestId) {
        (self.0.priority, self.0.arrival, self.0.number)
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
    /// An empty list of waiting requests, which are admitted in the order that `policy` sets.
    pub fn new(policy: SchedulingPolicy) -> RequestQueue {
        let requests = match policy {
            SchedulingPolicy::Fcfs => Ordered::Fcfs(VecDeque::new()),
            SchedulingPolicy::Priority => Ordered::Priority(BinaryHeap::new()),
        };
        RequestQueue { requests, num_passed_over: 0, num_stale: 0 }
    }

    /// Sorts a first-come, first-served list once by priority and arrival; requests that are added later are not sorted
    /// in. Does nothing to a list that is always kept in order of priority.
    pub fn sort(&mut self) {
        if let Ordered::Fcfs(queue) = &mut self.requests {
            queue.make_contiguous().sort_by_key(|r| (r.priority, r.arrival));
        }
    }

    /// Adds a request that has arrived to the waiting requests.
    pub fn push(&mut self, r: WaitingRequest) {
        self.count(&r);
        match &mut self.requests {
            Ordered::Fcfs(queue) => queue.push_back(r),
            Ordered::Priority(heap) => heap.push(Reverse(Ranked(r))),
        }
    }

    /// Puts back a request that was preempted, or that the scheduler passed over in this step. It goes to the front of
    /// a first-come, first-served list, and to the place of its priority in a list by priority.
    pub fn prepend(&mut self, r: WaitingRequest) {
        self.count(&r);
        match &mut self.requests {
            Ordered::Fcfs(queue) => queue.push_front(r),
            Ordered::Priority(heap) => heap.push(Reverse(Ranked(r))),
        }
    }

    /// The waiting request that the scheduler considers next. It stays in the list.
    pub fn peek(&self) -> Option<WaitingRequest> {
        match &self.requests {
            Ordered::Fcfs(queue) => queue.front().copied(),
            Ordered::Priority(heap) => heap.peek().map(|r| r.0.0),
        }
    }

    /// Takes out the waiting request that the scheduler considers next.
    pub fn pop(&mut self) -> Option<WaitingRequest> {
        let r = match &mut self.requests {
            Ordered::Fcfs(queue) => queue.pop_front(),
            Ordered::Priority(heap) => heap.pop().map(|r| r.0.0),
        };
        r.inspect(|r| self.discount(r))
    }

    /// Calls `change` on the request `id` if the request waits. If `change` returns false, the request is removed from
    /// the list.
    pub fn change(&mut self, id: RequestId, mut change: impl FnMut(&mut WaitingRequest) -> bool) {
        let Some(mut r) = self.iter().find(|r| r.id == id).copied() else { return };
        self.discount(&r);
        let stays = change(&mut r);
        if stays {
            self.count(&r);
        }
        match &mut self.requests {
            Ordered::Fcfs(queue) => {
                let at = queue.iter().position(|r| r.id == id).expect("it was found");
                if stays {
                    queue[at] = r;
                } else {
                    queue.remove(at);
                }
            }
            Ordered::Priority(heap) => {
                heap.retain(|r| r.0.0.id != id);
                if stays {
                    heap.push(Reverse(Ranked(r)));
                }
            }
        }
    }

    fn count(&mut self, r: &WaitingRequest) {
        self.num_passed_over += u32::from(r.passed_over);
        self.num_stale += u32::from(r.stale);
    }

    fn discount(&mut self, r: &WaitingRequest) {
        self.num_passed_over -= u32::from(r.passed_over);
        self.num_stale -= u32::from(r.stale);
    }

    /// All waiting requests, in no particular order.
    pub fn iter(&self) -> Box<dyn Iterator<Item = &WaitingRequest> + '_> {
        match &self.requests {
            Ordered::Fcfs(queue) => Box::new(queue.iter()),
            Ordered::Priority(heap) => Box::new(heap.iter().map(|r| &r.0.0)),
        }
    }

    /// Number of waiting requests.
    pub fn len(&self) -> usize {
        match &self.requests {
            Ordered::Fcfs(queue) => queue.len(),
            Ordered::Priority(heap) => heap.len(),
        }
    }

    /// Whether no request waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether any waiting request was not passed over since it last ran.
    pub fn any_not_passed_over(&self) -> bool {
        self.len() as u32 > self.num_passed_over
    }

    /// Whether a step in flight still has output for a waiting request.
    pub fn any_stale(&self) -> bool {
        self.num_stale > 0
    }
}
