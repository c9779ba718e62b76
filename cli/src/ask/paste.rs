//! The line to paste back: the line as it was given, with the flag that changes.

use super::drafter::method_name;
use super::flags::Given;
use super::line::Line;
use super::server::{Server, Speculation};
use foretoken_policies::{PolicySpec, to_vllm_speculative_config};
use foretoken_servers::calibrate::recommend::Engine;
use serde_json::{Map, Value};
use std::ops::Range;

/// What changes in a line: bytes, and the text in their place.
type Change = (Range<usize>, String);

/// The line with the policy `advised`. For YAML and servers: what changes. `None` if the engine has no flag for
/// the policy.
pub fn line_with(line: &Line, server: &Server, speculation: &Speculation, advised: &PolicySpec) -> Option<String> {
    let changes = match server.engine {
        Engine::Vllm => vllm(line, server, speculation, advised)?,
        Engine::Sglang => sglang(server, speculation, advised)?,
    };
    if let Some((span, file)) = &line.config
        && server.speculative.iter().any(|flag| flag.span == *span)
    {
        return Some(format!("in {file}:\n{}", in_file(server, &changes, advised)));
    }
    if line.only_changes {
        let said = |(span, to): &Change| match to.trim() {
            to if span.is_empty() => format!("add {to}"),
            "" => format!("remove {}", &line.text[span.clone()]),
            to => format!("{} -> {to}", &line.text[span.clone()]),
        };
        let said = match advised {
            // The server shows that it drafts, and not the flag that says how.
            PolicySpec::Autoregressive(_) if changes.is_empty() => "remove --speculative-config".to_owned(),
            PolicySpec::Fixed(p) if server.speculative.is_empty() && speculation.k > 0 => {
                format!("num_speculative_tokens of --speculative-config: {} -> {}", speculation.k, p.k)
            }
            _ => changes.iter().map(said).collect::<Vec<_>>().join("\n"),
        };
        return Some(format!("in {}:\n{said}", line.name));
    }
    let mut text = line.text.trim_end().to_owned();
    let mut changes = changes;
    changes.sort_by_key(|(span, _)| std::cmp::Reverse(span.start));
    for (span, to) in changes {
        let start = match to.is_empty() {
            // The space before a removed flag goes too, and a backslash that would join nothing.
            true => text[..span.start].trim_end_matches([' ', '\t']).len(),
            false => span.start,
        };
        text.replace_range(start.min(text.len())..span.end.min(text.len()), &to);
    }
    let joins_nothing = |l: &&str| !l.trim().is_empty() && l.trim() != "\\";
    let text = text.lines().filter(joins_nothing).collect::<Vec<_>>().join("\n");
    Some(text.trim_end_matches([' ', '\\', '\n']).to_owned())
}

/// What changes in a file for `--config`.
fn in_file(server: &Server, changes: &[Change], advised: &PolicySpec) -> String {
    let said: Vec<String> = match advised {
        PolicySpec::Autoregressive(_) => {
            server.speculative.iter().map(|flag| format!("remove {}", flag.name)).collect()
        }
        _ => changes.iter().map(|(_, to)| to.trim()).filter(|to| !to.is_empty()).map(as_key).collect(),
    };
    said.join("\n")
}

/// A change with its key, if it is a value alone.
fn as_key(to: &str) -> String {
    match to {
        json if json.starts_with("'{") => format!("speculative-config: {json}"),
        number if number.parse::<u32>().is_ok() => format!("num_speculative_tokens: {number}"),
        flag => flag.to_owned(),
    }
}

/// A text in single quotes for a shell.
pub fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

fn removed(flags: &[Given]) -> Vec<Change> {
    flags.iter().map(|flag| (flag.span.clone(), String::new())).collect()
}

