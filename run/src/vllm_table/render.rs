//! The table of draft lengths as ASCII text: its rows, the comparison of every length with the fastest, and warnings.

use super::by_context::{Cell, ContextTable};
use super::choose::{AS_GOOD, Choice, ComparedLength, FEW, Verdict, over};
use super::table::{Loop, Row, Table};
use foretoken_report::{plain_table, table_lines};
use foretoken_sim::metrics::Interval;

/// The most draft lengths side by side in the text that compares lengths.
const COLUMNS: usize = 10;
const MORE_SEEDS: &str = "--set 'seeds=[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]'";

impl Table {
    /// The whole text of the command: the table's rows, the comparison of every draft length with the fastest length of
    /// its row, an explanation of the columns, warnings, and a note on seeds.
    pub fn in_words(&self) -> String {
        let interval = match self.seeds {
            1 => "One seed: no intervals, and every difference counts as it is".to_owned(),
            n => format!("+- is half of the 95 % interval over {n} seeds, paired, one comparison each"),
        };
        let mut text = self.rows() + "\n" + &self.lengths();
        text += &format!(
            "clients: each has one request at the server at any time. scheduled: requests in the median step at the row's\n\
             length, by which vLLM looks its table up; where it is less than clients, the others wait for memory or for the\n\
             token budget. tok/s: output tokens over time, prompts included, simulated. Length 0 has the drafter loaded, as a\n\
             server with a table has; \"no drafter\" is the plain engine. Of the lengths within {:.0} % of the fastest, or not told\n\
             apart from it and within {:.0} %, the smallest is taken.\n{interval}.\n",
            AS_GOOD * 100.0,
            FEW * 100.0
        );
        self.warnings().iter().for_each(|warning| text += &format!("warning: {warning}\n"));
        self.more_seeds().iter().for_each(|note| text += &format!("note: {note}\n"));
        text
    }

    fn rows(&self) -> String {
        let header = [
            "clients\n", "sched-\nuled", "length\n", "its\ntok/s", "fastest\nalone", "its\ntok/s", "table's\ntok/s",
            "no drafter\ntok/s", "\n",
        ];
        let rows = self.rows.iter().map(|row| {
            let mut cells = vec![row.clients.to_string()];
            match &row.measured {
                None => cells.extend((0..7).map(|_| "-".to_owned())),
                Some(m) => cells.extend(numbers(m)),
            }
            cells.push(remark(row, self.seeds));
            cells
        });
        table_lines(&plain_table(header, rows, ..8))
    }

    /// Compares every draft length with the fastest of its row, on servers that are set up for one length each. If the
    /// rates differ on a server that is set up for the table, compares the rates on that server too.
    fn lengths(&self) -> String {
        let measured = || self.rows.iter().filter_map(|r| Some((r.clients, r.measured.as_ref()?)));
        let alone: Vec<(u32, &Choice)> = measured().map(|(clients, m)| (clients, &m.alone_choice)).collect();
        let different = measured().filter(|(_, m)| m.choice != m.alone_choice);
        let on_table_server: Vec<(u32, &Choice)> = different.map(|(clients, m)| (clients, &m.choice)).collect();
        let longest = self.longest();
        let second = match on_table_server.is_empty() {
            true => String::new(),
            false => {
                let rows = compared(&on_table_server);
                format!("On a server for drafts of up to {longest}, as this table's is, %:\n{rows}\n")
            }
        };
        format!("Each length against the fastest of its row, %:\n{}\n{second}", compared(&alone))
    }

    fn longest(&self) -> u32 {
        self.ranges.iter().map(|range| range.2).max().unwrap_or(0)
    }

