//! Fuzzes the readers of files that show damage: files of frames (blocks with checksums), and sealed texts (JSON or
//! TOML that holds its own checksum).

use crate::said;
use foretoken_traces::intact::frames::{Kind, Next, Reader, Writer};
use foretoken_traces::intact::seal::{Syntax, check, seal as sealed};

const KIND: Kind = Kind { name: b"FTKTEST", version: b'1' };

/// Reads a file of frames (blocks of bytes with checksums) up to its end or to the first damaged frame. The undamaged
/// frames are written again. The written bytes must equal the start of the file.
pub fn frames(data: &[u8]) {
    let mut reader = match Reader::begin(data, KIND) {
        Ok(Some(reader)) => reader,
        Ok(None) => return,
        Err(error) => return said::message(&error.to_string()),
    };
    let mut again = Writer::begin(Vec::new(), KIND).expect("memory can be written");
    let mut body = Vec::new();
    loop {
        match reader.next(&mut body) {
            Ok(Next::Frame) => again.frame(&body).expect("memory can be written"),
            Ok(Next::End) => break,
            Ok(Next::Cut(cut)) => {
                said::message(&cut.to_string());
                break;
            }
            Err(error) => {
                said::message(&error.to_string());
                break;
            }
        }
    }
    assert_eq!(again.at(), reader.at());
    assert!(data.starts_with(&again.into_inner()), "the file has other frames");
}

/// Checks the seal (the checksum in the text) of the text `data`, as JSON and as TOML. Then seals the text in both
/// syntaxes, and checks that the new seals are right.
pub fn seal(data: &[u8]) {
    let Some(text) = said::text(data) else { return };
    for syntax in [Syntax::Json, Syntax::Toml] {
        if let Err(error) = check(syntax, text) {
            said::message(&error.to_string());
        }
    }
    assert_eq!(check(Syntax::Toml, &sealed(Syntax::Toml, text)), Ok(()));
    assert_eq!(check(Syntax::Json, &sealed(Syntax::Json, &format!("{text}\n}}"))), Ok(()));
}
