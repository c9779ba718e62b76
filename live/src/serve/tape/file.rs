//! A tape as a file. The run appends its steps as it goes, so that a killed process loses at most the last second of
//! the run.
//!
//! A file is a sequence of frames with checksums (`foretoken_traces::intact::frames`). The contents of a frame are
//! encoded with postcard. The first frame is the [`Head`], the next frames are steps, and the last frame is the
//! [`Tail`]. If the tail is missing, the process was killed or the file was cut. The manifest of the results folder
//! (the list of its finished files) then says whether the run had ended.

use super::possible::{wrong_head, wrong_step, wrong_tail};
use super::{End, Head, Tail, Tape};
use foretoken_report::disk;
use foretoken_sim::Time;
use foretoken_sim::live::StepTrace;
use foretoken_traces::intact::frames::{Cut, Damage, FrameError, Kind, Next, Reader, Writer};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read};
use std::path::{Path, PathBuf};

pub const KIND: Kind = Kind { name: b"FTKTAPE", version: b'2' };
/// Longest time between two flushes to disk, on the run's clock (1 s). A killed process loses at most this much of the
/// run.
const FLUSH_EVERY: Time = Time(1_000_000_000_000);

/// The content of a frame after the head: a step, or the tail, which ends the file.
#[derive(Deserialize)]
enum Event {
    Step(StepTrace),
    End(Tail),
}

/// [`Event`] with borrowed content, for writing.
#[derive(Serialize)]
enum EventRef<'a> {
    Step(&'a StepTrace),
    End(&'a Tail),
}

pub struct TapeWriter {
    out: Writer<BufWriter<File>>,
    path: PathBuf,
    body: Vec<u8>,
    flushed: Time,
}

impl TapeWriter {
    pub fn create(path: &Path, head: &Head) -> io::Result<TapeWriter> {
        let out = Writer::begin(BufWriter::with_capacity(1 << 18, File::create(path)?), KIND)?;
        let mut tape = TapeWriter { out, path: path.to_path_buf(), body: Vec::new(), flushed: Time::ZERO };
        tape.frame(head)?;
        tape.out.flush()?;
        Ok(tape)
    }

    /// Appends a step. After the call, all steps that ended more than a second before the appended step are on disk.
    pub fn step(&mut self, step: &StepTrace) -> io::Result<()> {
        self.frame(&EventRef::Step(step))?;
        let now = step.marks.last().map_or(self.flushed, |m| m.end);
        if now.saturating_sub(self.flushed) >= FLUSH_EVERY {
            self.flushed = now;
            self.out.flush()?;
        }
        Ok(())
    }

    /// Appends `tail`, which ends the tape. Returns when the whole tape is on the disk.
    pub fn finish(mut self, tail: &Tail) -> io::Result<()> {
        self.frame(&EventRef::End(tail))?;
        let file = self.out.into_inner().into_inner().map_err(io::IntoInnerError::into_error)?;
        disk::settle(&file, &self.path)
    }

    fn frame(&mut self, body: &impl Serialize) -> io::Result<()> {
        self.body.clear();
        let buffer = std::mem::take(&mut self.body);
        self.body = postcard::to_extend(body, buffer).map_err(io::Error::other)?;
        self.out.frame(&self.body)
    }
}

/// Why a tape cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TapeError {
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The file is not a tape.
    #[error("this is not the recording of a live run, or one of before version 2")]
    Foreign,
    /// The tape was written in another version of the format.
    #[error("the recording is of version `{}`, and this Foretoken reads 2", found.escape_ascii())]
    Version {
        /// The version of the format in the file of the tape.
        found: u8,
    },
    /// The tape ends within its head, the part before the first step.
    #[error("the recording has no head: it ends after {0} bytes")]
    NoHead(u64),
    /// The bytes of a frame were changed after they were written.
    #[error("{0}")]
    Damaged(Damage),
    /// A frame is undamaged, but this version cannot decode it, or its content cannot be in such a file at this place,
    /// for example a step after the last part of the log.
    #[error("frame {frame}, which begins at byte {offset}, {what}")]
    Wrong {
        /// Index of the frame, from 0.
        frame: u64,
        /// Offset of the frame in bytes.
        offset: u64,
        /// What is wrong with the frame, as text.
        what: String,
    },
}

impl From<FrameError> for TapeError {
    fn from(e: FrameError) -> TapeError {
        match e {
            FrameError::Io(e) => TapeError::Io(e),
            FrameError::Foreign => TapeError::Foreign,
            FrameError::Version { found } => TapeError::Version { found },
            FrameError::Damaged(damage) => TapeError::Damaged(damage),
        }
    }
}