    /// Warnings about closed loops in which the finished table is slower than a fixed draft length, about rows that are
    /// too noisy, and about loops in which the server is faster without a drafter.
    pub fn warnings(&self) -> Vec<String> {
        let measured = || self.rows.iter().filter_map(|r| Some((r.clients, r.measured.as_ref()?)));
        let mut warnings = Vec::new();
        // If the table of draft lengths is slower than a fixed length in several closed loops for the same reason, they
        // share a warning.
        let mut behind: Vec<(String, Vec<String>)> = Vec::new();
        for (clients, m) in measured().filter(|(_, m)| m.table_is_behind()) {
            let (table, over) = (m.table.as_ref().expect("it was run"), m.table_over_fastest().expect("it was run"));
            let said = format!(
                "{clients} clients ({:.0} tok/s, {} % against {:.0} with length {})",
                mean(&table.tok_s),
                change(over),
                mean(&m.fastest().tok_s),
                m.alone_choice.fastest,
            );
            let why = self.why_behind(m);
            match behind.iter_mut().find(|(reason, _)| *reason == why) {
                Some((_, loops)) => loops.push(said),
                None => behind.push((why, vec![said])),
            }
        }
        let slower = |(why, loops): (String, Vec<String>)| {
            format!("the table is slower than one length alone at {}: {why}", loops.join(", "))
        };
        warnings.extend(behind.into_iter().map(slower));
        let noisy = |(clients, m): (u32, &Loop)| {
            m.choice.is_noisy().then(|| format!("{clients} clients (length {})", names(&m.choice, Verdict::Noisy)))
        };
        let noisy: Vec<String> = measured().filter_map(noisy).collect();
        if !noisy.is_empty() {
            warnings.push(format!(
                "too noisy to say at {}: over {:.0} % behind the fastest, and not told apart from it. The fastest is \
                 taken; add seeds: {MORE_SEEDS}",
                noisy.join(", "),
                FEW * 100.0
            ));
        }
        let plain = |(clients, m): (u32, &Loop)| {
            let ahead = change(over(&m.plain.tok_s, &m.fastest().tok_s));
            m.plain_is_ahead().then(|| format!("{clients} clients ({:.0} tok/s, {ahead} %)", mean(&m.plain.tok_s)))
        };
        let plain: Vec<String> = measured().filter_map(plain).collect();
        if !plain.is_empty() {
            let loops = plain.join(", ");
            warnings.push(format!("without a drafter the server is faster than with any length: at {loops}"));
        }
        warnings
    }

    /// A note that more seeds would show which draft lengths differ in speed; `None` if this is clear for all lengths.
    fn more_seeds(&self) -> Option<String> {
        let mut measured = self.rows.iter().filter_map(|row| row.measured.as_ref());
        match self.seeds {
            1 => Some(format!("several seeds tell which lengths differ: {MORE_SEEDS}")),
            _ if measured.any(|m| m.choice.with_verdict(Verdict::NotApart).next().is_some()) => {
                Some(format!("more seeds tell more lengths apart: {MORE_SEEDS}"))
            }
            _ => None,
        }
    }

    /// A text that says why the table of draft lengths is slower than a fixed length in the closed loop `m`, and what
    /// to do.
    fn why_behind(&self, m: &Loop) -> String {
        let share = m.other_lengths(&self.ranges);
        let longest = self.longest();
        if share > 0.05 {
            format!(
                "{:.0} % of its steps schedule numbers of requests for which other rows have other lengths; try more \
                 --batch-sizes near {}",
                share * 100.0,
                m.scheduled()
            )
        } else if longest > m.alone_choice.fastest {
            format!(
                "a table's server is set up for its longest drafts, {longest} (vLLM's runner v2 then makes {longest} \
                 passes of a draft model in every step); for a table with shorter drafts: --set engine.max_draft_len=N"
            )
        } else {
            format!("the row has length {}, which counts as good", m.choice.k)
        }
    }
}

/// By how many percent the rate (output tokens per second) of every draft length differs from the rate of the fastest
/// length; one line per number of clients.
fn compared(rows: &[(u32, &Choice)]) -> String {
    let Some((_, first)) = rows.first() else { return String::new() };
    let lengths: Vec<u32> = first.all.iter().map(|length| length.k).collect();
    let mut text = String::new();
    for part in lengths.chunks(COLUMNS) {
        let header = ["clients".to_owned()].into_iter().chain(part.iter().map(|k| format!("length {k}")));
        let rows = rows.iter().map(|(clients, choice)| {
            let lengths = choice.all.iter().filter(|length| part.contains(&length.k));
            [clients.to_string()].into_iter().chain(lengths.map(against))
        });
        text += &table_lines(&plain_table(header, rows, ..=part.len()));
    }
    text
}

fn numbers(m: &Loop) -> [String; 7] {
    let rate = |rates: &[f64]| format!("{:.0}", mean(rates));
    [
        m.scheduled().to_string(),
        m.choice.k.to_string(),
        rate(&m.taken().tok_s),
        m.alone_choice.fastest.to_string(),
        rate(&m.fastest().tok_s),
        m.table.as_ref().map_or("-".into(), |table| rate(&table.tok_s)),
        rate(&m.plain.tok_s),
    ]
}

