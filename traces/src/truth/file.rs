//! The file: eight bytes that name it, the length of a JSON header (32 bits, little endian), the header, and the columns in
//! one zstd frame with a checksum. The same table gives the same bytes.
//!
//! Columns, little endian, one after the other: family (16 bits), prompt length (32) and output length (32) of each output,
//! then the ranks (8) and then the confidences (16) of all positions, output by output.

use super::{RecordedOutput, SCHEMA_VERSION, TruthHeader, TruthTable};
use crate::TraceError;
use serde::{Deserialize, Serialize};
use std::io::{Read, Write};
use std::path::Path;

const MAGIC: &[u8; 8] = b"FTKTRUTH";
/// Headers are a few hundred bytes; more is damage, not a reason to allocate.
const MOST_HEADER: u32 = 1 << 20;
/// Bytes of the columns that have one entry an output, and of those that have one a position.
const PER_OUTPUT: u64 = 10;
const PER_POSITION: u64 = 3;
/// zstd's level: higher ones gain under a percent here.
const LEVEL: i32 = 12;

/// The header as it is written: what is needed to read the columns comes with it.
#[derive(Serialize, Deserialize)]
struct Stored {
    schema_version: u32,
    outputs: u64,
    positions: u64,
    #[serde(flatten)]
    header: TruthHeader,
}

/// Only what says whether the rest can be understood.
#[derive(Deserialize)]
struct Version {
    schema_version: u32,
}

/// Does the file begin like a truth table? A file that cannot be read does not.
pub(crate) fn is_truth_table(path: &Path) -> bool {
    let mut first = [0; MAGIC.len()];
    std::fs::File::open(path).and_then(|mut file| file.read_exact(&mut first)).is_ok() && first == *MAGIC
}

impl TruthTable {
    /// The file's bytes.
    ///
    /// # Errors
    /// zstd's; memory is all it needs.
    pub fn to_bytes(&self) -> std::io::Result<Vec<u8>> {
        let positions = self.outputs.iter().map(|o| o.ranks.len() as u64).sum();
        let stored = Stored {
            schema_version: SCHEMA_VERSION,
            outputs: self.outputs.len() as u64,
            positions,
            header: self.header.clone(),
        };
        let header = serde_json::to_vec(&stored).expect("plain data always serialises");
        let mut out = MAGIC.to_vec();
        out.extend((header.len() as u32).to_le_bytes());
        out.extend(header);
        let mut frame = zstd::stream::write::Encoder::new(out, LEVEL)?;
        frame.include_checksum(true)?;
        let outputs = &self.outputs;
        outputs.iter().try_for_each(|o| frame.write_all(&o.family.to_le_bytes()))?;
        outputs.iter().try_for_each(|o| frame.write_all(&o.prompt_len.to_le_bytes()))?;
        outputs.iter().try_for_each(|o| frame.write_all(&(o.ranks.len() as u32).to_le_bytes()))?;
        outputs.iter().try_for_each(|o| frame.write_all(&o.ranks))?;
        outputs.iter().flat_map(|o| &o.confidences).try_for_each(|c| frame.write_all(&c.to_le_bytes()))?;
        frame.finish()
    }

    /// Reads a file.
    ///
    /// # Errors
    /// What is wrong with it: another kind of file, a newer layout, an end in the middle, damage, nothing in it.
    pub fn read(path: &Path) -> Result<TruthTable, TraceError> {
        let file = std::fs::File::open(path).map_err(|e| TraceError::io(path, &e))?;
        parse(std::io::BufReader::new(file), path)
    }
}

