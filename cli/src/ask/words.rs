//! The answer of `ask` as text of 80 columns: the advice, the numbers, the line to paste.

use super::answer::{Advice, Answer, AtLoad, Band};
use foretoken_report::{narrow, plain_table, table_lines};
use foretoken_servers::calibrate::recommend::{Gain, table_in_words};
use std::fmt::Write;

/// Columns of a terminal.
const WIDTH: usize = 80;

/// A gain as text, such as `1.97x [1.92, 2.02]`: how many times as fast, with the 95 % interval over seeds.
fn gain(g: Gain) -> String {
    let (times, ends) = g.as_fast();
    format!("{times:.2}x{}", ends.map_or(String::new(), |(low, high)| format!(" [{low:.2}, {high:.2}]")))
}

fn times(g: Option<Gain>) -> String {
    g.map_or("-".to_owned(), |g| format!("{:.2}x", g.as_fast().0))
}

fn shown(x: Option<f64>, unit: f64, digits: usize) -> String {
    x.map_or("-".to_owned(), |x| format!("{:.digits$}", x * unit))
}

impl Answer {
    pub fn in_words(&self) -> String {
        let mut text = String::new();
        let mut say = |words: &str| {
            let words = textwrap::fill(words, textwrap::Options::new(WIDTH).break_words(false));
            writeln!(text, "{words}").expect("a string grows");
        };
        say(&self.headline());
        self.sure().iter().for_each(|words| say(words));
        say(&format!(
            "{}: {}, {} requests, {} seeds, simulated",
            self.made.subject, self.load, self.requests, self.seeds
        ));
        self.overloaded.iter().for_each(|words| say(&format!("This load is {words}.")));
        text.push('\n');
        text += &self.load_table();
        text.push('\n');
        text += &self.clients_table();
        let mut say = |words: &str| {
            let words = textwrap::fill(words, textwrap::Options::new(WIDTH).break_words(false));
            writeln!(text, "{words}").expect("a string grows");
        };
        say(&self.stops());
        if self.table.len() > 1 {
            say(&format!("Table by batch size, the drafter loaded: {}", table_in_words(&self.table)));
        }
        say("");
        if let Some(line) = &self.made.read {
            say(&format!("read as: {line}"));
        }
        for (name, list) in
            [("used", &self.made.used), ("no matter here", &self.made.no_matter), ("not known", &self.made.unknown)]
        {
            if !list.is_empty() {
                say(&format!("{name}: {}", list.join(", ")));
            }
        }
        let assumed: Vec<String> = self.made.assumed.iter().cloned().chain(self.made.bands.iter().map(band)).collect();
        if !assumed.is_empty() {
            say(&format!("assumed: {}", assumed.join("; ")));
        }
        match &self.made.experiment {
            Some(path) => {
                say(&format!("experiment: {} (foretoken run, recommend, export vllm take it)", path.display()))
            }
            None => say("--out FILE writes the experiment, which run, recommend and export vllm take"),
        }
        if let Some(paste) = &self.paste {
            let what = if self.made.multiple_lines { "change" } else { "to paste" };
            // A shell line is not broken, because a break would change it.
            write!(text, "\n{what}:\n{paste}\n").expect("a string grows");
        }
        text
    }

    /// The advice in a sentence.
    pub fn headline(&self) -> String {
        let advised = self.advised.as_deref().unwrap_or("nothing");
        let fast = self.gain.map_or(String::new(), |g| format!(": {} as fast", gain(g)));
        let at = format!("at this load (mean time of a request, {})", self.load);
        let (now, as_now) = (&self.now, format!("as {} now", self.now));
        let change = match advised {
            "plain decoding" if self.gain.is_none() => format!("Do not speculate: nothing is faster {at}"),
            "plain decoding" => format!("Do not speculate{fast} {as_now} {at}"),
            "table by batch size" => {
                format!("Draft by batch size, {}{fast} {as_now} {at}", table_in_words(&self.table))
            }
            advised => match (advised.strip_prefix("K = "), now.strip_prefix("K = ")) {
                (Some(k), Some(of)) => format!("Draft {k} instead of {of} tokens{fast} {at}"),
                (Some(k), None) => format!("Draft {k} token{}{fast} {as_now} {at}", if k == "1" { "" } else { "s" }),
                _ => format!("Run {advised}{fast} {as_now} {at}"),
            },
        };
        match self.advice {
            Advice::Change | Advice::DoNotSpeculate => format!("{change}."),
            Advice::Stay if self.gain.is_none() => format!("Keep {now}: nothing is more than 1 % faster {at}."),
            Advice::Stay => format!("Keep {now}: {advised} is no better by more than is known{fast} {at}."),
            Advice::DependsOnHost => {
                let with = match self.best_with_host.as_deref() {
                    Some("plain decoding") => "do not speculate".to_owned(),
                    Some(best) if best == now => format!("keep {best}"),
                    Some(best) => format!("run {best}"),
                    None => "no answer".to_owned(),
                };
                let host = self.host.unwrap_or("a server");
                let small = match self.gain {
                    None => format!("keep {now}"),
                    Some(_) => format!("{}{}", change[..1].to_lowercase(), &change[1..]),
                };
                format!(
                    "Depends on your host: calibrate. If its time is hidden: {small}. With the host time of a measured server ({host}): {with}."
                )
            }
        }
    }