/// The draft lengths with the verdict `verdict`, as text, separated by commas.
fn names(choice: &Choice, verdict: Verdict) -> String {
    choice.with_verdict(verdict).map(|length| length.k.to_string()).collect::<Vec<_>>().join(", ")
}

/// The remark at the end of a row of the table of draft lengths: why the row is not in the table, or how close other
/// lengths are to the fastest.
fn remark(row: &Row, seeds: usize) -> String {
    let Some(m) = &row.measured else { return format!("not reached: {}", row.not_reached.as_deref().unwrap_or("")) };
    let names = |verdict| names(&m.choice, verdict);
    let mut remarks = Vec::new();
    if let Some(why) = &row.not_reached {
        remarks.push(format!("not reached: {why}"));
    }
    if m.choice.is_noisy() {
        remarks.push(format!("too noisy to say: {}; add seeds", names(Verdict::Noisy)));
    }
    let (near, not_apart) = (names(Verdict::Near), names(Verdict::NotApart));
    if !near.is_empty() {
        remarks.push(format!("within {:.0} % of {}: {near}", AS_GOOD * 100.0, m.choice.fastest));
    }
    if !not_apart.is_empty() {
        remarks.push(format!("not told apart from {}: {not_apart}", m.choice.fastest));
    }
    if remarks.is_empty() {
        remarks.push(next(m, seeds));
    }
    remarks.join("; ")
}

/// A text that names the second fastest draft length, for a row of the table (a number of clients) in which no other
/// length is as good as the fastest.
fn next(m: &Loop, seeds: usize) -> String {
    let behind = m.choice.with_verdict(Verdict::Behind);
    let next = behind.max_by(|a, b| a.over_fastest.mean.total_cmp(&b.over_fastest.mean));
    match (next, seeds) {
        (None, _) => "no other length fits".into(),
        (Some(next), 1) => format!("next is {}: {} %", next.k, change(next.over_fastest)),
        (Some(next), _) => format!("all others told apart; next is {}: {} %", next.k, change(next.over_fastest)),
    }
}

fn against(length: &ComparedLength) -> String {
    match length.verdict {
        Verdict::Fastest => "fastest".into(),
        _ => change(length.over_fastest),
    }
}

/// A change of a rate in percent, as text. `over` is the logarithm of the ratio of two rates; half the width of its 95
/// % interval follows if there is one.
fn change(over: Interval) -> String {
    let change = over.mean.exp_m1() * 100.0;
    match over.half_width {
        Some(half) => format!("{change:+.1} +-{:.1}", over.mean.exp() * half * 100.0),
        None => format!("{change:+.1}"),
    }
}

impl ContextTable {
    /// The whole text of the command: the length of each cell with its gain over the table by batch size, what both
    /// tables do where contexts are mixed, and warnings.
    pub fn in_words(&self) -> String {
        let length = |row: &Row| row.measured.as_ref().map_or("-".to_owned(), |m| m.choice.k.to_string());
        let said = |cell: Option<Cell>| match cell {
            None => "-".to_owned(),
            Some(cell) if cell.is_nothing() => cell.k.to_string(),
            Some(cell) => format!("{} ({} %)", cell.k, change(cell.gain)),
        };
        let columns: Vec<Vec<Option<Cell>>> =
            self.contexts.iter().map(|(_, table)| self.cells(table).map(|(_, cell)| cell).collect()).collect();
        let header = ["clients".to_owned(), "mixed".to_owned()].into_iter();
        let header: Vec<String> = header.chain(self.contexts.iter().map(|(c, _)| format!("{c} tokens"))).collect();
        let rows = self.by_batch.rows.iter().enumerate().map(|(i, row)| {
            let first = [row.clients.to_string(), length(row)].into_iter();
            first.chain(columns.iter().map(|cells| said(cells[i]))).collect::<Vec<_>>()
        });
        let mut text = table_lines(&plain_table(header, rows, ..1));
        let cells: Vec<Cell> = columns.iter().flatten().flatten().copied().collect();
        let nothing = cells.iter().filter(|cell| cell.is_nothing()).count();
        text += &format!(
            "Draft length by clients and context. \"mixed\" is vLLM's table by batch size, made where all contexts are mixed. In\n\
             brackets: what a cell's length gains over the one of that table, where it differs and the seeds tell. Nothing is\n\
             gained in {nothing} of {} cells.\n",
            cells.len()
        );
        let mixed: Vec<String> =
            self.mixed.iter().map(|(clients, gain)| format!("{} % at {clients}", change(*gain))).collect();
        if !mixed.is_empty() {
            text += &format!(
                "Where contexts are mixed, a step has one length for all of them. The table by context against the one by batch\n\
                 size, by clients: {}.\n",
                mixed.join(", ")
            );
        }
        for (context, table) in &self.contexts {
            table.warnings().iter().for_each(|warning| text += &format!("warning: {context} tokens: {warning}\n"));
        }
        text
    }
}

