//! The text of a simulated answer, and the place at which a stop string ends it.

use serde::Serialize;

/// Number of letters. The tokens of an answer are the letters from a to z, again and again.
const LETTERS: usize = 26;

/// Returns the id of an answer's `n`-th token (from 0): the ASCII code of the token's letter.
pub fn token_id(n: usize) -> u32 {
    u32::from(b'a') + (n % LETTERS) as u32
}

/// What ends an answer before its length: texts and tokens that the client names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stops {
    /// The answer ends before the first of these texts that it contains.
    pub texts: Vec<String>,
    /// The answer ends with the first token that has one of these ids. Its text is not shown.
    pub ids: Vec<u32>,
    /// Tokens before this number do not end the answer.
    pub min_tokens: u32,
}

/// What ended an answer: vLLM's `stop_reason`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Stop {
    Text(String),
    /// A token that the client wants as an end.
    Id(u32),
}

/// The text of a simulated answer so far, with what may end it.
#[derive(Debug)]
pub struct Text {
    text: String,
    /// Number of bytes of the answer's text that [`take`](Text::take) has returned so far.
    taken: usize,
    stops: Stops,
    /// Number of bytes at the end of an unfinished answer that are held back, because they may be the beginning of a
    /// stop string. The number is one less than the number of bytes of the longest stop string.
    held: usize,
}

impl Text {
    /// Makes the empty text of an answer. Once the added tokens complete a stop string of `stops`, the text ends before
    /// this stop string.
    pub fn new(stops: Stops) -> Text {
        let held = stops.texts.iter().map(String::len).max().unwrap_or(1) - 1;
        Text { text: String::new(), taken: 0, stops, held }
    }

    /// Appends `tokens` tokens to the answer's text. If a stop string or a stop token is now complete, cuts the text
    /// before what comes first, and returns it. Also returns how many of the tokens belong to the answer: those behind
    /// a stop token do not.
    pub fn add(&mut self, tokens: usize) -> (usize, Option<Stop>) {
        let had = self.text.len();
        // A token is a letter, so the number of bytes is the number of tokens.
        let first_id = (had..had + tokens)
            .filter(|&n| n + 1 >= self.stops.min_tokens as usize)
            .find(|&n| self.stops.ids.contains(&token_id(n)));
        let end = first_id.unwrap_or(had + tokens);
        self.text.extend((had..end).map(|n| char::from(token_id(n) as u8)));
        let from = had.saturating_sub(self.held);
        let found = |stop: &String| self.text[from..].find(stop.as_str()).map(|at| (from + at, stop.clone()));
        let kept = first_id.map_or(tokens, |n| n + 1 - had);
        match self.stops.texts.iter().filter_map(found).min_by_key(|found| found.0) {
            Some((at, stop)) => {
                self.text.truncate(at.max(self.taken));
                (kept, Some(Stop::Text(stop)))
            }
            None => (kept, first_id.map(|n| Stop::Id(token_id(n)))),
        }
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

    fn texts(texts: &[&str]) -> Text {
        Text::new(Stops { texts: texts.iter().map(|&text| text.to_owned()).collect(), ..Stops::default() })
    }

    fn ended(kept: usize, text: &str) -> (usize, Option<Stop>) {
        (kept, Some(Stop::Text(text.into())))
    }

    #[test]
    fn a_text_without_stops_comes_at_once() {
        let mut text = texts(&[]);
        assert_eq!((text.add(3), text.take(false)), ((3, None), "abc"));
        assert_eq!((text.add(2), text.take(true)), ((2, None), "de"));
    }

    #[test]
    fn a_text_ends_before_its_stop_and_shows_nothing_of_it() {
        let mut text = texts(&["efg", "zz"]);
        assert_eq!((text.add(5), text.take(false)), ((5, None), "abc"));
        assert_eq!((text.add(4), text.take(true)), (ended(4, "efg"), "d"));
        let mut first = texts(&["d", "bc"]);
        assert_eq!((first.add(9), first.take(true)), (ended(9, "bc"), "a"));
    }

    /// The token that ends an answer counts and is not shown, as in vLLM, and the tokens behind it are not the
    /// answer's.
    #[test]
    fn a_token_ends_an_answer() {
        let ids = |ids: &[u32], min_tokens| Text::new(Stops { ids: ids.to_vec(), min_tokens, ..Stops::default() });
        let e = u32::from(b'e');
        let mut text = ids(&[e, 999], 0);
        assert_eq!((text.add(4), text.take(false)), ((4, None), "abcd"));
        assert_eq!((text.add(4), text.take(true)), ((1, Some(Stop::Id(e))), ""));
        let mut late = ids(&[u32::from(b'a'), e], 5);
        assert_eq!((late.add(9), late.take(true)), ((5, Some(Stop::Id(e))), "abcd"));
        let mut both = Text::new(Stops { texts: vec!["cd".into()], ids: vec![e], min_tokens: 0 });
        assert_eq!((both.add(9), both.take(true)), (ended(5, "cd"), "ab"));
    }
}
