//! Truth tables.

use crate::framed::repaired;
use crate::said;
use foretoken_intact::frames::Writer;
use foretoken_traces::truth::{KIND, TruthTable};
use std::path::Path;

/// Fuzzes the reader of truth tables. The bytes are read as they are, and a second time inside valid frames: if they
/// begin with `{`, as a header line of JSON and columns, else with their checksums repaired. A table that can be read
/// is equal after it is written and read again.
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
            // Compared as text, in which a number that is not one equals itself.
            assert_eq!(format!("{again:?}"), format!("{:?}", Ok::<_, ()>(&table)));
            said::finite(&table.recordings());
            said::finite(&table.summary());
        }
    }
}
