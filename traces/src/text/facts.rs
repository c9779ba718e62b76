//! Facts: questions about the people of an invented world. The text does not contain the answers.
//!
//! The invented world is the same for every seed, so a model can know the answers only from training.

use super::dice::Dice;
use super::words;
use foretoken_sim::{Luck, Stream};

/// Key of the pseudo-random draws that make the invented people. With another key, all facts that a model has learnt
/// would be wrong.
const WORLD: u64 = 0xFAC7;

/// Number of people in the invented world.
pub(super) const PEOPLE: usize = 400;

/// The facts about one person of the invented world, for which the questions ask.
pub(super) struct Person {
    pub(super) name: String,
    town: String,
    year: usize,
    trade: &'static str,
    creature: &'static str,
    colour: &'static str,
    debt: usize,
}

impl Person {
    pub(super) fn of(index: usize) -> Person {
        let mut dice = Dice::new(Luck::new(WORLD, Stream::Text, index as u64));
        // The first name is drawn at random. The second name is an invented word that no other person has.
        let second = invented(index * 7 + 3, 3);
        Person {
            name: format!("{} {}", dice.pick(&words::NAMES), words::capital(&second)),
            town: words::capital(&invented(5000 + dice.below(60), 2)),
            year: dice.within(1300, 1899),
            trade: dice.pick(&words::TRADES),
            creature: dice.pick(&words::CREATURES),
            colour: dice.pick(&words::COLOURS),
            debt: dice.within(10, 99),
        }
    }

    fn answer(&self, about: usize) -> String {
        match about {
            0 => format!("came from {}", self.town),
            1 => format!("was born in {}", self.year),
            2 => format!("worked as a {}", self.trade),
            3 => format!("kept a {} {}", self.colour, self.creature),
            _ => format!("owed {} crowns", self.debt),
        }
    }
}

const ASKED: [&str; 5] = ["town", "year", "trade", "pet", "debt"];

pub(super) fn draw(dice: &mut Dice) -> (String, String) {
    let person = Person::of(dice.below(PEOPLE));
    let name = &person.name;
    let (what, about) = if dice.chance(40) {
        ("all".to_owned(), vec![0, 1, 2, 3, 4])
    } else {
        let n = dice.within(1, 3);
        let about = dice.distinct(n, ASKED.len());
        (about.iter().map(|&a| ASKED[a]).collect::<Vec<_>>().join(", "), about)
    };
    let facts: Vec<String> = about.iter().map(|&a| person.answer(a)).collect();
    (format!("Who was {name}? Say: {what}.\nFact: "), format!("{name} {}.", facts.join(", ")))
}

/// An invented word of `syllables` syllables and, in seven of eight cases, a final consonant. With three syllables, all
/// indices below 511,997 have different words.
fn invented(index: usize, syllables: usize) -> String {
    const FIRST: &[u8; 16] = b"bdfghjklmnprstvz";
    const VOWEL: &[u8; 5] = b"aeiou";
    const LAST: [&str; 8] = ["n", "r", "l", "sh", "th", "m", "k", ""];
    // The factor has no common divisor with the modulus. So neighbouring indices give words that look different, and
    // different indices below the modulus give different remainders.
    let mut rest = (index * 48_611 + 7919) % 511_997;
    let mut word = String::new();
    for _ in 0..syllables {
        word.push(char::from(FIRST[rest % 16]));
        word.push(char::from(VOWEL[rest / 16 % 5]));
        rest /= 80;
    }
    word + LAST[index % 8]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn no_two_people_share_a_second_name() {
        let second = |i| Person::of(i).name.split(' ').nth(1).map(str::to_owned);
        assert_eq!((0..PEOPLE).map(second).collect::<HashSet<_>>().len(), PEOPLE);
    }
}
