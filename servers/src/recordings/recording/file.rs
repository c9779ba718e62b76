//! Recordings as files. A file consists of frames with checksums (`foretoken_traces::intact::frames`), whose contents
//! are encoded with postcard. The first frame is the head: server, policy, settings and planned requests. The recorder
//! appends once a second, so a killed process loses at most its last second.

use super::facts::{Event, Head, Recording};
use crate::recordings::Unread;
use foretoken_report::disk;
use foretoken_sim::Time;
use foretoken_traces::intact::frames::{At, FrameError, Kind, Next, Reader, Writer};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// The file kind of a recording: the name and version with which the file begins.
pub const KIND: Kind = Kind { name: b"FTKOBSV", version: b'1' };

/// Appends events to a recording. Events that cannot be written, for example because the disk is full, are kept in
/// memory and written with the next call.
#[derive(Debug)]
pub struct RecordingWriter {
    path: PathBuf,
    file: File,
    /// The position in the file after the last frame that is on disk.
    at: At,
    /// Contents of frames that are not on disk yet.
    waiting: VecDeque<Vec<u8>>,
}

impl RecordingWriter {
    pub fn create(path: &Path, head: &Head) -> io::Result<RecordingWriter> {
        let mut file = File::create(path)?;
        let mut writer = Writer::begin(Vec::new(), KIND)?;
        writer.frame(&postcard::to_stdvec(head).map_err(io::Error::other)?)?;
        let at = writer.at();
        file.write_all(&writer.into_inner())?;
        Ok(RecordingWriter { path: path.to_path_buf(), file, at, waiting: VecDeque::new() })
    }

    /// Appends `events` as one frame. Frames that earlier calls could not write are written first.
    pub fn append(&mut self, events: &[Event]) -> io::Result<()> {
        if !events.is_empty() {
            self.waiting.push_back(postcard::to_stdvec(events).map_err(io::Error::other)?);
        }
        while let Some(body) = self.waiting.front() {
            let mut writer = Writer::go_on(Vec::new(), self.at);
            writer.frame(body)?;
            let after = writer.at();
            // A failed write may have left bytes in the file after the last whole frame. These bytes are overwritten.
            self.file.seek(SeekFrom::Start(self.at.bytes))?;
            self.file.write_all(&writer.into_inner())?;
            self.at = after;
            self.waiting.pop_front();
        }
        Ok(())
    }

    /// Waits until all appended events are on the disk, so that a power cut cannot remove them.
    pub fn settle(&self) -> io::Result<()> {
        disk::settle(&self.file, &self.path)
    }

    /// Number of frames of the recording that are not written to the file yet.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

const HINT: &str = "give a recording that `foretoken observe` wrote";
const AGAIN: &str = "fetch the file again, or observe again";

/// Reads a recording. If the file was cut, it is read up to the last whole frame.
pub fn read_recording(path: &Path) -> Result<Recording, Unread> {
    let file = File::open(path).map_err(|e| Unread::file(path, format!("cannot be read: {e}"), HINT))?;
    parse_recording(path, BufReader::with_capacity(1 << 18, file))
}

/// Reads a recording of an observed run from the bytes of `input`. `path` is the file's name in errors.
pub fn parse_recording(path: &Path, input: impl Read) -> Result<Recording, Unread> {
    let bad = |what: String, hint: &str| Unread::file(path, what, hint);
    let frame_error = |e: FrameError| match e {
        FrameError::Io(e) => bad(format!("cannot be read: {e}"), HINT),
        FrameError::Foreign => bad("is no recording of an observed run".into(), HINT),
        FrameError::Version { found } => {
            let (found, ours) = (found.escape_ascii(), KIND.version.escape_ascii());
            bad(format!("is a recording of layout `{found}`, and this version reads `{ours}`"), "update foretoken")
        }
        FrameError::Damaged(damage) => bad(damage.to_string(), AGAIN),
    };
    let no_head = || bad("ends before it says what it is of".into(), AGAIN);
    let mut body = Vec::new();
    let mut frames = Reader::begin(input, KIND).map_err(frame_error)?.ok_or_else(no_head)?;
    let head: Head = match frames.next(&mut body).map_err(frame_error)? {
        Next::Frame => understood(&body).map_err(|what| bad(format!("frame 0 {what}"), HINT))?,
        Next::End | Next::Cut(_) => return Err(no_head()),
    };
    let mut events: Vec<Event> = Vec::new();
    // For each request, the time of its last event so far.
    let mut seen = vec![Time::ZERO; head.asked.len()];
    loop {
        let frame = frames.at().frames;
        match frames.next(&mut body).map_err(frame_error)? {
            Next::Frame if matches!(events.last(), Some(Event::End { .. })) => {
                return Err(bad(format!("frame {frame} follows the end"), AGAIN));
            }
            Next::Frame => {
                let more: Vec<Event> = understood(&body).map_err(|what| bad(format!("frame {frame} {what}"), HINT))?;
                for (request, at) in more.iter().filter_map(seen_of) {
                    let Some(before) = seen.get_mut(request as usize) else {
                        let what = format!("frame {frame} speaks of request {request} of {}", head.asked.len());
                        return Err(bad(what, AGAIN));
                    };
                    // One task records the events of a request, one after the other. So the times of a request's
                    // events never fall.
                    if std::mem::replace(before, at) > at {
                        return Err(bad(format!("frame {frame} goes back in time at request {request}"), AGAIN));
                    }
                }
                events.extend(more);
            }
            Next::End | Next::Cut(_) => break,
        }
    }
    let ending = match events.last() {
        Some(Event::End { ending, .. }) => Some(ending.clone()),
        _ => None,
    };
    Ok(Recording { head, events, ending })
}

/// The request that an event is about, and the time of the event.
fn seen_of(event: &Event) -> Option<(u32, Time)> {
    match event {
        Event::Sent { request, at, .. } | Event::Chunk { request, at, .. } | Event::Ended { request, at, .. } => {
            Some((*request, *at))
        }
        Event::Metrics { .. } | Event::Log { .. } | Event::Note { .. } | Event::End { .. } => None,
    }
}

fn understood<'a, T: serde::Deserialize<'a>>(body: &'a [u8]) -> Result<T, String> {
    postcard::from_bytes(body).map_err(|e| format!("cannot be understood: {e}"))
}

#[cfg(test)]
mod tests {
    use super::super::facts::{Asked, Ending, Tokens};
    use super::*;

