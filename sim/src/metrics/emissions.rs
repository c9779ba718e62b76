//! When each request last emitted a token. From this the gaps between a request's emissions are computed.

use super::Gaps;
use crate::time::Time;
use crate::workload::RequestId;

/// When each request last emitted a token.
///
/// Nearly all requests of a step also emitted in the previous step, and the batch often stays the same. So the requests
/// that emitted in the last step are kept as a list with one common time. The time of a request is stored separately
/// when the request leaves the list.
#[derive(Clone, Debug)]
pub struct Emissions {
    /// The requests that emitted a token in the last step, in the order of the running list.
    members: Vec<RequestId>,
    /// When the last step ended, in which the requests in `members` emitted a token.
    end: Time,
    /// For each request that emitted no token in the last step: when it last emitted one; `Time::MAX` if never.
    at: Vec<Time>,
    /// Buffer for the list `members` (the requests that emitted in the last step), as it was before its last change.
    before: Vec<RequestId>,
}

impl Emissions {
    /// The emission times of a workload of `requests` requests, none of which has emitted a token yet.
    pub fn new(requests: usize) -> Emissions {
        Emissions { members: Vec::new(), end: Time::ZERO, at: vec![Time::MAX; requests], before: Vec::new() }
    }

    /// Makes room for the emission times of `requests` requests, because the workload has grown.
    pub fn make_room(&mut self, requests: usize) {
        self.at.resize(requests, Time::MAX);
    }

    /// Records that the decode requests `ids` of a step emitted at `end`, except the requests in `dropped`. For each,
    /// adds the gap since its last emission to `gaps`.
    #[inline]
    pub fn step(&mut self, ids: &[RequestId], dropped: &[RequestId], end: Time, gaps: &mut Gaps) {
        if dropped.is_empty() && self.members == ids {
            if !ids.is_empty() {
                gaps.record(end - self.end, ids.len() as u32);
            }
            self.end = end;
        } else {
            self.record_all(ids.iter().copied().filter(|id| !dropped.contains(id)), end, gaps);
        }
    }

    /// Records that the running requests `ids` emitted at `end`. For each, adds the gap since its last emission to
    /// `gaps`.
    #[inline]
    pub fn running(&mut self, ids: impl ExactSizeIterator<Item = RequestId> + Clone, end: Time, gaps: &mut Gaps) {
        // `members` are the requests that emitted in the last step. A request that ends leaves `members`, and a
        // preempted one is not in `ids`. So if `ids` and `members` have the same length, they are the same requests.
        let same = ids.len() == self.members.len();
        debug_assert!(!same || self.members.iter().all(|member| ids.clone().any(|id| id == *member)));
        if same {
            gaps.record(end - self.end, self.members.len() as u32);
            self.end = end;
        } else {
            self.record_all(ids, end, gaps);
        }
    }

    /// Records that the requests `ids` of a step emitted tokens at `end`, and adds the gap since each one's last
    /// emission to `gaps`.
    fn record_all(&mut self, ids: impl Iterator<Item = RequestId> + Clone, end: Time, gaps: &mut Gaps) {
        let since_last =
            if ids.clone().eq(self.members.iter().copied()) { self.members.len() } else { self.change(ids, end, gaps) };
        if since_last > 0 {
            gaps.record(end - self.end, since_last as u32);
        }
        self.end = end;
    }

    /// Members are the requests that emitted in the last step. Replaces them by the requests `ids`, which emit at
    /// `end`. Stores the last emission time of members that leave, and records the gaps of requests that join. Returns
    /// the number of members that stay; their gaps are not recorded yet.
    fn change(&mut self, ids: impl Iterator<Item = RequestId>, end: Time, gaps: &mut Gaps) -> usize {
        std::mem::swap(&mut self.members, &mut self.before);
        self.members.clear();
        self.members.extend(ids);
        // The old and the new list of requests are in the order of the running list, so one walk over both finds nearly
        // every request.
        let (mut next, mut since_last) = (0, 0);
        for &id in &self.members {
            while next < self.before.len() && self.before[next] != id {
                self.at[self.before[next] as usize] = self.end;
                next += 1;
            }
            if next < self.before.len() {
                (next, since_last) = (next + 1, since_last + 1);
            } else {
                gaps.record_one(end - self.at[id as usize]);
            }
        }
        self.before[next..].iter().for_each(|&id| self.at[id as usize] = self.end);
        since_last
    }

    /// Records that a request emitted a token at the end of its prompt, in the step that was recorded last. If the
    /// request had emitted before, records the gap. Returns whether this was the request's first token.
    pub fn after_prompt(&mut self, id: RequestId, gaps: &mut Gaps) -> bool {
        self.members.push(id);
        let last = self.at[id as usize];
        let first = last == Time::MAX;
        if !first {
            gaps.record(self.end - last, 1);
        }
        first
    }

    /// Removes a request that has ended from the requests that emitted in the last step.
    pub fn ended(&mut self, id: RequestId) {
        if let Some(at) = self.members.iter().position(|&member| member == id) {
            self.members.remove(at);
        }
    }

    /// Forgets when an ended request last emitted a token, so that another request can take its id.
    pub fn forget(&mut self, id: RequestId) {
        self.ended(id);
        self.at[id as usize] = Time::MAX;
    }

    /// Members are the requests that emitted in the last step. Records consecutive steps in each of which all members
    /// emitted. The step that was recorded before these steps ended at `from`; the last of these steps ended at `end`.
    /// Adds the gaps to the sum; the caller has [counted](Gaps::count) them.
    pub fn skip_to(&mut self, end: Time, from: Time, gaps: &mut Gaps) {
        gaps.add(end - from, self.members.len() as u32);
        self.end = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares the gaps with gaps that are computed from a list of each request's emission times. Requests come, leave
    /// and come back.
    #[test]
    fn gaps_are_those_of_each_requests_own_times() {
        let steps: [(&[RequestId], &[RequestId], &[RequestId]); 8] = [
            (&[], &[], &[0, 1]),
            (&[0, 1], &[], &[2]),
            (&[0, 1, 2], &[], &[]),
            (&[0, 2], &[], &[3]),
            (&[2, 3, 1], &[], &[]),
            (&[1, 2, 3], &[3], &[]),
            (&[], &[], &[]),
            (&[1, 2], &[], &[0]),
        ];
        let (mut emissions, mut gaps) = (Emissions::new(4), Gaps::default());
        let (mut last, mut expected) = ([None; 4], Vec::new());
        for (i, (ids, dropped, prompts)) in steps.into_iter().enumerate() {
            let end = 10 + (i * i) as u64;
            emissions.step(ids, dropped, Time(end), &mut gaps);
            for &id in prompts {
                assert_eq!(emissions.after_prompt(id, &mut gaps), last[id as usize].is_none(), "step {i}");
            }
            for &id in ids.iter().filter(|id| !dropped.contains(id)).chain(prompts) {
                expected.extend(last[id as usize].replace(end).map(|before| end - before));
            }
        }
        assert_eq!(gaps.len(), expected.len() as u64);
        assert_eq!(gaps.mean_s(), expected.iter().sum::<u64>() as f64 / 1e12 / expected.len() as f64);
    }
}
