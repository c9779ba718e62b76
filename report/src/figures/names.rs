//! Names of the files of figures.

use crate::Swept;

/// The values of swept settings, as a part of a file name.
pub fn combination(sweep: &[Swept]) -> String {
    let one = |s: &Swept| format!("{}-{}", s.path.rsplit('.').next().unwrap_or_default(), s.shown());
    sweep.iter().map(one).collect::<Vec<_>>().join("_")
}

/// A file name without its extension: `name`, a dot and `which`. `which` is cut to 80 characters; characters other than
/// ASCII letters, digits, `.`, `_` and `-` become `-`.
pub fn slug(name: &str, which: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '-' };
    let which: String = which.chars().take(80).map(plain).collect();
    if which.is_empty() { name.to_owned() } else { format!("{name}.{which}") }
}

/// The file name `name` with `.svg`. If the name is taken already, a number is added.
pub fn unused(taken: impl Fn(&str) -> bool, name: &str) -> String {
    let numbered = (2..).map(|n| format!("{name}.{n}.svg"));
    std::iter::once(format!("{name}.svg"))
        .chain(numbered)
        .find(|file| !taken(file))
        .expect("there are more numbers than figures")
}
