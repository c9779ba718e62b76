//! The comparison of policies as text, in ASCII only, so that it looks the same in a terminal, a log and a diff.

use crate::cells::in_words;
use crate::compare::{Comparison, PolicyResult, VariantResult};
use crate::offered::Offered;
use crate::scaled::ScaledResult;
use crate::{papers, questions};
use foretoken_report::{Mark, Marked, narrow, plain_table, spread, table_lines};
use foretoken_sim::metrics::{Interval, RatioInterval, Slo};
use std::fmt::Write;

/// How many columns the table of policies shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// The table has the main columns only, which fit into 80 characters.
    Narrow,
    Wide,
}

/// A column of the table of policies: (heading in two lines; the only width that has the column, `None` for both
/// widths; the text for a policy, `None` if there is nothing to show).
type Column = (&'static str, Option<Width>, fn(&PolicyResult) -> Option<String>);

const BOTH: Option<Width> = None;
const NARROW: Option<Width> = Some(Width::Narrow);
const WIDE: Option<Width> = Some(Width::Wide);

const COLUMNS: [Column; 22] = [
    ("policy", BOTH, |p| Some(Mark::beside(&p.policy, &p.marks))),
    ("E2E\nmean s", WIDE, |p| shown(p.e2e_mean_s, 1.0, 3, true)),
    ("E2E\nmean s", NARROW, |p| shown(p.e2e_mean_s, 1.0, 3, false)),
    ("speedup\n", BOTH, |p| marked(p.speedup.map(ratio), p, Marked::Speedup)),
    ("regret\n%", WIDE, |p| {
        let regret = p.regret_to_oracle_goodput.map(|r| format!("{:.1}", 100.0 * r.mean));
        marked(regret, p, Marked::Regret)
    }),
    ("TTFT\nmean ms", BOTH, |p| shown(p.ttft_mean_s, 1e3, 1, false)),
    ("TPOT ms\np50", WIDE, |p| shown(p.tpot_p50_s, 1e3, 2, false)),
    ("\np90", WIDE, |p| shown(p.tpot_p90_s, 1e3, 2, false)),
    ("\np99", WIDE, |p| shown(p.tpot_p99_s, 1e3, 2, false)),
    ("TPOT ms\np99", NARROW, |p| shown(p.tpot_p99_s, 1e3, 2, false)),
    ("SLO\nmet %", BOTH, |p| marked(shown(p.slo_attainment, 100.0, 1, false), p, Marked::Slo)),
    ("goodput\ntok/s", WIDE, |p| shown(p.token_goodput_tok_s, 1.0, 0, false)),
    ("accept\nrate %", WIDE, |p| shown(p.acceptance_rate, 100.0, 1, false)),
    ("accept\nlength", BOTH, |p| shown(p.mean_acceptance_length, 1.0, 2, false)),
    ("draft\nlen", BOTH, |p| shown(p.draft_len, 1.0, 2, false)),
    ("batch\nsize", WIDE, |p| shown(p.batch_size, 1.0, 1, false)),
    ("KV\npeak %", BOTH, |p| shown(p.kv_use_peak, 100.0, 0, false)),
    ("GPU\nhours", BOTH, |p| of_scaling(p, |s| s.gpu_hours, 1)),
    ("SLO\nmisses", BOTH, |p| of_scaling(p, |s| s.slo_misses, 0)),
    ("most\nreplicas", WIDE, |p| of_scaling(p, |s| s.most_replicas, 0)),
    ("preem-\npted", BOTH, |p| Some(p.preempted.to_string()).filter(|_| p.preempted > 0)),
    ("reject-\ned", BOTH, |p| Some(p.rejected.to_string()).filter(|_| p.rejected > 0)),
];

/// The whole report as text: headline, scope, how host time (scheduler, Python, kernel launches) would change the
/// result, a table for each combination of swept values with a line for each overloaded policy, and the legend. Then
/// the paper's claims or the question's answer, if there are any. `show_implied`: show the row of the autoregressive
/// baseline, if the program added this baseline to the experiment's policies?
pub fn render(comparison: &Comparison, show_implied: bool, width: Width) -> String {
    let mut text = comparison.partial.iter().map(|part| format!("{part}\n")).collect::<String>();
    text += &format!("{}\n{}\n", ascii(&comparison.headline), ascii(&comparison.scope));
    text.push_str(&heading(comparison));
    text.extend(comparison.host_band.iter().map(|band| ascii(&band.in_words()) + "\n"));
    for variant in &comparison.variants {
        text.push('\n');
        text.push_str(&variant_heading(variant, kv(&comparison.variants).is_none()));
        text.push_str(&table(variant, show_implied, width));
        text.push_str(&overloads(variant));
    }
    text.push_str(&legend(comparison, width));
    if let Some(report) = &comparison.paper {
        text.push('\n');
        text.push_str(&papers::render([(comparison.name.as_str(), report)]));
    }
    if let Some(answer) = &comparison.question {
        text.push('\n');
        text.push_str(&questions::render([(comparison.name.as_str(), answer)]));
    }
    // Control characters in names and labels are escaped, because other programs may print the file with this text.
    crate::spec::shown::escape(&text).into_owned()
}

fn heading(c: &Comparison) -> String {
    let seeds: Vec<String> = c.seeds.iter().map(u64::to_string).collect();
    let interval = match seeds.len() {
        1 => "one seed: no intervals".to_owned(),
        n => format!("+- and [ ] are 95 % intervals over {n} seeds"),
    };
    format!("{}: {} by Foretoken {}, seeds {}; {interval}\n", c.name, c.source, c.version, seeds.join(" "))
}

fn variant_heading(v: &VariantResult, with_kv: bool) -> String {
    let named = |choice| ascii(&in_words(choice).in_words());
    let mut parts: Vec<String> = v.sweep.iter().map(named).collect();
    parts.push(requests(v));
    parts.extend(v.load.as_ref().map(Offered::in_words));
    let mut bound = |name: &str, of: fn(&Slo) -> Option<f64>| {
        // A bound that is a multiple of the autoregressive run's TPOT differs between seeds; the mean over seeds is
        // shown.
        let bounds: Vec<f64> = v.slo.iter().filter_map(of).collect();
        let origin = if name == "TPOT" { scaled(v) } else { String::new() };
        parts.extend(Interval::of(&bounds).map(|i| format!("SLO {name} <= {:.2} ms{origin}", i.mean * 1e3)));
    };
    bound("TTFT", |s| s.ttft_s);
    bound("TPOT", |s| s.tpot_s);
    bound("E2E", |s| s.e2e_s);
    if with_kv {
        parts.push(format!("KV {} blocks", v.kv_blocks_plain));
        parts.extend(v.kv_blocks_drafting.map(|blocks| format!("{blocks} with a drafter")));
        parts.extend(v.kv_blocks_draft_pool.map(|blocks| format!("{blocks} of the draft's own")));
    }
    parts.join(", ") + "\n"
}

/// The text after a TPOT bound that is a multiple of an autoregressive run's TPOT: ` !` if that run was overloaded,
/// then the swept values of that run that differ from the values of this variant.
fn scaled(v: &VariantResult) -> String {
    let Some(from) = &v.slo_scaled_from else { return String::new() };
    let elsewhere: Vec<String> =
        from.sweep.iter().filter(|c| !v.sweep.contains(c)).map(|c| ascii(&in_words(c).in_words())).collect();
    let mark = if from.overloaded_seeds.is_empty() { "" } else { " !" };
    match elsewhere.as_slice() {
        [] => mark.to_owned(),
        all => format!("{mark} (scaled from autoregressive at {})", all.join(", ")),
    }
}

/// One line for each policy that was overloaded (its queue grew as long as requests arrived). The autoregressive
/// baseline gets a line also if the experiment does not list it, because all policies are compared with it.
fn overloads(v: &VariantResult) -> String {
    let line = |p: &PolicyResult| {
        let o = p.overload.as_ref()?;
        let seeds: Vec<String> = o.seeds.iter().map(u64::to_string).collect();
        Some(format!(
            "! {}: {:.2} requests/s came, {:.2} were completed while they came, {:.0} were waiting at the end (seeds {})\n",
            p.policy,
            o.offered_req_s,
            o.completed_req_s,
            o.waiting_at_end,
            seeds.join(" ")
        ))
    };
    v.policies.iter().filter_map(line).collect()
}

/// The number of requests of a variant as text: for one seed if it is the same with all seeds, else summed over seeds.
fn requests(v: &VariantResult) -> String {
    match v.requests_by_seed.as_slice() {
        [one] => format!("{one} requests"),
        [first, others @ ..] if others.iter().all(|n| n == first) => format!("{first} requests a seed"),
        all => format!("{} requests over {} seeds", v.requests, all.len()),
    }
}

/// Numbers of KV blocks that requests can use: (without a drafter; with a drafter, `None` if equal; in the draft
/// model's own pool, `None` if there is none). Returns `None` as a whole if these numbers differ between variants.
fn kv(variants: &[VariantResult]) -> Option<(u32, Option<u32>, Option<u32>)> {
    let blocks = |v: &VariantResult| (v.kv_blocks_plain, v.kv_blocks_drafting, v.kv_blocks_draft_pool);
    let first = blocks(variants.first()?);
    variants.iter().all(|v| blocks(v) == first).then_some(first)
}

/// A number of a fleet that a scaling rule grows and shrinks, such as its GPU-hours, as text with `digits` decimals.
/// `None` for other fleets.
fn of_scaling(p: &PolicyResult, of: fn(&ScaledResult) -> Option<Interval>, digits: usize) -> Option<String> {
    shown(p.scaled.as_ref().and_then(of), 1.0, digits, false)
}

/// Replaces the no-break space, ×, · and ± in a text by ASCII.
fn ascii(text: &str) -> String {
    text.replace('\u{a0}', " ").replace('×', "x").replace('·', "|").replace('±', "+-")
}

fn table(v: &VariantResult, show_implied: bool, width: Width) -> String {
    let rows: Vec<&PolicyResult> = v.policies.iter().filter(|p| show_implied || !p.implied).collect();
    // A column of the table of policies that is empty for all policies (because there is no SLO, no oracle or no
    // preemption) is left out.
    let shown =
        |(_, within, of): &&Column| within.is_none_or(|one| one == width) && rows.iter().any(|p| of(p).is_some());
    let columns: Vec<&Column> = COLUMNS.iter().filter(shown).collect();
    let header = columns.iter().map(|(name, ..)| *name);
    let cells = rows.iter().map(|p| columns.iter().map(|(.., of)| of(p).unwrap_or_else(|| "-".into())));
    table_lines(&narrow(plain_table(header, cells, 1..)))
}

fn legend(c: &Comparison, width: Width) -> String {
    let mut text = String::from("\n");
    let mut say = |line: &str| writeln!(text, "{line}").expect("writing to a string cannot fail");
    let any = |f: fn(&PolicyResult) -> bool| c.variants.iter().flat_map(|v| &v.policies).any(f);
    if any(|p| p.speedup.is_some()) {
        say("speedup: mean E2E of autoregressive / mean E2E of the policy, same draws");
    }
    if any(|p| p.acceptance_rate.is_some()) {
        say(match width {
            Width::Wide => "accept rate: accepted / drafted",
            Width::Narrow => "accept length: tokens a round, with the target's own; report-wide.txt has all columns",
        });
    }
    if any(|p| p.scaled.is_some()) {
        say("GPU hours: of booting, serving and draining replicas; decisions.parquet has what the rule decided");
    }
    if any(|p| p.preempted > 0 || p.rejected > 0) {
        say("preempted, rejected: requests, over all seeds");
    }
    say("KV peak: most blocks of the target's pool that requests held at once");
    let in_table = |mark: &Mark| width == Width::Wide || mark.on() != Marked::Regret;
    let marks = |p: &PolicyResult| p.marks.iter().copied().filter(in_table).collect::<Vec<Mark>>();
    Mark::notes(c.variants.iter().flat_map(|v| &v.policies).map(marks)).iter().for_each(|note| say(note));
    if width == Width::Wide && any(|p| p.regret_to_oracle_goodput.is_some()) {
        say("regret: mean E2E over that of oracle-goodput, the bound for chains of drafts, less 1");
    }
    match kv(&c.variants) {
        Some((plain, Some(drafting), _)) => say(&format!(
            "KV: {plain} blocks without a drafter, {drafting} with one: its weights and its KV take memory too"
        )),
        None if c.variants.iter().any(|v| v.kv_blocks_drafting.is_some()) => say(
            "KV: varies, see above each table; with a drafter there is less: its weights and its KV take memory too",
        ),
        _ => {}
    }
    if let Some((plain, _, Some(own))) = kv(&c.variants) {
        say(&format!("KV: the draft has a pool of its own, {own} blocks, beside the target's {plain}"));
    }
    if any(|p| p.stops_for_slo) && c.variants.iter().any(|v| v.slo.iter().any(|s| s.tpot_s.is_some())) {
        say("SLO: adaspec (slo = \"step\") does not speculate in a step that it expects to miss it");
    }
    text
}

/// A number as text, with the signs of the policy's marks on this number behind it.
fn marked(text: Option<String>, p: &PolicyResult, on: Marked) -> Option<String> {
    text.map(|t| t + &Mark::signs(&p.marks, on))
}

/// A ratio of two policies' numbers as text. Its 95 % interval follows, unless there is only one seed or both ends are
/// equal.
fn ratio(r: RatioInterval) -> String {
    match r.low.zip(r.high) {
        Some((low, high)) if high > low => format!("{:.3} [{low:.3}, {high:.3}]", r.mean),
        _ => format!("{:.3}", r.mean),
    }
}

/// A mean times `unit` as text, with `digits` decimals. Its interval follows if `interval` is true and there are
/// several seeds. `None` without a value.
fn shown(value: Option<Interval>, unit: f64, digits: usize, interval: bool) -> Option<String> {
    value.map(|i| match spread(&i, unit, digits, "+-").filter(|_| interval) {
        Some(spread) => format!("{:.digits$} {spread}", i.mean * unit),
        None => format!("{:.digits$}", i.mean * unit),
    })
}
