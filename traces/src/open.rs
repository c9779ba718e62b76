//! Opens a trace file for streaming: plain, gzip or zstd. The first bytes of the file decide how it is decompressed;
//! its name does not matter. No stream gives more bytes than the memory limit.

use crate::error::TraceError;
use crate::limits;
use crate::pipe;
use std::io::{BufRead, BufReader, Cursor, Error, ErrorKind, Read};
use std::path::Path;

/// The decompressed bytes of a trace file, as a stream.
pub(crate) type Source = BufReader<Bounded>;

const GZIP: &[u8] = &[0x1f, 0x8b];
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
const BUFFER: usize = 1 << 16;

/// A reader of the file's bytes as they are stored, not decompressed. Every call starts at the first byte; the bytes of
/// a pipe are therefore kept in memory.
///
/// # Errors
/// The system's error, or the file is a character device, which has no end.
pub fn raw(path: &Path) -> std::io::Result<Box<dyn Read>> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;
        let kind = std::fs::metadata(path)?.file_type();
        if kind.is_fifo() {
            return Ok(Box::new(pipe::open(path)?));
        }
        if kind.is_char_device() {
            return Err(Error::new(ErrorKind::Unsupported, "is a device, not a file or a pipe"));
        }
    }
    Ok(Box::new(std::fs::File::open(path)?))
}

/// Opens the trace file `path`, plain or compressed, and decompresses it. An empty file is an error. Damaged compressed
/// data gives an error only while it is read.
pub(crate) fn open(path: &Path) -> Result<Source, TraceError> {
    let io = |e: Error| TraceError::io(path, &e);
    let mut raw = BufReader::with_capacity(BUFFER, raw(path).map_err(io)?);
    // The first four bytes of the file say how it is compressed. One read may give fewer, for example from a pipe, so
    // this reads until there are four.
    let mut head = Vec::new();
    raw.by_ref().take(ZSTD.len() as u64).read_to_end(&mut head).map_err(io)?;
    if head.is_empty() {
        return Err(TraceError::file(path, "is empty", "a trace has a header line or a first JSON line"));
    }
    let (gzip, zstd) = (head.starts_with(GZIP), head.starts_with(ZSTD));
    let whole = Cursor::new(head).chain(raw);
    let stream: Box<dyn Read> = if gzip {
        // Several gzip members in a row are read as one file, as the program gzip does.
        Box::new(flate2::bufread::MultiGzDecoder::new(whole))
    } else if zstd {
        Box::new(zstd::stream::read::Decoder::with_buffer(whole).map_err(io)?)
    } else {
        Box::new(whole)
    };
    Ok(BufReader::with_capacity(BUFFER, Bounded { stream, total: 0, row: 0 }))
}

/// True if the file holds JSON: its first character that is not a space is a curly or a square bracket.
pub(crate) fn is_json(path: &Path) -> Result<bool, TraceError> {
    let first = Lines::open(path)?.next()?.map(|(_, text)| text.trim_start_matches('\u{feff}').starts_with(['{', '[']));
    Ok(first.unwrap_or_default())
}

/// A stream of a file's bytes with limits. Reading fails with `FileTooLarge` if one row is longer than
/// [`limits::text`], and with `QuotaExceeded` if the whole stream is longer than the memory limit.
pub(crate) struct Bounded {
    stream: Box<dyn Read>,
    /// Bytes read from the stream so far.
    total: u64,
    /// Bytes read from the stream since the last row ended. Bytes that the reader's buffer held at that time are not
    /// counted.
    row: u64,
}

impl Bounded {
    /// Call this when a whole row of the file was read: the limit on the length of a row counts anew.
    pub(crate) fn row_ended(&mut self) {
        self.row = 0;
    }
}

impl Read for Bounded {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let n = self.stream.read(out)?;
        self.total += n as u64;
        self.row += n as u64;
        if self.row > limits::text() + 2 * BUFFER as u64 {
            let what = format!("is longer than {}: no trace has such lines", limits::bytes(limits::text()));
            return Err(Error::new(ErrorKind::FileTooLarge, what));
        }
        if self.total > limits::memory() {
            let what = format!("unpacks to more than {}", limits::bytes(limits::memory()));
            return Err(Error::new(ErrorKind::QuotaExceeded, what));
        }
        Ok(n)
    }
}

/// The error about line `line` of the file `path`. `error` is what reading the file's stream returned.
pub(crate) fn broken(path: &Path, line: u64, error: &Error) -> TraceError {
    match error.kind() {
        ErrorKind::FileTooLarge => TraceError::row(path, line, None, error.to_string(), limits::raise()),
        _ => TraceError::io(path, error),
    }
}

/// The lines of a JSON-lines file with their numbers. All lines are read into the same buffer.
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

    /// The next line that is not blank, without spaces at its ends, with its number from 1. `None` at the end of the
    /// file.
    pub(crate) fn next(&mut self) -> Result<Option<(u64, &str)>, TraceError> {
        loop {
            self.bytes.clear();
            let read = self.source.read_until(b'\n', &mut self.bytes);
            if read.map_err(|e| broken(self.path, self.number + 1, &e))? == 0 {
                return Ok(None);
            }
            self.source.get_mut().row_ended();
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

/// The error about a line of a trace that is not UTF-8. `column` is the column of the bad bytes, if it is known.
pub(crate) fn not_utf8(path: &Path, line: u64, column: Option<&str>) -> TraceError {
    let hint = "save the file as UTF-8, or check that it is not a binary format";
    TraceError::row(path, line, column, "is not valid UTF-8", hint)
}
