//! A truth table's summary as text, and the data of its figures.

use comfy_table::{CellAlignment, Table, presets};
use foretoken_report::Accepted;
use foretoken_traces::truth::{DEPTHS, TruthSummary, TruthTable, by_category};

/// Acceptance by family and depth, ranks and calibration.
pub fn text(table: &TruthTable, summary: &TruthSummary) -> String {
    let header = &table.header;
    let (target, draft) = (&header.target, &header.draft);
    let mut blocks = vec![format!(
        "recorded: {} with {} on {}, greedy, {}\n",
        target.name, draft.name, header.device, header.prompts
    )];
    let mut lengths = grid(["family", "outputs", "positions", "right %"], 1..=DEPTHS, "k = ");
    let mut depths = grid(["family", "rounds"], 1..=DEPTHS, "depth ");
    for f in &summary.families {
        let own = [f.family.clone(), f.outputs.to_string(), f.positions.to_string(), percent(f.right)];
        lengths.add_row(own.into_iter().chain(f.mean_acceptance_length.iter().map(|m| format!("{m:.3}"))));
        let own = [f.family.clone(), f.depths[0].reached.to_string()];
        depths.add_row(own.into_iter().chain(f.depths.iter().map(|d| d.rate.map_or("-".into(), percent))));
    }
    blocks.push(format!("Mean acceptance length with k drafts a round (tokens, recorded)\n{}", lines(&mut lengths)));
    blocks.push(format!(
        "Right at a depth, where all before it were, in rounds of {DEPTHS} (%, recorded)\n{}",
        lines(&mut depths)
    ));
    let mut ranks = plain(vec!["the right token is guess".into(), "positions %".into()]);
    for group in &summary.ranks {
        let name = match (group.from, group.to) {
            (from, to) if from == to => from.to_string(),
            (from, u8::MAX) => format!("{from} or later"),
            (from, to) => format!("{from} to {to}"),
        };
        ranks.add_row([name, percent(group.share)]);
    }
    blocks.push(format!("Rank of the right token (recorded)\n{}", lines(&mut ranks)));
    let mut bins = plain(["confidence %", "positions", "mean confidence %", "right %"].map(String::from).to_vec());
    for b in &summary.calibration {
        let range = format!("{:.0} to {:.0}", b.from * 100.0, b.to * 100.0);
        bins.add_row([range, b.positions.to_string(), percent(b.confidence), percent(b.right)]);
    }
    blocks.push(format!(
        "Calibration of the draft's confidence (recorded): expected calibration error {} %\n{}",
        percent(summary.expected_calibration_error),
        lines(&mut bins)
    ));
    let mut contexts = plain(["family", "context", "drafts", "right %", "±"].map(String::from).to_vec());
    for (family, band) in summary.categories.iter().flat_map(|c| c.contexts.iter().map(move |band| (&c.category, band)))
    {
        let range = format!("{} to {}", band.from, band.to - 1);
        let error = band.error.map_or("-".into(), percent);
        contexts.add_row([family.clone(), range, band.drafted.to_string(), percent(band.rate), error]);
    }
    blocks.push(format!(
        "Right by context in tokens (recorded; ± is a standard error over outputs)\n{}",
        lines(&mut contexts)
    ));
    blocks.push(by_category::toml(&summary.categories, "recorded with this table's prompts"));
    blocks.join("\n")
}

/// The data of the figures.
pub fn figures(table: &TruthTable, summary: &TruthSummary) -> Accepted {
    let header = &table.header;
    let all = &summary.families[0];
    Accepted {
        title: format!("{} with {}", header.target.name, header.draft.name),
        source: format!("recorded on {}: {}, {} output positions", header.device, header.prompts, all.positions),
        families: summary
            .families
            .iter()
            .map(|f| (f.family.clone(), f.depths.iter().map(|d| d.rate).collect()))
            .collect(),
        calibration: summary.calibration.iter().map(|b| (b.confidence, b.right, b.positions)).collect(),
        calibration_error: summary.expected_calibration_error,
    }
}

fn percent(share: f64) -> String {
    format!("{:.1}", share * 100.0)
}

fn grid<const N: usize>(first: [&str; N], depths: impl Iterator<Item = usize>, prefix: &str) -> Table {
    let deeper = depths.map(|d| format!("{prefix}{d}"));
    plain(first.into_iter().map(str::to_owned).chain(deeper).collect())
}

fn plain(header: Vec<String>) -> Table {
    let mut t = Table::new();
    t.load_style(presets::NOTHING).set_header(header);
    t
}

fn lines(t: &mut Table) -> String {
    t.column_iter_mut().enumerate().for_each(|(i, c)| {
        c.set_cell_alignment(if i == 0 { CellAlignment::Left } else { CellAlignment::Right });
    });
    t.lines().fold(String::new(), |text, line| text + line.trim_end() + "\n")
}
