//! Marks: caveats of a policy's numbers. They are data on a row, and each renderer (text, CSV, Markdown, LaTeX, page)
//! shows all of them.

use crate::Cell;
use serde::{Deserialize, Serialize};

/// A caveat of a policy's numbers, such as an overload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mark {
    /// The queue grew as long as requests arrived.
    Overloaded,
    /// The policy stops drafting for a TPOT bound that comes from a run with other swept values, such as another load.
    BoundOfAnotherLoad,
    /// The policy sees the hidden truth, such as which draft tokens will be accepted. No server can run it.
    SeesHiddenTruth,
    /// The autoregressive run of the speedup was overloaded.
    SpeedupOverOverload,
    /// All requests are there at the start: the speedup compares the times until the last request ends.
    SpeedupOfBatch,
    /// The policy drafts trees, and the oracle of its regret drafts chains.
    RegretOfTrees,
    /// The TPOT bound is a multiple of the TPOT of an overloaded run.
    BoundOfOverload,
    /// The SLO attainment is 90 % by definition: the only bound is the P90 TPOT of this run itself.
    AttainsByDefinition,
}

/// The number of a row to which a mark belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marked {
    /// The policy's name: the mark is about the whole row.
    Policy,
    /// The speedup over autoregressive decoding.
    Speedup,
    Regret,
    Slo,
}

impl Mark {
    /// All marks, in the order in which notes explain them.
    pub const ALL: [Mark; 8] = [
        Mark::Overloaded,
        Mark::SpeedupOverOverload,
        Mark::SpeedupOfBatch,
        Mark::BoundOfOverload,
        Mark::AttainsByDefinition,
        Mark::RegretOfTrees,
        Mark::BoundOfAnotherLoad,
        Mark::SeesHiddenTruth,
    ];

