//! The place of a value in a document: `workload.transform[0].rate-scale`.

use std::fmt;

/// One step of a path: from a value of an experiment file to a value inside it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Step {
    /// A step into the value that a table has under this key.
    Key(String),
    /// A step into the item of an array with this index, counted from 0.
    Index(usize),
}

/// The place of a value in a document: the steps from the document's root to the value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Path(pub Vec<Step>);

impl Path {
    /// Parses a path with dots between its parts. A part of digits, and `[i]`, is an index into a list.
    pub fn of(dotted: &str) -> Path {
        let plain = dotted.replace('[', ".").replace(']', "");
        let step = |s: &str| s.parse().map_or_else(|_| Step::Key(s.to_owned()), Step::Index);
        Path(plain.split('.').filter(|s| !s.is_empty()).map(step).collect())
    }

    pub fn then(&self, step: Step) -> Path {
        Path(self.0.iter().cloned().chain([step]).collect())
    }

    pub fn key(&self, key: &str) -> Path {
        self.then(Step::Key(key.to_owned()))
    }

    /// This path, then its parent, the parent of its parent, and so on, up to the empty path of the root.
    pub fn ancestors(&self) -> impl Iterator<Item = Path> + '_ {
        (0..=self.0.len()).rev().map(|n| Path(self.0[..n].to_vec()))
    }

    /// Sets the value at this path of a plain TOML value to `new`. Adds tables that are missing. Panics if a list is
    /// too short or a step leads into another kind of value: the path must come from a document of the same form.
    pub fn put(&self, value: &mut toml::Value, new: toml::Value) {
        let place = self.0.iter().fold(value, |value, step| match (step, value) {
            (Step::Key(k), toml::Value::Table(t)) => t.entry(k).or_insert_with(|| toml::Table::new().into()),
            (Step::Index(i), toml::Value::Array(a)) => &mut a[*i],
            (step, value) => panic!("{self}: {step:?} does not lead into {value}"),
        });
        *place = new;
    }

    /// The value at this path of a plain TOML value; `None` if there is no value at this path.
    pub fn find<'a>(&self, value: &'a toml::Value) -> Option<&'a toml::Value> {
        self.0.iter().try_fold(value, |value, step| match step {
            Step::Key(k) => value.get(k),
            Step::Index(i) => value.get(*i),
        })
    }

    /// True if this path is equal to `above`, or leads to a value inside the value at `above`.
    pub fn is_below(&self, above: &Path) -> bool {
        self.0.starts_with(&above.0)
    }

    /// Removes the value at this path from a plain TOML value. Does nothing if there is no such value, or if the path
    /// ends with an index.
    pub fn remove(&self, value: &mut toml::Value) {
        let Some((Step::Key(last), above)) = self.0.split_last() else { return };
        let parent = above.iter().try_fold(value, |value, step| match step {
            Step::Key(k) => value.get_mut(k),
            Step::Index(i) => value.get_mut(*i),
        });
        parent.and_then(toml::Value::as_table_mut).map(|table| table.remove(last));
    }

    /// The last key of the path, by which columns and axes are named; empty if the path has no key.
    pub fn last_key(&self) -> &str {
        let key = |step: &'_ Step| matches!(step, Step::Key(_));
        match self.0.iter().rfind(|s| key(s)) {
            Some(Step::Key(k)) => k,
            _ => "",
        }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, step) in self.0.iter().enumerate() {
            match step {
                Step::Key(k) if i == 0 => write!(f, "{k}")?,
                Step::Key(k) => write!(f, ".{k}")?,
                Step::Index(i) => write!(f, "[{i}]")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_written_as_text_is_read_back() {
        for text in ["engine.block_size", "workload.transform[0].rate-scale", "policies[2].fixed.k"] {
            assert_eq!(Path::of(text).to_string(), text);
        }
        assert_eq!(Path::of("policies.2.fixed"), Path::of("policies[2].fixed"));
        assert_eq!(Path::of("a[0]").last_key(), "a");
    }
}
