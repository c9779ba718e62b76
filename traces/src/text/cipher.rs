//! Cipher, a family of generated documents: the prompt has a sentence and an encoding rule (the key); the answer is the
//! encoded sentence.

use super::dice::Dice;
use super::words;

const VOWELS: &[u8; 5] = b"aeiou";

/// How the rule of a cipher document encodes the words of a sentence.
enum Key {
    /// Each letter of the sentence is shifted in the alphabet by this number of places.
    Shift(u8),
    /// Each letter of the sentence is replaced by its mirror image in the alphabet (a becomes z).
    Mirror,
    /// Each vowel of the sentence is replaced by the vowel this number of places later, in a circle.
    Vowels(usize),
    /// The vowels of the sentence are left out.
    Bare,
    /// The letters of each word are put in reverse order.
    Backwards,
    /// The first letter of each word moves to the word's end.
    Rotate,
}

pub(super) fn draw(dice: &mut Dice) -> (String, String) {
    let key = match dice.below(10) {
        0..3 => Key::Shift(dice.within(1, 4) as u8),
        3 => Key::Mirror,
        4 | 5 => Key::Vowels(dice.within(1, 2)),
        6 => Key::Bare,
        7 | 8 => Key::Backwards,
        _ => Key::Rotate,
    };
    let name = match key {
        Key::Shift(by) => format!("shift {by}"),
        Key::Mirror => "mirror".into(),
        Key::Vowels(by) => format!("vowels {by}"),
        Key::Bare => "bare".into(),
        Key::Backwards => "backwards".into(),
        Key::Rotate => "rotate".into(),
    };
    let mut text = words::clause(dice);
    if dice.chance(50) {
        text = format!("{text} and {}", words::clause(dice));
    }
    let words: Vec<String> = text.split(' ').map(|word| key.apply(word)).collect();
    (format!("Cipher {name}: {text}\nCode: "), words.join(" "))
}

impl Key {
    fn apply(&self, word: &str) -> String {
        let letters = word.bytes();
        let of_vowel = |letter: u8| VOWELS.iter().position(|v| *v == letter);
        let coded: Vec<u8> = match self {
            Key::Shift(by) => letters.map(|l| b'a' + (l - b'a' + by) % 26).collect(),
            Key::Mirror => letters.map(|l| b'z' - (l - b'a')).collect(),
            Key::Vowels(by) => letters.map(|l| of_vowel(l).map_or(l, |at| VOWELS[(at + by) % 5])).collect(),
            Key::Bare => letters.filter(|l| of_vowel(*l).is_none()).collect(),
            Key::Backwards => letters.rev().collect(),
            Key::Rotate => letters.clone().skip(1).chain(letters.take(1)).collect(),
        };
        coded.into_iter().map(char::from).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cipher_keys_encode_words_as_described() {
        let keys = [Key::Shift(2), Key::Mirror, Key::Vowels(1), Key::Bare, Key::Backwards, Key::Rotate];
        assert_eq!(keys.map(|k| k.apply("oyster")), ["qauvgt", "lbhgvi", "uystir", "ystr", "retsyo", "ystero"]);
    }
}
