//! Removes the folders of this computer from the texts of a page, because the page may be read on another computer.

use std::path::Path;

/// The absolute paths that the texts of a run contain, and the names that replace them on an HTML page.
pub struct Portable {
    /// (An absolute path on this computer, the name that replaces it on the page), the longest path first.
    names: Vec<(String, String)>,
}

impl Portable {
    /// The absolute paths among `files` (a run's inputs and folders) and in `config`, the run's experiment as TOML.
    pub fn of(files: impl IntoIterator<Item = String>, config: &str) -> Portable {
        let mut paths: Vec<String> = files.into_iter().collect();
        if let Ok(config) = toml::from_str::<toml::Value>(config) {
            texts(&config, &mut paths);
        }
        Portable::from(paths)
    }

    fn from(paths: Vec<String>) -> Portable {
        let here = std::env::current_dir().map(|here| here.display().to_string());
        let name = |path: String| {
            let name = Path::new(&path).file_name()?.to_string_lossy().into_owned();
            Some((path, name))
        };
        let absolute = paths.into_iter().filter(|path| is_absolute(path));
        let mut names: Vec<(String, String)> = absolute.filter_map(name).collect();
        // Paths in the folder of an input file, or in the folder where the command ran, become relative to this folder.
        let folders = names.iter().filter_map(|(path, _)| Some(Path::new(path).parent()?.display().to_string()));
        let folders: Vec<String> = folders.chain(here).filter(|folder| folder.len() > 1).collect();
        names.extend(folders.into_iter().map(|folder| (folder + "/", String::new())));
        names.sort_by_key(|(path, _)| std::cmp::Reverse(path.len()));
        names.dedup();
        Portable { names }
    }

    /// The text with each absolute path of this computer replaced by a shorter name.
    pub fn text(&self, text: &str) -> String {
        self.names.iter().fold(text.to_owned(), |text, (path, name)| text.replace(path, name))
    }
}

/// Is `path` absolute, on Unix or on Windows?
fn is_absolute(path: &str) -> bool {
    let drive = path.as_bytes().get(1..3).is_some_and(|b| b == b":\\" || b == b":/");
    path.len() > 1 && (path.starts_with('/') || drive)
}

/// Adds every string in a TOML value, at any depth, to `all`.
fn texts(value: &toml::Value, all: &mut Vec<String>) {
    match value {
        toml::Value::String(text) => all.push(text.clone()),
        toml::Value::Array(items) => items.iter().for_each(|item| texts(item, all)),
        toml::Value::Table(table) => table.values().for_each(|item| texts(item, all)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_named_without_their_folders() {
        let portable = Portable::from(vec!["/home/a b/x.csv".into(), "/home/a b/x.csv.gz".into(), "rel/y.csv".into()]);
        let text = "read /home/a b/x.csv.gz, /home/a b/x.csv, rel/y.csv and /home/a b/z.csv at 3 requests/s";
        assert_eq!(portable.text(text), "read x.csv.gz, x.csv, rel/y.csv and z.csv at 3 requests/s");
    }
}
