//! An experiment's results as one table, with a row for each policy at each combination of swept values: CSV for
//! programs, Markdown and LaTeX for papers. The numbers come from `report.json` in the results folder.

use crate::compare::{Comparison, PolicyResult, VariantResult};
use crate::spec::problem::{Problem, Result};
use foretoken_report::{Mark, Marked, fixed};
use foretoken_sim::metrics::{Interval, RatioInterval};
use std::path::Path;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// CSV, for programs: all digits, in seconds and shares, with both ends of each 95 % interval.
    Csv,
    Markdown,
    /// A LaTeX `tabular` with the rules of the package `booktabs`.
    Latex,
}

/// A column of the table: the number's key in the report, the heading, the factor from the report's unit to the
/// heading's unit, the number of decimals, and a policy's number, `None` if the policy lacks it.
struct Number {
    key: &'static str,
    heading: &'static str,
    factor: f64,
    digits: usize,
    of: Of,
}

impl Number {
    fn signs(&self, policy: &PolicyResult) -> String {
        let on = match self.key {
            "speedup" => Marked::Speedup,
            "regret_to_oracle_goodput" => Marked::Regret,
            "slo_attainment" => Marked::Slo,
            _ => return String::new(),
        };
        Mark::signs(&policy.marks, on)
    }
}

type Of = fn(&PolicyResult) -> Option<Measured>;

const fn number(key: &'static str, heading: &'static str, factor: f64, digits: usize, of: Of) -> Number {
    Number { key, heading, factor, digits, of }
}

const NUMBERS: [Number; 18] = [
    number("e2e_mean_s", "E2E, mean (s)", 1.0, 3, |p| p.e2e_mean_s.map(Measured::mean)),
    number("speedup", "speedup", 1.0, 2, |p| p.speedup.map(Measured::ratio)),
    number("regret_to_oracle_goodput", "regret (%)", 100.0, 1, |p| p.regret_to_oracle_goodput.map(Measured::ratio)),
    number("ttft_mean_s", "TTFT, mean (ms)", 1e3, 1, |p| p.ttft_mean_s.map(Measured::mean)),
    number("tpot_p50_s", "TPOT, p50 (ms)", 1e3, 2, |p| p.tpot_p50_s.map(Measured::mean)),
    number("tpot_p90_s", "TPOT, p90 (ms)", 1e3, 2, |p| p.tpot_p90_s.map(Measured::mean)),
    number("tpot_p99_s", "TPOT, p99 (ms)", 1e3, 2, |p| p.tpot_p99_s.map(Measured::mean)),
    number("slo_attainment", "SLO met (%)", 100.0, 1, |p| p.slo_attainment.map(Measured::mean)),
    number("slo_goodput_req_s", "SLO goodput (req/s)", 1.0, 2, |p| p.slo_goodput_req_s.map(Measured::mean)),
    number("token_goodput_tok_s", "goodput (tok/s)", 1.0, 0, |p| p.token_goodput_tok_s.map(Measured::mean)),
    number("acceptance_rate", "accepted (%)", 100.0, 1, |p| p.acceptance_rate.map(Measured::mean)),
    number("mean_acceptance_length", "acceptance length", 1.0, 2, |p| p.mean_acceptance_length.map(Measured::mean)),
    number("draft_len", "drafted", 1.0, 2, |p| p.draft_len.map(Measured::mean)),
    number("verify_len", "verified", 1.0, 2, |p| p.verify_len.map(Measured::mean)),
    number("batch_size", "batch size", 1.0, 1, |p| p.batch_size.map(Measured::mean)),
    number("kv_use_peak", "KV peak (%)", 100.0, 0, |p| p.kv_use_peak.map(Measured::mean)),
    number("preempted", "preempted", 1.0, 0, |p| Some(Measured::count(p.preempted))),
    number("rejected", "rejected", 1.0, 0, |p| Some(Measured::count(p.rejected))),
];

/// A row of the table: a policy at a combination of swept values.
type Row<'a> = (&'a VariantResult, &'a PolicyResult);

/// A number of a policy in the table, with both ends of its 95 % interval over seeds if there are several seeds, and
/// half its width if the interval lies evenly around the mean.
#[derive(Clone, Copy)]
struct Measured {
    mean: f64,
    ends: Option<(f64, f64)>,
    half: Option<f64>,
}

impl Measured {
    fn mean(i: Interval) -> Measured {
        Measured { mean: i.mean, ends: i.ends(), half: i.half_width.filter(|_| !i.is_cut()) }
    }

    fn ratio(i: RatioInterval) -> Measured {
        Measured { mean: i.mean, ends: i.low.zip(i.high), half: None }
    }

