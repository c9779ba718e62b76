//! A recommendation as text for the terminal and the page.

use super::advice::Advice;
use super::answer::Verdict;
use super::at_load::AtLoad;
use super::break_even::BreakEven;
use super::gain::Gain;
use super::names::table_in_words;
use foretoken_report::{AS_GOOD, plain_table, table_lines};
use std::fmt::Write;

/// A text that says what the break-even shares of accepted draft tokens compare: closed loops with as many clients as
/// the batch size, and a server without a drafter.
pub const IN_CLOSED_LOOPS: &str = "a closed loop of as many clients ties with plain decoding without a loaded drafter";
/// A text that says that the table of draft lengths by batch size is for a server with a loaded drafter.
pub const DRAFTER_LOADED: &str = "the drafter loaded, so that its passes over prompts cost at K = 0 as well";

pub(super) fn percent(x: f64) -> String {
    format!("{:.1} %", 100.0 * x)
}

/// A gain as text, such as `1.97× [1.92, 2.02]`: how many times as fast, with the 95 % interval over seeds.
pub(super) fn gain(g: Gain) -> String {
    let (times, ends) = g.as_fast();
    let ends = ends.map_or(String::new(), |(low, high)| format!(" [{low:.2}, {high:.2}]"));
    format!("{times:.2}×{ends}")
}

impl Advice {
    /// The recommendation in one or two sentences.
    pub fn headline(&self) -> String {
        let of = self.objective.in_words();
        let best = self.best.as_ref().map_or("", |best| best.name.as_str());
        let gains = self.gains();
        let now = format!("{}, as it runs now", self.now.name);
        let plain_now = self.now.k() == Some(0);
        let advice = match &self.verdict {
            Verdict::Change => {
                let run = match best {
                    "table by batch size" => {
                        format!("the table by batch size ({})", table_in_words(&self.table))
                    }
                    other => other.to_owned(),
                };
                format!("Run {run}: against {now}, it is {gains} ({of}).")
            }
            Verdict::Stay if self.best.as_ref().is_none_or(|best| best.name == self.now.name) => {
                format!("Stay with {}: {}.", self.now.name, self.nothing_lowers())
            }
            Verdict::Stay => {
                let now = &self.now.name;
                format!("Stay with {now}: nothing is better by more than is known ({best} is {gains}, {of}).")
            }
            Verdict::DoNotSpeculate if plain_now => {
                format!("Do not speculate: no draft length lowers the {of}.")
            }
            Verdict::DoNotSpeculate => {
                format!("Do not speculate: against {now}, plain decoding is {gains} ({of}).")
            }
            Verdict::Unknown(why) => format!("You cannot know from this: {why}."),
        };
        let depends = match (&self.verdict, self.depends_on_load, &self.single) {
            (Verdict::Change, true, Some(single)) if single.name != best => {
                let (name, loss, at) = (&single.name, percent(single.worst_loss), &single.worst_at);
                format!(" The best length depends on the load: {name}, the best single one, loses {loss} at {at}.")
            }
            _ => String::new(),
        };
        format!("{}{}{advice}{depends}", self.doubts(), self.overloaded())
    }

    /// The recommendation's first words, if the calibration is not trusted or measured runs contradict the advice.
    fn doubts(&self) -> String {
        let measured = self.contradicting.iter().map(|faster| format!("{}. ", faster.in_words()));
        let distrust = self.not_trusted.iter().map(|why| format!("{}{}. ", why[..1].to_uppercase(), &why[1..]));
        measured.chain(distrust).collect()
    }

    /// Says that what runs now is best, at which loads, and where something else is better.
    fn nothing_lowers(&self) -> String {
        let of = self.objective.in_words();
        let carried = || self.at_loads.iter().filter(|at| at.overload.is_none());
        let gain_at = |at: &&AtLoad| at.gain.map_or(0.0, |g| g.mean);
        let better = |at: &&AtLoad| at.gain.is_some_and(|g| g.mean > AS_GOOD.max(g.half_width.unwrap_or(0.0)));
        let most = carried().filter(better).max_by(|a, b| gain_at(a).total_cmp(&gain_at(b)));
        match (most, carried().count()) {
            (Some(at), n) if n > 1 => {
                let (best, g) = (at.best_name.as_deref().unwrap_or_default(), at.gain.map_or(String::new(), gain));
                let at = &at.load;
                format!("no other loses less of the {of} at its worst load; at {at}, {best} is {g} as fast")
            }
            (_, 1) => {
                format!("nothing lowers the {of} at {}", carried().map(|at| at.load.as_str()).collect::<String>())
            }
            (_, 0) => format!("nothing lowers the {of}"),
            (_, n) => format!("nothing lowers the {of} at any of {n} loads"),
        }
    }

