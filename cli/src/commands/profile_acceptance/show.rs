//! Prints a summary of a truth table: the recorded acceptance of a draft model's tokens on a target's own text.

use foretoken_report::{plain_table, table_lines};
use foretoken_traces::truth::{DEPTHS, TruthSummary, TruthTable, by_category};

/// The summary of a truth table, as text. Tables of acceptance by family (kind of text), by depth and by context
/// length; ranks of the right tokens among the draft model's tokens; calibration of confidences; and each family's
/// rates as TOML for an experiment.
pub fn text(table: &TruthTable, summary: &TruthSummary) -> String {
    let header = &table.header;
    let (target, draft) = (&header.target, &header.draft);
    let mut blocks = vec![format!(
        "recorded: {} with {} on {}, greedy, {}\n",
        target.name, draft.name, header.device, header.prompts
    )];
    let (mut lengths, mut depths) = (Vec::new(), Vec::new());
    for f in &summary.families {
        let own = [f.family.clone(), f.outputs.to_string(), f.positions.to_string(), percent(f.right)];
        lengths.push(own.into_iter().chain(f.mean_acceptance_length.iter().map(|m| format!("{m:.3}"))).collect());
        let own = [f.family.clone(), f.depths[0].reached.to_string()];
        depths.push(own.into_iter().chain(f.depths.iter().map(|d| d.rate.map_or("-".into(), percent))).collect());
    }
    blocks.push(format!(
        "Mean acceptance length with k drafts a round (tokens, recorded)\n{}",
        by_depth(["family", "outputs", "positions", "right %"], "k = ", lengths)
    ));
    blocks.push(format!(
        "Right at a depth, where all before it were, in rounds of {DEPTHS} (%, recorded)\n{}",
        by_depth(["family", "rounds"], "depth ", depths)
    ));
    let ranks = summary.ranks.iter().map(|group| {
        let name = match (group.from, group.to) {
            (from, to) if from == to => from.to_string(),
            (from, u8::MAX) => format!("{from} or later"),
            (from, to) => format!("{from} to {to}"),
        };
        vec![name, percent(group.share)]
    });
    let header = vec!["the right token is guess".into(), "positions %".into()];
    blocks.push(format!("Rank of the right token (recorded)\n{}", lines(header, ranks.collect())));
    let bins = summary.calibration.iter().map(|b| {
        let range = format!("{:.0} to {:.0}", b.from * 100.0, b.to * 100.0);
        vec![range, b.positions.to_string(), percent(b.confidence), percent(b.right)]
    });
    let header = ["confidence %", "positions", "mean confidence %", "right %"].map(String::from).to_vec();
    blocks.push(format!(
        "Calibration of the draft's confidence (recorded): expected calibration error {} %\n{}",
        percent(summary.expected_calibration_error),
        lines(header, bins.collect())
    ));
    let bands = summary.categories.iter().flat_map(|c| c.contexts.iter().map(move |band| (&c.category, band)));
    let contexts = bands.map(|(family, band)| {
        let range = format!("{} to {}", band.from, band.to - 1);
        let error = band.error.map_or("-".into(), percent);
        vec![family.clone(), range, band.drafted.to_string(), percent(band.rate), error]
    });
    let header = ["family", "context", "drafts", "right %", "±"].map(String::from).to_vec();
    blocks.push(format!(
        "Right by context in tokens (recorded; ± is a standard error over outputs)\n{}",
        lines(header, contexts.collect())
    ));
    blocks.push(by_category::toml(&summary.categories, "recorded with this table's prompts"));
    blocks.join("\n")
}

fn percent(share: f64) -> String {
    format!("{:.1}", share * 100.0)
}

/// A table as text. The first columns have text. Then there is one column for each draft depth from 1 on.
fn by_depth<const N: usize>(first: [&str; N], prefix: &str, rows: Vec<Vec<String>>) -> String {
    let deeper = (1..=DEPTHS).map(|d| format!("{prefix}{d}"));
    lines(first.into_iter().map(str::to_owned).chain(deeper).collect(), rows)
}

fn lines(header: Vec<String>, rows: Vec<Vec<String>>) -> String {
    table_lines(&plain_table(header, rows, 1..))
}