    fn count(n: u64) -> Measured {
        Measured { mean: n as f64, ends: None, half: None }
    }
}

/// The table of the results in `folder`, as text. `show_implied`: include the row of the autoregressive baseline, if
/// the program added this baseline to the experiment's policies?
pub fn of_folder(folder: &Path, format: Format, show_implied: bool) -> Result<String> {
    let report = Comparison::kept_in(folder)?;
    let rows: Vec<Row> = report
        .variants
        .iter()
        .flat_map(|setting| setting.policies.iter().map(move |policy| (setting, policy)))
        .filter(|(_, policy)| show_implied || !policy.implied)
        .collect();
    let swept = report.variants.first().map_or(&[][..], |setting| &setting.sweep);
    let (paths, names): (Vec<_>, Vec<_>) = swept.iter().map(|s| (s.path.as_str(), s.name.as_str())).unzip();
    // A column is left out if no policy has its number, or if its numbers are shown without decimals and are all 0.
    let says = |n: &Number| rows.iter().any(|(_, p)| (n.of)(p).is_some_and(|m| m.mean != 0.0 || n.digits > 0));
    let numbers: Vec<&Number> = NUMBERS.iter().filter(|n| says(n)).collect();
    match format {
        Format::Csv => csv(&report.source, &paths, &numbers, &rows),
        Format::Markdown => Ok(markdown(&report, &names, &numbers, &rows)),
        Format::Latex => Ok(latex(&report, &names, &numbers, &rows)),
    }
}

fn csv(source: &str, swept: &[&str], numbers: &[&Number], rows: &[Row]) -> Result<String> {
    let failed = |e: csv::Error| Problem::failed(format!("the table cannot be written as CSV: {e}"));
    let text = |x: Option<f64>| x.map(|x| x.to_string()).unwrap_or_default();
    // Counts have no interval over seeds, so they get no columns for the interval's ends.
    let has_ends = |n: &&Number| rows.iter().any(|(_, p)| (n.of)(p).is_some_and(|m| m.ends.is_some()));
    let columns: Vec<(&Number, bool)> = numbers.iter().map(|n| (*n, has_ends(n))).collect();
    let mut table = csv::Writer::from_writer(Vec::new());
    let mut head: Vec<String> = swept.iter().map(ToString::to_string).collect();
    head.extend(["policy".to_owned(), "source".to_owned()]);
    head.extend(Mark::ALL.map(|mark| mark.key().to_owned()));
    for (n, ends) in &columns {
        head.push(n.key.to_owned());
        if *ends {
            head.extend(["low", "high"].map(|end| format!("{}_{end}", n.key)));
        }
    }
    table.write_record(&head).map_err(failed)?;
    for (setting, policy) in rows {
        let mut row: Vec<String> = setting.sweep.iter().map(|s| s.value.clone()).collect();
        row.extend([policy.policy.clone(), source.to_owned()]);
        row.extend(Mark::ALL.map(|mark| policy.marks.contains(&mark).to_string()));
        for (n, ends) in &columns {
            let m = (n.of)(policy);
            row.push(text(m.map(|m| m.mean)));
            if *ends {
                let (low, high) = m.and_then(|m| m.ends).unzip();
                row.extend([low, high].map(text));
            }
        }
        table.write_record(&row).map_err(failed)?;
    }
    let bytes = table.into_inner().map_err(|e| Problem::failed(e.to_string()))?;
    String::from_utf8(bytes).map_err(|e| Problem::failed(e.to_string()))
}

/// A number as text, in the heading's unit. If the number has a 95 % interval, the text `between` and half the width of
/// the interval follow, or both ends if the interval does not lie evenly around the mean, such as a ratio's or a small
/// share's. The signs of marks come last.
fn shown(m: Measured, n: &Number, between: &str, signs: &str) -> String {
    let say = |x: f64| fixed(x * n.factor, n.digits);
    let spread = match (m.half, m.ends) {
        (Some(half), _) => format!("{between}{}", say(half)),
        (None, Some((low, high))) if high > low => format!(" [{}, {}]", say(low), say(high)),
        (None, _) => String::new(),
    };
    let text = say(m.mean) + &spread;
    if signs.is_empty() { text } else { format!("{text} {signs}") }
}

/// A note below the table of results: where the numbers come from, the kind of interval, and for which models, load and
/// bounds the results hold.
fn note(report: &Comparison) -> String {
    let seeds = match report.seeds.len() {
        1 => "one seed".to_owned(),
        n => format!("means of {n} seeds with half the width or both ends of their 95 % interval"),
    };
    format!("{}: {} by Foretoken {}, {seeds}. {}", report.name, report.source, report.version, report.scope)
}

