//! Writes the folder of a recommendation: the answer as JSON, a page with a figure, and the engine's files.

use super::advice::Advice;
use super::page;
use crate::calibrate::folder::{begin, check_free, put};
use foretoken_run::spec::problem::Result;
use std::path::Path;

pub const ADVICE: &str = "recommendation.json";
pub const PAGE: &str = "recommendation.html";
const FIGURE: &str = "gain-over-load.svg";
const OURS: [&str; 6] = [ADVICE, PAGE, FIGURE, "speculative_config.json", "adaptive_spec.json", "dspark-sps.json"];

/// The recommendation with every absolute path shortened to its file name. The recommendation's files may be read on
/// another computer, which does not have these folders.
fn portable(advice: &Advice) -> Advice {
    let mut to = advice.clone();
    let texts = [&mut to.subject.name, &mut to.now.why].into_iter().chain(&mut to.confirm).chain(&mut to.warnings);
    texts.for_each(|text| *text = without_folders(text));
    to
}

/// The text of a recommendation with each absolute path shortened to its file name. A path begins at the start of a
/// word, or after a single quotation mark of a shell.
fn without_folders(text: &str) -> String {
    let (mut short, mut rest) = (String::new(), text);
    while let Some(at) = rest.match_indices('/').map(|m| m.0).find(|&at| {
        let before = if at == 0 { short.chars().last() } else { rest[..at].chars().last() };
        before.is_none_or(|c| c.is_whitespace() || c == '\'')
    }) {
        let quoted = rest[..at].ends_with('\'');
        let end = rest[at..].find(|c: char| if quoted { c == '\'' } else { c.is_whitespace() });
        let (path, after) = rest[at..].split_at(end.unwrap_or(rest.len() - at));
        short += &rest[..at];
        short += path.rsplit('/').next().unwrap_or(path);
        rest = after;
    }
    short + rest
}

/// Checks that the recommendation may be written to the folder, before anything is simulated.
pub fn check(folder: &Path, overwrite: bool) -> Result<()> {
    check_free(folder, ADVICE, "a recommendation", overwrite)
}

/// Writes the recommendation into a folder. The folder must be new or empty, or hold a recommendation if `overwrite` is
/// true.
pub fn write(advice: &Advice, folder: &Path, overwrite: bool) -> Result<()> {
    check(folder, overwrite)?;
    let advice = &portable(advice);
    let _alone = begin(folder, ADVICE)?;
    OURS.iter().filter(|&&name| name != ADVICE).for_each(|name| drop(std::fs::remove_file(folder.join(name))));
    for start in &advice.starts {
        put(folder, &start.file, &start.text)?;
    }
    if let Some(figure) = page::figure(advice) {
        put(folder, FIGURE, figure.svg)?;
    }
    put(folder, PAGE, page::page(advice).html())?;
    // `recommendation.json` is written last, so a folder that has it is complete.
    put(folder, ADVICE, serde_json::to_string_pretty(advice).expect("plain data always serialises") + "\n")
}

#[cfg(test)]
mod tests {
    use super::without_folders;

    #[test]
    fn absolute_paths_become_names_and_the_rest_stays() {
        for (text, short) in [
            (
                "foretoken observe http://h:1 /home/a/x.toml -o results/k2",
                "foretoken observe http://h:1 x.toml -o results/k2",
            ),
            ("--set 'a={}' '/home/my files/x.toml' -o out", "--set 'a={}' 'x.toml' -o out"),
            ("/home/a/cal", "cal"),
            ("12 tokens/s, and/or a/b.toml", "12 tokens/s, and/or a/b.toml"),
            ("", ""),
        ] {
            assert_eq!(without_folders(text), short);
        }
    }
}
