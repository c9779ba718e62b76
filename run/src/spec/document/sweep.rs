//! Sweeps: `{ sweep = [a, b] }` in place of any value makes one document per combination of swept values. `label`
//! beside `sweep` names the setting in figures.
//!
//! The first sweep in the file varies slowest, unless `sweep_order` states the order (a file that a program writes may
//! list its keys in another order). A sweep inside a policy does not make several documents. It makes several policies
//! in the list of one document: `{ fixed = { k = { sweep = [1, 3, 5] } } }` is three entries of the list.

use super::{Document, Node, Path, Step};
use crate::spec::problem::{Problem, Result};
use std::sync::Arc;
use toml::de::{DeArray, DeValue};

/// Most combinations of swept values. A larger number is an error, because it is probably a mistake.
const MAX_VARIANTS: usize = 10_000;

/// A swept setting, and the value that it has in one variant.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Choice {
    pub path: String,
    /// The setting's name in tables and figures: the last key of the path.
    pub name: String,
    /// The swept value as TOML text; a string without its quotes.
    pub value: String,
    /// The swept value if it is a number; else `None`.
    pub number: Option<f64>,
    /// The setting's name in figures, if the sweep has a `label`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
}

/// One of the documents that sweeps make: one combination of swept values.
#[derive(Clone, Debug)]
pub struct Variant {
    /// For each sweep the value that it has in this variant, the sweep that varies slowest first.
    pub choices: Vec<Choice>,
    /// The experiment file with the swept values of this variant in place of the sweeps.
    pub picked: Picked,
}

/// The document of a variant: the document that all variants share, and this variant's swept values. A whole document
/// per variant would take hundreds of megabytes if there are thousands of variants.
#[derive(Clone, Debug)]
pub struct Picked {
    shared: Arc<Document>,
    picks: Vec<(Path, Node)>,
}

impl Picked {
    /// The document with every sweep replaced by the value that it has in this variant.
    pub fn document(&self) -> Document {
        let mut document = Document::clone(&self.shared);
        self.picks.iter().for_each(|(path, value)| *document.get_mut(path) = value.clone());
        document
    }
}

impl From<Document> for Picked {
    fn from(document: Document) -> Picked {
        Picked { shared: Arc::new(document), picks: Vec::new() }
    }
}

impl Document {
    /// One variant for each combination of swept values. A document without sweeps gives one variant, the document
    /// itself. An element of the array `list` that has sweeps becomes several elements. The top-level keys in `fixed`
    /// must not be swept.
    pub fn variants(mut self, list: &str, fixed: &[&str]) -> Result<Vec<Variant>> {
        self.expand_list(list)?;
        let order = self.sweep_order()?;
        let mut variants = Vec::new();
        let all = Picked::from(self.clone());
        self.expand((fixed, &order), Variant { choices: Vec::new(), picked: all }, &mut variants)?;
        Ok(variants)
    }

    /// (path, value) of every sweep that is not inside another sweep, as plain TOML. The sweep that varies slowest
    /// comes first. Sweeps below the top-level keys in `except` are left out.
    pub fn sweeps(&self, except: &[&str]) -> Result<Vec<(Path, toml::Value)>> {
        let mut rest = self.clone();
        if let DeValue::Table(top) = rest.root.get_mut() {
            except.iter().for_each(|key| drop(top.remove(*key)));
        }
        let (order, mut found) = (self.sweep_order()?, Vec::new());
        while let Some((path, _)) = rest.next_sweep(&order)? {
            let node = rest.get_mut(&path);
            let value = Document { sources: Vec::new(), root: node.clone() }
                .read()
                .map_err(|e| self.problem_at(&path, format!("{path}: {}", e.message())))?;
            *node.get_mut() = DeValue::Boolean(false);
            found.push((path, value));
        }
        Ok(found)
    }