    fn head() -> Head {
        Head { policy: "fixed-3".into(), asked: vec![Asked::default(); 2], ..Head::default() }
    }

    fn events() -> Vec<Vec<Event>> {
        let at = Time::from_s;
        vec![
            vec![
                Event::Sent { request: 0, at: at(0.5), attempt: 0 },
                Event::Chunk { request: 0, at: at(0.6), tokens: Tokens::Ids(vec![7, 8]) },
            ],
            vec![Event::Sent { request: 1, at: at(1.5), attempt: 0 }],
            vec![Event::End { at: at(2.0), ending: Ending::Done }],
        ]
    }

    fn written(dir: &Path) -> PathBuf {
        let path = dir.join("a.obs");
        let mut writer = RecordingWriter::create(&path, &head()).unwrap();
        events().iter().for_each(|e| writer.append(e).unwrap());
        path
    }

    #[test]
    fn recordings_and_cut_recordings_are_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = written(dir.path());
        let whole = read_recording(&path).unwrap();
        assert_eq!((&whole.head, &whole.events, &whole.ending), (&head(), &events().concat(), &Some(Ending::Done)));
        let bytes = std::fs::read(&path).unwrap();
        for cut in 0..bytes.len() {
            std::fs::write(&path, &bytes[..cut]).unwrap();
            match read_recording(&path) {
                Ok(part) => {
                    assert_eq!(part.ending, None);
                    assert!(whole.events.starts_with(&part.events), "cut at {cut}");
                }
                Err(e) => assert_eq!(e.what, "ends before it says what it is of", "cut at {cut}"),
            }
        }
    }

    #[test]
    fn damage_anywhere_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = written(dir.path());
        let bytes = std::fs::read(&path).unwrap();
        for at in 0..bytes.len() {
            let mut other = bytes.clone();
            other[at] ^= 4;
            std::fs::write(&path, &other).unwrap();
            assert!(read_recording(&path).is_err(), "byte {at}");
        }
    }

    #[test]
    fn whole_frames_that_no_run_writes_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.obs");
        let sent = |request, s| Event::Sent { request, at: Time::from_s(s), attempt: 0 };
        let chunk = |s| Event::Chunk { request: 0, at: Time::from_s(s), tokens: Tokens::Unknown };
        for (events, said) in [
            (vec![vec![sent(2, 0.5)]], "frame 1 speaks of request 2 of 2"),
            (vec![vec![sent(0, 0.5), sent(1, 0.4)], vec![chunk(0.4)]], "frame 2 goes back in time at request 0"),
        ] {
            let mut writer = RecordingWriter::create(&path, &head()).unwrap();
            events.iter().for_each(|e| writer.append(e).unwrap());
            assert_eq!(read_recording(&path).unwrap_err().what, said);
        }
    }

    /// A file that is open only for reading stands in for a full disk: writing to it fails.
    #[test]
    fn events_that_a_full_disk_refused_are_written_later() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.obs");
        let mut writer = RecordingWriter::create(&path, &head()).unwrap();
        let frames = events();
        writer.append(&frames[0]).unwrap();
        let good = std::mem::replace(&mut writer.file, File::open("/dev/null").unwrap());
        assert!(writer.append(&frames[1]).is_err());
        assert!(writer.append(&[]).is_err());
        assert_eq!(writer.waiting(), 1);
        writer.file = good;
        writer.append(&frames[2]).unwrap();
        assert_eq!(writer.waiting(), 0);
        assert_eq!(read_recording(&path).unwrap().events, frames.concat());
    }
}
