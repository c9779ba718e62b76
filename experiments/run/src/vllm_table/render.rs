//! The table for people: rows, every length against the fastest, and what to beware of. ASCII alone, as in the comparison.

use super::choose::{AS_GOOD, FEW, Held, Standing, over};
use super::table::{Loop, Row, Table};
use comfy_table::{CellAlignment, Table as Grid, presets};
use foretoken_sim::metrics::Interval;

/// Lengths beside each other in the second table.
const COLUMNS: usize = 10;

impl Table {
    /// The rows, every length against the fastest of its row, what the columns are, and the warnings.
    pub fn in_words(&self) -> String {
        let interval = match self.seeds {
            1 => "One seed: no intervals, and every difference counts as it is".to_owned(),
            n => format!("+- is half of the 95 % interval over {n} seeds, paired, one comparison each"),
        };
        let mut text = self.rows() + "\n" + &self.lengths();
        text += &format!(
            "clients: each has one request at the server at any time. scheduled: requests in the median step at the row's \
             length, by which\nvLLM looks its table up; where it is less than clients, the others wait for memory or for the \
             token budget. tok/s: output tokens over\ntime, prompts included, simulated. Length 0 has the drafter loaded, as a \
             server with a table has; \"no drafter\" is the plain engine.\n{interval}. Of the lengths within {:.0} % of the \
             fastest, or not told apart from it and within {:.0} %,\nthe smallest is taken.\n",
            AS_GOOD * 100.0,
            FEW * 100.0
        );
        self.warnings().iter().for_each(|warning| text += &format!("{warning}\n"));
        text
    }

    fn rows(&self) -> String {
        let mut grid = grid();
        grid.set_header([
            "clients\n",
            "sched-\nuled",
            "length\n",
            "its\ntok/s",
            "fastest\nlength",
            "its\ntok/s",
            "table's\ntok/s",
            "no drafter\ntok/s",
            "\n",
        ]);
        for row in &self.rows {
            let mut cells = vec![row.clients.to_string()];
            match &row.measured {
                None => cells.extend((0..7).map(|_| "-".to_owned())),
                Some(m) => cells.extend(numbers(m)),
            }
            cells.push(said(row, self.seeds));
            grid.add_row(cells);
        }
        lines(&mut grid, 8)
    }

    /// Every length against the fastest of its row.
    fn lengths(&self) -> String {
        let measured: Vec<(&Row, &Loop)> = self.rows.iter().filter_map(|r| Some((r, r.measured.as_ref()?))).collect();
        let Some((_, any)) = measured.first() else { return String::new() };
        let lengths: Vec<u32> = any.lengths.iter().map(|(k, _)| *k).collect();
        let mut text = "Each length against the fastest of its row, %:\n".to_owned();
        for part in lengths.chunks(COLUMNS) {
            let mut grid = grid();
            grid.set_header(["clients".to_owned()].into_iter().chain(part.iter().map(|k| format!("length {k}"))));
            for (row, m) in &measured {
                let held = m.choice.all.iter().filter(|held| part.contains(&held.k));
                grid.add_row([row.clients.to_string()].into_iter().chain(held.map(against)));
            }
            text += &lines(&mut grid, part.len() + 1);
        }
        text + "\n"
    }

