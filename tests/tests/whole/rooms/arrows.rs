//! Finds out which file of a crate depends on which. Every name that a file mentions is followed to the file that
//! defines it.

use super::mentions::{How, Mention};
use super::source::{Name, Source};
use std::collections::{BTreeMap, BTreeSet};

/// What a path in the source, such as `crate::shape::pass`, leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    /// An item, with the index of the file that defines it.
    Item(usize),
    /// A module itself, with its index.
    Module(usize),
}

/// The longest chain of `pub use` that is followed. Real chains are shorter, so a longer chain leads in a circle.
const DEPTH: u32 = 16;

/// For each file: the other files that it depends on, each with the names that cause the dependency.
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
    /// The file on which a mention in module `module` depends. `None` if the mention leads to no item of the crate, or
    /// to a name that the file only re-exports (`pub use`) from a module below it.
    fn leads(&self, module: usize, mention: &Mention) -> Option<usize> {
        let path = &mention.path;
        let target = match mention.how {
            How::Macro if path.len() == 1 => self.textual(module, &format!("{}!", path[0]))?,
            _ => self.resolve(module, path, DEPTH)?,
        };
        match target {
            // A path to a module is no dependency. The items that are used from the module are mentioned themselves.
            Target::Module(_) => None,
            Target::Item(file) if mention.how == How::Export && self.is_below(file, module) => None,
            Target::Item(file) => Some(file),
        }
    }

    /// True if `file` is the file of module `module`, or of a module below this module.
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

    /// What `path` leads to, as seen from `module`. `None` if the path leads out of the crate or to a local name.
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
                // If no definition has this name, a macro defines the item.
                name => match self.look_up(inner, name, i + 1 == path.len(), depth) {
                    Some(found) => found,
                    None => return Some(Target::Item(self.only(inner, name))),
                },
            };
        }
        Some(at)
    }

    /// What `name` means in `module`. A module and another item may have the same name. As the last word of a path
    /// (`last`), the name means the item. As an earlier word, it means the module.
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
                // In `use name::name`, the first `name` is the module.
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

    /// The file that is assumed to define a name that was not found in `module`. If exactly one file of the crate
    /// defines the name, the result is this file. Otherwise it is the file of `module`.
    fn only(&self, module: usize, name: &str) -> usize {
        let defines = |n: &Name| matches!(n, Name::Item);
        let mut defining = self.modules.iter().filter(|m| m.names.get(name).is_some_and(|n| n.iter().any(defines)));
        match (defining.next(), defining.next()) {
            (Some(one), None) => one.file,
            _ => self.modules[module].file,
        }
    }

    /// The definition of a macro that is called by its name alone. The definition is searched in `module` and then in
    /// the modules around `module`.
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

    /// Dependencies through `self`. If the methods of a type are in several files, one method calls another as
    /// `self.name()` without naming the file. Returns (calling file, file with the method, name).
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
