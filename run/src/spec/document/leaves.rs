//! The leaves of a document (values that are not tables) with their paths.

use super::{Document, Node, Path, Step};
use toml::de::DeValue;

impl Document {
    /// The paths of all leaves, in the order of the text. A leaf is a value that is not a table. A list is a leaf
    /// unless it holds tables.
    pub fn leaves(&self) -> Vec<Path> {
        let mut found = Vec::new();
        collect(&self.root, &Path::default(), &mut found);
        found.sort_by_key(|(start, _)| *start);
        found.into_iter().map(|(_, path)| path).collect()
    }
}

fn collect(node: &Node, at: &Path, found: &mut Vec<(usize, Path)>) {
    match node.get_ref() {
        DeValue::Table(table) => {
            table.iter().for_each(|(key, inner)| collect(inner, &at.key(key.get_ref()), found));
        }
        DeValue::Array(items) if items.iter().any(|item| matches!(item.get_ref(), DeValue::Table(_))) => {
            items.iter().enumerate().for_each(|(i, inner)| collect(inner, &at.then(Step::Index(i)), found));
        }
        _ => found.push((node.span().start, at.clone())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document() -> Document {
        let text = "z = 1\nlist = [{ k = 3 }, { k = [5, 6] }]\n[a]\nb = { c = \"x\" }\nempty = {}\n";
        Document::parse("x.toml", text).unwrap()
    }

    #[test]
    fn leaves_come_in_the_order_of_the_text() {
        let paths: Vec<String> = document().leaves().iter().map(Path::to_string).collect();
        assert_eq!(paths, ["z", "list[0].k", "list[1].k", "a.b.c"]);
        assert_eq!(document().value_at(&Path::of("list[1].k")).unwrap().to_string(), "[5, 6]");
    }
}
