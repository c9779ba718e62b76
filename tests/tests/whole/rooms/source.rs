//! The source of a crate: its modules, the names that each module has, and the names that each module mentions.

use super::mentions::{Mention, Mentions, is_test};
use quote::ToTokens;
use std::collections::BTreeMap;
use syn::spanned::Spanned;
use syn::{Item, ItemImpl, ItemMod, Type};

/// A file of the source. Code that is compiled for tests only is left out.
pub struct File {
    /// The source file's path below `src`.
    pub name: String,
    /// Number of lines of the source file, without test modules.
    pub lines: usize,
}

/// A module: a file, or a module within a file.
pub struct Module {
    pub file: usize,
    pub parent: Option<usize>,
    /// The names in the module, each with its meanings. A module and a function, for example, can have the same name.
    pub names: BTreeMap<String, Vec<Name>>,
    /// The paths before `::*` in the module's glob imports.
    pub globs: Vec<Vec<String>>,
    pub mentions: Vec<Mention>,
}

/// One meaning of a name in its module.
#[derive(Clone)]
pub enum Name {
    /// An item that is defined in the module.
    Item,
    Module(usize),
    /// A name that a `use` brings into the module, with the path as the source has it.
    Use(Vec<String>),
}

/// The methods of a type in one `impl` block, with the module that has the block.
pub struct Methods {
    pub module: usize,
    pub of: Vec<String>,
    pub names: Vec<String>,
    /// Methods that the block calls on `self` or `Self`.
    pub called: Vec<String>,
    /// True if the block is the type's own `impl`, false if it implements a trait.
    pub inherent: bool,
}

/// A crate's source; module 0 is its root.
#[derive(Default)]
pub struct Source {
    pub files: Vec<File>,
    pub modules: Vec<Module>,
    pub methods: Vec<Methods>,
}

impl Source {
    /// Reads files, given as (path below `src`, text). A file's path gives its module, so that a `mod` line may also
    /// come from a macro. Files of tests are left out: a `#[cfg(test)] mod` names them, or their name says so.
    pub fn read(texts: &[(String, String)]) -> Source {
        let parsed: Vec<(Vec<String>, &str, &str, syn::File)> = texts
            .iter()
            .map(|(name, text)| {
                let file = syn::parse_file(text).unwrap_or_else(|e| panic!("{name}: {e}"));
                (path_of(name), name.as_str(), text.as_str(), file)
            })
            .collect();
        let mut tests: Vec<Vec<String>> = Vec::new();
        for (path, _, _, file) in &parsed {
            tests.extend(file.items.iter().filter_map(|item| test_module(path, item)));
        }
        let mut kept: Vec<_> = parsed
            .into_iter()
            .filter(|(path, ..)| !tests.iter().any(|t| path.starts_with(t)) && !path.iter().any(|p| named_as_test(p)))
            .collect();
        // The files are sorted by module path: a module comes after its parent, and the root comes first.
        kept.sort_by(|a, b| a.0.cmp(&b.0));
        assert!(kept.first().is_some_and(|(path, ..)| path.is_empty()), "a crate has a lib.rs or a main.rs");

        let mut source = Source::default();
        let mut at: BTreeMap<Vec<String>, usize> = BTreeMap::new();
        for (path, name, text, file) in kept {
            source.files.push(File { name: name.to_owned(), lines: text.lines().count() });
            let parent = (0..path.len()).rev().find_map(|n| at.get(&path[..n]).copied());
            let module = source.module(source.files.len() - 1, parent);
            if let (Some(parent), Some(name)) = (parent, path.last()) {
                source.define(parent, name, Name::Module(module));
            }
            at.insert(path, module);
            source.items(module, file.items);
        }
        source
    }

    fn module(&mut self, file: usize, parent: Option<usize>) -> usize {
        let (names, globs, mentions) = Default::default();
        self.modules.push(Module { file, parent, names, globs, mentions });
        self.modules.len() - 1
    }

    fn define(&mut self, module: usize, name: &str, what: Name) {
        self.modules[module].names.entry(name.to_owned()).or_default().push(what);
    }

    fn items(&mut self, module: usize, items: Vec<Item>) {
        for item in items {
            if attributes(&item).is_some_and(is_test) {
                let span = item.span();
                let file = self.modules[module].file;
                self.files[file].lines -= span.end().line + 1 - span.start().line;
                continue;
            }
            self.item(module, item);
        }
    }

