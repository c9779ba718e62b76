//! A recommendation as text for the terminal and the page.

use super::advice::Advice;
use super::answer::Verdict;
use super::at_load::AtLoad;
use super::break_even::BreakEven;
use super::gain::Gain;
use super::names::table_in_words;
use foretoken_report::{percent, plain_table, table_lines};
use std::fmt::Write;

/// A text that says what the break-even shares of accepted draft tokens compare: closed loops with as many clients as
/// the batch size, and a server without a drafter.
pub const IN_CLOSED_LOOPS: &str = "a closed loop of as many clients ties with plain decoding without a loaded drafter";
/// A text that says that the table of draft lengths by batch size is for a server with a loaded drafter.
pub const DRAFTER_LOADED: &str = "the drafter loaded, so that its passes over prompts cost at K = 0 as well";

/// A gain as text, such as `1.97× [1.92, 2.02]`: how many times as fast, with the 95 % interval over seeds.
pub(super) fn gain(g: Gain) -> String {
    let (times, ends) = g.as_fast();
    let ends = ends.map_or(String::new(), |(low, high)| format!(" [{low:.2}, {high:.2}]"));
    format!("{times:.2}×{ends}")
}

impl Advice {
    /// The recommendation in one to three sentences: what to run, and the rate above which it stops paying.
    pub fn headline(&self) -> String {
        let of = self.objective.in_words();
        let best = self.best.as_ref().map_or("", |best| best.name.as_str());
        let gains = self.gains();
        let now = format!("{}, as it runs now", self.now.name);
        let plain_now = self.now.k() == Some(0);
        let elsewhere = self.elsewhere(best).map_or(String::new(), |words| format!("; {words}"));
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
            Verdict::Stay if best.is_empty() || self.is_now(best) => {
                format!("Stay with {}: {}.", self.now.name, self.nothing_lowers("nothing"))
            }
            Verdict::Stay => {
                let now = &self.now.name;
                format!(
                    "Stay with {now}: nothing is better by more than is known ({best} is {gains}, {of}){elsewhere}."
                )
            }
            Verdict::DoNotSpeculate if plain_now => {
                format!("Do not speculate: {}.", self.nothing_lowers("no draft length"))
            }
            Verdict::DoNotSpeculate => {
                format!("Do not speculate: against {now}, plain decoding is {gains} ({of}){elsewhere}.")
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
        let limit = match (&self.verdict, self.loads.as_ref()) {
            (Verdict::Change | Verdict::Stay, Some(loads)) => loads.stops_at.map(|rate| (&loads.drafting, rate)),
            _ => None,
        };
        let limit = limit.map(|(k, rate)| format!(" Above {rate:.1} requests/s {k} stops paying.")).unwrap_or_default();
        format!("{}{}{advice}{depends}{limit}", self.doubts(), self.overloaded())
    }

    /// The recommendation's first words, if the calibration is not trusted or measured runs contradict the advice.
    fn doubts(&self) -> String {
        let measured = self.contradicting.iter().map(|faster| format!("{}. ", faster.in_words()));
        let distrust = self.not_trusted.iter().map(|why| format!("{}{}. ", why[..1].to_uppercase(), &why[1..]));
        measured.chain(distrust).collect()
    }

    /// Says that `nothing` is better than what runs now, at which loads, and where something else is better.
    fn nothing_lowers(&self, nothing: &str) -> String {
        let of = self.objective.in_words();
        let carried: Vec<&AtLoad> = self.at_loads.iter().filter(|at| at.overload.is_none()).collect();
        match (self.elsewhere(&self.now.name), carried.as_slice()) {
            (Some(elsewhere), _) => {
                let other = if nothing == "nothing" { "no other" } else { nothing };
                format!("{other} loses less of the {of} at its worst load; {elsewhere}")
            }
            (None, []) => format!("{nothing} lowers the {of}"),
            (None, [only]) => format!("{nothing} lowers the {of} at {}", only.load),
            (None, [first, .., last]) => {
                let (n, first, last) = (carried.len(), &first.load, &last.load);
                format!("{nothing} lowers the {of} at any of {n} loads, {first} to {last}")
            }
        }
    }

    fn is_now(&self, name: &str) -> bool {
        name.strip_suffix(", as now").unwrap_or(name) == self.now.name
    }

    /// Names the load at which another policy than `advised` is best and faster than what runs now by most, with this
    /// policy. So a row of the table never contradicts the headline. `None` if no row names another policy.
    fn elsewhere(&self, advised: &str) -> Option<String> {
        let is_other = |name: &str| name != advised && !self.is_now(name);
        let rows = self.at_loads.iter().filter(|at| at.overload.is_none()).filter_map(|at| {
            let (name, gain) = (at.best_name.as_deref().filter(|name| is_other(name))?, at.gain?);
            Some((at, name, gain))
        });
        let (at, name, most) = rows.max_by(|a, b| a.2.mean.total_cmp(&b.2.mean))?;
        Some(format!("at {}, {name} is {} {}", at.load, gain(most), self.objective.as_fast()))
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
            1 => format!("{} {} at {}{error}", gain(most.0), self.objective.as_fast(), most.1.load),
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
        let mut text = format!("{}\n{}\n\n", self.headline(), self.holds());
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
    use crate::calibrate::recommend::stated_tests::stated;
    use crate::calibrate::recommend::tests::answer;
    use crate::calibrate::recommend::{Now, decide};

    /// The advice on three closed loops, at each of which another policy may be best than what runs now: the headline
    /// names the load with the largest gain in the table, so that no row contradicts it.
    #[test]
    fn no_row_contradicts_a_headline_that_keeps_what_runs_now() {
        let of = |clients: u32| answer(&stated(&[&format!("workload.arrivals={{ closed-loop = {clients} }}")]));
        let mut advice = of(1);
        advice.at_loads.extend([2, 4].into_iter().flat_map(|clients| of(clients).at_loads));
        for (now, verdict) in [(3, Verdict::Stay), (0, Verdict::DoNotSpeculate)] {
            advice.now = Now::fixed(now, "stated");
            advice.verdict = verdict;
            advice.best = decide::with_loss(&advice.at_loads.iter().collect::<Vec<_>>(), now as usize);
            let own = advice.now.name.clone();
            assert_eq!(advice.best.as_ref().unwrap().name, own);
            for (row, at) in advice.at_loads.iter_mut().enumerate() {
                (at.best_name, at.gain) = (Some(own.clone()), None);
                assert!(at.load.ends_with(&[1, 2, 4][row].to_string()), "{}", at.load);
            }
            let said = advice.headline();
            assert!(
                said.ends_with("lowers the mean E2E at any of 3 loads, closed loop of 1 to closed loop of 4."),
                "{said}"
            );
            // 3.7 % in the mean, and the interval holds 0, too.
            let gain = Gain { mean: 0.036, half_width: Some(0.05), low: Some(-0.013), high: Some(0.083), n: 8 };
            let at = &mut advice.at_loads[1];
            (at.best_name, at.gain) = (Some("K = 1".into()), Some(gain));
            let said = advice.headline();
            let row = "at closed loop of 2, K = 1 is 1.04× [0.99, 1.09] as fast.";
            assert!(said.ends_with(row) && said.contains("at its worst load"), "{said}");
            advice.at_loads[1].best_name = Some(own);
        }
        // What is better by less than is known, and what is better still at one load.
        advice.now = Now::fixed(3, "stated");
        advice.verdict = Verdict::Stay;
        advice.best = decide::with_loss(&advice.at_loads.iter().collect::<Vec<_>>(), 2);
        let at = &mut advice.at_loads[2];
        (at.best_name, at.gain) = (Some("K = 1".into()), Gain::of(&[Some(1.1)], &[Some(1.0)]));
        let said = advice.headline();
        assert!(said.starts_with("Stay with K = 3: nothing is better by more than is known (K = 2 is "), "{said}");
        assert!(said.ends_with("; at closed loop of 4, K = 1 is 1.10× as fast."), "{said}");
        let one = of(4).headline();
        assert!(one.contains(" as fast at closed loop of 4 (mean E2E)"), "{one}");
    }

    #[test]
    fn break_even_says_what_is_needed_and_what_is_there() {
        let b = BreakEven { batch: 8, k: 3, needs: 0.61, has: Some(0.68) };
        assert_eq!(pays(&b), "at batch 8 K = 3 needs 61 % accepted, has 68 %");
        let b = BreakEven { needs: 1.2, has: None, ..b };
        assert_eq!(pays(&b), "at batch 8 K = 3 cannot pay: it would need 120 % accepted");
    }
}