fn markdown(report: &Comparison, swept: &[&str], numbers: &[&Number], rows: &[Row]) -> String {
    let row = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let escaped = |text: &str| text.replace('|', "\\|");
    let mut head: Vec<String> = swept.iter().map(|s| escaped(s)).collect();
    head.push("policy".to_owned());
    head.extend(numbers.iter().map(|n| n.heading.to_owned()));
    let rule = "---|".repeat(swept.len() + 1) + &"--:|".repeat(numbers.len());
    let mut text = row(head) + &format!("|{rule}\n");
    for (setting, policy) in rows {
        let mut cells: Vec<String> = setting.sweep.iter().map(|s| escaped(&s.value)).collect();
        cells.push(escaped(&Mark::beside(&policy.policy, &policy.marks)));
        let cell = |n: &&Number| (n.of)(policy).map_or("-".into(), |m| shown(m, n, " ± ", &n.signs(policy)));
        cells.extend(numbers.iter().map(cell));
        text += &row(cells);
    }
    text += &format!("\n{}\n", note(report));
    let notes: String = notes(rows).iter().map(|note| format!("- {note}\n")).collect();
    if notes.is_empty() { text } else { format!("{text}\n{notes}") }
}

/// The explanations of the signs in the table.
fn notes(rows: &[Row]) -> Vec<String> {
    Mark::notes(rows.iter().map(|(_, policy)| &policy.marks))
}

fn latex(report: &Comparison, swept: &[&str], numbers: &[&Number], rows: &[Row]) -> String {
    let row = |cells: Vec<String>| format!("{} \\\\\n", cells.join(" & "));
    let columns = "l".repeat(swept.len() + 1) + &"r".repeat(numbers.len());
    let mut head: Vec<String> = swept.iter().map(|s| for_latex(s)).collect();
    head.push("policy".to_owned());
    head.extend(numbers.iter().map(|n| for_latex(n.heading)));
    let mut text = format!("% {}\n\\begin{{tabular}}{{{columns}}}\n\\toprule\n", note(report).replace('\n', " "));
    text += &(row(head) + "\\midrule\n");
    for (setting, policy) in rows {
        let mut cells: Vec<String> = setting.sweep.iter().map(|s| for_latex(&s.value)).collect();
        cells.push(for_latex(&Mark::beside(&policy.policy, &policy.marks)));
        let cell = |n: &&Number| {
            let signs = for_latex(&n.signs(policy));
            (n.of)(policy).map_or("--".into(), |m| shown(m, n, " $\\pm$ ", &signs))
        };
        cells.extend(numbers.iter().map(cell));
        text += &row(cells);
    }
    text += "\\bottomrule\n";
    for note in notes(rows) {
        let width = columns.len();
        text += &format!(
            "\\multicolumn{{{width}}}{{@{{}}p{{\\linewidth}}@{{}}}}{{\\footnotesize {}}} \\\\\n",
            for_latex(&note)
        );
    }
    text + "\\end{tabular}\n"
}

