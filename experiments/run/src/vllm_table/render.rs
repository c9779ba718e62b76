//! The rows for people, and what the JSON lacks.

use super::choose::AS_GOOD;
use super::{Best, Row, best};
use comfy_table::{CellAlignment, Table, presets};
use foretoken_sim::Drafting;
use foretoken_sim::latency::LatencySpec;
use foretoken_sim::metrics::Interval;
use foretoken_spec::experiment::Hardware;

/// The rows as a table; ASCII alone, like the comparison's.
pub fn render(rows: &[Row], seeds: usize) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["batch\nsize", "reached\nsteps", "best\nlength", "tok/s\n", "against the next best\n"]);
    for row in rows {
        table.add_row(match row {
            Row::NotReached { size, why } => {
                [size.to_string(), "0".into(), "-".into(), "-".into(), format!("not reached: {why}")]
            }
            Row::Reached { size, lengths, without } => {
                let best = best(lengths).expect("a row that was reached has a length");
                let said = ahead(&best) + &missing(without);
                [size.to_string(), best.steps.to_string(), best.k.to_string(), format!("{:.0}", best.tok_s), said]
            }
        });
    }
    table.column_iter_mut().take(4).for_each(|c| {
        c.set_cell_alignment(CellAlignment::Right);
    });
    let interval = match seeds {
        1 => "One seed: no intervals".to_owned(),
        n => format!("[...] is the 95 % interval over {n} seeds, paired"),
    };
    let unsure = |row: &Row| matches!(row, Row::Reached { lengths, .. } if best(lengths).is_some_and(|b| b.as_good_as.is_some()));
    let more = match rows.iter().any(unsure) || seeds == 1 {
        true => "More seeds tell more lengths apart: --set 'seeds=[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]'.\n",
        false => "",
    };
    let text = table.lines().fold(String::new(), |text, line| text + line.trim_end() + "\n");
    format!(
        "{text}batch size: requests scheduled in a step, as vLLM looks its table up; tok/s: output tokens of those steps over their \
         time, simulated.\n{interval}; of lengths not told apart from the best, or within {:.0} % of it, the smallest is \
         taken.\n{more}",
        AS_GOOD * 100.0
    )
}

fn ahead(best: &Best) -> String {
    let Some((next, lead)) = &best.next else { return "no other length fits".into() };
    let how_far = format!("{} against length {next}", percent(lead));
    match best.as_good_as {
        Some(top) => format!("{how_far}; not told from length {top}, or within {:.0} % of it", AS_GOOD * 100.0),
        None => how_far,
    }
}

fn missing(without: &[u32]) -> String {
    match without {
        [] => String::new(),
        all => {
            let all: Vec<String> = all.iter().map(u32::to_string).collect();
            format!("; over the token budget: length {}", all.join(", "))
        }
    }
}

/// The logarithm of a ratio as a change in per cent.
fn percent(lead: &Interval) -> String {
    let say = |x: f64| format!("{:+.1}", x.exp_m1() * 100.0);
    match lead.half_width {
        Some(half) => format!("{} % [{}, {}]", say(lead.mean), say(lead.mean - half), say(lead.mean + half)),
        None => format!("{} %", say(lead.mean)),
    }
}

/// What to say when the JSON names no draft, with a `--method` that fits the experiment's.
pub fn no_draft(hardware: &Hardware, method: Option<&str>, model: Option<&str>) -> Option<String> {
    // vLLM's n-gram lookup has no model.
    let wants_model = method.is_none_or(|m| !m.starts_with("ngram"));
    let missing: Vec<&str> = [("method", method.is_none()), ("model", model.is_none() && wants_model)]
        .into_iter()
        .filter_map(|(key, missing)| missing.then_some(key))
        .collect();
    if missing.is_empty() {
        return None;
    }
    let preset = match &hardware.draft {
        LatencySpec::Roofline(r) => format!(" (the experiment's draft is the preset {})", r.model),
        _ => String::new(),
    };
    let example = match (method, hardware.drafting) {
        (Some(_), _) => "--model ORG/DRAFT",
        (None, Drafting::Parallel) => "--method ngram, or --method medusa --model ORG/HEADS",
        (None, _) => "--method draft_model --model ORG/DRAFT, --method eagle3 --model ORG/HEAD, or --method ngram",
    };
    Some(format!(
        "note: the JSON names no {}{preset}: vLLM needs to know the draft. Give {example}",
        missing.join(" and no ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vllm_table::measure::Sums;

    fn sums(rates: &[u64]) -> Vec<Sums> {
        rates.iter().map(|&r| Sums { steps: 200, tokens: r, time: 1_000_000_000_000 }).collect()
    }

    #[test]
    fn what_was_not_reached_is_said_and_not_filled_in() {
        let rows = [
            Row::Reached { size: 8, lengths: vec![(0, sums(&[100, 100])), (3, sums(&[200, 202]))], without: vec![5] },
            Row::NotReached { size: 64, why: "engine.max_num_seqs = 32".into() },
        ];
        let text = render(&rows, 2);
        assert!(text.contains("against length 0; over the token budget: length 5"), "{text}");
        assert!(text.contains("not reached: engine.max_num_seqs = 32") && text.contains("over 2 seeds"), "{text}");
        assert!(text.is_ascii(), "{text}");
    }
}
