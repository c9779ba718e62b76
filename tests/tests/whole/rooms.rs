//! Tests the dependencies between the files of a crate: there must be no large circles of files.
//!
//! A file (a "room") depends on another file of its crate if it names something that the other defines: in a `use`, in
//! a path, or in a macro's arguments. A name is followed through every `pub use` to the file that defines it, so an
//! import through `lib.rs` hides no dependency. These are the rules:
//!
//! - `mod x;` does not count. A `pub use` of a name from a module below the file's module does not count either,
//!   because it is a table of contents. If the file itself uses such a name, this counts. A child's import from its
//!   parent counts, too. So a `mod.rs` that defines names for its children and uses names of its children is in a
//!   circle with them.
//! - `use crate::shape;` alone binds a module. Each `shape::name` counts, and leads to the file that defines `name`.
//! - If a type has `impl` blocks in several files, `self.name()` depends on the file that has the method.
//! - A macro call depends on the file that defines the macro. Items that a macro defines are found by name.
//! - Calls of methods on other values do not count, because a call does not name the method's file.
//! - Tests do not count: code under `#[cfg(test)]`, `tests/` and `*_tests.rs`.
//!
//! Circles are the strongly connected components of the graph of files. This command prints a table and every circle:
//!
//!     FORETOKEN_ROOMS=1 cargo test --release -p foretoken-tests --test whole -- rooms

mod arrows;
mod circles;
mod mentions;
mod source;
mod walls;

use arrows::arrows;
use circles::{circles, upward};
use itertools::Itertools;
use source::Source;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// The most files that a circle (files that all depend on each other) may have, for crates that are not in `BOUNDS`. A
/// single file is no circle, so 1 means that no circle is allowed.
const MOST: usize = 1;

/// Crates that may have a circle (files that all depend on each other): name, most files in a circle, and the reason.
const BOUNDS: [(&str, usize, &str); 3] = [
    ("policies", 4, "a policy from another crate gets a row like the table's, and a look that no row has"),
    ("run", 3, "a document, its leaves and its sweeps are one type in three files"),
    ("live", 2, "a tape is rebuilt from its head and tail"),
];

/// A crate of the workspace, with its files and its circles (files that all depend on each other).
struct Measured {
    name: String,
    lines: usize,
    files: usize,
    /// Circles among the crate's files (files that all depend on each other), the largest first.
    circles: Vec<Circle>,
}

/// Files that all depend on each other.
struct Circle {
    files: Vec<String>,
    lines: usize,
    /// The dependencies to remove so that the files no longer make a circle, as (from, to, names).
    upward: Vec<(String, String, String)>,
}

impl Measured {
    fn of(name: &str, source: &Source) -> Measured {
        let arrows = arrows(source);
        let lines = |files: &[usize]| files.iter().map(|&f| source.files[f].lines).sum::<usize>();
        let name_of = |file: usize| source.files[file].name.clone();
        let named = |(from, to): (usize, usize)| (name_of(from), name_of(to), arrows[from][&to].iter().join(", "));
        let circle = |files: &Vec<usize>| Circle {
            files: files.iter().map(|&f| name_of(f)).collect(),
            lines: lines(files),
            upward: upward(files, &arrows).into_iter().map(named).collect(),
        };
        let mut circles: Vec<Circle> = circles(&arrows).iter().map(circle).collect();
        circles.sort_by_key(|c| std::cmp::Reverse((c.files.len(), c.lines)));
        let all: Vec<usize> = (0..source.files.len()).collect();
        Measured { name: name.to_owned(), lines: lines(&all), files: all.len(), circles }
    }

    /// Number of files in the crate's largest circle (files that all depend on each other); 1 if there is no circle.
    fn longest(&self) -> usize {
        self.circles.first().map_or(1, |c| c.files.len())
    }

    fn row(&self) -> String {
        let lines = self.circles.first().map_or(0, |c| c.lines);
        let upward: usize = self.circles.iter().map(|c| c.upward.len()).sum();
        let Measured { name, lines: all, files, .. } = self;
        format!("{name:<20} {all:>6} {files:>6} {:>14} {lines:>14} {upward:>10}\n", self.longest())
    }
}

/// Each crate that the workspace's manifest lists, as (name, `src` folder).
fn members() -> Vec<(String, PathBuf)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate lies in the workspace");
    let manifest: toml::Table = fs::read_to_string(root.join("Cargo.toml")).unwrap().parse().unwrap();
    let members = manifest["workspace"]["members"].as_array().expect("a list");
    members.iter().map(|m| m.as_str().expect("a folder")).map(|m| (m.to_owned(), root.join(m).join("src"))).collect()
}

