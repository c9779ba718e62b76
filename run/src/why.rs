//! The text of `--why`, which says why each policy is slower or faster than plain (autoregressive) decoding. The text
//! is made from `report.json` in the results folder, so that it also works for resumed and merged runs.

use crate::compare::{Comparison, VariantResult};
use crate::spec::problem::{Problem, Result};
use foretoken_report::{WORDS, narrow, plain_table, table_lines};
use std::path::Path;

/// The tables for a results folder: one for each combination of swept values, with a row for each policy. Below each
/// table, a sentence says why the slowest policy that a server can run is slower or faster than plain decoding.
pub fn of_folder(folder: &Path) -> Result<String> {
    let saved = Comparison::kept_in(folder)?;
    if saved.variants.iter().flat_map(|v| &v.policies).all(|p| p.why.is_none()) {
        let what = "no policy here can be compared with plain decoding";
        return Err(Problem::bad_input(format!("{}: {what}", folder.display())).help(
            "it takes a policy beside `autoregressive`, requests that finish under both, and results of this version: add one \
             to `policies`, or run again with --overwrite",
        ));
    }
    let mut text =
        "Why: mean E2E of the policy less that of autoregressive on the same draws, ms; the parts sum to it\n"
            .to_owned();
    for variant in &saved.variants {
        text.push_str(&of_variant(variant));
    }
    text.push_str(&legend());
    Ok(crate::spec::shown::escape(&text).into_owned())
}

fn of_variant(v: &VariantResult) -> String {
    let header = ["policy", "difference\n"].into_iter().chain(WORDS.iter().map(|(_, heading, ..)| *heading));
    let explained = || v.policies.iter().filter_map(|p| Some((p, p.why.as_ref()?)));
    let rows = explained().map(|(policy, why)| {
        let ms = |s: f64| signed(1e3 * s);
        let half = why.difference_s.half_width.map(|half| format!(" +-{:.1}", 1e3 * half)).unwrap_or_default();
        let mut row = vec![policy.policy.clone(), ms(why.difference_s.mean) + &half];
        row.extend(WORDS.iter().map(|(key, ..)| ms(why.part_s(key))));
        row
    });
    let table = narrow(plain_table(header, rows, 1..));
    let swept: Vec<String> = v.sweep.iter().map(|s| format!("{} = {}", s.path, s.value)).collect();
    let mut text = if swept.is_empty() { String::new() } else { format!("\n{}\n", swept.join(", ")) };
    text += &table_lines(&table);
    // The sentence below each table of policies is about the slowest policy that a server can run.
    let slowest = explained().filter(|(p, _)| !p.sees_hidden_truth);
    let slowest = slowest.max_by(|a, b| a.1.difference_s.mean.total_cmp(&b.1.difference_s.mean));
    slowest.map_or(text.clone(), |(_, why)| text + &why.mostly + "\n")
}

/// Milliseconds as text, with one decimal and a sign; zero has no sign.
fn signed(ms: f64) -> String {
    let text = format!("{ms:+.1}");
    if text[1..].bytes().all(|b| matches!(b, b'0' | b'.')) { text[1..].to_owned() } else { text }
}

fn legend() -> String {
    WORDS.iter().fold("\n".to_owned(), |text, (_, heading, what, ..)| {
        text + &format!("{}: {what}\n", heading.replace('\n', " ").trim_end())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_has_no_sign() {
        assert_eq!([1.25, -0.96, 0.04, -0.01].map(signed), ["+1.2", "-1.0", "0.0", "0.0"]);
    }
}