    fn item(&mut self, module: usize, item: Item) {
        let mut mentions = Mentions::default();
        match item {
            // A line `mod name;` defines nothing in this file. The module is added when its own file is read.
            Item::Mod(ItemMod { content: None, .. }) => return,
            Item::Mod(ItemMod { ident, content: Some((_, items)), .. }) => {
                let inner = self.module(self.modules[module].file, Some(module));
                self.define(module, &ident.to_string(), Name::Module(inner));
                return self.items(inner, items);
            }
            Item::Use(item) => mentions.of_use(&item),
            Item::Impl(block) => {
                mentions.of_tokens(block.to_token_stream());
                self.methods.extend(methods(module, &block, &mentions));
            }
            other => {
                if let Some(name) = defined(&other) {
                    self.define(module, &name, Name::Item);
                }
                mentions.of_tokens(other.to_token_stream());
            }
        }
        for (name, path) in mentions.bound {
            match name {
                Some(name) => self.define(module, &name, Name::Use(path)),
                None => self.modules[module].globs.push(path),
            }
        }
        self.modules[module].mentions.extend(mentions.found);
    }
}

/// The module path of a file: `a/b.rs` and `a/b/mod.rs` are both the module `a::b`.
fn path_of(name: &str) -> Vec<String> {
    let stem = name.strip_suffix(".rs").unwrap_or(name);
    let mut path: Vec<String> = stem.split('/').map(str::to_owned).collect();
    if matches!(path.last().map(String::as_str), Some("mod")) || matches!(stem, "lib" | "main") {
        path.pop();
    }
    path
}

fn named_as_test(name: &str) -> bool {
    name == "tests" || name.ends_with("_tests")
}

/// If `item` is a `mod` that is compiled for tests only, the module path of its file; else `None`.
fn test_module(parent: &[String], item: &Item) -> Option<Vec<String>> {
    let Item::Mod(item) = item else { return None };
    if item.content.is_some() || !is_test(&item.attrs) {
        return None;
    }
    // The attribute `#[path]` names a file in the same folder.
    let file = item.attrs.iter().filter(|a| a.path().is_ident("path")).find_map(|a| {
        match &a.meta.require_name_value().ok()?.value {
            syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(path), .. }) => Some(path.value()),
            _ => None,
        }
    });
    let mut path = parent.to_vec();
    match file {
        Some(file) => {
            path.pop();
            path.extend(path_of(&file));
        }
        None => path.push(item.ident.to_string()),
    }
    Some(path)
}

fn attributes(item: &Item) -> Option<&[syn::Attribute]> {
    Some(match item {
        Item::Const(i) => &i.attrs,
        Item::Enum(i) => &i.attrs,
        Item::Fn(i) => &i.attrs,
        Item::Impl(i) => &i.attrs,
        Item::Macro(i) => &i.attrs,
        Item::Mod(i) => &i.attrs,
        Item::Static(i) => &i.attrs,
        Item::Struct(i) => &i.attrs,
        Item::Trait(i) => &i.attrs,
        Item::Type(i) => &i.attrs,
        Item::Union(i) => &i.attrs,
        Item::Use(i) => &i.attrs,
        _ => return None,
    })
}

/// The name that an item defines in its module. `None` for items without a name. Also `None` for `mod` and `use`,
/// because the caller handles them itself.
fn defined(item: &Item) -> Option<String> {
    Some(
        match item {
            // The name of a macro is stored with a `!`, because a macro and another item may have the same name.
            Item::Macro(i) => return i.ident.as_ref().map(|name| format!("{name}!")),
            Item::Const(i) => &i.ident,
            Item::Enum(i) => &i.ident,
            Item::Fn(i) => &i.sig.ident,
            Item::Static(i) => &i.ident,
            Item::Struct(i) => &i.ident,
            Item::Trait(i) => &i.ident,
            Item::Type(i) => &i.ident,
            Item::Union(i) => &i.ident,
            _ => return None,
        }
        .to_string(),
    )
}

fn methods(module: usize, block: &ItemImpl, mentions: &Mentions) -> Option<Methods> {
    let Type::Path(of) = &*block.self_ty else { return None };
    let names = block.items.iter().filter_map(|item| match item {
        syn::ImplItem::Fn(f) if !is_test(&f.attrs) => Some(f.sig.ident.to_string()),
        _ => None,
    });
    Some(Methods {
        module,
        of: of.path.segments.iter().map(|s| s.ident.to_string()).collect(),
        names: names.collect(),
        called: mentions.on_self.clone(),
        inherent: block.trait_.is_none(),
    })
}
