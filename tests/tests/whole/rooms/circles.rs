//! Finds circles in a graph of files, and the edges of a circle that would have to be removed.

use super::arrows::Arrows;
use std::collections::BTreeSet;

/// The strongly connected components of more than one node, by Tarjan's algorithm. The nodes of each component are
/// sorted by number.
pub fn circles(arrows: &Arrows) -> Vec<Vec<usize>> {
    let mut search = Search {
        arrows,
        seen: vec![None; arrows.len()],
        low: vec![0; arrows.len()],
        stack: Vec::new(),
        found: Vec::new(),
    };
    for node in 0..arrows.len() {
        if search.seen[node].is_none() {
            search.visit(node, 0);
        }
    }
    let mut found = search.found;
    found.sort();
    found
}

struct Search<'a> {
    arrows: &'a Arrows,
    seen: Vec<Option<usize>>,
    low: Vec<usize>,
    stack: Vec<usize>,
    found: Vec<Vec<usize>>,
}

impl Search<'_> {
    /// Visits a node for the first time, in depth-first search. `count` is the number of nodes that were visited
    /// before. Returns the number of visited nodes after the search below this node.
    fn visit(&mut self, node: usize, count: usize) -> usize {
        (self.seen[node], self.low[node]) = (Some(count), count);
        self.stack.push(node);
        let mut next = count + 1;
        for &to in self.arrows[node].keys() {
            match self.seen[to] {
                None => {
                    next = self.visit(to, next);
                    self.low[node] = self.low[node].min(self.low[to]);
                }
                Some(at) if self.stack.contains(&to) => self.low[node] = self.low[node].min(at),
                Some(_) => {}
            }
        }
        if self.low[node] == count {
            let from = self.stack.iter().position(|&n| n == node).expect("it was put there");
            let mut component = self.stack.split_off(from);
            component.sort_unstable();
            if component.len() > 1 {
                self.found.push(component);
            }
        }
        next
    }
}

/// Orders the files of a circle so that few edges (dependencies) lead back to a file earlier in the order, and returns
/// these edges. Empty if and only if the files make no circle. Uses the heuristic of Eades, Lin and Smyth (1993) for
/// the least feedback arc set.
pub fn upward(circle: &[usize], arrows: &Arrows) -> Vec<(usize, usize)> {
    let mut left: BTreeSet<usize> = circle.iter().copied().collect();
    let (mut head, mut tail) = (Vec::new(), Vec::new());
    while !left.is_empty() {
        let out = |n: usize| arrows[n].keys().filter(|to| left.contains(to)).count();
        let into = |n: usize| left.iter().filter(|&&m| arrows[m].contains_key(&n)).count();
        let (next, last) = match left.iter().find(|&&n| out(n) == 0) {
            Some(&sink) => (sink, true),
            None => {
                let most = |&&n: &&usize| (into(n) == 0, out(n) as i64 - into(n) as i64, std::cmp::Reverse(n));
                (*left.iter().max_by_key(most).expect("there are some left"), false)
            }
        };
        left.remove(&next);
        if last { tail.push(next) } else { head.push(next) }
    }
    head.extend(tail.into_iter().rev());
    let place = |n: usize| head.iter().position(|&m| m == n);
    let all = head.iter().flat_map(|&from| arrows[from].keys().map(move |&to| (from, to)));
    all.filter(|&(from, to)| place(to).is_some_and(|p| Some(p) < place(from))).collect()
}
