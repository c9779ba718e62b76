//! Which file needs which: every name that a file mentions leads to the file that defines it.

use super::mentions::{How, Mention};
use super::source::{Name, Source};
use std::collections::{BTreeMap, BTreeSet};

/// Where a path leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    /// To something that this file defines.
    Item(usize),
    /// To a module itself.
    Module(usize),
}

/// Longer chains of `pub use` than any crate has: a path that needs more leads in a circle.
const DEPTH: u32 = 16;

/// The files that each file needs, itself left out, and the names it needs them for.
pub type Arrows = Vec<BTreeMap<usize, BTreeSet<String>>>;

/// Reads them off a crate.
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
    /// The file that a mention needs.
    fn leads(&self, module: usize, mention: &Mention) -> Option<usize> {
        let path = &mention.path;
        let target = match mention.how {
            How::Macro if path.len() == 1 => self.textual(module, &format!("{}!", path[0]))?,
            _ => self.resolve(module, path, DEPTH)?,
        };
        match target {
            // Naming a module is not needing what is in it: that has names of its own.
            Target::Module(_) => None,
            Target::Item(file) if mention.how == How::Export && self.is_below(file, module) => None,
            Target::Item(file) => Some(file),
        }
    }

    /// Is that file the module's own, or one below it?
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

    /// Where a path leads, seen from a module. `None`: out of the crate, or to nothing but a local name.
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
                // What a macro has made there has a name that is written nowhere.
                name => match self.look_up(inner, name, i + 1 == path.len(), depth) {
                    Some(found) => found,
                    None => return Some(Target::Item(self.only(inner, name))),
                },
            };
        }
        Some(at)
    }

    /// What a name stands for in a module; of several things by that name a path's last word is not the module.
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

    /// The file that a name which a module lacks is taken to come from: the one file of the crate that defines it, else the
    /// module's own.
    fn only(&self, module: usize, name: &str) -> usize {
        let defines = |n: &Name| matches!(n, Name::Item);
        let mut all = self.modules.iter().filter(|m| m.names.get(name).is_some_and(|n| n.iter().any(defines)));
        match (all.next(), all.next()) {
            (Some(one), None) => one.file,
            _ => self.modules[module].file,
        }
    }

    /// Where a macro comes from that is called by its name alone: this module, or one around it.
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

    /// A type whose methods are in several files ties them: one calls another's as `self.name()`, and names no file. From the
    /// calling file to the one with the method.
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