    /// A sentence that names the smallest closed loop at which drafting does not pay. There is a sentence only if
    /// drafting pays at all smaller loops and at no larger loop; else `None`.
    pub fn from_where(&self) -> Option<String> {
        let drafts = |at: &AtLoad| {
            let best = |among: &dyn Fn(u32) -> bool| {
                let costs = at.candidates.iter().filter(|c| c.fixed && among(c.longest)).filter_map(|c| c.cost);
                costs.min_by(f64::total_cmp)
            };
            Some(best(&|k| k > 0)? < best(&|k| k == 0)?)
        };
        // The list of loads has the closed loops first, sorted by clients.
        let loops: Vec<&AtLoad> = self.at_loads.iter().filter(|at| !at.open).collect();
        let pays: Vec<bool> = loops.iter().map(|at| drafts(at)).collect::<Option<_>>()?;
        let first = pays.iter().position(|pays| !pays).filter(|&at| at > 0)?;
        let turns_once = pays[first..].iter().all(|pays| !pays);
        let (last, from) = (&loops[first - 1].load, &loops[first].load);
        turns_once.then(|| format!("Do not speculate from the {from} on; up to the {last} it pays."))
    }

    /// The recommendation's first words, on loads at which the server cannot keep up with the arrivals, whichever
    /// candidate policy it runs. Empty if there is no such load.
    fn overloaded(&self) -> String {
        let beyond: Vec<&AtLoad> = self.at_loads.iter().filter(|at| at.overload.is_some()).collect();
        if beyond.is_empty() {
            return String::new();
        }
        let words: Vec<String> =
            beyond.iter().map(|at| format!("{} is {}", at.load, at.overloaded().unwrap_or_default())).collect();
        let words = words.join("; ");
        match beyond.len() == self.at_loads.len() {
            true => format!(
                "{}{}. The following is about a queue that grows, and says nothing of a load that is carried. ",
                words[..1].to_uppercase(),
                &words[1..]
            ),
            false => format!("Without the overloaded loads ({words}): "),
        }
    }

    /// The gain of the advised candidate policy as text. If one load counts, the text has the gain at this load.
    /// Otherwise the text has the smallest and the largest gain, each with its load.
    fn gains(&self) -> String {
        let carried = |at: &&AtLoad| at.overload.is_none();
        let all = || self.at_loads.iter().filter_map(|at| Some((at.advised_gain?, at)));
        let decisive: Vec<(Gain, &AtLoad)> = all().filter(|(_, at)| carried(at)).collect();
        let decisive = if decisive.is_empty() { all().collect() } else { decisive };
        let by = |a: &&(Gain, &AtLoad), b: &&(Gain, &AtLoad)| a.0.mean.total_cmp(&b.0.mean);
        let (Some(least), Some(most)) = (decisive.iter().min_by(by), decisive.iter().max_by(by)) else {
            return "faster by an unknown amount".to_owned();
        };
        let error = match self.calibration_error > 0.0 {
            true => format!(", ± {} of the calibration", percent(self.calibration_error)),
            false => String::new(),
        };
        match decisive.len() {
            1 => format!("{} {}{error}", gain(most.0), self.objective.as_fast()),
            _ => {
                let (least, from, most, to) = (gain(least.0), &least.1.load, gain(most.0), &most.1.load);
                format!("{least} ({from}) to {most} ({to}) {}{error}", self.objective.as_fast())
            }
        }
    }

    /// A text that says for which loads, server, seeds and requests the recommendation holds.
    pub fn holds(&self) -> String {
        if self.at_loads.is_empty() {
            return format!("For {}.", self.subject.name);
        }
        let loads: Vec<&str> = self.at_loads.iter().map(|at| at.load.as_str()).collect();
        let requests = self.at_loads.iter().map(|at| at.requests);
        let (least, most) = (requests.clone().min().unwrap_or(0), requests.max().unwrap_or(0));
        let requests = if least == most { least.to_string() } else { format!("{least} to {most}") };
        let seeds = match self.subject.seeds {
            1 => "1 seed".to_owned(),
            n => format!("{n} seeds"),
        };
        let drawn = match self.source {
            "simulated on a calibration" => {
                " Each seed draws rates and costs of its own, as far as the calibration does not know them."
            }
            _ => "",
        };
        format!(
            "It holds for {}, at {}: {}, {seeds}, {requests} requests.{drawn}",
            self.subject.name,
            loads.join("; "),
            self.source
        )
    }

    /// A line that names the policy which the server runs now, and says how this is known.
    pub fn now_in_words(&self) -> String {
        format!("now: {} ({})", self.now.name, self.now.why)
    }