    /// What whoever uses the table should know: rows that are too noisy, loops in which the table is behind, and loops in
    /// which the server is faster without a drafter.
    pub fn warnings(&self) -> Vec<String> {
        let measured = || self.rows.iter().filter_map(|r| Some((r.clients, r.measured.as_ref()?)));
        let mut all = Vec::new();
        for (clients, m) in measured().filter(|(_, m)| m.table_is_behind()) {
            let (table, behind) = (m.table.as_ref().expect("it was run"), m.table_over_fastest().expect("it was run"));
            all.push(format!(
                "warning: {clients} clients: the table gives {:.0} tok/s, {} % of length {} alone ({:.0}): its steps schedule \
                 {} requests and other numbers, which other rows answer. Try more sizes between its neighbours: --batch-sizes",
                mean(&table.tok_s),
                change(behind),
                m.choice.fastest,
                mean(&m.of(m.choice.fastest).tok_s),
                table.scheduled,
            ));
        }
        for (clients, m) in measured().filter(|(_, m)| m.choice.is_noisy()) {
            let noisy: Vec<String> = m.choice.that_are(Standing::Noisy).map(|held| held.k.to_string()).collect();
            all.push(format!(
                "warning: {clients} clients: too noisy to say: length {} is not told apart from length {}. Add seeds: \
                 --set 'seeds=[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]'",
                noisy.join(", "),
                m.choice.fastest
            ));
        }
        for (clients, m) in measured().filter(|(_, m)| m.plain_is_ahead()) {
            all.push(format!(
                "warning: {clients} clients: without a drafter the server gives {:.0} tok/s, {} % against the fastest length \
                 with one",
                mean(&m.plain.tok_s),
                change(over(&m.plain.tok_s, &m.of(m.choice.fastest).tok_s))
            ));
        }
        if self.seeds == 1 {
            all.push("note: several seeds tell which lengths differ: --set 'seeds=[1, 2, 3, 4, 5]'".to_owned());
        } else if measured().any(|(_, m)| m.choice.that_are(Standing::NotApart).next().is_some()) {
            all.push("note: more seeds tell more lengths apart: --set 'seeds=[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]'".to_owned());
        }
        all
    }
}

fn grid() -> Grid {
    let mut grid = Grid::new();
    grid.load_style(presets::NOTHING);
    grid
}

/// The lines of a grid of which the first columns are numbers.
fn lines(grid: &mut Grid, numbers: usize) -> String {
    grid.column_iter_mut().take(numbers).for_each(|c| {
        c.set_cell_alignment(CellAlignment::Right);
    });
    grid.lines().fold(String::new(), |text, line| text + line.trim_end() + "\n")
}

fn numbers(m: &Loop) -> [String; 7] {
    let rate = |rates: &[f64]| format!("{:.0}", mean(rates));
    [
        m.scheduled().to_string(),
        m.choice.k.to_string(),
        rate(&m.of(m.choice.k).tok_s),
        m.choice.fastest.to_string(),
        rate(&m.of(m.choice.fastest).tok_s),
        m.table.as_ref().map_or("-".into(), |table| rate(&table.tok_s)),
        rate(&m.plain.tok_s),
    ]
}

/// What is said of a row.
fn said(row: &Row, seeds: usize) -> String {
    let Some(m) = &row.measured else { return format!("not reached: {}", row.not_reached.as_deref().unwrap_or("")) };
    let names = |standing| m.choice.that_are(standing).map(|held| held.k.to_string()).collect::<Vec<_>>().join(", ");
    let mut all = Vec::new();
    if let Some(why) = &row.not_reached {
        all.push(format!("not reached: {why}"));
    }
    if m.choice.is_noisy() {
        all.push(format!("too noisy to say: {}; add seeds", names(Standing::Noisy)));
    }
    let (near, not_apart) = (names(Standing::Near), names(Standing::NotApart));
    if !near.is_empty() {
        all.push(format!("within {:.0} % of {}: {near}", AS_GOOD * 100.0, m.choice.fastest));
    }
    if !not_apart.is_empty() {
        all.push(format!("not told apart from {}: {not_apart}", m.choice.fastest));
    }
    if all.is_empty() {
        all.push(next(m, seeds));
    }
    all.join("; ")
}

/// The next best length, where every other one is behind.
fn next(m: &Loop, seeds: usize) -> String {
    let behind = m.choice.that_are(Standing::Behind);
    let next = behind.max_by(|a, b| a.over_fastest.mean.total_cmp(&b.over_fastest.mean));
    match (next, seeds) {
        (None, _) => "no other length fits".into(),
        (Some(next), 1) => format!("next is {}: {} %", next.k, change(next.over_fastest)),
        (Some(next), _) => format!("all others told apart; next is {}: {} %", next.k, change(next.over_fastest)),
    }
}

fn against(held: &Held) -> String {
    match held.standing {
        Standing::Fastest => "fastest".into(),
        _ => change(held.over_fastest),
    }
}

/// The logarithm of a ratio as a change in per cent.
fn change(over: Interval) -> String {
    let change = over.mean.exp_m1() * 100.0;
    match over.half_width {
        Some(half) => format!("{change:+.1} +-{:.1}", over.mean.exp() * half * 100.0),
        None => format!("{change:+.1}"),
    }
}

fn mean(rates: &[f64]) -> f64 {
    rates.iter().sum::<f64>() / rates.len() as f64
}