/// The files below a crate's `src`, as (path, text). Programs in `src/bin` are left out, because each is a crate of its
/// own.
fn texts(src: &Path) -> Vec<(String, String)> {
    let mut texts = Vec::new();
    let mut folders = vec![src.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())) {
            let path = entry.unwrap().path();
            if path.is_dir() && path != src.join("bin") {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let name = path.strip_prefix(src).expect("it lies below").to_str().expect("UTF-8").replace('\\', "/");
                texts.push((name, fs::read_to_string(&path).unwrap()));
            }
        }
    }
    texts.sort();
    texts
}

#[test]
fn import_circles_stay_within_their_bounds() {
    let measured: Vec<Measured> =
        members().iter().map(|(name, src)| Measured::of(name, &Source::read(&texts(src)))).collect();
    assert!(measured.iter().map(|m| m.files).sum::<usize>() > 100, "the workspace's files are not found");
    if std::env::var_os("FORETOKEN_ROOMS").is_some() {
        print(&measured);
    }
    for crate_ in &measured {
        let bound = BOUNDS.iter().find(|(name, ..)| *name == crate_.name).map_or(MOST, |(_, most, _)| *most);
        assert!(
            crate_.longest() <= bound,
            "{}: {} files need each other, and {bound} may: {:#?}",
            crate_.name,
            crate_.longest(),
            crate_.circles[0].files
        );
    }
    for (name, ..) in BOUNDS {
        assert!(measured.iter().any(|m| m.name == name), "{name} has a bound and is no crate");
    }
}

/// A file that no module names is not compiled, and nothing notices that it is left. Files of tests may be named by a
/// `#[path]` anywhere.
#[test]
fn every_file_belongs_to_a_module() {
    for (name, src) in members() {
        let texts = texts(&src);
        for (file, _) in &texts {
            let module = file.strip_suffix("/mod.rs").or(file.strip_suffix(".rs")).expect("a file of Rust");
            let (folder, module) = module.rsplit_once('/').unwrap_or(("", module));
            if ["lib", "main"].contains(&module) || module.ends_with("tests") || module.ends_with("_recorded") {
                continue;
            }
            let above = [format!("{folder}/mod.rs"), format!("{folder}.rs")];
            let above = texts.iter().find(|(other, _)| above.contains(other));
            // The modules of a folder without a file of its own are named in the crate's root.
            let root = || texts.iter().find(|(other, _)| ["lib.rs", "main.rs"].contains(&other.as_str()));
            let (_, text) = above.or_else(root).expect("a crate has a root");
            let named = text.split(|c: char| c != '_' && !c.is_alphanumeric()).contains(&module);
            assert!(named, "{name}/src/{file} belongs to no module");
        }
    }
}

/// Prints the table and the circles directly to the terminal, because the test harness hides the output of a test that
/// passes.
fn print(measured: &[Measured]) {
    let mut text = "crate                 lines  files  circle: files  circle: lines  arrows up\n".to_owned();
    measured.iter().for_each(|m| text += &m.row());
    for (crate_, circle) in measured.iter().flat_map(|m| m.circles.iter().map(move |c| (&m.name, c))) {
        text += &format!("\n{crate_}: {} files, {} lines\n", circle.files.len(), circle.lines);
        circle.files.iter().for_each(|f| text += &format!("  {f}\n"));
        circle.upward.iter().for_each(|(from, to, names)| text += &format!("  up: {from} needs {to} for {names}\n"));
    }
    std::io::stderr().write_all(text.as_bytes()).expect("standard error is written to");
}

/// Tests the rules for dependencies between files, on made-up crates of a few lines.
mod on_small_crates {
    use super::{Measured, Source};

    fn circles(texts: &[(&str, &str)]) -> Vec<(Vec<String>, usize)> {
        let texts: Vec<(String, String)> = texts.iter().map(|(n, t)| (n.to_string(), t.to_string())).collect();
        Measured::of("small", &Source::read(&texts)).circles.into_iter().map(|c| (c.files, c.upward.len())).collect()
    }

    fn one(files: &[&str], upward: usize) -> Vec<(Vec<String>, usize)> {
        vec![(files.iter().map(|f| f.to_string()).collect(), upward)]
    }

    #[test]
    fn an_import_by_way_of_lib_rs_leads_to_the_definer() {
        let lib = ("lib.rs", "mod a; mod b; pub use a::A; pub use b::B as Renamed;");
        let a = ("a.rs", "use crate::Renamed; pub struct A(Renamed);");
        assert_eq!(circles(&[lib, a, ("b.rs", "pub struct B;")]), []);
        let b = ("b.rs", "pub struct B; fn f() { let _ = crate::A(B); }");
        assert_eq!(circles(&[lib, a, b]), one(&["a.rs", "b.rs"], 1));
    }

