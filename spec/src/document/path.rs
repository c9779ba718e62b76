//! The place of a value in a document: `workload.transform[0].rate-scale`.

use std::fmt;

/// One step from a value of the tree to a value inside it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Step {
    /// Into the value of a table's key.
    Key(String),
    /// Into the item of an array, counted from 0.
    Index(usize),
}

/// The steps from the root of the document to a value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Path(pub Vec<Step>);

impl Path {
    /// Parses dotted text; segments of digits, and `[i]`, are indices.
    pub fn of(dotted: &str) -> Path {
        let plain = dotted.replace('[', ".").replace(']', "");
        let step = |s: &str| s.parse().map_or_else(|_| Step::Key(s.to_owned()), Step::Index);
        Path(plain.split('.').filter(|s| !s.is_empty()).map(step).collect())
    }

    /// This path with one more step at its end.
    pub fn then(&self, step: Step) -> Path {
        Path(self.0.iter().cloned().chain([step]).collect())
    }

    /// This path with one more key at its end.
    pub fn key(&self, key: &str) -> Path {
        self.then(Step::Key(key.to_owned()))
    }

    /// This path, then each shorter one, the root last.
    pub fn ancestors(&self) -> impl Iterator<Item = Path> + '_ {
        (0..=self.0.len()).rev().map(|n| Path(self.0[..n].to_vec()))
    }

    /// Puts `new` at this path of a plain TOML value, making missing tables. Panics if a list is too short or
    /// a step leads into another kind of value: the path must come from a document of the same form.
    pub fn put(&self, value: &mut toml::Value, new: toml::Value) {
        let place = self.0.iter().fold(value, |value, step| match (step, value) {
            (Step::Key(k), toml::Value::Table(t)) => t.entry(k).or_insert_with(|| toml::Table::new().into()),
            (Step::Index(i), toml::Value::Array(a)) => &mut a[*i],
            (step, value) => panic!("{self}: {step:?} does not lead into {value}"),
        });
        *place = new;
    }

    /// The value at this path of a plain TOML value; `None` if there is none.
    pub fn find<'a>(&self, value: &'a toml::Value) -> Option<&'a toml::Value> {
        self.0.iter().try_fold(value, |value, step| match step {
            Step::Key(k) => value.get(k),
            Step::Index(i) => value.get(*i),
        })
    }

    /// Is this path equal to `above` or below it?
    pub fn is_below(&self, above: &Path) -> bool {
        self.0.starts_with(&above.0)
    }

    /// Removes the value at this path from a plain TOML value, if it is there. A path that ends with an index removes
    /// nothing.
    pub fn remove(&self, value: &mut toml::Value) {
        let Some((Step::Key(last), above)) = self.0.split_last() else { return };
        let parent = above.iter().try_fold(value, |value, step| match step {
            Step::Key(k) => value.get_mut(k),
            Step::Index(i) => value.get_mut(*i),
        });
        parent.and_then(toml::Value::as_table_mut).map(|table| table.remove(last));
    }

    /// The last key of the path, which names columns and axes; empty if the path has none.
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
