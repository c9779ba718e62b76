//! Tests that the program can parse every example in its help. `tests/cli/habits.rs` also runs the examples that need
//! no device.

use super::Cli;
use clap::{Command, CommandFactory, Parser};

/// The examples in the help of `command` and its subcommands, each as (command's name, example).
fn examples(command: &Command) -> Vec<(String, String)> {
    let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let lines = help.lines().map(str::trim).filter(|line| line.starts_with("foretoken "));
    let mut all: Vec<(String, String)> = lines.map(|line| (command.get_name().to_owned(), line.to_owned())).collect();
    assert!(!all.is_empty(), "`{} --help` has no example", command.get_name());
    all.extend(command.get_subcommands().flat_map(examples));
    all
}

/// The words of a command line, up to the first pipe or redirection (`|`, `>`, `<`).
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in line.chars() {
        match (quote, c) {
            (Some(q), _) if c == q => quote = None,
            (Some(_), _) => word.get_or_insert_default().push(c),
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, ' ') => words.extend(word.take()),
            (None, '>' | '<' | '|') => break,
            (None, _) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

#[test]
fn every_help_has_examples_that_parse() {
    let all = examples(&Cli::command());
    for (name, line) in &all {
        if let Err(e) = Cli::try_parse_from(words(line)) {
            panic!("an example of `{name}` is wrong: {line}\n{e}");
        }
    }
    assert!(all.len() > 30, "only {} examples", all.len());
}

#[test]
fn words_are_split_as_a_shell_does() {
    assert_eq!(words("a --set 'b={ c = 1 }' \"d e\"f > g"), ["a", "--set", "b={ c = 1 }", "d ef"]);
}
