//! Arithmetic, a family of generated documents: sums, differences and products of numbers of one to four digits, one
//! step after another.

use super::dice::Dice;

/// Largest result that a step of the calculation in an arithmetic document may have.
const MOST: usize = 9999;

pub(super) fn draw(dice: &mut Dice) -> (String, String) {
    let mut total = number(dice);
    let (mut question, mut answer) = (format!("Start with {total}"), String::new());
    let steps = dice.within(2, 5);
    for step in 0..steps {
        let by = number(dice);
        let small = dice.within(2, 9);
        let (words, sign, by, next) = match dice.below(5) {
            0 | 1 if total + by <= MOST => ("add", '+', by, total + by),
            0..4 if by <= total => ("take", '-', by, total - by),
            4 if total * small <= MOST => ("times", '*', small, total * small),
            _ => ("take", '-', total / 2, total - total / 2),
        };
        question += &format!(", {words} {by}");
        answer += &format!("{}{total}{sign}{by}={next}", if step > 0 { "; " } else { "" });
        total = next;
    }
    (format!("Sum: {question}.\nWork: "), format!("{answer}. It is {total}."))
}

/// A number of one to four digits. Every number of digits from one to four is equally likely.
fn number(dice: &mut Dice) -> usize {
    let digits = dice.within(1, 4) as u32;
    dice.within(10usize.pow(digits - 1), 10usize.pow(digits) - 1)
}
