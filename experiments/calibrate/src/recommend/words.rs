//! The answer in sentences.

use super::advice::{Advice, Verdict};
use super::break_even::BreakEven;
use std::fmt::Write;

impl Advice {
    /// What is advised, in one sentence.
    pub fn headline(&self) -> String {
        let of = self.objective.in_words();
        let best = self.best.as_deref().unwrap_or_default();
        let share = |x: f64| format!("{:.1} %", 100.0 * x);
        let gain = self.gain.map_or("an unknown amount".to_owned(), |g| {
            let seeds = g.half_width.map_or(String::new(), |h| format!(" ± {} over seeds", share(h)));
            let error = match self.calibration_error > 0.0 {
                true => format!(" ± {} of the calibration", share(self.calibration_error)),
                false => String::new(),
            };
            format!("{}{seeds}{error}", share(g.mean))
        });
        let now = self.now;
        match &self.verdict {
            Verdict::Change => format!("Run {best}: against K = {now}, as it is now, it lowers the {of} by {gain}."),
            Verdict::Stay if self.gain.is_some_and(|g| g.mean == 0.0) => {
                format!("Stay with K = {now}: nothing lowers the {of}.")
            }
            Verdict::Stay => {
                format!(
                    "Stay with K = {now}: nothing is better by more than is known ({best} lowers the {of} by {gain})."
                )
            }
            Verdict::DoNotSpeculate if now == 0 => {
                format!("Do not speculate: no draft length lowers the {of} of this traffic.")
            }
            Verdict::DoNotSpeculate => {
                format!("Do not speculate: against K = {now}, as it is now, plain decoding lowers the {of} by {gain}.")
            }
            Verdict::Unknown(why) => format!("You cannot know from this: {why}."),
        }
    }

    /// What is advised, first; then why.
    pub fn in_words(&self) -> String {
        let mut text = self.headline() + "\n";
        let mut line = |words: String| writeln!(text, "{words}").expect("a string grows");
        if let Some(fixed) = self.fixed {
            line(format!("best fixed length: K = {fixed}; best length by batch size: {}", table(&self.table)));
        }
        self.break_even.iter().for_each(|b| line(pays(b)));
        self.stops().into_iter().for_each(&mut line);
        for start in &self.starts {
            line(format!("{}: {}", start.file, start.used));
        }
        text
    }

    /// Up to which load drafting pays.
    pub fn stops(&self) -> Option<String> {
        let loads = self.loads.as_ref()?;
        let k = loads.k;
        let pays = loads.points.iter().any(|l| l.gain.is_some_and(|g| g.mean > 0.0));
        Some(match (loads.stops_at, pays) {
            (Some(rate), _) => format!("K = {k} stops paying above {rate:.2} requests/s"),
            (None, true) => format!("K = {k} pays up to the highest load tried"),
            (None, false) => format!("K = {k} pays at no load tried"),
        })
    }
}

/// `1 to 3: 5, 4 to 8: 2`.
fn table(ranges: &[(u32, u32, u32)]) -> String {
    let words: Vec<String> = ranges.iter().map(|(a, b, k)| format!("{a} to {b}: {k}")).collect();
    if words.is_empty() { "none".into() } else { words.join(", ") }
}

/// `at batch 8 K = 3 needs 61 % accepted, has 68 %`.
pub fn pays(b: &BreakEven) -> String {
    let BreakEven { batch, k, needs, has } = *b;
    let has = has.map_or(String::new(), |has| format!(", has {:.0} %", 100.0 * has));
    match needs > 1.0 {
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
        assert_eq!(table(&[(1, 3, 5), (4, 8, 2)]), "1 to 3: 5, 4 to 8: 2");
    }
}