fn vllm(line: &Line, server: &Server, speculation: &Speculation, advised: &PolicySpec) -> Option<Vec<Change>> {
    if let PolicySpec::Autoregressive(_) = advised {
        return Some(removed(&server.speculative));
    }
    let whole = server.speculative.iter().find(|g| g.name == "speculative-config" && g.part.is_none());
    let mut config: Map<String, Value> = match whole {
        Some(flag) => serde_json::from_str(flag.text()).ok()?,
        None => {
            let drafter = speculation.drafter.as_ref().map(|w| ("model".to_owned(), w.text.clone().into()));
            [("method".to_owned(), method_name(speculation.method).into())].into_iter().chain(drafter).collect()
        }
    };
    let by_batch = "num_speculative_tokens_per_batch_size";
    match advised {
        PolicySpec::Fixed(p) => {
            config.remove(by_batch);
            config.insert("num_speculative_tokens".into(), p.k.into());
        }
        PolicySpec::VllmDynamic(p) => {
            let written = to_vllm_speculative_config(None, None, &p.num_speculative_tokens_per_batch_size).ok()?;
            config.extend(serde_json::from_str::<Map<String, Value>>(&written).ok()?);
        }
        _ => return None,
    }
    // A fixed length of a line that has one already: only the number changes.
    let only = |flag: &Given| match advised {
        PolicySpec::Fixed(p) => number_in(line, flag, p.k),
        _ => None,
    };
    if let Some(change) = whole.filter(|f| !f.text().contains(by_batch)).and_then(only) {
        return Some(vec![change]);
    }
    let json = serde_json::to_string(&config).ok()?;
    if let Some(flag) = whole {
        return Some(vec![(flag.place().clone(), quoted(&json))]);
    }
    let number = server.speculative.iter().find(|g| {
        g.part.as_deref() == Some("num_speculative_tokens")
            || ["spec-tokens", "num-speculative-tokens"].contains(&g.name)
    });
    if let (PolicySpec::Fixed(p), Some(flag)) = (advised, number) {
        return Some(vec![(flag.place().clone(), glued(line, flag, &p.k.to_string()))]);
    }
    let mut changes = removed(&server.speculative);
    let end = line.text.trim_end().len();
    changes.push((end..end, format!(" --speculative-config {}", quoted(&json))));
    Some(changes)
}

/// The place of the number behind `num_speculative_tokens` in a flag's JSON.
fn number_in(line: &Line, flag: &Given, k: u32) -> Option<Change> {
    let span = flag.place().clone();
    let text = line.text.get(span.clone())?;
    let key = "\"num_speculative_tokens\"";
    let after = text.find(key)? + key.len();
    let rest = &text[after..];
    let start = after + rest.find(|c: char| c.is_ascii_digit())?;
    let end = start + text[start..].find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len() - start);
    Some((span.start + start..span.start + end, k.to_string()))
}

/// `--flag=value` is one word of the line.
fn glued(line: &Line, flag: &Given, value: &str) -> String {
    let text = &line.text[flag.place().clone()];
    if text.starts_with('-') && text.contains('=') { format!("{}={value}", flag.written) } else { value.to_owned() }
}

fn sglang(server: &Server, speculation: &Speculation, advised: &PolicySpec) -> Option<Vec<Change>> {
    let k = match advised {
        PolicySpec::Autoregressive(_) => return Some(removed(&server.speculative)),
        PolicySpec::Fixed(p) => p.k,
        _ => return None,
    };
    let of = |name: &str| server.speculative.iter().rfind(|g| g.name == name);
    let algorithm = of("speculative-algorithm");
    let mut add = String::new();
    // One length does not adapt.
    let adapts = |flag: &&Given| flag.name.starts_with("speculative-adaptive");
    let mut changes: Vec<Change> =
        server.speculative.iter().filter(adapts).map(|flag| (flag.span.clone(), String::new())).collect();
    for (name, value) in [("speculative-num-steps", k), ("speculative-num-draft-tokens", k + 1)] {
        match of(name) {
            Some(flag) => changes.push((flag.span.clone(), format!("{} {value}", flag.written))),
            None => add += &format!(" --{name} {value}"),
        }
    }
    if of("speculative-eagle-topk").is_none() {
        add += " --speculative-eagle-topk 1";
    }
    match algorithm {
        Some(flag) => changes.push((flag.span.end..flag.span.end, add)),
        // The line has no flag of speculation; `at` is its model.
        None => {
            let name = method_name(speculation.method).to_uppercase();
            let at = speculation.at.span.end;
            changes.push((at..at, format!(" --speculative-algorithm {name}{add}")));
        }
    }
    Some(changes.into_iter().filter(|(span, to)| !(span.is_empty() && to.is_empty())).collect())
}

#[cfg(test)]
mod tests {
    use super::super::{line, sglang, vllm};
    use super::*;
    use foretoken_servers::calibrate::recommend::Now;

