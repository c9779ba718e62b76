//! The tables of one GPU and one engine: which version is read, what stands in for a bad table, and what was said.

use super::package::{Package, TableFile, order};
use super::table::Table;
use parquet::file::reader::{FileReader, SerializedFileReader};
use std::cell::RefCell;
use std::fs::File;
use std::rc::Rc;

/// Why a pass cannot be summed: a shape or a table that is missing, or a file that is broken.
pub(super) type Missing = String;

pub(super) struct TableSet<'a> {
    package: &'a Package,
    pub(super) system: &'static str,
    pub(super) engine: &'static str,
    /// The engine's release, if the tables nearest to it are wanted.
    version: Option<&'a str>,
    files: Vec<TableFile>,
    notes: RefCell<Vec<String>>,
}

#[derive(Clone)]
pub(super) struct Found {
    pub(super) table: Rc<Table>,
    /// `vllm 0.24.0`.
    pub(super) from: String,
}

impl<'a> TableSet<'a> {
    pub(super) fn new(
        package: &'a Package,
        system: &'static str,
        engine: &'static str,
        version: Option<&'a str>,
    ) -> TableSet<'a> {
        TableSet { package, system, engine, version, files: package.tables(system), notes: RefCell::default() }
    }

    /// Notes something that was repaired, held or borrowed, once.
    pub(super) fn note(&self, words: String) {
        let mut notes = self.notes.borrow_mut();
        if !notes.contains(&words) {
            notes.push(words);
        }
    }

    pub(super) fn notes(&self) -> Vec<String> {
        self.notes.borrow().clone()
    }

    /// The files of a table for `engine`: the version with the most rows first, then the others, the newest first. New
    /// versions often have the shapes of a few new models only. If a release is wanted, the newest version that is not
    /// newer than it is the first, if there is one.
    pub(super) fn files(&self, family: &str, table: &str, engine: &str) -> Result<Vec<&TableFile>, Missing> {
        let alike =
            |f: &&TableFile| (f.family.as_str(), f.table.as_str(), f.engine.as_str()) == (family, table, engine);
        let mut found = Vec::new();
        for file in self.files.iter().filter(alike) {
            found.push((rows(file)?, order(&file.version), file));
        }
        found.sort_by(|a, b| b.1.cmp(&a.1));
        let release = self.version.filter(|_| engine == self.engine).map(order);
        let known = found.iter().position(|f| release.as_ref().is_some_and(|release| f.1 <= *release));
        let most = found.iter().enumerate().max_by_key(|(i, f)| (f.0, std::cmp::Reverse(*i))).map(|(i, _)| i);
        if let Some(first) = known.or(most) {
            let first = found.remove(first);
            found.insert(0, first);
        }
        if found.is_empty() {
            let have: Vec<&str> = super::ENGINES
                .into_iter()
                .filter(|e| self.files.iter().any(|f| f.engine == *e && f.family == family && f.table == table))
                .collect();
            let have = if have.is_empty() { "no engine has it".into() } else { format!("it has {}", have.join(", ")) };
            return Err(format!(
                "{} has no table {family}/{table} of {engine} on {}: {have}",
                self.package.title(),
                self.system
            ));
        }
        Ok(found.into_iter().map(|(.., file)| file).collect())
    }

    /// The points that `pick` finds in the first version of the table that has any. `what` names the shape.
    pub(super) fn first<T>(
        &self,
        (family, table): (&str, &str),
        engine: &str,
        (numbers, words): (&[&str], &[&str]),
        what: &str,
        pick: impl Fn(&Table) -> Option<T>,
    ) -> Result<T, Missing> {
        let files = self.files(family, table, engine)?;
        for (i, file) in files.iter().enumerate() {
            let read = Table::read(&file.path, numbers, words)?;
            if let Some(found) = pick(&read) {
                if i > 0 {
                    self.note(format!("{what}: {engine} {}, which has it", file.version));
                }
                return Ok(found);
            }
        }
        let versions: Vec<&str> = files.iter().map(|f| f.version.as_str()).collect();
        Err(format!("{family}/{table} of {engine} {} on {} has no {what}", versions.join(", "), self.system))
    }

    /// The first version of a table that has a row with this word in this column, else the first.
    pub(super) fn with_word(
        &self,
        (family, table): (&str, &str),
        engine: &str,
        numbers: &[&str],
        (column, word): (&str, &str),
    ) -> Result<Found, Missing> {
        let mut first = None;
        for file in self.files(family, table, engine)? {
            let table = Rc::new(Table::read(&file.path, numbers, &[column])?);
            let found = Found { table, from: format!("{engine} {}", file.version) };
            if found.table.rows_where(&[], &[(column, word)]).next().is_some() {
                return Ok(found);
            }
            first = first.or(Some(found));
        }
        Ok(first.expect("a table has a file"))
    }
}

/// Number of rows that a file says it has.
fn rows(file: &TableFile) -> Result<i64, Missing> {
    let wrong = |e: &dyn std::fmt::Display| format!("{} cannot be read: {e}", file.path.display());
    let open = File::open(&file.path).map_err(|e| wrong(&e))?;
    let reader = SerializedFileReader::new(open).map_err(|e| wrong(&e))?;
    Ok(reader.metadata().file_metadata().num_rows())
}
