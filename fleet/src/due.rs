//! When the replicas of a fleet must run next.

use foretoken_sim::Time;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// For each replica that has a request, the time at which it must run next.
#[derive(Default)]
pub(crate) struct Due {
    /// The valid time of each replica; `Time::MAX` for none.
    at: Vec<Time>,
    /// (Time, replica), the earliest first. An entry with another time than the replica's valid one is void.
    queue: BinaryHeap<Reverse<(Time, usize)>>,
}

impl Due {
    /// Sets the time at which a replica must run next; `Time::MAX` if it need not run.
    pub fn set(&mut self, replica: usize, at: Time) {
        if self.at.len() <= replica {
            self.at.resize(replica + 1, Time::MAX);
        }
        if at != self.at[replica] && at < Time::MAX {
            self.queue.push(Reverse((at, replica)));
        }
        self.at[replica] = at;
    }

    /// Takes the replica that must run next, if it must run by `until`.
    pub fn take(&mut self, until: Time) -> Option<usize> {
        while let Some(&Reverse((at, replica))) = self.queue.peek().filter(|entry| entry.0.0 <= until) {
            self.queue.pop();
            if self.at[replica] == at {
                self.at[replica] = Time::MAX;
                return Some(replica);
            }
        }
        None
    }
}