    fn pasted(text: &str, advised: &PolicySpec) -> String {
        let line = line::read(text).unwrap();
        let (program, words) = line::program(&line).unwrap();
        let server = match program {
            line::Program::Vllm => vllm::server(&line, &words, false).unwrap(),
            line::Program::Sglang => sglang::server(&line, &words, false).unwrap(),
        };
        let speculation = server.speculation.clone().unwrap();
        line_with(&line, &server, &speculation, advised).unwrap()
    }

    fn fixed(k: u32) -> PolicySpec {
        Now::fixed(k, "").spec
    }

    #[test]
    fn only_the_number_changes() {
        let line = |k: u32| {
            format!(
                "vllm serve a \\\n  --speculative-config '{{\"num_speculative_tokens\": {k}, \"method\": \"mtp\"}}' \\\n  --port 1"
            )
        };
        assert_eq!(pasted(&line(7), &fixed(2)), line(2));
        assert_eq!(pasted(&line(7), &fixed(0)), "vllm serve a \\\n  --port 1");
        let dotted = "vllm serve a --speculative-config.method mtp --speculative-config.num_speculative_tokens=3";
        assert_eq!(pasted(dotted, &fixed(1)), dotted.replace("=3", "=1"));
        assert_eq!(pasted(dotted, &fixed(0)), "vllm serve a");
    }

    /// Flags in a file for `--config` are read; a flag of the line goes before the file's.
    #[test]
    fn a_change_in_the_file_of_config_is_said() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = "tensor-parallel-size: 4\nmax-num-seqs: 8\nspeculative-config:\n  method: mtp\n  num_speculative_tokens: 3\n";
        std::fs::write(file.path(), text).unwrap();
        let text = format!("vllm serve a --config {} -tp 2", file.path().display());
        let mut line = line::read(&text).unwrap();
        let (_, words) = line::program(&line).unwrap();
        let words = line::with_config(&mut line, words).unwrap();
        let server = vllm::server(&line, &words, false).unwrap();
        assert_eq!((server.tensor_parallel, server.settings["max_num_seqs"].as_integer()), (2, Some(8)));
        let speculation = server.speculation.clone().unwrap();
        let said = |policy: &PolicySpec| line_with(&line, &server, &speculation, policy).unwrap();
        let name = file.path().display();
        let json = r#"'{"method":"mtp","num_speculative_tokens":1}'"#;
        assert_eq!(said(&fixed(1)), format!("in {name}:\nspeculative-config: {json}"));
        assert_eq!(said(&fixed(0)), format!("in {name}:\nremove speculative-config"));
        let mut line = line::read("vllm serve a --config nowhere.yaml").unwrap();
        let (_, words) = line::program(&line).unwrap();
        let wrong = line::with_config(&mut line, words).unwrap_err();
        assert_eq!(wrong.pointed_at(), Some("nowhere.yaml"));
        assert!(wrong.message().starts_with("cannot read the file of --config"), "{}", wrong.message());
    }

    #[test]
    fn a_table_takes_the_place_of_a_number() {
        let text = "vllm serve a -sc '{\"method\":\"mtp\",\"num_speculative_tokens\":3}' -tp 2";
        let table =
            foretoken_policies::VllmDynamic { num_speculative_tokens_per_batch_size: vec![(1, 4, 3), (5, 9, 1)] };
        let out = pasted(text, &PolicySpec::VllmDynamic(table));
        assert!(out.starts_with("vllm serve a -sc '{\"method\":\"mtp\",") && out.ends_with("' -tp 2"), "{out}");
        assert!(out.contains("\"num_speculative_tokens_per_batch_size\":[[1,4,3],[5,9,1]]"), "{out}");
    }

    #[test]
    fn sglang_counts_the_targets_own_token() {
        let text = "sglang serve --model-path a --speculative-algorithm EAGLE3 --speculative-num-steps 3 \
                    --speculative-eagle-topk 1 --speculative-num-draft-tokens 4";
        assert_eq!(pasted(text, &fixed(1)), text.replace("steps 3", "steps 1").replace("tokens 4", "tokens 2"));
        assert_eq!(pasted(text, &fixed(0)), "sglang serve --model-path a");
        assert_eq!(pasted(&format!("{text} --speculative-adaptive"), &fixed(3)), text);
    }
}
