//! The file of a truth table (which draft tokens were right on recorded outputs). It has two frames
//! ([`crate::intact::frames`]), so that a checksum covers every bit. The first frame holds a JSON header. The
//! second holds the columns, compressed with zstd. The same table always gives the same bytes.
//!
//! The columns are little endian and follow one another. First come the columns with one entry for each output: family
//! (16 bits), prompt length (32 bits), output length (32 bits). Then come the columns with one entry for each position,
//! output by output: ranks (8 bits), confidences (16 bits).

use super::{RecordedOutput, SCHEMA_VERSION, TruthHeader, TruthTable};
use crate::error::TraceError;
use crate::intact::frames::{FrameError, Kind, Next, Reader, Writer};
use crate::limits;
use crate::open::raw;
use serde::{Deserialize, Serialize};
use std::io::{Read, Write};
use std::path::Path;

/// The name and the version byte with which the file of a truth table (which draft tokens were right) begins.
pub const KIND: Kind = Kind { name: b"FTKTRUT", version: SCHEMA_VERSION };
/// The version byte of the first layout of truth-table files (which draft tokens were right). In that layout no
/// checksum covered the header. Such files are refused.
const UNCOVERED: u8 = b'H';
/// Bytes per recorded output in a truth table (which draft tokens were right). They are in the three columns with one
/// entry for each output: family, prompt length, output length.
const PER_OUTPUT: u64 = 10;
/// Bytes per output position in a truth table (which draft tokens were right). They are in the two columns with one
/// entry for each position: rank, confidence.
const PER_POSITION: u64 = 3;
/// The zstd compression level of truth-table files (which draft tokens were right). Higher levels make these files less
/// than a percent smaller.
const LEVEL: i32 = 12;

/// The header as the file of a truth table stores it, with the number of outputs and the number of output positions,
/// which are needed to read the columns.
#[derive(Serialize, Deserialize)]
struct Stored {
    outputs: u64,
    positions: u64,
    #[serde(flatten)]
    header: TruthHeader,
}

/// True if the file begins like a truth table (which draft tokens were right) of any version. False if the file cannot
/// be read.
pub(crate) fn is_truth_table(path: &Path) -> bool {
    let mut first = [0; KIND.name.len()];
    raw(path).and_then(|mut file| file.read_exact(&mut first)).is_ok() && first == *KIND.name
}

impl TruthTable {
    /// The truth table (which draft tokens were right) as the bytes of a file.
    ///
    /// # Errors
    /// zstd fails (for example for lack of memory), or the columns have more than 4 GiB.
    pub fn to_bytes(&self) -> std::io::Result<Vec<u8>> {
        let outputs = &self.outputs;
        let positions = outputs.iter().map(|o| o.ranks.len() as u64).sum();
        let stored = Stored { outputs: outputs.len() as u64, positions, header: self.header.clone() };
        let mut columns = zstd::stream::write::Encoder::new(Vec::new(), LEVEL)?;
        outputs.iter().try_for_each(|o| columns.write_all(&o.family.to_le_bytes()))?;
        outputs.iter().try_for_each(|o| columns.write_all(&o.prompt_len.to_le_bytes()))?;
        outputs.iter().try_for_each(|o| columns.write_all(&(o.ranks.len() as u32).to_le_bytes()))?;
        outputs.iter().try_for_each(|o| columns.write_all(&o.ranks))?;
        outputs.iter().flat_map(|o| &o.confidences).try_for_each(|c| columns.write_all(&c.to_le_bytes()))?;
        let mut file = Writer::begin(Vec::new(), KIND)?;
        file.frame(&serde_json::to_vec(&stored).expect("plain data always serialises"))?;
        file.frame(&columns.finish()?)?;
        Ok(file.into_inner())
    }

    /// Reads a truth table (which draft tokens were right on recorded outputs).
    ///
    /// # Errors
    /// The file is of another kind or layout, ends in the middle, is damaged, or has no recorded output.
    pub fn read(path: &Path) -> Result<TruthTable, TraceError> {
        let file = raw(path).map_err(|e| TraceError::io(path, &e))?;
        TruthTable::parse(path, std::io::BufReader::new(file))
    }

    /// Reads a truth table (which draft tokens were right on recorded outputs) from `input`, the bytes of a file.
    /// `path` is used only in error messages.
    ///
    /// # Errors
    /// The file is of another kind or layout, ends in the middle, is damaged, or has no recorded output.
    pub fn parse(path: &Path, input: impl Read) -> Result<TruthTable, TraceError> {
        parse(input).map_err(|Bad { what, hint }| TraceError::file(path, what, hint))
    }
}

/// Why a truth table's file is refused: what is wrong with it, and what the user can do.
struct Bad {
    what: String,
    hint: &'static str,
}

const AGAIN: &str = "fetch the file again, or record it again with `foretoken profile-acceptance`";

fn bad(what: impl Into<String>) -> Bad {
    Bad { what: what.into(), hint: AGAIN }
}

impl From<FrameError> for Bad {
    fn from(e: FrameError) -> Bad {
        match e {
            FrameError::Foreign => {
                Bad { what: "is no truth table".into(), hint: "give a file that `foretoken profile-acceptance` wrote" }
            }
            FrameError::Version { found: UNCOVERED } => Bad {
                what: "is a truth table of the first layout, in which damage to its header cannot be seen".into(),
                hint: "record it again: `foretoken profile-acceptance` with the same arguments gives the same recordings",
            },
            FrameError::Version { found } => Bad {
                what: format!(
                    "is a truth table of layout `{}`; this version of foretoken reads `{}`",
                    found.escape_ascii(),
                    SCHEMA_VERSION.escape_ascii()
                ),
                hint: "update foretoken, or record the table again with this version",
            },
            FrameError::Damaged(damage) => bad(format!("is a damaged truth table: {damage}")),
            FrameError::Io(e) => bad(format!("cannot be read: {e}")),
        }
    }
}

