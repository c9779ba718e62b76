//! Opens a trace for streaming, whether plain, gzip or zstd, judged by its first bytes and never by its name.

use crate::TraceError;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

/// A decompressed stream of a trace file.
pub(crate) type Source = BufReader<Box<dyn Read>>;

const GZIP: &[u8] = &[0x1f, 0x8b];
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
const BUFFER: usize = 1 << 16;

/// Opens `path`. An empty file is an error here; damaged compressed data shows up while reading.
pub(crate) fn open(path: &Path) -> Result<Source, TraceError> {
    let io = |e: std::io::Error| TraceError::io(path, &e);
    let file = std::fs::File::open(path).map_err(io)?;
    let mut raw = BufReader::with_capacity(BUFFER, file);
    let head = raw.fill_buf().map_err(io)?;
    let stream: Box<dyn Read> = if head.is_empty() {
        return Err(TraceError::file(path, "is empty", "a trace has a header line or a first JSON line"));
    } else if head.starts_with(GZIP) {
        // Several members in a row are one file to gzip, so they are here.
        Box::new(flate2::bufread::MultiGzDecoder::new(raw))
    } else if head.starts_with(ZSTD) {
        Box::new(zstd::stream::read::Decoder::with_buffer(raw).map_err(io)?)
    } else {
        return Ok(BufReader::with_capacity(BUFFER, Box::new(raw)));
    };
    Ok(BufReader::with_capacity(BUFFER, stream))
}

/// The lines of a JSON-lines file with their numbers, into one reused buffer.
pub(crate) struct Lines<'a> {
    path: &'a Path,
    source: Source,
    bytes: Vec<u8>,
    number: u64,
}

impl<'a> Lines<'a> {
    pub(crate) fn open(path: &'a Path) -> Result<Lines<'a>, TraceError> {
        Ok(Lines { path, source: open(path)?, bytes: Vec::new(), number: 0 })
    }

    /// The next line that is not blank, trimmed, with its number from 1; `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<(u64, &str)>, TraceError> {
        loop {
            self.bytes.clear();
            let read = self.source.read_until(b'\n', &mut self.bytes).map_err(|e| TraceError::io(self.path, &e))?;
            if read == 0 {
                return Ok(None);
            }
            self.number += 1;
            if !self.bytes.trim_ascii().is_empty() {
                break;
            }
        }
        match std::str::from_utf8(self.bytes.trim_ascii()) {
            Ok(text) => Ok(Some((self.number, text))),
            Err(_) => Err(not_utf8(self.path, self.number, None)),
        }
    }
}

/// The error of a line that is not text.
pub(crate) fn not_utf8(path: &Path, line: u64, column: Option<&str>) -> TraceError {
    let hint = "save the file as UTF-8, or check that it is not a binary format";
    TraceError::row(path, line, column, "is not valid UTF-8", hint)
}