fn mean(rates: &[f64]) -> f64 {
    rates.iter().sum::<f64>() / rates.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vllm_table::choose::choose;
    use crate::vllm_table::loops::Measured;

    fn measured(tok_s: &[f64], sizes: &[(u32, u64)]) -> Measured {
        Measured { tok_s: tok_s.to_vec(), accepted: vec![], sizes: sizes.iter().copied().collect(), kv_peak: 0.0 }
    }

    /// A table of draft lengths with one row, for 8 clients. `lengths` are the output tokens per second of draft
    /// lengths 0 and 1 with each seed; `plain` are the rates without a drafter.
    fn table(lengths: [&[f64]; 2], table: Measured, plain: &[f64]) -> Table {
        let rates: Vec<(u32, &[f64])> = (0..).zip(lengths).collect();
        let choice = choose(&rates).unwrap();
        let lengths: Vec<_> = rates.iter().map(|(k, rates)| (*k, measured(rates, &[(8, 10)]))).collect();
        let row = Loop {
            alone_choice: choice.clone(),
            alone: lengths.clone(),
            choice,
            lengths,
            plain: measured(plain, &[(8, 10)]),
            table: Some(table),
        };
        let rows = vec![
            Row { clients: 8, measured: Some(row), not_reached: None },
            Row { clients: 64, measured: None, not_reached: Some("engine.max_num_seqs = 32".into()) },
        ];
        Table { rows, ranges: vec![(1, 5, 3), (6, 8, 1)], seeds: rates[0].1.len() }
    }

    #[test]
    fn a_good_table_has_no_warning_and_says_what_was_not_reached() {
        let table = table([&[100.0, 100.0], &[200.0, 202.0]], measured(&[200.0, 201.0], &[(8, 10)]), &[90.0, 90.0]);
        assert_eq!(table.warnings(), [""; 0]);
        let text = table.in_words();
        assert!(text.contains("all others told apart; next is 0: -50."), "{text}");
        assert!(text.contains("not reached: engine.max_num_seqs = 32") && text.contains("over 2 seeds"), "{text}");
        assert!(text.is_ascii() && text.lines().all(|line| line.len() <= 120), "{text}");
    }

    #[test]
    fn a_table_that_is_behind_says_so_and_why() {
        let lengths: [&[f64]; 2] = [&[100.0, 100.0], &[200.0, 202.0]];
        let scattered = table(lengths, measured(&[180.0, 182.0], &[(4, 5), (8, 5)]), &[90.0, 90.0]).warnings();
        assert!(scattered[0].contains("alone at 8 clients (181 tok/s, -10."), "{scattered:?}");
        assert!(scattered[0].contains("50 % of its steps") && scattered[0].ends_with("near 8"), "{scattered:?}");
        let long = table(lengths, measured(&[180.0, 182.0], &[(8, 5)]), &[90.0, 90.0]).warnings();
        assert!(long[0].contains("longest drafts, 3") && long[0].ends_with("max_draft_len=N"), "{long:?}");
    }

    #[test]
    fn noise_and_a_faster_server_without_a_drafter_are_warned_of() {
        let noisy = table([&[80.0, 110.0], &[100.0, 100.0]], measured(&[100.0, 100.0], &[(8, 1)]), &[120.0, 121.0]);
        let [noise, plain] = &noisy.warnings()[..] else { panic!("{:?}", noisy.warnings()) };
        assert!(noise.contains("too noisy to say at 8 clients (length 0)") && noise.contains("seeds=["), "{noise}");
        assert!(plain.contains("without a drafter") && plain.contains("8 clients (120 tok/s, +20."), "{plain}");
        assert!(noisy.in_words().contains("too noisy to say: 0; add seeds"), "{}", noisy.in_words());
    }
}