fn parse(from: impl Read) -> Result<TruthTable, Bad> {
    let (header, columns) = bodies(from)?;
    let stored: Stored =
        serde_json::from_slice(&header).map_err(|e| bad(format!("is a truth table with a wrong header: {e}")))?;
    let Stored { outputs, positions, header } = stored;
    if outputs == 0 || positions == 0 {
        let hint = "record one with at least one prompt";
        return Err(Bad { what: "is a truth table without a recording".into(), hint });
    }
    let expected = outputs.checked_mul(PER_OUTPUT).zip(positions.checked_mul(PER_POSITION));
    let expected = expected.and_then(|(a, b)| a.checked_add(b)).filter(|&n| n <= limits::memory() / 8);
    let expected = expected.ok_or_else(|| bad(format!("is damaged: {outputs} outputs of {positions} tokens")))?;
    let mut unpacked = Vec::new();
    // Unpacks the columns of the truth table. Their size follows from the header. One byte more than this size is
    // unpacked if there is one, so that columns that are too long are noticed.
    zstd::stream::read::Decoder::new(columns.as_slice())
        .and_then(|columns| columns.take(expected + 1).read_to_end(&mut unpacked))
        .map_err(|e| bad(format!("is a damaged truth table: {e}")))?;
    if unpacked.len() as u64 != expected {
        return Err(bad(format!("is damaged: its columns have {} bytes and should have {expected}", unpacked.len())));
    }
    let outputs = split(&unpacked, outputs as usize, positions as usize, &header);
    let outputs = outputs.map_err(|what| bad(format!("is a damaged truth table: {what}")))?;
    Ok(TruthTable { header, outputs })
}

/// Parses a truth table from the bytes of its file. The error says what is wrong.
#[cfg(test)]
pub(super) fn parsed(bytes: &[u8]) -> Result<TruthTable, String> {
    parse(bytes).map_err(|bad| bad.what)
}

/// The contents of the two frames of a truth table's file: the header as JSON, and the packed columns.
fn bodies(from: impl Read) -> Result<(Vec<u8>, Vec<u8>), Bad> {
    let ends = |how: String| bad(format!("is a truth table that ends in the middle{how}"));
    let mut frames = Reader::begin(from, KIND)?.ok_or_else(|| ends(String::new()))?;
    let mut frame = || {
        let mut body = Vec::new();
        match frames.next(&mut body)? {
            Next::Frame => Ok(Some(body)),
            Next::End => Ok(None),
            Next::Cut(cut) => Err(ends(format!(": {cut}"))),
        }
    };
    match (frame()?, frame()?, frame()?) {
        (Some(header), Some(columns), None) => Ok((header, columns)),
        (.., Some(_)) => Err(bad("is a damaged truth table: it goes on after its end")),
        _ => Err(ends(String::new())),
    }
}

/// Splits the columns of a truth table's file into `n` outputs. `columns` must have the right size. Refuses values that
/// a valid table cannot have, such as an output of 0 tokens.
fn split(columns: &[u8], n: usize, positions: usize, header: &TruthHeader) -> Result<Vec<RecordedOutput>, String> {
    let (families, observed) = (header.families.len(), header.observed.is_some());
    let (families_of, rest) = columns.split_at(2 * n);
    let (prompts, rest) = rest.split_at(4 * n);
    let (lengths, rest) = rest.split_at(4 * n);
    let (mut ranks, confidences) = rest.split_at(positions);
    let u16s = |bytes: &[u8]| bytes.as_chunks().0.iter().map(|&b| u16::from_le_bytes(b)).collect::<Vec<_>>();
    let u32s = |bytes: &[u8]| bytes.as_chunks().0.iter().map(|&b| u32::from_le_bytes(b)).collect::<Vec<_>>();
    let every_confidence = u16s(confidences);
    let (families_of, prompts, lengths) = (u16s(families_of), u32s(prompts), u32s(lengths));
    if lengths.iter().map(|&l| u64::from(l)).sum::<u64>() != positions as u64 {
        return Err("the outputs' lengths do not sum to its positions".into());
    }
    let mut confidences = &every_confidence[..];
    let mut outputs = Vec::with_capacity(n);
    for (i, ((family, prompt_len), length)) in families_of.into_iter().zip(prompts).zip(lengths).enumerate() {
        let (own_ranks, later_ranks) = ranks.split_at(length as usize);
        let (own_confidences, later_confidences) = confidences.split_at(length as usize);
        (ranks, confidences) = (later_ranks, later_confidences);
        let fault = [
            (length == 0, "is empty"),
            (prompt_len == 0, "has no prompt"),
            (usize::from(family) >= families, "is of a family without a name"),
            (!observed && own_ranks.contains(&0), "has a rank of 0"),
            (!observed && own_confidences.contains(&0), "has a confidence of 0"),
        ];
        if let Some((_, what)) = fault.into_iter().find(|f| f.0) {
            return Err(format!("output {i} {what}"));
        }
        let (ranks, confidences) = (own_ranks.to_vec(), own_confidences.to_vec());
        outputs.push(RecordedOutput { family, prompt_len, ranks, confidences });
    }
    Ok(outputs)
}
