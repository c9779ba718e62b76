//! The families of generated documents, that is, kinds of tasks, and their names.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A kind of task. The families are in the order of the Spec-Bench categories that they imitate; only conversation
/// (MT-Bench's category) comes last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Family {
    /// Translation: the prompt gives an encoding rule (a key) and a sentence, and the answer is the encoded sentence.
    Cipher,
    /// Summarisation: sentences are repeated, put in reverse order, or repeated without their ornaments.
    Copy,
    /// Question answering: facts of an invented world. The text does not contain the facts.
    Facts,
    /// Mathematical reasoning: step-by-step results of sums, differences and products of numbers of one to four digits.
    Arithmetic,
    /// Retrieval-augmented generation: the prompt has a list of keys and values, and asks for the values of some keys.
    Retrieval,
    /// Conversation: a host answers a guest in set phrases.
    Dialogue,
}

impl Family {
    /// All six families. A family is a kind of task of generated documents.
    pub const ALL: [Family; 6] =
        [Family::Cipher, Family::Copy, Family::Facts, Family::Arithmetic, Family::Retrieval, Family::Dialogue];

    /// The family's name in files and on the command line. It never changes.
    pub fn name(self) -> &'static str {
        ["cipher", "copy", "facts", "arithmetic", "retrieval", "dialogue"][self as usize]
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The error for a name that no family has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no text family is called `{name}`; did you mean `{nearest}`? All families: {all}", all = all_names())]
pub struct UnknownFamily {
    /// The name that no family has.
    pub name: String,
    /// The family whose name is most similar to the unknown name.
    pub nearest: Family,
}

fn all_names() -> String {
    Family::ALL.map(Family::name).join(", ")
}

impl FromStr for Family {
    type Err = UnknownFamily;

    fn from_str(name: &str) -> Result<Family, UnknownFamily> {
        let distance = |family: &Family| strsim::damerau_levenshtein(name, family.name());
        let nearest = Family::ALL.into_iter().min_by_key(distance).expect("there are families");
        if nearest.name() == name { Ok(nearest) } else { Err(UnknownFamily { name: name.to_owned(), nearest }) }
    }
}
