//! Makes a new policy from a template: writes the policy's file and its row of the table of policies into a source
//! tree. After an error nothing is written.

use crate::name::{self, BadName};
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

const TEMPLATE: &str = include_str!("template/policy.txt");

/// The family of a new policy, a folder below `policies/src`, if none is given.
pub const USUAL_FAMILY: &str = "plain";

/// The files that the template wrote for a new policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewPolicy {
    /// The policy's file: a working policy, to be changed into the new one.
    pub file: PathBuf,
    /// The file with the table of policies, to which the policy's row and module were added.
    pub table: PathBuf,
}

/// Why the template wrote no files for a new policy.
#[derive(Debug, thiserror::Error)]
pub enum CannotWrite {
    /// The policy's name cannot be used.
    #[error(transparent)]
    Name(#[from] BadName),
    /// The name of the policy's module or type, which follows from the policy's name, is taken in the code.
    #[error("`{name}` cannot be the name of a policy: `{word}` is {whose}")]
    Word {
        /// The policy's name that was asked for.
        name: String,
        /// The name of the module or type that is taken.
        word: String,
        /// A text that says what already has this name in the code.
        whose: &'static str,
    },
    /// There is no family (folder of policies) with the given name.
    #[error("there is no family `{family}`; there are {}", known.join(", "))]
    Family {
        /// The family (folder of policies) that was asked for and does not exist.
        family: String,
        /// The names of all families (folders of policies) that exist.
        known: Vec<String>,
    },
    /// The file that the new policy would have exists already.
    #[error("{} exists already", .0.display())]
    Exists(PathBuf),
    /// The file at `path`, which should hold the table of policies, does not have it.
    #[error("{} has no {what}: is this Foretoken's source?", path.display())]
    NoTable {
        /// The path of the file that lacks the table of policies.
        path: PathBuf,
        /// The part of the table of policies that is missing.
        what: String,
    },
    /// A file of the source tree could not be read or written.
    #[error("cannot {doing} {}: {cause}", path.display())]
    Io {
        /// What was tried with the file: `read` or `write`.
        doing: &'static str,
        /// The path of the file that could not be read or written.
        path: PathBuf,
        /// The system's error about the file.
        cause: io::Error,
    },
}

/// Writes a policy called `name` into the source tree at `root` (the folder of the workspace): its file in the folder
/// of `family` ([`USUAL_FAMILY`] if `None`), and its module and row in the table. The user then changes the policy and
/// accepts its line of the golden snapshots.
///
/// # Errors
/// A name that is not in kebab-case, is taken, or is not a name in Rust; an unknown family; a file that exists already;
/// a tree that is not Foretoken's; the system's errors about files. Nothing is written then.
pub fn new_policy(root: &Path, name: &str, family: Option<&str>) -> Result<NewPolicy, CannotWrite> {
    name::kebab_case(name)?;
    let source = root.join("policies/src");
    let path = source.join("lib.rs");
    let text = fs::read_to_string(&path).map_err(io_error("read", &path))?;
    let table = Table::parse(&text).map_err(|what| CannotWrite::NoTable { path: path.clone(), what })?;
    name::free(name, table.names())?;
    let word = |word: &str, whose| CannotWrite::Word { name: name.into(), word: word.into(), whose };
    let module = name.replace('-', "_");
    if KEYWORDS.contains(&&*module) {
        return Err(word(&module, "a keyword of Rust"));
    }
    let settings = camel_case(name);
    let code = text.lines().filter(|l| !l.trim_start().starts_with("//"));
    if code.flat_map(words).chain(PRELUDE.iter().copied()).any(|w| w == settings) {
        return Err(word(&settings, "something else already"));
    }
    if words(TEMPLATE).any(|w| w == settings) {
        return Err(word(&settings, "a name that a policy's file uses"));
    }
    let family = family.unwrap_or(USUAL_FAMILY);
    let known = table.families();
    if !known.iter().any(|f| f == family) {
        return Err(CannotWrite::Family { family: family.into(), known });
    }
    let file = source.join(family).join(format!("{module}.rs"));
    if table.modules(family).any(|m| m == module) || file.exists() {
        return Err(CannotWrite::Exists(file));
    }
    let row = Row { name, family, module: &module, settings: &settings };
    write_both(&file, &row.policy(), &path, &table.with(&row))?;
    Ok(NewPolicy { file, table: path })
}

/// Writes a new file, then changes an old file. If the old file cannot be changed, the new file is removed.
fn write_both(new: &Path, text: &str, old: &Path, changed: &str) -> Result<(), CannotWrite> {
    let created = OpenOptions::new().write(true).create_new(true).open(new);
    let mut file = created.map_err(|cause| match cause.kind() {
        io::ErrorKind::AlreadyExists => CannotWrite::Exists(new.into()),
        _ => CannotWrite::Io { doing: "write", path: new.into(), cause },
    })?;
    let temporary = old.with_extension("rs.tmp");
    let mut write = || {
        file.write_all(text.as_bytes()).map_err(io_error("write", new))?;
        fs::write(&temporary, changed).and_then(|()| fs::rename(&temporary, old)).map_err(io_error("write", old))
    };
    write().inspect_err(|_| {
        // If a removal fails too, its error is not reported: the function returns the error of the failed write.
        let _ = fs::remove_file(&temporary);
        let _ = fs::remove_file(new);
    })
}

fn io_error(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> CannotWrite {
    move |cause| CannotWrite::Io { doing, path: path.into(), cause }
}

/// Splits a text into the words that could be Rust identifiers.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
}

/// The name of a type for the policy name `name`: `my-policy` gives `MyPolicy`.
fn camel_case(name: &str) -> String {
    let word = |word: &str| word[..1].to_ascii_uppercase() + &word[1..];
    name.split('-').map(word).collect()
}

/// The new policy, as it is entered in the table of policies: the names of its file, its module and its type.
struct Row<'a> {
    name: &'a str,
    family: &'a str,
    module: &'a str,
    settings: &'a str,
}

