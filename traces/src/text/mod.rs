//! Text that the project generates: six families of documents modelled on Spec-Bench's categories.
//!
//! A document is a prompt that ends in an open question, and a one-line answer that follows from the prompt. It is
//! plain ASCII, so that each byte is a token and any cut gives valid text. A document is a pure function of (family,
//! seed, index). The draft model and the target model that Foretoken ships are trained on this text. Documents of
//! certain seeds and indices are left out of the training and held out for tests.

mod arithmetic;
mod cipher;
mod copy;
mod dialogue;
mod dice;
mod facts;
mod family;
mod retrieval;
mod words;

pub use family::{Family, UnknownFamily};

use dice::Dice;
use foretoken_sim::{Luck, Stream};
use serde::{Deserialize, Serialize};

/// The byte that ends an answer. No answer contains this byte; a prompt may contain it.
pub const END: u8 = b'\n';

/// A generated document: a question and its answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Document {
    /// The family of the document, that is, its kind of task.
    pub family: Family,
    /// The document's text before the answer, which ends in the question.
    pub prompt: String,
    /// The document's answer, without the byte [`END`] that follows it.
    pub answer: String,
}

impl Document {
    /// Prompt, answer and [`END`]. This is the text on which a model is trained. Another document may follow it.
    pub fn text(&self) -> String {
        format!("{}{}{}", self.prompt, self.answer, END as char)
    }
}

/// Makes document number `index` of a family. Equal arguments give equal documents.
pub fn document(family: Family, seed: u64, index: u64) -> Document {
    drawn(family, key(family, seed, index))
}

/// A prompt of exactly `len` bytes that ends in the open question of document `index`.
///
/// Other documents of the family, with their answers, come before the question as worked examples. The beginning of the
/// first example is cut off to fit `len`. If the question alone is longer than `len`, its own beginning is cut off.
pub fn prompt_of_len(family: Family, seed: u64, index: u64, len: usize) -> Vec<u8> {
    let luck = key(family, seed, index);
    let mut parts = vec![drawn(family, luck).prompt];
    let mut have = parts[0].len();
    for example in 1.. {
        if have >= len {
            break;
        }
        // The random draws of an example depend on the question's family, seed and index and on the example's number,
        // so prompts of different questions share no example.
        parts.push(drawn(family, luck.narrow(example)).text());
        have += parts[parts.len() - 1].len();
    }
    parts.reverse();
    parts.concat().into_bytes().split_off(have - len)
}

fn key(family: Family, seed: u64, index: u64) -> Luck {
    Luck::new(seed, Stream::Text, index).narrow(family as u64)
}

fn drawn(family: Family, luck: Luck) -> Document {
    let mut dice = Dice::new(luck);
    let (prompt, answer) = match family {
        Family::Cipher => cipher::draw(&mut dice),
        Family::Copy => copy::draw(&mut dice),
        Family::Facts => facts::draw(&mut dice),
        Family::Arithmetic => arithmetic::draw(&mut dice),
        Family::Retrieval => retrieval::draw(&mut dice),
        Family::Dialogue => dialogue::draw(&mut dice),
    };
    Document { family, prompt, answer }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