/// Reads a tape to its end. If the file was cut, reads it to the cut; the result says so.
pub fn read_tape(path: &Path) -> Result<Tape, TapeError> {
    match read_intact(path)? {
        Tape { end: End::Damaged(damage), .. } => Err(TapeError::Damaged(damage)),
        tape => Ok(tape),
    }
}

/// Reads a tape to its end. If the file was cut or damaged, reads it to the cut or to the first damaged frame; the
/// result says so.
pub fn read_intact(path: &Path) -> Result<Tape, TapeError> {
    let file = File::open(path)?;
    parse_tape(BufReader::with_capacity(1 << 18, file))
}

/// Does the work of [`read_intact`] for the bytes of a file.
pub fn parse_tape(input: impl Read) -> Result<Tape, TapeError> {
    let mut body = Vec::new();
    let mut frames = Reader::begin(input, KIND)?.ok_or(TapeError::NoHead(0))?;
    let head = match frames.next(&mut body)? {
        Next::Frame => {
            let offset = KIND.magic().len() as u64;
            let head = understood(&body, 0, offset)?;
            possible(wrong_head(&head), 0, offset)?;
            head
        }
        Next::End => return Err(TapeError::NoHead(frames.at().bytes)),
        Next::Cut(cut) => return Err(TapeError::NoHead(cut.offset + cut.there)),
    };
    let mut steps = Vec::new();
    let mut tail = None;
    loop {
        let before = frames.at();
        let (frame, offset) = (before.frames, before.bytes);
        match frames.next(&mut body) {
            Ok(Next::Frame) if tail.is_some() => {
                return Err(TapeError::Wrong { frame, offset, what: "follows the end".into() });
            }
            Ok(Next::Frame) => match understood(&body, frame, offset)? {
                Event::Step(step) => {
                    possible(wrong_step(&head, &step), frame, offset)?;
                    steps.push(step);
                }
                Event::End(end) => {
                    possible(wrong_tail(&head, &end), frame, offset)?;
                    tail = Some(end);
                }
            },
            Ok(next) => {
                let end = match (next, tail) {
                    (Next::End, Some(tail)) => End::Tail(tail),
                    (Next::Cut(cut), None) => End::Cut(cut),
                    (Next::Cut(_), Some(_)) => {
                        return Err(TapeError::Wrong { frame, offset, what: "follows the end".into() });
                    }
                    _ => End::Cut(Cut { frame, offset, there: 0, whole: None }),
                };
                return Ok(Tape { head, steps, end });
            }
            Err(FrameError::Damaged(damage)) => return Ok(Tape { head, steps, end: End::Damaged(damage) }),
            Err(e) => return Err(e.into()),
        }
    }
}

/// Returns an error if `wrong` is not `None`. `wrong` says what is impossible in the frame `frame`, which begins at
/// byte `offset`.
fn possible(wrong: Option<String>, frame: u64, offset: u64) -> Result<(), TapeError> {
    wrong.map_or(Ok(()), |what| Err(TapeError::Wrong { frame, offset, what }))
}

