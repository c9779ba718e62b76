//! Fuzzes the reader of truth tables, which say which tokens of a draft model were right on a target's own text.

use crate::framed::repaired;
use crate::said;
use foretoken_traces::intact::frames::Writer;
use foretoken_traces::truth::{KIND, TruthTable};
use std::path::Path;

/// Reads `data` as a truth table twice: first the bytes as they are, then as a file with valid frames (blocks with
/// checksums). If `data` begins with `{`, the valid file has two frames: the first line of `data` (the header, JSON),
/// and the remaining bytes (the columns). Otherwise only the checksums are repaired. An accepted table must be equal
/// after it is written and read again.
pub fn truth_table(data: &[u8]) {
    read(data);
    if !data.starts_with(b"{") {
        return read(&repaired(KIND, data));
    }
    let end = data.iter().position(|&b| b == b'\n').unwrap_or(data.len());
    let (header, columns) = (&data[..end], data.get(end + 1..).unwrap_or_default());
    let mut file = Writer::begin(Vec::new(), KIND).expect("memory can be written");
    file.frame(header).expect("memory can be written");
    file.frame(&zstd::encode_all(columns, 1).expect("memory can be written")).expect("memory can be written");
    read(&file.into_inner());
}

fn read(bytes: &[u8]) {
    const FILE: &str = "pair.truth";
    match TruthTable::parse(Path::new(FILE), bytes) {
        Err(error) => said::trace(&error, FILE),
        Ok(table) => {
            let written = table.to_bytes().expect("a table can be written");
            let again = TruthTable::parse(Path::new(FILE), written.as_slice());
            // The tables are compared as debug text, because a NaN does not equal itself.
            assert_eq!(format!("{again:?}"), format!("{:?}", Ok::<_, ()>(&table)));
            said::finite(&table.recordings());
            said::finite(&table.summary());
        }
    }
}