    /// Replaces the sweep that varies slowest by each of its values in turn, and repeats this in each resulting
    /// document until no sweep is left. Appends the resulting variants to `out`. `how` is (top-level keys that must not
    /// be swept, order of the sweeps). `so_far` has the values of the sweeps that are already replaced.
    fn expand(self, how: (&[&str], &[Path]), so_far: Variant, out: &mut Vec<Variant>) -> Result<()> {
        let (fixed, order) = how;
        let Some((path, values)) = self.next_sweep(order)? else {
            if out.len() == MAX_VARIANTS {
                return Err(Problem::bad_input(format!("the sweeps make more than {MAX_VARIANTS} combinations")));
            }
            out.push(so_far);
            return Ok(());
        };
        if fixed.iter().any(|key| path.0.first() == Some(&Step::Key((*key).into()))) {
            return Err(self.problem_at(&path, format!("`{path}` cannot be swept")));
        }
        let label = self.label(&path);
        for value in values {
            let choice = Choice {
                path: path.to_string(),
                name: path.last_key().to_owned(),
                value: plain(&value),
                number: number(&value),
                label: label.clone(),
            };
            let mut document = self.clone();
            *document.get_mut(&path) = value.clone();
            let mut variant = so_far.clone();
            variant.choices.push(choice);
            variant.picked.picks.push((path.clone(), value));
            document.expand(how, variant, out)?;
        }
        Ok(())
    }

    /// The `label` of the sweep at a path; `None` if the sweep has no label.
    fn label(&self, path: &Path) -> Option<String> {
        match self.get(&path.then(Step::Key("label".into())))?.get_ref() {
            DeValue::String(label) => Some(label.to_string()),
            _ => None,
        }
    }

    /// Replaces each element of the array `list` that holds sweeps by several elements: one for each combination of
    /// the swept values.
    fn expand_list(&mut self, list: &str) -> Result<()> {
        let path = Path::of(list);
        let Some(DeValue::Array(items)) = self.get(&path).map(|n| n.get_ref().clone()) else { return Ok(()) };
        let mut all = DeArray::new();
        for item in items.iter() {
            self.expand_element(item.clone(), &mut all)?;
        }
        *self.get_mut(&path).get_mut() = DeValue::Array(all);
        Ok(())
    }

    fn expand_element(&self, item: Node, out: &mut DeArray<'static>) -> Result<()> {
        let Some((path, values)) = self.first_sweep(&item, &Path::default())? else {
            out.push(item);
            return Ok(());
        };
        for value in values {
            let mut item = item.clone();
            *descend(&mut item, &path) = value;
            self.expand_element(item, out)?;
        }
        Ok(())
    }

    /// The paths in `sweep_order`, in the order in which the sweeps vary, the slowest first. Paths that are not swept
    /// are ignored.
    fn sweep_order(&self) -> Result<Vec<Path>> {
        let at = Path::of("sweep_order");
        let Some(DeValue::Array(items)) = self.get(&at).map(|n| n.get_ref()) else { return Ok(Vec::new()) };
        let texts = items.iter().enumerate().filter_map(|(i, item)| Some((i, item.get_ref().as_str()?)));
        let path = |(i, text): (usize, &str)| {
            match Path::of(text) {
            path if self.get(&path).is_some() => Ok(path),
            _ => Err(self
                .problem_at(&at.then(Step::Index(i)), format!("sweep_order names `{text}`, which the experiment does not have"))
                .help("name swept values by their path, or leave sweep_order out: the first one in the file varies slowest then")),
        }
        };
        let order: Vec<Path> = texts.clone().map(path).collect::<Result<_>>()?;
        for (i, text) in texts {
            if order.iter().filter(|path| **path == Path::of(text)).count() > 1 {
                let problem = self.problem_at(&at.then(Step::Index(i)), format!("sweep_order names `{text}` twice"));
                return Err(problem.help("name each swept value once, the one that varies slowest first"));
            }
        }
        Ok(order)
    }