    fn sure(&self) -> Option<String> {
        let (host, with) = (self.host?, self.gain_with_host?);
        let seeds = "[ ] is the 95 % interval over seeds.";
        (self.advice != Advice::DependsOnHost).then(|| {
            format!("{seeds} With the host time of a measured server ({host}) it is {}: the advice stays.", gain(with))
        })
    }

    fn load_table(&self) -> String {
        let header = [
            "", "tok/s", "a user", "TTFT\nms", "p99\nms", "TPOT\nms", "p99\nms", "KV\n%", "$/M\ntokens",
            "as fast\nas now",
        ];
        let price = self.made.price.is_some();
        let keep = |i: usize| price || i != 8;
        let listed = |row: &&AtLoad| row.name.starts_with("K = ") || row.advised || row.now || row.name.len() < 20;
        let rows = self.at_load.iter().filter(listed).map(|row| {
            let mark = if row.advised { "> " } else { "  " };
            let name =
                format!("{mark}{}{}", row.name, if row.now && !row.name.ends_with("now") { ", now" } else { "" });
            let cells = [
                name,
                format!("{:.0}", row.tokens_s),
                shown(row.tokens_s_user, 1.0, 0),
                shown(row.ttft_mean_s, 1e3, 0),
                shown(row.ttft_p99_s, 1e3, 0),
                shown(row.tpot_mean_s, 1e3, 1),
                shown(row.tpot_p99_s, 1e3, 1),
                format!("{:.0}", 100.0 * row.kv_peak),
                shown(row.price_million_tokens, 1.0, 2),
                times(row.over_now),
            ];
            cells.into_iter().enumerate().filter(|(i, _)| keep(*i)).map(|(_, c)| c).collect::<Vec<_>>()
        });
        let header = header.into_iter().enumerate().filter(|(i, _)| keep(*i)).map(|(_, h)| h).collect::<Vec<_>>();
        table_lines(&narrow(plain_table(header, rows, 1..)))
    }

    fn clients_table(&self) -> String {
        let header = ["clients", "draft", "tok/s", "a client", "as fast as none", "as now"];
        let rows = self.by_clients.iter().map(|row| {
            [
                row.clients.to_string(),
                if row.k == 0 { "none".to_owned() } else { row.k.to_string() },
                format!("{:.0}", row.tokens_s),
                format!("{:.1}", row.tokens_s / f64::from(row.clients)),
                row.over_plain.map_or("-".to_owned(), gain),
                times(row.over_now),
            ]
        });
        table_lines(&narrow(plain_table(header, rows, ..)))
    }

    /// From which load on not to speculate.
    fn stops(&self) -> String {
        let last = self.by_clients.last().map_or(0, |row| row.clients);
        let beyond = self.not_reached.first().map_or(String::new(), |(n, why)| format!(" {n} clients: {why}."));
        match self.stop_from_clients {
            Some(1) => format!("Do not speculate at any load tried, up to {last} clients.{beyond}"),
            Some(n) => format!("Do not speculate from {n} clients on (closed loops, up to {last} tried).{beyond}"),
            None => format!("Speculation pays up to {last} clients, the most that were tried.{beyond}"),
        }
    }
}

fn band(band: &Band) -> String {
    let other = |(name, best, g): &(String, Option<String>, Option<Gain>)| {
        let best = best.as_deref().map_or(String::new(), |best| format!("best {best}"));
        let g = g.map_or(String::new(), |g| format!(", advised {:.2}x", g.as_fast().0));
        format!("{name}: {best}{g}")
    };
    format!("{} ({})", band.says, band.others.iter().map(other).collect::<Vec<_>>().join("; "))
}