    #[test]
    fn a_table_of_contents_is_no_circle_but_using_it_is() {
        let child = ("a/child.rs", "use super::Shared; pub struct Child(Shared);");
        let lib = ("lib.rs", "mod a;");
        let contents = "mod child; pub use child::Child; pub struct Shared;";
        assert_eq!(circles(&[lib, ("a/mod.rs", contents), child]), []);
        let uses = format!("{contents} fn f() -> Option<Child> {{ None }}");
        assert_eq!(circles(&[lib, ("a/mod.rs", &uses), child]), one(&["a/mod.rs", "a/child.rs"], 1));
    }

    #[test]
    fn modules_are_followed_to_their_items() {
        let lib = ("lib.rs", "mod a; mod b;");
        let b = ("b/mod.rs", "mod inner; pub use inner::f;");
        let inner = ("b/inner.rs", "use crate::a::*; pub fn f() -> Type { Type }");
        let a = ("a.rs", "use crate::b::{self as other}; pub struct Type; fn g() { other::f(); }");
        assert_eq!(circles(&[lib, a, b, inner]), one(&["a.rs", "b/inner.rs"], 1));
        let a = ("a.rs", "use crate::b as other; pub struct Type;");
        assert_eq!(circles(&[lib, a, b, inner]), []);
    }

    #[test]
    fn test_code_does_not_count() {
        let lib = ("lib.rs", "mod a; mod b;\n#[cfg(test)] mod testing;");
        let a = "pub struct A; impl A { #[cfg(test)] fn f() -> crate::b::B { crate::b::B } }";
        let (inline, named) = ("#[cfg(test)] mod tests { use crate::b::B; }", "#[cfg(test)] #[path = \"c.rs\"] mod t;");
        let text = [a, inline, named].join("\n");
        let b = ("b.rs", "pub struct B(crate::a::A);");
        let others = [
            ("c.rs", "use super::A; use crate::b::B;"),
            ("testing.rs", "use crate::a::A;"),
            ("a_tests.rs", "use crate::b::B;"),
        ];
        let measured = Source::read(
            &[lib, ("a.rs", &text), b, others[0], others[1], others[2]].map(|(n, t)| (n.to_owned(), t.to_owned())),
        );
        let measured = Measured::of("small", &measured);
        assert_eq!((measured.files, measured.lines, measured.longest()), (3, 3, 1));
        let used = a.replace("#[cfg(test)]", "");
        assert_eq!(circles(&[lib, ("a.rs", &used), b]), one(&["a.rs", "b.rs"], 1));
    }

    #[test]
    fn methods_tie_the_files_of_a_type() {
        let lib = ("lib.rs", "mod a; mod b;");
        let b = ("b.rs", "use crate::a::A; impl A { pub fn more(&self) {} }");
        let a = |call: &str| format!("pub struct A {{ other: Vec<u8> }} impl A {{ fn f(&self) {{ {call} }} }}");
        assert_eq!(circles(&[lib, ("a.rs", &a("self.other.more(); self.more;")), b]), []);
        assert_eq!(circles(&[lib, ("a.rs", &a("self.more();")), b]), one(&["a.rs", "b.rs"], 1));
        assert_eq!(circles(&[lib, ("a.rs", &a("Self::more(self);")), b]), one(&["a.rs", "b.rs"], 1));
    }

    #[test]
    fn names_in_macros_count() {
        // A macro here writes `mod` and `pub use` lines. The files and names of these lines must be found too.
        let lib = ("lib.rs", "macro_rules! table { ($($name:ident)*) => { $(mod $name;)* } } table! { a b }");
        let a = ("a.rs", "pub struct A; fn f() { assert_eq!(1, crate::B::one()); }");
        let b = ("b.rs", "pub struct B; fn f(_: crate::A) {}");
        assert_eq!(circles(&[lib, a, b]), one(&["a.rs", "b.rs"], 1));
        // A file that calls a macro depends on the file that defines the macro.
        let main = ("main.rs", "macro_rules! say { () => { crate::words::SAID } } mod words;");
        assert_eq!(circles(&[main, ("words.rs", "pub const SAID: u8 = 1; fn write() { write!(); }")]), []);
        let words = ("words.rs", "pub const SAID: u8 = 1; fn f() -> u8 { say!() }");
        assert_eq!(circles(&[main, words]), one(&["main.rs", "words.rs"], 1));
    }

    #[test]
    fn a_hub_has_an_arrow_up_for_each_that_it_needs_and_is_needed_by() {
        let hub = ("lib.rs", "mod a; mod b; mod c; pub struct Hub(a::A, b::B, c::C);");
        let a = ("a.rs", "pub struct A; use crate::Hub;");
        let b = ("b.rs", "pub struct B; use crate::Hub;");
        let c = ("c.rs", "pub struct C; use crate::Hub; use crate::b::B;");
        assert_eq!(circles(&[hub, a, b, c]), one(&["lib.rs", "a.rs", "b.rs", "c.rs"], 3));
    }
}
