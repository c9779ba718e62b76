//! `--set path.to.key=value`: replaces or adds one value of the tree. A key that no table has is reported later, when
//! the tree is read. The error then points into the argument.

use super::{Document, Node, Path, Step, leak};
use crate::spec::problem::{Problem, Result};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The name of a source (a text with values) begins with this text if the source is a command-line argument.
pub(super) const SET: &str = "--set ";

/// Most steps of a path. The paths of experiments have at most ten; each step leads into a table or a list.
const DEEPEST: usize = 64;

impl Document {
    /// Applies one `path=value` argument. The value is TOML. A word without quotes is taken as a string.
    pub fn set(&mut self, argument: &str) -> Result<()> {
        let name = format!("{SET}{argument}");
        let wanted = "write --set path.to.key=value, for example --set engine.max_num_seqs=64";
        let Some((path, value)) = argument.split_once('=') else {
            return Err(Problem::bad_input(format!("--set {argument}: no `=`")).help(wanted));
        };
        let steps = Path::of(path.trim());
        if steps.0.is_empty() {
            return Err(Problem::bad_input(format!("--set {argument}: no path before `=`")).help(wanted));
        }
        if steps.0.len() > DEEPEST {
            let n = steps.0.len();
            return Err(
                Problem::bad_input(format!("--set: a path of {n} steps, where {DEEPEST} are the most")).help(wanted)
            );
        }
        if value.trim().is_empty() {
            return Err(Problem::bad_input(format!("--set {argument}: no value after `=`")).help(wanted));
        }
        let text = if is_bare_word(value.trim()) {
            leak(&format!("{}={}", path.trim(), toml::Value::String(value.trim().to_owned())))
        } else {
            leak(argument)
        };
        let after = text.find('=').expect("the text holds the argument's `=`") + 1;
        let offset = text.len() - text[after..].trim_start().len();
        let parsed = DeValue::parse(text[offset..].trim_end()).map_err(|e| {
            let problem = Problem::bad_input(format!("--set: the value is not valid TOML: {}", e.message()));
            let span = e.span().unwrap_or(0..0);
            problem.at(&name, text, span.start + offset..span.end + offset).help(wanted)
        })?;
        let base = self.add_source(&name, text);
        let whole = base..base + path.trim_end().len();
        put(&mut self.root, &steps.0, shift(parsed, base + offset), whole.clone()).map_err(|message| {
            let problem = Problem::bad_input(format!("--set {}: {message}", path.trim()));
            self.point(problem, Some(whole)).help("`foretoken run` prints the valid keys of a table when one is wrong")
        })
    }
}

impl Document {
    /// Sets the value at `path` to the TOML value `text`. Adds tables and keys of the path that are missing. `name` is
    /// the name of `text` in error messages.
    pub fn replace(&mut self, path: &Path, name: &str, text: &str) -> Result<()> {
        let node = self.value_from(name, text)?;
        let whole = node.span();
        put(&mut self.root, &path.0, node, whole).map_err(|message| Problem::failed(format!("{path}: {message}")))
    }

    /// Merges `settings` into the table at `path`, key by key; the values of `settings` win. If a setting is one of
    /// several choices, written as a table with one key such as `{ linear = { ... } }`, another choice replaces it and
    /// is not merged with it. `name` is the name of `settings` in error messages.
    pub fn overlay(&mut self, path: &Path, name: &str, settings: &toml::Table) -> Result<()> {
        for (key, value) in settings {
            let at = path.key(key);
            let before = self.value_at(&at);
            match (value, before.as_ref().and_then(toml::Value::as_table)) {
                (toml::Value::Table(new), Some(before)) if choice(new) == choice(before) => {
                    self.overlay(&at, name, new)?;
                }
                _ => self.replace(&at, name, &value.to_string())?,
            }
        }
        Ok(())
    }

    /// Removes the key at `path` from its table. Does nothing if the document does not have the key.
    pub fn remove(&mut self, path: &Path) {
        if let Some((Step::Key(key), above)) = path.0.split_last()
            && self.get(&Path(above.to_vec())).is_some()
            && let DeValue::Table(table) = self.get_mut(&Path(above.to_vec())).get_mut()
        {
            table.remove(key.as_str());
        }
    }

    /// Appends the TOML value `text` to the list at `path`, which must exist. If the value at `path` is not a list,
    /// nothing is appended. `name` is the name of `text` in error messages.
    pub fn append(&mut self, path: &Path, name: &str, text: &str) -> Result<()> {
        let node = self.value_from(name, text)?;
        if let DeValue::Array(items) = self.get_mut(path).get_mut() {
            items.push(node);
        }
        Ok(())
    }

    /// Parses the TOML value `text`, and adds the text to the document's sources (texts that values came from) under
    /// the name `name`.
    fn value_from(&mut self, name: &str, text: &str) -> Result<Node> {
        let text = leak(text);
        let parsed = DeValue::parse(text)
            .map_err(|e| Problem::failed(format!("{name} is not a TOML value: {}", e.message())))?;
        let base = self.add_source(name, text);
        Ok(shift(parsed, base))
    }
}

/// If the table has a single key and its value is a table, as in the choice `{ linear = { ... } }`, returns the key
/// (`linear`). `None` for other tables.
fn choice(table: &toml::Table) -> Option<&str> {
    let mut all = table.iter();
    match (all.next(), all.next()) {
        (Some((key, toml::Value::Table(_))), None) => Some(key),
        _ => None,
    }
}