fn understood<'a, T: Deserialize<'a>>(body: &'a [u8], frame: u64, offset: u64) -> Result<T, TapeError> {
    postcard::from_bytes(body).map_err(|e| TapeError::Wrong {
        frame,
        offset,
        what: format!("cannot be understood: {e}"),
    })
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
        // A tape does not store the number of requests of a pass.
        let shape = PassShape { requests: 0, batched: n, context: 3, pairs: 4 };
        let mark = Mark { kind: MarkKind::Verify, begin: Time::ZERO, end, device: end, shape };
        StepTrace { step: n, marks: vec![mark], confidence: vec![0.5; 3], ..StepTrace::default() }
    }

    fn tail() -> Tail {
        Tail { ending: TapeEnding::Failed("out of memory".into()), rejected: vec![0] }
    }

    /// The bytes of a tape file with `steps` steps.
    fn tape(steps: u64, tail: Option<&Tail>) -> Vec<u8> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.tape");
        let mut writer = TapeWriter::create(&path, &head()).unwrap();
        (0..steps).for_each(|n| writer.step(&step(n)).unwrap());
        match tail {
            Some(tail) => writer.finish(tail).unwrap(),
            None => writer.out.flush().unwrap(),
        }
        std::fs::read(&path).unwrap()
    }

    #[test]
    fn a_tape_comes_back_as_it_was() {
        let back = parse_tape(&tape(20, Some(&tail()))[..]).unwrap();
        assert_eq!(back, Tape { head: head(), steps: (0..20).map(step).collect(), end: End::Tail(tail()) });
        assert!(!back.complete());
    }

    #[test]
    fn at_most_a_second_is_lost_with_its_process() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.tape");
        let mut writer = TapeWriter::create(&path, &head()).unwrap();
        (0..20).for_each(|n| writer.step(&step(n)).unwrap());
        let kept = read_tape(&path).unwrap().steps;
        assert!(kept.len() >= 16, "{} of 20 steps, the last of them 1 s before the end", kept.len());
    }

    /// A tape that is cut after its head (the part before the first step) is read up to its last complete step, and the
    /// result says where it was cut. A tape that is cut within its head is an error.
    #[test]
    fn a_cut_tape_is_read_up_to_its_last_whole_step_and_says_where_it_ends() {
        let bytes = tape(5, Some(&tail()));
        let mut seen = Vec::new();
        for at in 0..bytes.len() {
            match parse_tape(&bytes[..at]) {
                Err(TapeError::NoHead(_)) => assert!(seen.is_empty(), "{at}"),
                Err(e) => panic!("{at}: {e}"),
                Ok(Tape { steps, end: End::Cut(cut), .. }) => {
                    assert_eq!(steps, (0..steps.len() as u64).map(step).collect::<Vec<_>>());
                    assert_eq!((cut.frame, cut.offset + cut.there), (1 + steps.len() as u64, at as u64));
                    seen.push(steps.len());
                }
                Ok(other) => panic!("{at}: {:?}", other.end),
            }
        }
        seen.dedup();
        assert_eq!(seen, [0, 1, 2, 3, 4, 5]);
    }

    /// One bit of a tape is flipped. The tape may or may not have a tail, the part after the last step. The reader must
    /// report damage, and never a complete or a cut tape. If the bit is in the first 8 bytes, the reader must report
    /// another kind of file or another version.
    #[test]
    fn no_flipped_bit_passes_for_a_kill() {
        for bytes in [tape(5, Some(&tail())), tape(5, None)] {
            for at in 0..bytes.len() {
                for bit in 0..8 {
                    let mut other = bytes.clone();
                    other[at] ^= 1 << bit;
                    match parse_tape(&other[..]) {
                        Err(TapeError::Foreign) => assert!(at < 7, "byte {at}, bit {bit}"),
                        Err(TapeError::Version { .. }) => assert_eq!(at, 7),
                        Err(TapeError::Damaged(damage)) => assert_eq!(damage.frame, 0, "the head"),
                        Ok(Tape { steps, end: End::Damaged(damage), .. }) => {
                            assert_eq!(damage.frame, 1 + steps.len() as u64);
                            assert_eq!(steps, (0..steps.len() as u64).map(step).collect::<Vec<_>>());
                        }
                        other => panic!("byte {at}, bit {bit}: {other:?}"),
                    }
                }
            }
        }
    }

    #[test]
    fn what_follows_the_end_is_no_part_of_a_recording() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.tape");
        let mut writer = TapeWriter::create(&path, &head()).unwrap();
        writer.frame(&EventRef::End(&tail())).unwrap();
        writer.step(&step(1)).unwrap();
        writer.finish(&tail()).unwrap();
        let said = read_intact(&path).unwrap_err().to_string();
        assert!(said.contains("frame 2, which begins at byte ") && said.ends_with("follows the end"), "{said}");
        let bytes = [tape(1, Some(&tail())), vec![0; 3]].concat();
        assert!(parse_tape(&bytes[..]).unwrap_err().to_string().ends_with("follows the end"));
    }

    #[test]
    fn other_files_are_refused_in_words() {
        let refused = |bytes: &[u8]| parse_tape(bytes).unwrap_err().to_string();
        assert!(refused(b"name = \"quickstart\" and more").contains("not the recording"));
        let newer = [b"FTKTAPE9", &tape(1, None)[8..]].concat();
        assert_eq!(refused(&newer), "the recording is of version `9`, and this Foretoken reads 2");
        let mut writer = Writer::begin(Vec::new(), KIND).unwrap();
        writer.frame(&[255; 3]).unwrap();
        assert!(refused(&writer.into_inner()).contains("frame 0, which begins at byte 8, cannot be understood"));
    }
}
