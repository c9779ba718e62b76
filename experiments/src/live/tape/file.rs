//! A tape on disk: appended to while the run goes, so that a killed process leaves all but the last second.
//!
//! A file is a row of frames: length and checksum (4 bytes each, little endian), then the body in postcard. The first body is
//! the [`Head`], the others are [`Event`]s. What follows the last whole frame was being written when the process died.

use super::{Head, SCHEMA_VERSION, Tail, Tape};
use foretoken_sim::Time;
use foretoken_sim::live::StepTrace;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::Path;

/// At most this much of a run is lost with its process.
const FLUSH_EVERY: Time = Time(1_000_000_000_000);
/// No step of a run comes near it: a longer frame is a damaged file.
const MOST_BYTES: u32 = 1 << 28;

/// What the frames after the first hold.
#[derive(Deserialize)]
enum Event {
    Step(StepTrace),
    End(Tail),
}

/// [`Event`], borrowed.
#[derive(Serialize)]
enum EventRef<'a> {
    Step(&'a StepTrace),
    End(&'a Tail),
}

/// Appends to a tape.
pub struct TapeWriter {
    out: BufWriter<File>,
    body: Vec<u8>,
    flushed: Time,
}

impl TapeWriter {
    /// Starts the tape in a new file.
    ///
    /// # Errors
    /// When the file cannot be made or written.
    pub fn create(path: &Path, head: &Head) -> io::Result<TapeWriter> {
        let out = BufWriter::with_capacity(1 << 18, File::create(path)?);
        let mut tape = TapeWriter { out, body: Vec::new(), flushed: Time::ZERO };
        tape.frame(head)?;
        tape.out.flush()?;
        Ok(tape)
    }

    /// Adds a step. What is older than a second on the run's clock is on disk when this returns.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn step(&mut self, step: &StepTrace) -> io::Result<()> {
        self.frame(&EventRef::Step(step))?;
        let now = step.marks.last().map_or(self.flushed, |m| m.end);
        if now.saturating_sub(self.flushed) >= FLUSH_EVERY {
            self.flushed = now;
            self.out.flush()?;
        }
        Ok(())
    }

    /// Ends the tape.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn finish(mut self, tail: &Tail) -> io::Result<()> {
        self.frame(&EventRef::End(tail))?;
        self.out.flush()
    }

    fn frame(&mut self, body: &impl Serialize) -> io::Result<()> {
        self.body.clear();
        let buffer = std::mem::take(&mut self.body);
        self.body = postcard::to_extend(body, buffer).map_err(io::Error::other)?;
        self.out.write_all(&(self.body.len() as u32).to_le_bytes())?;
        self.out.write_all(&checksum(&self.body))?;
        self.out.write_all(&self.body)
    }
}

/// Reads a whole tape, up to where a killed process stopped writing.
///
/// # Errors
/// When it cannot be read, is no tape, or of another version; the message says which.
pub fn read_tape(path: &Path) -> io::Result<Tape> {
    let mut input = BufReader::with_capacity(1 << 18, File::open(path)?);
    let mut body = Vec::new();
    let head = read_head(&mut input, &mut body)?;
    let mut tape = Tape { head, steps: Vec::new(), tail: None };
    while tape.tail.is_none() && next_frame(&mut input, &mut body)? {
        match postcard::from_bytes(&body).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))? {
            Event::Step(step) => tape.steps.push(step),
            Event::End(tail) => tape.tail = Some(tail),
        }
    }
    Ok(tape)
}

fn read_head(input: &mut impl Read, body: &mut Vec<u8>) -> io::Result<Head> {
    let wrong = |message: String| io::Error::new(io::ErrorKind::InvalidData, message);
    let no_tape = || wrong("this is not the recording of a live run".into());
    if !next_frame(input, body)? {
        return Err(no_tape());
    }
    // The version comes first, so that it can be read of a layout that is not known.
    let (version, _) = postcard::take_from_bytes::<u32>(body).map_err(|_| no_tape())?;
    if version != SCHEMA_VERSION {
        return Err(wrong(format!(
            "the recording has schema version {version}, and this Foretoken reads {SCHEMA_VERSION}"
        )));
    }
    postcard::from_bytes(body).map_err(|_| no_tape())
}

