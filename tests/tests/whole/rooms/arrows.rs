//! Finds which file depends on which: every name that a file mentions leads to the file that defines it.

use super::mentions::{How, Mention};
use super::source::{Name, Source};
use std::collections::{BTreeMap, BTreeSet};

/// The target of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    /// An item that this file defines.
    Item(usize),
    /// A module itself.
    Module(usize),
}

/// Longest chain of `pub use` that is followed. No crate has a longer one, so a longer chain is a circle.
const DEPTH: u32 = 16;

/// For each file: the other files it depends on, with the names.
pub type Arrows = Vec<BTreeMap<usize, BTreeSet<String>>>;

/// Finds the dependencies between a crate's files.
pub fn arrows(source: &Source) -> Arrows {
    let mut arrows: Arrows = vec![BTreeMap::new(); source.files.len()];
    let mut needs = |from: usize, to: usize, name: String| {
        if from != to {
            arrows[from].entry(to).or_default().insert(name);
        }
    };
    for (number, module) in source.modules.iter().enumerate() {
        for mention in &module.mentions {
            if let Some(to) = source.leads(number, mention) {
                needs(module.file, to, mention.path.join("::"));
            }
        }
    }
    source.calls_on_self().into_iter().for_each(|(from, to, name)| needs(from, to, format!("self.{name}()")));
    arrows
}

impl Source {
    /// The file that a mention in `module` depends on; `None` if it depends on no other item of the crate.
    fn leads(&self, module: usize, mention: &Mention) -> Option<usize> {
        let path = &mention.path;
        let target = match mention.how {
            How::Macro if path.len() == 1 => self.textual(module, &format!("{}!", path[0]))?,
            _ => self.resolve(module, path, DEPTH)?,
        };
        match target {
            // A mention of a module alone is no dependency: the items that are used are mentioned by their own names.
            Target::Module(_) => None,
            Target::Item(file) if mention.how == How::Export && self.is_below(file, module) => None,
            Target::Item(file) => Some(file),
        }
    }

    /// True if the file is the module's own or below it.
    fn is_below(&self, file: usize, module: usize) -> bool {
        let mut at = self.modules.iter().position(|m| m.file == file);
        while let Some(m) = at {
            if m == module {
                return true;
            }
            at = self.modules[m].parent;
        }
        false
    }

    /// The target of a path, as seen from a module. `None` if it leads out of the crate or to a local name.
    fn resolve(&self, module: usize, path: &[String], depth: u32) -> Option<Target> {
        let depth = depth.checked_sub(1)?;
        let mut at = match path[0].as_str() {
            "crate" => Target::Module(0),
            "self" if path.len() > 1 => Target::Module(module),
            "super" => Target::Module(self.modules[module].parent?),
            name => self.look_up(module, name, path.len() == 1, depth)?,
        };
        for (i, name) in path.iter().enumerate().skip(1) {
            let Target::Module(inner) = at else { return Some(at) };
            at = match name.as_str() {
                "super" => Target::Module(self.modules[inner].parent?),
                // The item is made by a macro, so no definition with its name is found.
                name => match self.look_up(inner, name, i + 1 == path.len(), depth) {
                    Some(found) => found,
                    None => return Some(Target::Item(self.only(inner, name))),
                },
            };
        }
        Some(at)
    }

    /// The target of a name in a module. A module and another item may have the same name: the last word of a path
    /// (`last`) means the item, an earlier word the module.
    fn look_up(&self, module: usize, name: &str, last: bool, depth: u32) -> Option<Target> {
        let depth = depth.checked_sub(1)?;
        let here = &self.modules[module];
        let found: Vec<Target> = here
            .names
            .get(name)
            .into_iter()
            .flatten()
            .filter_map(|what| match what {
                Name::Item => Some(Target::Item(here.file)),
                Name::Module(inner) => Some(Target::Module(*inner)),
                // `use name::name` begins with the module of that name.
                Name::Use(path) => self.resolve(module, path, depth),
            })
            .collect();
        let best = found.iter().find(|t| matches!(t, Target::Module(_)) != last).or(found.first());
        best.copied().or_else(|| {
            here.globs.iter().find_map(|glob| match self.resolve(module, glob, depth)? {
                Target::Module(inner) if inner != module => self.look_up(inner, name, last, depth),
                _ => None,
            })
        })
    }

    /// The file that is assumed to define a name that was not found in the module: the only file of the crate that
    /// defines the name, else the module's own file.
    fn only(&self, module: usize, name: &str) -> usize {
        let defines = |n: &Name| matches!(n, Name::Item);
        let mut defining = self.modules.iter().filter(|m| m.names.get(name).is_some_and(|n| n.iter().any(defines)));
        match (defining.next(), defining.next()) {
            (Some(one), None) => one.file,
            _ => self.modules[module].file,
        }
    }

    /// The definition of a macro that is called by its name alone: in this module, or in one around it.
    fn textual(&self, module: usize, name: &str) -> Option<Target> {
        let mut at = Some(module);
        while let Some(m) = at {
            if let Some(found) = self.look_up(m, name, true, DEPTH) {
                return Some(found);
            }
            at = self.modules[m].parent;
        }
        None
    }

    /// Dependencies through `self`: a type whose methods are in several files ties them, because one calls another's as
    /// `self.name()` without naming its file. Returns (calling file, file with the method, name).
    fn calls_on_self(&self) -> Vec<(usize, usize, String)> {
        let home = |module: usize, of: &[String]| match self.resolve(module, of, DEPTH) {
            Some(Target::Item(file)) => of.last().map(|name| (file, name.clone())),
            _ => None,
        };
        let typed: Vec<_> =
            self.methods.iter().map(|m| (home(m.module, &m.of), m)).filter(|(of, _)| of.is_some()).collect();
        let mut calls = Vec::new();
        for (of, from) in &typed {
            for (_, to) in typed.iter().filter(|(other, to)| other == of && to.inherent) {
                let (calling, called) = (self.modules[from.module].file, self.modules[to.module].file);
                let names = to.names.iter().filter(|name| from.called.contains(name));
                calls.extend(names.map(|name| (calling, called, name.clone())));
            }
        }
        calls
    }
}