/// True for text without quotes that is meant as a string: `h100`, `data/trace.csv`, `${FORETOKEN_TRACES}/x.csv`.
fn is_bare_word(text: &str) -> bool {
    let starts_like_one = text.starts_with(|c: char| c.is_alphabetic() || "./$".contains(c));
    let word = text.chars().all(|c| c.is_alphanumeric() || "-_./${}+".contains(c));
    starts_like_one && word && !["true", "false", "nan", "inf"].contains(&text)
}

/// Sets the value at the path `steps` below `node`, and adds missing tables. Added keys get the place `at`, a range of
/// bytes in the sources.
fn put(node: &mut Node, steps: &[Step], value: Node, at: std::ops::Range<usize>) -> std::result::Result<(), String> {
    let Some((step, rest)) = steps.split_first() else {
        *node = value;
        return Ok(());
    };
    match (step, node.get_mut()) {
        (Step::Key(key), DeValue::Table(table)) => {
            if table.get(key.as_str()).is_none() {
                let empty = Spanned::new(at.clone(), DeValue::Table(DeTable::new()));
                table.insert(Spanned::new(at.clone(), key.clone().into()), empty);
            }
            let next = table.get_mut(key.as_str()).expect("it was there or has just been inserted");
            put(next, rest, value, at)
        }
        (Step::Index(i), DeValue::Array(items)) => {
            let n = items.len();
            let next = items.get_mut(*i).ok_or_else(|| format!("index {i} is past the end: the list has {n} items"))?;
            put(next, rest, value, at)
        }
        (Step::Key(key), other) => Err(format!("`{key}` is wanted inside a {}, which has no keys", other.type_str())),
        (Step::Index(i), other) => Err(format!("index {i} is wanted inside a {}, not a list", other.type_str())),
    }
}

/// Adds `base` to both bounds of every span of a tree. (A span is the range of bytes from which a value was read.)
fn shift(mut node: Node, base: usize) -> Node {
    let moved = |span: std::ops::Range<usize>| span.start + base..span.end + base;
    let span = moved(node.span());
    let value = match std::mem::replace(node.get_mut(), DeValue::Boolean(false)) {
        DeValue::Array(items) => DeValue::Array(items.into_iter().map(|item| shift(item, base)).collect()),
        DeValue::Table(table) => {
            let entry = |(key, value): (Spanned<_>, _)| {
                let at = moved(key.span());
                (Spanned::new(at, key.into_inner()), shift(value, base))
            };
            DeValue::Table(table.into_iter().map(entry).collect())
        }
        scalar => scalar,
    };
    Spanned::new(span, value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(argument: &str) -> Result<toml::Value> {
        let text = "a = 1\nlist = [{ k = 3 }, { k = 5 }]\n[hw]\nmodel = { linear = { x = 1 } }\n";
        let mut doc = Document::parse("x.toml", text)?;
        doc.set(argument)?;
        doc.read()
    }

    #[test]
    fn replaces_adds_and_indexes() {
        assert_eq!(set("a=2").unwrap()["a"].as_integer(), Some(2));
        assert_eq!(set("list.1.k=7").unwrap()["list"][1]["k"].as_integer(), Some(7));
        assert_eq!(set("hw.b.c = 0.5").unwrap()["hw"]["b"]["c"].as_float(), Some(0.5));
        assert_eq!(set("hw.model={ roofline = {} }").unwrap()["hw"]["model"].as_table().unwrap().len(), 1);
        assert_eq!(set("hw.gpu=a100-80g").unwrap()["hw"]["gpu"].as_str(), Some("a100-80g"));
        assert_eq!(set("a=${X}/y.csv").unwrap()["a"].as_str(), Some("${X}/y.csv"));
        assert_eq!(set("a={sweep=[1,2]}").unwrap()["a"]["sweep"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn settings_are_laid_over_a_table_and_choices_replace_choices() {
        let over = |settings: &str| {
            let mut doc = Document::parse("x.toml", "[hw]\nn = 1\nmodel = { linear = { x = 1, y = 2 } }\n").unwrap();
            doc.overlay(&Path::of("hw"), "test", &settings.parse().unwrap()).unwrap();
            doc.value_at(&Path::of("hw")).unwrap()
        };
        let table = |text: &str| toml::Value::Table(text.parse().unwrap());
        assert_eq!(over("model.linear.x = 5"), table("n = 1\nmodel = { linear = { x = 5, y = 2 } }"));
        let more = table("n = 1\nmodel = { linear = { x = 1, y = 2, z = 5 } }\nm = 3");
        assert_eq!(over("m = 3\nmodel.linear.z = 5"), more);
        assert_eq!(over("model.table.x = 5"), table("n = 1\nmodel = { table = { x = 5 } }"));
    }

    #[test]
    fn errors_point_into_the_argument() {
        assert!(set("a").unwrap_err().message().contains("no `=`"));
        assert_eq!(set("list.9.k=1").unwrap_err().pointed_at(), Some("list.9.k"));
        assert!(set("a.b=1").unwrap_err().message().contains("inside a integer"));
        assert!(set("a=[1").unwrap_err().message().contains("not valid TOML"));
        let deep = format!("b.{}c=1", "b.".repeat(100_000));
        assert_eq!(set(&deep).unwrap_err().message(), "--set: a path of 100002 steps, where 64 are the most");
    }

    #[test]
    fn an_unknown_key_is_found_on_reading_and_points_into_the_argument() {
        #[derive(Debug, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Top {
            #[allow(dead_code)]
            alpha: u32,
        }
        let mut doc = Document::parse("x.toml", "alpha = 1\n").unwrap();
        doc.set("alhpa=2").unwrap();
        let p = doc.read::<Top>().unwrap_err();
        assert_eq!(p.pointed_at(), Some("alhpa"));
        assert!(p.help_text().contains("`alpha`"));
    }
}
