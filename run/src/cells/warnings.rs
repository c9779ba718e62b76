//! Joins the warnings of many cells into few lines. A line names the policies that gave the warning. If only some runs
//! of these policies gave the warning, the line says how many, and names the first of these runs. Warnings that differ
//! only in numbers become one line with the range of each number.

use foretoken_report::Key;

/// Collects the warnings of many cells, to print each kind of warning once.
#[derive(Default)]
pub struct Warnings {
    kinds: Vec<Kind>,
    /// Number of cells (runs) of each policy, as (policy's label, number), in the order in which the policies appear.
    cells: Vec<(String, usize)>,
}

/// A kind of warning about runs: all warnings that differ only in their numbers.
struct Kind {
    /// The texts of the warning before, between and after its numbers; there is one more text than numbers.
    words: Vec<String>,
    /// (Smallest, largest) value of each number of the warning, over all runs that gave it, as text.
    numbers: Vec<(String, String)>,
    policies: Vec<String>,
    cells: usize,
    first: String,
}

impl Warnings {
    pub fn collect(&mut self, cell: &Key, from: Vec<String>) {
        match self.cells.iter_mut().find(|(policy, _)| *policy == cell.policy) {
            Some((_, cells)) => *cells += 1,
            None => self.cells.push((cell.policy.clone(), 1)),
        }
        for text in from {
            let (words, numbers) = parts(&text);
            match self.kinds.iter_mut().find(|kind| kind.words == words) {
                Some(kind) => kind.add(cell, numbers),
                None => self.kinds.push(Kind {
                    words,
                    numbers: numbers.into_iter().map(|n| (n.clone(), n)).collect(),
                    policies: vec![cell.policy.clone()],
                    cells: 1,
                    first: name(cell),
                }),
            }
        }
    }

    /// The joined warnings of all cells, one line for each kind of warning.
    pub fn texts(self) -> Vec<String> {
        let policies = self.cells.len();
        let one = |kind: Kind| {
            let of: usize =
                self.cells.iter().filter(|(policy, _)| kind.policies.contains(policy)).map(|(_, cells)| cells).sum();
            let who = match kind.policies.len() {
                n if n == policies && n > 1 => "every policy".to_owned(),
                _ => kind.policies.join(", "),
            };
            let place = match kind.cells {
                n if n == of => String::new(),
                1 => format!(" ({})", kind.first),
                n => format!(" ({n} of {of} runs, the first: {})", kind.first),
            };
            format!("{who}: {}{place}", kind.text())
        };
        self.kinds.into_iter().map(one).collect()
    }
}

impl Kind {
    fn add(&mut self, cell: &Key, numbers: Vec<String>) {
        self.cells += 1;
        if !self.policies.contains(&cell.policy) {
            self.policies.push(cell.policy.clone());
        }
        let value = |text: &str| text.parse::<f64>().unwrap_or(f64::NAN);
        for ((low, high), number) in self.numbers.iter_mut().zip(numbers) {
            if value(&number) < value(low) {
                *low = number;
            } else if value(&number) > value(high) {
                *high = number;
            }
        }
    }

    fn text(&self) -> String {
        let number = |(low, high): &(String, String)| match low == high {
            true => low.clone(),
            false => format!("{low} to {high}"),
        };
        let between = self.numbers.iter().map(number).chain([String::new()]);
        self.words.iter().zip(between).map(|(words, number)| words.clone() + &number).collect()
    }
}

/// The swept values and the seed of a cell, as text.
fn name(cell: &Key) -> String {
    let swept = cell.sweep.iter().map(|s| format!("{} = {}", s.path, s.value));
    swept.chain([format!("seed {}", cell.seed)]).collect::<Vec<_>>().join(", ")
}

/// Splits a warning into numbers and the words around them; there is one more word than numbers. A number is digits
/// with at most one point, and not a part of a name.
fn parts(text: &str) -> (Vec<String>, Vec<String>) {
    let (mut words, mut numbers) = (vec![String::new()], Vec::new());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let before = words.last().and_then(|w| w.chars().last());
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let number = rest[..digits].trim_end_matches('.');
        let inside = before.is_some_and(|b| b.is_alphanumeric() || "-_.\"".contains(b));
        if c.is_ascii_digit() && !inside && number.parse::<f64>().is_ok() {
            numbers.push(number.to_owned());
            words.push(String::new());
            rest = &rest[number.len()..];
        } else {
            words.last_mut().expect("it began with one").push(c);
            rest = &rest[c.len_utf8()..];
        }
    }
    (words, numbers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use foretoken_report::Swept;

    fn cell(policy: &str, value: &str, seed: u64) -> Key {
        let swept = Swept::new("belief.scale.draft", value.into(), None);
        Key { policy: policy.into(), sweep: vec![swept], seed }
    }

    #[test]
    fn equal_warnings_are_one_line() {
        let mut all = Warnings::default();
        for policy in ["a", "b"] {
            for seed in [1, 2] {
                all.collect(&cell(policy, "0.5", seed), vec!["x fits badly: 9.2 %".into()]);
            }
        }
        assert_eq!(all.texts(), ["every policy: x fits badly: 9.2 %"]);
    }

    #[test]
    fn warnings_that_differ_in_numbers_are_counted_and_placed() {
        let mut all = Warnings::default();
        all.collect(&cell("a", "0.5", 1), vec![]);
        all.collect(&cell("smart", "0.5", 1), vec![]);
        for (value, seed, steps) in [("0.5", 2, 900), ("1.0", 1, 16375), ("1.0", 2, 1200)] {
            let text = format!("smart-2 chose 0 in {steps} steps in a row (0.{seed} at the end).");
            all.collect(&cell("smart", value, seed), vec![text]);
        }
        all.collect(&cell("b", "1.0", 2), vec!["it is full".into()]);
        all.collect(&cell("b", "1.0", 3), vec![]);
        assert_eq!(
            all.texts(),
            [
                "smart: smart-2 chose 0 in 900 to 16375 steps in a row (0.1 to 0.2 at the end). \
                 (3 of 4 runs, the first: belief.scale.draft = 0.5, seed 2)",
                "b: it is full (belief.scale.draft = 1.0, seed 2)",
            ]
        );
    }

    #[test]
    fn numbers_inside_of_names_are_words() {
        let (words, numbers) = parts("fixed-3 of a100-80g: engine.x = 64, 1.5 s.");
        assert_eq!(numbers, ["64", "1.5"]);
        assert_eq!(words, ["fixed-3 of a100-80g: engine.x = ", ", ", " s."]);
    }
}