impl Row<'_> {
    /// The text of the policy's file, made from the template.
    fn policy(&self) -> String {
        TEMPLATE.replace("{{name}}", self.name).replace("{{Type}}", self.settings)
    }

    /// The policy's row in the table of policies, with line breaks if it is longer than 120 columns.
    fn line(&self) -> String {
        let Row { name, family, module, settings } = self;
        let (path, row) = (format!("{family}::{module}::{settings}"), format!("{settings} = \"{name}\";"));
        let line = format!("    {path} {{ {row} }}");
        if line.len() <= 120 { line } else { format!("    {path} {{\n        {row}\n    }}") }
    }
}

/// The lines of the file that holds the table of policies, and where the table's rows are.
struct Table<'a> {
    lines: Vec<&'a str>,
    /// Index of the line `policies! {`, at which the table begins, and of the line at its end.
    rows: (usize, usize),
}

impl<'a> Table<'a> {
    /// Finds the table of policies in `text`, the table's file. The error is the part of the table that is missing.
    fn parse(text: &'a str) -> Result<Table<'a>, String> {
        let lines: Vec<&str> = text.lines().collect();
        let start = lines.iter().position(|l| *l == "policies! {").ok_or("table `policies! { … }`")?;
        let len = lines[start..].iter().position(|l| *l == "}").ok_or("end of the table `policies! { … }`")?;
        Ok(Table { lines, rows: (start, start + len) })
    }

    fn rows(&self) -> &[&'a str] {
        &self.lines[self.rows.0..self.rows.1]
    }

    /// The names of the policies in the table of policies.
    fn names(&self) -> impl Iterator<Item = &'a str> {
        let quoted = |line: &&'a str| line.split_once(" = \"").and_then(|(_, rest)| Some(rest.split_once('"')?.0));
        self.rows().iter().filter_map(quoted)
    }

    /// The family (folder) of the policies whose rows in the table of policies begin on `line`; `None` if no row begins
    /// there.
    fn family_of(line: &str) -> Option<&str> {
        let path = line.strip_prefix("    ")?;
        (!path.starts_with([' ', '/', '}'])).then(|| path.split_once("::"))?.map(|(family, _)| family)
    }

    /// The families (folders of policies) that have policies and a block `mod family { … }`, in the order of the table
    /// of policies.
    fn families(&self) -> Vec<String> {
        let mut families: Vec<String> = Vec::new();
        for family in self.rows().iter().filter_map(|l| Table::family_of(l)) {
            if !families.iter().any(|f| f == family) && self.block(family).is_some() {
                families.push(family.into());
            }
        }
        families
    }

    /// Range of the lines in the block of a family (folder of policies), between `mod family {` and its end.
    fn block(&self, family: &str) -> Option<(usize, usize)> {
        let start = 1 + self.lines.iter().position(|l| *l == format!("mod {family} {{"))?;
        let len = self.lines[start..].iter().position(|l| *l == "}")?;
        Some((start, start + len))
    }

    fn module(line: &str) -> Option<&str> {
        line.trim_start().strip_prefix("pub(crate) mod ")?.strip_suffix(';')
    }

    /// The modules that the block of a family (folder of policies) declares, in order.
    fn modules(&self, family: &str) -> impl Iterator<Item = &'a str> {
        let (start, end) = self.block(family).unwrap_or_default();
        self.lines[start..end].iter().filter_map(|l| Table::module(l))
    }

    /// The file's text with the new policy: its module among the family's modules in alphabetical order, and its row
    /// after the family's last row.
    fn with(&self, new: &Row) -> String {
        let (start, end) = self.block(new.family).unwrap_or_default();
        let after = |line: &&str| Table::module(line).is_some_and(|m| m > new.module);
        let module_at = self.lines[start..end].iter().position(after).map_or(end, |i| start + i);
        let of_family = |i: &usize| Table::family_of(self.lines[*i]) == Some(new.family);
        let last = (self.rows.0..self.rows.1).rev().find(of_family).unwrap_or(self.rows.1 - 1);
        let one_line = self.lines[last].ends_with('}');
        let row_at =
            if one_line { last } else { (last..self.rows.1).find(|&i| self.lines[i] == "    }").unwrap_or(last) };
        let mut text = String::new();
        for (i, line) in self.lines.iter().enumerate() {
            if i == module_at {
                text += &format!("    pub(crate) mod {};\n", new.module);
            }
            text += &format!("{line}\n");
            if i == row_at {
                text += &format!("{}\n", new.line());
            }
        }
        text
    }
}

/// Rust's keywords, which cannot be names of a policy's module.
const KEYWORDS: &[&str] = &[
    "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "crate", "do", "dyn", "else",
    "enum", "extern", "false", "final", "fn", "for", "gen", "if", "impl", "in", "let", "loop", "macro", "match", "mod",
    "move", "mut", "override", "priv", "pub", "ref", "return", "self", "static", "struct", "super", "trait", "true",
    "try", "type", "typeof", "unsafe", "unsized", "use", "virtual", "where", "while", "yield",
];

/// Names that the table's code uses after its macro is expanded, so that no policy's type may have them.
const PRELUDE: &[&str] = &["PolicySpec", "None", "Vec", "String"];

#[cfg(test)]
#[path = "template/tests.rs"]
mod tests;