    /// (path, values) of the sweep that varies slowest, among the sweeps that are not replaced yet. `None` if no
    /// sweep is left.
    fn next_sweep(&self, order: &[Path]) -> Result<Option<(Path, Vec<Node>)>> {
        for path in order {
            if let Some(node) = self.get(path)
                && let DeValue::Table(table) = node.get_ref()
                && table.contains_key("sweep")
            {
                return self.first_sweep(node, path);
            }
        }
        self.first_sweep(&self.root, &Path::default())
    }

    /// (path, values) of the sweep that comes first in the text, at or below `node`. `None` if there is no sweep.
    fn first_sweep(&self, node: &Node, at: &Path) -> Result<Option<(Path, Vec<Node>)>> {
        let mut children: Vec<(Step, &Node)> = match node.get_ref() {
            DeValue::Array(items) => items.iter().enumerate().map(|(i, n)| (Step::Index(i), n)).collect(),
            DeValue::Table(table) => {
                if let Some(values) = table.get("sweep") {
                    let label = table.get("label");
                    return self.sweep_values(values, label, table.len()).map(|v| Some((at.clone(), v)));
                }
                table.iter().map(|(k, n)| (Step::Key(k.get_ref().to_string()), n)).collect()
            }
            _ => return Ok(None),
        };
        children.sort_by_key(|(_, n)| n.span().start);
        for (step, child) in children {
            if let Some(found) = self.first_sweep(child, &at.then(step))? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    fn sweep_values(&self, values: &Node, label: Option<&Node>, keys: usize) -> Result<Vec<Node>> {
        let wrong = |message: String| {
            let problem = Problem::bad_input(message).help("write key = { sweep = [value, value, ...] }");
            Err(self.point(problem, Some(values.span())))
        };
        match values.get_ref() {
            _ if label.is_some_and(|label| label.get_ref().as_str().is_none()) => {
                wrong("the `label` of a sweep must be a text, the name of its axis".into())
            }
            _ if keys > 1 + usize::from(label.is_some()) => {
                wrong("beside `sweep` its table may have a `label` and nothing else".into())
            }
            DeValue::Array(items) if items.is_empty() => wrong("an empty sweep".into()),
            DeValue::Array(items) => {
                match items.iter().find(|i| !matches!(self.first_sweep(i, &Path::default()), Ok(None))) {
                    Some(_) => wrong("a sweep inside a sweep".into()),
                    None => self.all_different(items).map(|()| items.to_vec()),
                }
            }
            other => wrong(format!("`sweep` must be a list, not a {}", other.type_str())),
        }
    }

    /// Refuses a sweep with two equal values, because the same combination of swept values would run twice.
    fn all_different(&self, items: &[Node]) -> Result<()> {
        let texts: Vec<String> = items.iter().map(plain).collect();
        match (1..items.len()).find(|&i| texts[..i].contains(&texts[i])) {
            Some(i) => {
                let problem = Problem::bad_input(format!("the sweep has {} twice", texts[i])).help("remove one");
                Err(self.point(problem, Some(items[i].span())))
            }
            None => Ok(()),
        }
    }

    pub(super) fn get_mut(&mut self, path: &Path) -> &mut Node {
        descend(&mut self.root, path)
    }
}

/// The value at a path that exists in the tree of an experiment file.
fn descend<'a>(node: &'a mut Node, path: &Path) -> &'a mut Node {
    path.0.iter().fold(node, |node, step| {
        let next = match (step, node.get_mut()) {
            (Step::Key(k), DeValue::Table(t)) => t.get_mut(k.as_str()),
            (Step::Index(i), DeValue::Array(a)) => a.get_mut(*i),
            _ => None,
        };
        next.expect("the path was found in this tree")
    })
}

