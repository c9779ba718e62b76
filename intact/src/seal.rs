//! Texts that end in a checksum of themselves: JSON objects with a last member `seal`, TOML with a last comment `# seal: …`.

/// How a text carries its seal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syntax {
    /// An object, printed over several lines.
    Json,
    /// A comment on the last line.
    Toml,
}

/// A text that is not what was sealed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unsealed {
    /// It ends in no seal.
    #[error("it has no checksum of itself at its end")]
    Absent,
    /// Its seal is of another text.
    #[error("its checksum is {expected}, and its text gives {found}")]
    Broken {
        /// What stands at its end.
        expected: String,
        /// What the text before that gives.
        found: String,
    },
}

impl Syntax {
    fn open(self) -> &'static str {
        match self {
            Syntax::Json => "  \"seal\": \"",
            Syntax::Toml => "# seal: ",
        }
    }

    fn close(self) -> &'static str {
        match self {
            Syntax::Json => "\"\n}\n",
            Syntax::Toml => "\n",
        }
    }
}

/// The text with its seal. JSON is an object with at least one member, its `}` on a line of its own.
///
/// # Panics
/// When a JSON text does not end so.
pub fn seal(syntax: Syntax, text: &str) -> String {
    let mut out = match syntax {
        Syntax::Json => {
            let members = text.trim_end().strip_suffix("\n}").expect("an object over several lines");
            format!("{members},\n")
        }
        Syntax::Toml => text.to_owned(),
    };
    let digest = digest(out.as_bytes());
    out.extend([syntax.open(), &digest, syntax.close()]);
    out
}

/// Is it the text that was sealed?
///
/// # Errors
/// It is not.
pub fn check(syntax: Syntax, text: &str) -> Result<(), Unsealed> {
    let at = text.rfind(syntax.open()).ok_or(Unsealed::Absent)?;
    let (sealed, rest) = text.split_at(at);
    let expected = &rest[syntax.open().len()..];
    let found = digest(sealed.as_bytes());
    match expected.strip_suffix(syntax.close()) {
        Some(expected) if expected == found => Ok(()),
        expected => {
            let stands = expected.unwrap_or(rest).chars().take(found.len()).collect();
            Err(Unsealed::Broken { expected: stands, found })
        }
    }
}

/// BLAKE3 in hexadecimal.
pub fn digest(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXTS: [(Syntax, &str); 2] =
        [(Syntax::Json, "{\n  \"a\": 1,\n  \"b\": [2, 3]\n}\n"), (Syntax::Toml, "a = 1\n# and more\n[b]\nc = 2\n")];

    #[test]
    fn a_sealed_text_says_the_same_and_is_whole() {
        for (syntax, text) in TEXTS {
            let sealed = seal(syntax, text);
            assert_eq!(check(syntax, &sealed), Ok(()), "{sealed}");
            assert_eq!(check(syntax, text), Err(Unsealed::Absent));
        }
        assert_eq!(seal(Syntax::Json, TEXTS[0].1).matches("\"b\": [2, 3],\n  \"seal\": \"").count(), 1);
        assert!(seal(Syntax::Toml, TEXTS[1].1).starts_with(TEXTS[1].1));
    }

    #[test]
    fn no_bit_changes_and_no_byte_is_lost_unseen() {
        for (syntax, text) in TEXTS {
            let sealed = seal(syntax, text);
            for at in 0..sealed.len() {
                for bit in 0..8 {
                    let mut bytes = sealed.clone().into_bytes();
                    bytes[at] ^= 1 << bit;
                    // What is no text at all is refused before its seal is looked for.
                    let Ok(other) = String::from_utf8(bytes) else { continue };
                    assert!(check(syntax, &other).is_err(), "byte {at}, bit {bit}: {other}");
                }
                assert!(check(syntax, &sealed[..at]).is_err(), "cut at {at}");
            }
            assert!(check(syntax, &(sealed.clone() + "\n")).is_err());
            assert!(check(syntax, &(sealed.clone() + &sealed)).is_err(), "twice");
        }
    }
}
