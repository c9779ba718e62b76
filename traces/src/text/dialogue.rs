//! Dialogue: a guest asks an inn for something, and the host answers in set phrases.
//!
//! The guest's greeting, name, wish, day and number of guests decide the host's phrases. The rules for this are stated
//! nowhere; they can be learnt only from examples. Sometimes the host departs from the rules at random.

use super::dice::Dice;
use super::words;

const WISHES: [(&str, [&str; 3]); 8] = [
    ("a room", ["The room by the stairs is free", "We have a quiet room for you", "There is one room left"]),
    ("a table", ["A table by the window is laid", "The long table is yours", "I will clear a table at once"]),
    ("a horse", ["The grey mare is saddled", "The stable boy will bring a horse", "We lend no horse before noon"]),
    ("a boat", ["The ferry leaves at dusk", "A boat waits at the lower quay", "All boats are out fishing"]),
    ("a meal", ["The soup is hot and the bread is new", "There is roast goose tonight", "The kitchen is cold by now"]),
    ("a letter", ["Your letter lies in the blue box", "The post came without one", "I keep it under the counter"]),
    ("a guide", ["My nephew knows every path", "The old hunter will take you", "No guide goes out in this fog"]),
    ("a bath", ["The water is on the fire", "The bath house opens soon", "Ask the maid for towels"]),
];

const DAYS: [&str; 7] = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
const HELLOS: [&str; 4] = ["Good morning", "Good evening", "Hello", "Excuse me"];
const BACK: [&str; 4] = ["Good morning to you", "A fine evening", "Welcome", "How can I serve you"];
const NUMBERS: [&str; 6] = ["one", "two", "three", "four", "five", "six"];
const PARTING: [[&str; 3]; 3] = [
    ["Will that be all?", "Please sign the book.", "You may pay when you leave."],
    ["Mind the low beam.", "Shall I send up some tea?", "The bell rings at seven."],
    ["Do come again.", "Keep your coat dry.", "The dog does not bite."],
];

pub(super) fn draw(dice: &mut Dice) -> (String, String) {
    let name = dice.pick(&words::NAMES);
    let (hello, wish, day, guests) = (dice.below(4), dice.below(8), dice.below(7), dice.below(6));
    let (thing, replies) = &WISHES[wish];
    let prompt = format!(
        "Guest: {}, I am {name}. I would like {thing} for {} on {}.\nHost: ",
        HELLOS[hello], NUMBERS[guests], DAYS[day]
    );
    // The host's reply depends on the wish, the day and the number of guests. The parting words depend on these three
    // and on the guest's name. With a probability of 10 %, another phrase replaces the reply. The same holds,
    // independently, for the parting words.
    let slip = |dice: &mut Dice| if dice.chance(10) { dice.within(1, 2) } else { 0 };
    let reply = replies[(day + guests + slip(dice)) % 3];
    let initial = usize::from(name.as_bytes()[0]);
    let parting = PARTING[(initial + wish) % 3][(day * guests + slip(dice)) % 3];
    let answer = format!(
        "{}, {name}. {reply}, {} for {} on {}. {parting}",
        BACK[hello],
        if (wish + day) % 2 == 0 { "ready" } else { "noted" },
        NUMBERS[guests],
        DAYS[day]
    );
    (prompt, answer)
}