    pub fn sign(self) -> &'static str {
        match self {
            Mark::Overloaded | Mark::SpeedupOverOverload | Mark::BoundOfOverload => "!",
            Mark::AttainsByDefinition => "*",
            Mark::SpeedupOfBatch => "@",
            Mark::RegretOfTrees => "^",
            Mark::BoundOfAnotherLoad => "~",
            Mark::SeesHiddenTruth => "#",
        }
    }

    /// The name of the mark's column in a CSV file, and its name in JSON.
    pub fn key(self) -> &'static str {
        match self {
            Mark::Overloaded => "overloaded",
            Mark::BoundOfAnotherLoad => "bound_of_another_load",
            Mark::SeesHiddenTruth => "sees_hidden_truth",
            Mark::SpeedupOverOverload => "speedup_over_overload",
            Mark::SpeedupOfBatch => "speedup_of_batch",
            Mark::RegretOfTrees => "regret_of_trees",
            Mark::BoundOfOverload => "bound_of_overload",
            Mark::AttainsByDefinition => "attains_by_definition",
        }
    }

    /// The number beside which the sign stands.
    pub fn on(self) -> Marked {
        match self {
            Mark::Overloaded | Mark::BoundOfAnotherLoad | Mark::SeesHiddenTruth => Marked::Policy,
            Mark::SpeedupOverOverload | Mark::SpeedupOfBatch => Marked::Speedup,
            Mark::RegretOfTrees => Marked::Regret,
            Mark::BoundOfOverload | Mark::AttainsByDefinition => Marked::Slo,
        }
    }

    /// The explanation behind the sign.
    fn meaning(self) -> &'static str {
        match self {
            Mark::Overloaded | Mark::SpeedupOverOverload | Mark::BoundOfOverload => {
                "overloaded, the queue grew while requests came: latencies measure how long the run was, and speedups \
                 over such a run and bounds scaled from it depend on that"
            }
            Mark::AttainsByDefinition => "90 % by definition: the bound is this very run's P90 TPOT",
            Mark::SpeedupOfBatch => {
                "a batch, whose requests are all there at the start: policies are compared by the time until the last \
                 request ends, not by mean E2E"
            }
            Mark::RegretOfTrees => "drafts trees, which oracle-goodput, the bound for chains of drafts, does not bound",
            Mark::BoundOfAnotherLoad => {
                "does not speculate in a step that it expects to miss the bound, which another load sets, the same at \
                 every load; slo.reference = \"each-load\" gives each load its own"
            }
            Mark::SeesHiddenTruth => "oracles see hidden truth: bounds, not policies a server can run",
        }
    }

    /// The marks of one policy at one combination of swept values. `cells` has its runs, one per seed: a mark of one
    /// seed marks the mean.
    pub fn of(cells: &[&Cell]) -> Vec<Mark> {
        let any = |of: fn(&Cell) -> bool| cells.iter().any(|c| of(c));
        let has = |mark: &Mark| match mark {
            Mark::Overloaded => any(|c| c.summary.overload.is_some()),
            Mark::BoundOfAnotherLoad => any(Cell::stops_for_a_bound_of_another_load),
            Mark::SeesHiddenTruth => any(|c| c.entry.role.sees_hidden_truth()),
            Mark::SpeedupOverOverload => any(|c| c.over_overload && c.speedup.is_some()),
            Mark::SpeedupOfBatch => any(|c| c.entry.batch && c.speedup.is_some()),
            Mark::RegretOfTrees => any(|c| c.entry.trees && c.regret.is_some()),
            Mark::BoundOfOverload => any(|c| c.bound_of_overload && c.summary.slo_attainment.is_some()),
            Mark::AttainsByDefinition => !cells.is_empty() && cells.iter().all(|c| c.attains_by_definition()),
        };
        Mark::ALL.into_iter().filter(has).collect()
    }

    /// The signs among `marks` that stand beside the number `on`, one of each, such as `!~`.
    pub fn signs(marks: &[Mark], on: Marked) -> String {
        let mut signs = String::new();
        for mark in marks.iter().filter(|mark| mark.on() == on) {
            if !signs.contains(mark.sign()) {
                signs += mark.sign();
            }
        }
        signs
    }

    /// A policy's name, with the signs of the marks that stand beside it, such as `oracle-goodput #`.
    pub fn beside(name: &str, marks: &[Mark]) -> String {
        format!("{name} {}", Mark::signs(marks, Marked::Policy)).trim_end().to_owned()
    }

    /// The explanations of the signs of all rows with these marks, such as `*: 90 % by definition: …`, one for each
    /// sign.
    pub fn notes(rows: impl IntoIterator<Item = impl AsRef<[Mark]>>) -> Vec<String> {
        let mut there = [false; Mark::ALL.len()];
        for row in rows {
            Mark::ALL.iter().zip(&mut there).for_each(|(mark, there)| *there |= row.as_ref().contains(mark));
        }
        let mut notes: Vec<String> = Vec::new();
        for (mark, _) in Mark::ALL.iter().zip(there).filter(|(_, there)| *there) {
            let note = format!("{}: {}", mark.sign(), mark.meaning());
            if !notes.contains(&note) {
                notes.push(note);
            }
        }
        notes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mark_has_the_key_that_json_has() {
        for mark in Mark::ALL {
            assert_eq!(serde_json::to_value(mark).unwrap(), mark.key());
        }
    }

    #[test]
    fn one_sign_has_one_note_and_stands_once() {
        let marks = [Mark::Overloaded, Mark::SpeedupOverOverload, Mark::BoundOfAnotherLoad];
        assert_eq!(Mark::signs(&marks, Marked::Policy), "!~");
        assert_eq!([Mark::beside("a", &marks), Mark::beside("b", &[])], ["a !~", "b"]);
        assert_eq!(Mark::signs(&marks, Marked::Speedup), "!");
        assert_eq!(Mark::signs(&marks, Marked::Slo), "");
        let notes = Mark::notes([&marks[..1], &marks[1..]]);
        assert_eq!(notes.iter().map(|n| &n[..2]).collect::<Vec<_>>(), ["!:", "~:"]);
    }
}
