//! Copy, a family of generated documents: the prompt has a story of a few sentences. The task is to summarise it
//! (repeat the sentences without their ornaments), to repeat one sentence, or to repeat all sentences in reverse order.

use super::dice::Dice;
use super::words::{self, Sentence};

const ORDINALS: [&str; 4] = ["first", "second", "third", "fourth"];

pub(super) fn draw(dice: &mut Dice) -> (String, String) {
    let story: Vec<Sentence> = (0..dice.within(2, 4)).map(|_| Sentence::draw(dice)).collect();
    let full: Vec<String> = story.iter().map(Sentence::ornate).collect();
    let (task, answer) = match dice.below(4) {
        0 => {
            let which = dice.below(story.len());
            (format!("Repeat the {} sentence", ORDINALS[which]), full[which].clone())
        }
        1 => {
            let backwards: Vec<&str> = full.iter().rev().map(String::as_str).collect();
            ("Tell it backwards".into(), backwards.join(" "))
        }
        _ => {
            let plain: Vec<String> = story.iter().map(Sentence::plain).collect();
            ("Summary".into(), words::capital(&plain.join(", ")) + ".")
        }
    };
    (format!("Story: {}\n{task}: ", full.join(" ")), answer)
}