fn parse(mut from: impl Read, path: &Path) -> Result<TruthTable, TraceError> {
    let bad = |what: String, hint: &str| TraceError::file(path, what, hint);
    let cut = |e: &std::io::Error| match e.kind() {
        std::io::ErrorKind::UnexpectedEof => bad("is a truth table that ends in the middle".into(), AGAIN),
        _ => bad(format!("is a damaged truth table: {e}"), AGAIN),
    };
    let mut magic = [0; MAGIC.len()];
    from.read_exact(&mut magic)
        .ok()
        .filter(|()| magic == *MAGIC)
        .ok_or_else(|| bad("is no truth table".into(), "give a file that `foretoken profile-acceptance` wrote"))?;
    let mut length = [0; 4];
    from.read_exact(&mut length).map_err(|e| cut(&e))?;
    let length = u32::from_le_bytes(length);
    if length > MOST_HEADER {
        return Err(bad(format!("is a damaged truth table: a header of {length} bytes"), AGAIN));
    }
    let mut header = vec![0; length as usize];
    from.read_exact(&mut header).map_err(|e| cut(&e))?;
    let no_header = |e: serde_json::Error| bad(format!("is a truth table with a damaged header: {e}"), AGAIN);
    let Version { schema_version } = serde_json::from_slice(&header).map_err(no_header)?;
    if schema_version != SCHEMA_VERSION {
        let what = format!("has schema_version {schema_version}; this version of foretoken reads {SCHEMA_VERSION}");
        return Err(bad(what, "update foretoken, or record the table again with this version"));
    }
    let Stored { outputs, positions, header, .. } = serde_json::from_slice(&header).map_err(no_header)?;
    if outputs == 0 || positions == 0 {
        return Err(bad("is a truth table without a recording".into(), "record one with at least one prompt"));
    }
    let expected = outputs.checked_mul(PER_OUTPUT).zip(positions.checked_mul(PER_POSITION));
    let expected = expected.and_then(|(a, b)| a.checked_add(b)).filter(|&n| usize::try_from(n).is_ok());
    let expected =
        expected.ok_or_else(|| bad(format!("is damaged: {outputs} outputs of {positions} tokens"), AGAIN))?;
    let mut columns = Vec::new();
    // No more than was announced is ever unpacked, and one byte more tells that there is more.
    zstd::stream::read::Decoder::new(from)
        .and_then(|frame| frame.take(expected + 1).read_to_end(&mut columns))
        .map_err(|e| cut(&e))?;
    if columns.len() as u64 != expected {
        let what = format!("is damaged: its columns have {} bytes and should have {expected}", columns.len());
        return Err(bad(what, AGAIN));
    }
    let outputs = split(&columns, outputs as usize, positions as usize, header.families.len());
    let outputs = outputs.map_err(|what| bad(format!("is a damaged truth table: {what}"), AGAIN))?;
    Ok(TruthTable { header, outputs })
}

const AGAIN: &str = "fetch the file again, or record it again with `foretoken profile-acceptance`";

/// The columns, which have the right size, as outputs.
fn split(columns: &[u8], n: usize, positions: usize, families: usize) -> Result<Vec<RecordedOutput>, String> {
    let (families_of, rest) = columns.split_at(2 * n);
    let (prompts, rest) = rest.split_at(4 * n);
    let (lengths, rest) = rest.split_at(4 * n);
    let (mut ranks, confidences) = rest.split_at(positions);
    let u16s = |bytes: &[u8]| bytes.as_chunks().0.iter().map(|&b| u16::from_le_bytes(b)).collect::<Vec<_>>();
    let u32s = |bytes: &[u8]| bytes.as_chunks().0.iter().map(|&b| u32::from_le_bytes(b)).collect::<Vec<_>>();
    let all = u16s(confidences);
    let (families_of, prompts, lengths) = (u16s(families_of), u32s(prompts), u32s(lengths));
    if lengths.iter().map(|&l| u64::from(l)).sum::<u64>() != positions as u64 {
        return Err("the outputs' lengths do not sum to its positions".into());
    }
    let mut confidences = &all[..];
    let mut outputs = Vec::with_capacity(n);
    for (i, ((family, prompt_len), length)) in families_of.into_iter().zip(prompts).zip(lengths).enumerate() {
        let (own_ranks, later_ranks) = ranks.split_at(length as usize);
        let (own_confidences, later_confidences) = confidences.split_at(length as usize);
        (ranks, confidences) = (later_ranks, later_confidences);
        let fault = [
            (length == 0, "is empty"),
            (prompt_len == 0, "has no prompt"),
            (usize::from(family) >= families, "is of a family without a name"),
            (own_ranks.contains(&0), "has a rank of 0"),
            (own_confidences.contains(&0), "has a confidence of 0"),
        ];
        if let Some((_, what)) = fault.into_iter().find(|f| f.0) {
            return Err(format!("output {i} {what}"));
        }
        let (ranks, confidences) = (own_ranks.to_vec(), own_confidences.to_vec());
        outputs.push(RecordedOutput { family, prompt_len, ranks, confidences });
    }
    Ok(outputs)
}
