//! The text of a simulated answer, and the place at which a stop string ends it.

/// Number of letters. The tokens of an answer are the letters from a to z, again and again.
const LETTERS: usize = 26;

/// Returns the id of an answer's `n`-th token (from 0): the ASCII code of the token's letter.
pub fn token_id(n: usize) -> u32 {
    u32::from(b'a') + (n % LETTERS) as u32
}

/// The text of a simulated answer so far, with the stop strings that may end it.
#[derive(Debug)]
pub struct Text {
    text: String,
    /// Number of bytes of the answer's text that [`take`](Text::take) has returned so far.
    taken: usize,
    stops: Vec<String>,
    /// Number of bytes at the end of an unfinished answer that are held back, because they may be the beginning of a
    /// stop string. The number is one less than the number of bytes of the longest stop string.
    held: usize,
}

impl Text {
    /// Makes the empty text of an answer. Once the added tokens complete a stop string of `stops`, the text ends before
    /// this stop string.
    pub fn new(stops: Vec<String>) -> Text {
        let held = stops.iter().map(String::len).max().unwrap_or(1) - 1;
        Text { text: String::new(), taken: 0, stops, held }
    }

    /// Appends `tokens` tokens to the answer's text. If stop strings are now complete, cuts the text before the stop
    /// string that begins first, and returns this stop string.
    pub fn add(&mut self, tokens: usize) -> Option<String> {
        let had = self.text.len();
        self.text.extend((had..had + tokens).map(|n| char::from(token_id(n) as u8)));
        let from = had.saturating_sub(self.held);
        let found = |stop: &String| self.text[from..].find(stop.as_str()).map(|at| (from + at, stop.clone()));
        let (at, stop) = self.stops.iter().filter_map(found).min_by_key(|found| found.0)?;
        self.text.truncate(at.max(self.taken));
        Some(stop)
    }

    /// Returns the part of the answer's text that was added since the last call. Unless the answer has `ended`, the
    /// last `held` bytes are not returned yet, because a stop string may begin there.
    pub fn take(&mut self, ended: bool) -> &str {
        let end = if ended { self.text.len() } else { self.text.len().saturating_sub(self.held).max(self.taken) };
        let from = std::mem::replace(&mut self.taken, end);
        &self.text[from..end]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_without_stops_comes_at_once() {
        let mut text = Text::new(vec![]);
        assert_eq!((text.add(3), text.take(false)), (None, "abc"));
        assert_eq!((text.add(2), text.take(true)), (None, "de"));
    }

    #[test]
    fn a_text_ends_before_its_stop_and_shows_nothing_of_it() {
        let mut text = Text::new(vec!["efg".into(), "zz".into()]);
        assert_eq!((text.add(5), text.take(false)), (None, "abc"));
        assert_eq!((text.add(4), text.take(true)), (Some("efg".into()), "d"));
        let mut first = Text::new(vec!["d".into(), "bc".into()]);
        assert_eq!((first.add(9), first.take(true)), (Some("bc".into()), "a"));
    }
}