/// The next frame's body; false at the end, whole or torn.
fn next_frame(input: &mut impl Read, body: &mut Vec<u8>) -> io::Result<bool> {
    let mut front = [0; 8];
    if !fill(input, &mut front)? {
        return Ok(false);
    }
    let (len, sum) = front.split_at(4);
    let len = u32::from_le_bytes(len.try_into().expect("four bytes"));
    if len > MOST_BYTES {
        return Ok(false);
    }
    body.resize(len as usize, 0);
    Ok(fill(input, body)? && checksum(body) == sum)
}

/// Fills the buffer; false when the file ends before.
fn fill(input: &mut impl Read, buffer: &mut [u8]) -> io::Result<bool> {
    match input.read_exact(buffer) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(e) => Err(e),
    }
}

fn checksum(body: &[u8]) -> [u8; 4] {
    let hash = blake3::hash(body);
    hash.as_bytes()[..4].try_into().expect("a hash has more than four bytes")
}

#[cfg(test)]
mod tests {
    use super::super::TapeEnding;
    use super::*;
    use foretoken_sim::live::{Mark, MarkKind};
    use foretoken_sim::{Arrivals, PassShape, Request, Workload};

    fn head() -> Head {
        let workload: Workload = [Request::new(Time(5), 10, 4)].into_iter().collect();
        Head::new("fixed-3".into(), 7, "cpu".into(), Arrivals::Closed { clients: 2 }, &workload)
    }

    fn step(n: u64) -> StepTrace {
        let end = Time::from_s(n as f64 * 0.3);
        let shape = PassShape { batched: n, context: 3, pairs: 4 };
        let mark = Mark { kind: MarkKind::Verify, begin: Time::ZERO, end, device: end, shape };
        StepTrace { step: n, marks: vec![mark], confidence: vec![0.5; 3], ..StepTrace::default() }
    }

    #[test]
    fn a_tape_comes_back_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.tape");
        let mut writer = TapeWriter::create(&path, &head()).unwrap();
        (0..20).for_each(|n| writer.step(&step(n)).unwrap());
        let tail = Tail { ending: TapeEnding::Failed("out of memory".into()), rejected: vec![3] };
        writer.finish(&tail).unwrap();
        let back = read_tape(&path).unwrap();
        assert_eq!(back, Tape { head: head(), steps: (0..20).map(step).collect(), tail: Some(tail) });
        assert!(!back.complete());
    }

    /// Killed at any byte: what is there is whole steps, and at most a second is missing.
    #[test]
    fn a_torn_tape_is_read_up_to_its_last_whole_step() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.tape");
        let mut writer = TapeWriter::create(&path, &head()).unwrap();
        (0..20).for_each(|n| writer.step(&step(n)).unwrap());
        let kept = read_tape(&path).unwrap().steps;
        assert!(kept.len() >= 16, "{} of 20 steps, the last of them 1 s before the end", kept.len());
        drop(writer);
        let bytes = std::fs::read(&path).unwrap();
        for cut in [bytes.len() - 1, bytes.len() - 30, bytes.len() / 2] {
            std::fs::write(&path, &bytes[..cut]).unwrap();
            let torn = read_tape(&path).unwrap();
            assert!(torn.tail.is_none() && !torn.steps.is_empty());
            assert!(torn.steps.iter().enumerate().all(|(n, s)| *s == step(n as u64)));
        }
        let mut damaged = bytes.clone();
        damaged[bytes.len() / 2] ^= 1;
        std::fs::write(&path, &damaged).unwrap();
        assert!(read_tape(&path).unwrap().steps.len() < 20);
    }

    #[test]
    fn other_files_are_refused_in_words() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.tape");
        std::fs::write(&path, b"name = \"quickstart\" and more").unwrap();
        assert!(read_tape(&path).unwrap_err().to_string().contains("not the recording"));
        let newer = Head { schema_version: 9, ..head() };
        TapeWriter::create(&path, &newer).unwrap();
        assert!(read_tape(&path).unwrap_err().to_string().contains("schema version 9"));
    }
}