    /// The whole recommendation as text: first the advice, then the reasons.
    pub fn in_words(&self) -> String {
        let mut text = format!("{}\n{}\n", self.headline(), self.holds());
        let mut line = |words: String| writeln!(text, "{words}").expect("a string grows");
        if !self.at_loads.is_empty() {
            self.from_where().into_iter().for_each(&mut line);
            line(self.now_in_words());
            line(self.rows());
            self.losses().into_iter().for_each(&mut line);
            line(format!("best length by batch size ({DRAFTER_LOADED}): {}", table_in_words(&self.table)));
            line(format!("break-even ({IN_CLOSED_LOOPS}):"));
            self.break_even.iter().for_each(|b| line(format!("  {}", pays(b))));
            self.stops().into_iter().for_each(&mut line);
        }
        match &self.paste {
            Some(paste) => line(format!("to paste: {paste}")),
            None => self.starts.iter().for_each(|start| line(format!("{}: {}", start.file, start.used))),
        }
        self.lacks.iter().for_each(|lacks| line(format!("  {lacks}")));
        self.confirm.iter().for_each(|command| line(format!("confirm: {command}")));
        text
    }

    /// The candidate policies' results as a text table with one row per load.
    fn rows(&self) -> String {
        let mut header = vec!["load".to_owned(), "best".into(), "as fast as now".into(), "accepted".into()];
        let other = self.other_than_the_best();
        header.extend(other.map(|name| format!("{name} as fast")));
        let overloaded = self.at_loads.iter().any(|at| at.overloaded().is_some());
        header.extend(overloaded.then(String::new));
        let rows = self.at_loads.iter().map(|at| {
            let mut row = vec![
                at.load.clone(),
                at.best_name.clone().unwrap_or_else(|| "none keeps the limit".into()),
                at.gain.map_or_else(|| "–".to_owned(), gain),
                at.accepted.map_or_else(|| "–".to_owned(), percent),
            ];
            row.extend(other.map(|_| at.advised_gain.map_or_else(|| "–".to_owned(), gain)));
            row.extend(overloaded.then(|| at.overloaded().unwrap_or_default()));
            row
        });
        table_lines(&plain_table(header, rows, ..0)).trim_end().to_owned()
    }

    /// The name of the advised candidate policy if another candidate is the best at some load; else `None`.
    pub(super) fn other_than_the_best(&self) -> Option<&str> {
        let advised = self.best.as_ref()?;
        let best_everywhere = self.at_loads.iter().all(|at| at.best.as_ref() == Some(&advised.policy));
        (!best_everywhere).then_some(advised.name.as_str())
    }

    /// For the best fixed draft length and for the table of lengths by batch size: the largest loss over the loads, as
    /// text. `None` if there is one load.
    pub fn losses(&self) -> Option<String> {
        if self.at_loads.len() < 2 {
            return None;
        }
        let loses = |best: &super::answer::Best| match best.worst_loss > 0.0005 {
            true => format!("{} loses {} at {}", best.name, percent(best.worst_loss), best.worst_at),
            false => format!("{} loses nothing", best.name),
        };
        let words: Vec<String> = self.single.iter().chain(&self.by_table).map(loses).collect();
        Some(format!("at its worst load, against the best there: {}", words.join("; ")))
    }

    /// A sentence on the request rate up to which drafting pays, or on whether it pays at any simulated rate.
    pub fn stops(&self) -> Option<String> {
        let loads = self.loads.as_ref()?;
        let pays = loads.points.iter().any(|l| l.pays.is_some_and(|g| g.mean > 0.0));
        let what = match (loads.stops_at, pays) {
            (Some(rate), _) => format!("stops paying above {rate:.2} requests/s"),
            (None, true) => "pays up to the highest load tried".to_owned(),
            (None, false) => "pays at no load tried".to_owned(),
        };
        Some(format!("{} {what} ({}, against plain decoding without a loaded drafter)", loads.drafting, loads.requests))
    }
}

/// A break-even (the share of draft tokens that must be accepted so that drafting pays) as text, such as `at batch 8 K
/// = 3 needs 61 % accepted, has 68 %`.
pub fn pays(b: &BreakEven) -> String {
    let BreakEven { batch, k, needs, has } = *b;
    let has = has.map_or(String::new(), |has| format!(", has {:.0} %", 100.0 * has));
    match needs > 1.0 {
        true if needs.is_infinite() => format!("at batch {batch} K = {k} cannot pay, however many are accepted{has}"),
        true => format!("at batch {batch} K = {k} cannot pay: it would need {:.0} % accepted{has}", 100.0 * needs),
        false => format!("at batch {batch} K = {k} needs {:.0} % accepted{has}", 100.0 * needs.max(0.0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn break_even_says_what_is_needed_and_what_is_there() {
        let b = BreakEven { batch: 8, k: 3, needs: 0.61, has: Some(0.68) };
        assert_eq!(pays(&b), "at batch 8 K = 3 needs 61 % accepted, has 68 %");
        let b = BreakEven { needs: 1.2, has: None, ..b };
        assert_eq!(pays(&b), "at batch 8 K = 3 cannot pay: it would need 120 % accepted");
    }
}