/// A text with LaTeX's own characters escaped.
fn for_latex(text: &str) -> String {
    let mut escaped = String::new();
    for c in text.chars() {
        match c {
            '&' | '%' | '$' | '#' | '_' | '{' | '}' => escaped.extend(['\\', c]),
            '\\' => escaped += "\\textbackslash{}",
            '~' => escaped += "\\textasciitilde{}",
            '^' => escaped += "\\textasciicircum{}",
            _ => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Writes a report.json with two loads. Each load has an autoregressive baseline that the experiment does not list,
    /// a policy with measured values, and a policy `none` that has only counts.
    fn folder(at: &Path) {
        let policies = |e2e: f64| {
            json!([
                {
                    "policy": "autoregressive", "implied": true,
                    "e2e_mean_s": { "mean": 2.0, "half_width": 0.5, "low": 1.5, "high": 2.5, "n": 3 }
                },
                {
                    "policy": "a|b_50%", "implied": false,
                    "marks": ["overloaded", "speedup_over_overload", "sees_hidden_truth"],
                    "e2e_mean_s": { "mean": e2e, "half_width": 0.25, "low": e2e - 0.25, "high": e2e + 0.25, "n": 3 },
                    "slo_attainment": { "mean": 0.0, "half_width": 0.1, "low": 0.0, "high": 0.1, "n": 3 },
                    "speedup": { "mean": 2.0 / e2e, "low": 1.2, "high": 1.4, "n": 3 },
                    "ttft_mean_s": { "mean": 0.1234, "half_width": null, "n": 1 },
                    "preempted": 0, "rejected": 7
                },
                { "policy": "none", "implied": false, "preempted": 0, "rejected": 0 }
            ])
        };
        let variant = |rate: &str, e2e: f64| {
            json!({ "sweep": [{ "name": "rate", "path": "workload.arrivals.poisson.rate", "value": rate }],
                    "policies": policies(e2e) })
        };
        let report = json!({
            "name": "x", "version": "0.1.0", "source": "simulated", "seeds": [1, 2, 3], "scope": "For a test.",
            "variants": [variant("1.0", 1.5), variant("2.0", 1.6)]
        });
        fs_err::write(at.join(crate::compare::REPORT_JSON), report.to_string()).unwrap();
    }

    fn made(format: Format, show_implied: bool) -> String {
        let dir = tempfile::tempdir().unwrap();
        folder(dir.path());
        of_folder(dir.path(), format, show_implied).unwrap()
    }

    #[test]
    fn csv_has_a_row_for_each_setting_and_policy_with_all_digits() {
        let text = made(Format::Csv, false);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[0],
            "workload.arrivals.poisson.rate,policy,source,overloaded,speedup_over_overload,speedup_of_batch,\
             bound_of_overload,attains_by_definition,regret_of_trees,bound_of_another_load,sees_hidden_truth,e2e_mean_s,e2e_mean_s_low,\
             e2e_mean_s_high,speedup,speedup_low,speedup_high,ttft_mean_s,slo_attainment,slo_attainment_low,\
             slo_attainment_high,rejected"
        );
        assert_eq!(lines.len(), 5);
        let marks = "true,true,false,false,false,false,false,true";
        assert_eq!(
            lines[1],
            format!("1.0,a|b_50%,simulated,{marks},1.5,1.25,1.75,1.3333333333333333,1.2,1.4,0.1234,0,0,0.1,7")
        );
        assert_eq!(lines[2], "1.0,none,simulated,false,false,false,false,false,false,false,false,,,,,,,,,,,0");
        assert!(lines[3].starts_with(&format!("2.0,a|b_50%,simulated,{marks},1.6,")));
        assert_eq!(made(Format::Csv, true).lines().count(), 7);
    }

    #[test]
    fn markdown_has_units_intervals_and_the_source() {
        let text = made(Format::Markdown, false);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "| rate | policy | E2E, mean (s) | speedup | TTFT, mean (ms) | SLO met (%) | rejected |");
        assert_eq!(lines[1], "|---|---|--:|--:|--:|--:|--:|");
        assert_eq!(
            lines[2],
            "| 1.0 | a\\|b_50% !# | 1.500 ± 0.250 | 1.33 [1.20, 1.40] ! | 123.4 | 0.0 [0.0, 10.0] | 7 |"
        );
        assert_eq!(lines[3], "| 1.0 | none | - | - | - | - | 0 |");
        assert!(text.contains("\n\nx: simulated by Foretoken 0.1.0, means of 3 seeds"), "{text}");
        let notes: Vec<&str> = lines.iter().rev().take(2).map(|line| &line[..5]).collect();
        assert_eq!(notes, ["- #: ", "- !: "]);
    }

    #[test]
    fn latex_is_escaped() {
        let text = made(Format::Latex, false);
        assert!(text.starts_with("% x: simulated by Foretoken 0.1.0"));
        assert!(text.contains("\\begin{tabular}{llrrrrr}\n\\toprule\nrate & policy & E2E, mean (s) &"));
        let row =
            "1.0 & a|b\\_50\\% !\\# & 1.500 $\\pm$ 0.250 & 1.33 [1.20, 1.40] ! & 123.4 & 0.0 [0.0, 10.0] & 7 \\\\\n";
        assert!(text.contains(row), "{text}");
        let (_, foot) = text.split_once("\\bottomrule\n").unwrap();
        assert!(foot.starts_with("\\multicolumn{7}{@{}p{\\linewidth}@{}}{\\footnotesize !: overloaded"), "{foot}");
        assert!(foot.contains("{\\footnotesize \\#: oracles see hidden truth"), "{foot}");
        assert!(foot.ends_with("\\end{tabular}\n"));
        assert_eq!(for_latex("a\\b~^"), "a\\textbackslash{}b\\textasciitilde{}\\textasciicircum{}");
    }

    #[test]
    fn a_folder_without_a_report_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let error = of_folder(dir.path(), Format::Csv, false).unwrap_err();
        assert!(error.to_string().contains("report.json"), "{error}");
    }
}