/// A value of an experiment file as TOML on one line; a string without its quotes. Empty if the value cannot be read.
fn plain(node: &Node) -> String {
    let value: Result<toml::Value> = Document { sources: Vec::new(), root: node.clone() }.read();
    match value {
        Ok(toml::Value::String(text)) => text,
        Ok(value) => value.to_string(),
        Err(_) => String::new(),
    }
}

fn number(node: &Node) -> Option<f64> {
    match node.get_ref() {
        DeValue::Integer(i) => i64::from_str_radix(i.as_str(), i.radix()).ok().map(|i| i as f64),
        DeValue::Float(x) => x.as_str().parse().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variants(text: &str) -> Result<Vec<Variant>> {
        Document::parse("x.toml", text)?.variants("policies", &["name", "seeds"])
    }

    #[test]
    fn the_first_in_the_file_varies_slowest() {
        let all = variants("z = { sweep = [1, 2] }\na = { sweep = [0.5, \"x\"] }\n").unwrap();
        let values: Vec<Vec<&str>> = all.iter().map(|v| v.choices.iter().map(|c| c.value.as_str()).collect()).collect();
        assert_eq!(values, [["1", "0.5"], ["1", "x"], ["2", "0.5"], ["2", "x"]]);
        assert_eq!(all[0].choices[1].number, Some(0.5));
        assert_eq!(all[1].choices[1].number, None);
        let read: toml::Value = all[3].picked.document().read().unwrap();
        assert_eq!(read["z"].as_integer(), Some(2));
    }

    #[test]
    fn a_sweep_in_a_policy_makes_policies() {
        let all = variants("policies = [{ a = {} }, { fixed = { k = { sweep = [1, 3] } } }]\n").unwrap();
        assert_eq!(all.len(), 1);
        let read: toml::Value = all[0].picked.document().read().unwrap();
        assert_eq!(read["policies"].as_array().unwrap().len(), 3);
        assert_eq!(read["policies"][2]["fixed"]["k"].as_integer(), Some(3));
    }

    #[test]
    fn bad_sweeps_are_pointed_at() {
        assert_eq!(variants("a = { sweep = [] }\n").unwrap_err().pointed_at(), Some("[]"));
        assert_eq!(variants("a = { sweep = 3 }\n").unwrap_err().pointed_at(), Some("3"));
        assert!(variants("a = { sweep = [{ sweep = [1] }] }\n").unwrap_err().message().contains("inside a sweep"));
        assert!(variants("a = { sweep = [1], b = 2 }\n").unwrap_err().message().contains("nothing else"));
        assert!(variants("seeds = { sweep = [1] }\n").unwrap_err().message().contains("cannot be swept"));
        let huge = "b = 1\na = { sweep = [1, 99999999999999999999999999999999999999999999] }\n";
        let problem = Document::parse("x.toml", huge).unwrap().sweeps(&[]).unwrap_err();
        let place = problem.place().unwrap_or_default();
        assert!(place.starts_with("x.toml:2:") && problem.message().starts_with("a: "), "{place}: {problem}");
    }

    #[test]
    fn an_order_names_each_path_once() {
        let sweeps = "z = { sweep = [1, 2] }\n[a]\nb = { sweep = [3, 4] }\n";
        let order = |order: &str| variants(&format!("sweep_order = [{order}]\n{sweeps}"));
        assert_eq!(order("\"a.b\", \"z\"").unwrap()[1].choices[1].value, "2", "z varies fastest");
        let problem = order("\"a.b\", \"z\", \"a.b\"").unwrap_err();
        assert!(problem.message().contains("names `a.b` twice"), "{problem}");
        assert_eq!(problem.pointed_at(), Some("\"a.b\""));
    }

    #[test]
    fn whole_tables_can_be_swept() {
        let all = variants("[w]\nx = { sweep = [{ p = { r = 1 } }, { t = {} }] }\n").unwrap();
        assert_eq!(all[0].choices[0].path, "w.x");
        assert_eq!(all[0].choices[0].value, "{ p = { r = 1 } }");
    }
}
