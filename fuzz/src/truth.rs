//! Fuzzes the reader of truth tables, which say which tokens of a draft model were right on a target's own text.

use crate::framed::repaired;
use crate::said;
use foretoken_intact::frames::Writer;
use foretoken_traces::truth::{KIND, TruthTable};
use std::path::Path;

/// Reads the bytes twice: first as they are, then in valid frames (blocks with checksums). Bytes that begin with `{`
/// become a header frame with their first line (JSON), and a frame with the columns. In other bytes, only the checksums
/// are repaired. An accepted table must be equal after it is written and read again.
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
