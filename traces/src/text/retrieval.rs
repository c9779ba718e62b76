//! Retrieval, a family of generated documents: the prompt has a list of keys with random values, and asks for the
//! values of some keys.

use super::dice::Dice;
use super::words;

pub(super) fn draw(dice: &mut Dice) -> (String, String) {
    let keys: Vec<&str> = {
        let n = dice.within(4, 10);
        dice.distinct(n, words::NOUNS.len()).into_iter().map(|at| words::NOUNS[at]).collect()
    };
    let values: Vec<String> = keys.iter().map(|_| value(dice)).collect();
    let list: Vec<String> = keys.iter().zip(&values).map(|(key, value)| format!("{key} {value}")).collect();
    let asked = {
        let n = dice.within(2, 4);
        dice.distinct(n, keys.len())
    };
    let names: Vec<&str> = asked.iter().map(|&at| keys[at]).collect();
    let found: Vec<String> = asked.iter().map(|&at| format!("the {} has {}", keys[at], values[at])).collect();
    (format!("List: {}.\nFind {}: ", list.join(", "), names.join(", ")), words::capital(&found.join(", ")) + ".")
}

/// Draws a value for a key of the prompt's list: two letters and two to four digits.
fn value(dice: &mut Dice) -> String {
    let letters: String = (0..2).map(|_| char::from(b'a' + dice.below(26) as u8)).collect();
    let digits: String = (0..dice.within(2, 4)).map(|_| char::from(b'0' + dice.below(10) as u8)).collect();
    format!("{letters}{digits}")
}
