//! Texts that end in a checksum of the text, their seal. In a JSON object, the seal is the last member, `seal`. In
//! TOML, the seal is a comment on the last line, `# seal: …`.

/// The format of a text, JSON or TOML. It decides how and where the seal stands in the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syntax {
    /// A JSON object, printed over several lines. The seal is its last member.
    Json,
    /// TOML. The seal is a comment on the last line.
    Toml,
}

/// Why a text fails the check of its seal, the checksum at its end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unsealed {
    /// The text does not end in a seal.
    #[error("it has no checksum of itself at its end")]
    Absent,
    /// The seal does not match the text, so the text was changed.
    #[error("its checksum is {expected}, and its text gives {found}")]
    Broken {
        /// The checksum at the end of the text.
        expected: String,
        /// The checksum computed from the text before the seal.
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

/// Returns the text with a seal, a checksum of the text, at its end. A JSON text must be an object with at least one
/// member, and its last `}` must stand alone on a line.
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

/// Checks that a text ends in a seal and that the seal matches.
///
/// # Errors
/// The text has no seal, or does not match it.
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

/// The BLAKE3 hash of `bytes` in hexadecimal.
pub fn digest(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXTS: [(Syntax, &str); 2] =
        [(Syntax::Json, "{\n  \"a\": 1,\n  \"b\": [2, 3]\n}\n"), (Syntax::Toml, "a = 1\n# and more\n[b]\nc = 2\n")];

    #[test]
    fn a_sealed_text_keeps_its_content_and_passes_the_check() {
        for (syntax, text) in TEXTS {
            let sealed = seal(syntax, text);
            assert_eq!(check(syntax, &sealed), Ok(()), "{sealed}");
            assert_eq!(check(syntax, text), Err(Unsealed::Absent));
        }
        assert_eq!(seal(Syntax::Json, TEXTS[0].1).matches("\"b\": [2, 3],\n  \"seal\": \"").count(), 1);
        assert!(seal(Syntax::Toml, TEXTS[1].1).starts_with(TEXTS[1].1));
    }

    #[test]
    fn every_changed_bit_and_every_missing_byte_is_noticed() {
        for (syntax, text) in TEXTS {
            let sealed = seal(syntax, text);
            for at in 0..sealed.len() {
                for bit in 0..8 {
                    let mut bytes = sealed.clone().into_bytes();
                    bytes[at] ^= 1 << bit;
                    // This test changes each bit of a sealed text. It skips a changed text that is not UTF-8, because
                    // `check` takes a `str`.
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
