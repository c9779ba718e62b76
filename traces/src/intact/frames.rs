//! Binary files made of frames. A program may append frames while it runs.
//!
//! A file begins with eight bytes: seven name its kind, and one is the version of its layout. Frames follow. A frame
//! has four parts: the length of its body in bytes (32 bits, little endian), a checksum of this length (32 bits), a
//! checksum of length and body (64 bits), and the body. Checksums are the first bytes of BLAKE3.
//!
//! Both checksums of a frame also cover the 64-bit checksum of the frame before it. So a frame that is doubled, moved
//! or from another file counts as damage. If a frame is missing, the frame after it counts as damage. Missing frames at
//! the end of a file are not noticed.
//!
//! The checksum of a length is checked before the length is used. So if a file ends within a frame, it was cut there:
//! the program that wrote it died, or something shortened the file. A checksum that does not match is [`Damage`]: bytes
//! were changed, or the frame is not where it was written.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};

/// The kind of a file and the version of its layout, as the file's first eight bytes give them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// The first seven bytes of every file of this kind. They name the kind.
    pub name: &'static [u8; 7],
    /// The version of the layout in which files of this kind are written. It is the eighth byte of a file.
    pub version: u8,
}

/// Number of bytes of a frame before its body.
const FRONT: usize = 16;

/// A value that both checksums of a frame also cover: the 64-bit checksum of the frame before it. For the first frame
/// it is the file's first eight bytes.
type Chain = [u8; 8];

impl Kind {
    /// The first eight bytes of a file of this kind.
    pub fn magic(self) -> [u8; 8] {
        let mut magic = [self.version; 8];
        magic[..7].copy_from_slice(self.name);
        magic
    }
}

/// A position in a file of frames, directly after a whole frame or after the file's first eight bytes. The file was
/// read or written up to this position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At {
    /// Number of whole frames before the position.
    pub frames: u64,
    /// Number of bytes of the file before the position.
    pub bytes: u64,
    chain: Chain,
}

impl At {
    fn begin(kind: Kind) -> At {
        At { frames: 0, bytes: 8, chain: kind.magic() }
    }

    fn after(self, body: u64, chain: Chain) -> At {
        At { frames: self.frames + 1, bytes: self.bytes + FRONT as u64 + body, chain }
    }
}

/// Appends frames to a file, each with its length and its checksums.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    at: At,
}

impl<W: Write> Writer<W> {
    /// Begins a new file: writes the eight bytes that name the file's kind and layout version.
    ///
    /// # Errors
    /// The output cannot be written to.
    pub fn begin(mut out: W, kind: Kind) -> io::Result<Writer<W>> {
        out.write_all(&kind.magic())?;
        Ok(Writer { out, at: At::begin(kind) })
    }

    /// Continues a file at the position `at` where reading stopped. The first byte that is written to `out` must go to
    /// this position in the file.
    pub fn go_on(out: W, at: At) -> Writer<W> {
        Writer { out, at }
    }

    /// Appends a frame with this body.
    ///
    /// # Errors
    /// The output cannot be written to, or the body has more than 4 GiB.
    pub fn frame(&mut self, body: &[u8]) -> io::Result<()> {
        let len = u32::try_from(body.len())
            .map_err(|_| io::Error::new(ErrorKind::InvalidInput, "more than 4 GiB in one frame"))?;
        let sum = sum_of_body(self.at.chain, len, body);
        let mut front = [0; FRONT];
        front[..4].copy_from_slice(&len.to_le_bytes());
        front[4..8].copy_from_slice(&sum_of_length(self.at.chain, len));
        front[8..].copy_from_slice(&sum);
        self.out.write_all(&front)?;
        self.out.write_all(body)?;
        self.at = self.at.after(u64::from(len), sum);
        Ok(())
    }

    /// The position in the file after the last frame that was written.
    pub fn at(&self) -> At {
        self.at
    }

    /// Flushes the output.
    ///
    /// # Errors
    /// The output cannot be written to.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// Gives back the writer to which the frames went.
    pub fn into_inner(self) -> W {
        self.out
    }
}

/// Reads the frames of a file and checks their checksums.
#[derive(Debug)]
pub struct Reader<R> {
    input: R,
    at: At,
}

/// What [`Reader::next`] found. In each case, all whole frames read so far are undamaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// A whole frame, whose body was put into the caller's buffer.
    Frame,
    /// The end of the file, directly after a whole frame.
    End,
    /// Only the first part of a frame, because the file ends within this frame.
    Cut(Cut),
}

/// Where a file was cut: the incomplete frame at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Number of the incomplete frame, from 0.
    pub frame: u64,
    /// Position in the file, in bytes, at which the incomplete frame begins.
    pub offset: u64,
    /// Number of bytes of the incomplete frame that the file has.
    pub there: u64,
    /// Number of bytes that the whole frame had. `None` if the 16 bytes before the frame's body are incomplete, because
    /// they state the length.
    pub whole: Option<u64>,
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Cut { frame, offset, there, whole } = self;
        write!(f, "frame {frame} begins at byte {offset} and ends after {there}")?;
        whole.map_or(Ok(()), |whole| write!(f, " of its {whole}"))?;
        write!(f, " bytes")
    }
}

/// The damage of a frame: a checksum that is stored in the file does not match the frame's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Number of the damaged frame in the file, from 0.
    pub frame: u64,
    /// Position in the file, in bytes, at which the damaged frame begins.
    pub offset: u64,
    /// Number of bytes of the frame's body; `None` if the checksum of this number itself does not match.
    pub body: Option<u64>,
    /// The checksum that is stored in the file: of the frame's length and body, or of the length alone if `body` is
    /// `None`.
    pub expected: u64,
    /// The checksum that was computed from the frame's bytes in the file.
    pub found: u64,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Damage { frame, offset, body, expected, found } = self;
        write!(f, "frame {frame}, which begins at byte {offset}, is damaged: the checksum of its ")?;
        match body {
            Some(body) => write!(f, "{body} bytes is {expected:016x}, and they give {found:016x}"),
            None => write!(f, "length is {expected:08x}, and it gives {found:08x}"),
        }
    }
}

/// Why a frame cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The bytes of the file could not be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The file does not begin with the seven bytes that name the expected kind.
    #[error("it does not begin as such a file does")]
    Foreign,
    /// The file is of the expected kind, but its eighth byte names another version of the layout than the reader reads.
    #[error("it has layout `{}`", found.escape_ascii())]
    Version {
        /// The version byte in the file.
        found: u8,
    },
    /// A checksum of the frame does not match its bytes.
    #[error("{0}")]
    Damaged(Damage),
}

impl<R: Read> Reader<R> {
    /// Begins to read a file: reads and checks its first eight bytes. Returns `None` if the file is cut within these
    /// bytes.
    ///
    /// # Errors
    /// The input cannot be read, or does not begin as a file of this kind.
    pub fn begin(mut input: R, kind: Kind) -> Result<Option<Reader<R>>, FrameError> {
        let mut magic = [0; 8];
        let there = fill(&mut input, &mut magic)?;
        match (magic.as_slice(), kind.magic()) {
            (found, magic) if found == magic => Ok(Some(Reader { input, at: At::begin(kind) })),
            (found, magic) if there < 8 && magic.starts_with(&found[..there]) => Ok(None),
            (found, magic) if there == 8 && found[..7] == magic[..7] => Err(FrameError::Version { found: found[7] }),
            _ => Err(FrameError::Foreign),
        }
    }

    /// Reads the next frame and puts its body into `body`, in place of earlier contents.
    ///
    /// # Errors
    /// The input cannot be read, or the frame is damaged.
    pub fn next(&mut self, body: &mut Vec<u8>) -> Result<Next, FrameError> {
        body.clear();
        let mut front = [0; FRONT];
        let there = fill(&mut self.input, &mut front)?;
        let At { frames: frame, bytes: offset, chain } = self.at;
        if there < FRONT {
            let cut = Cut { frame, offset, there: there as u64, whole: None };
            return Ok(if there == 0 { Next::End } else { Next::Cut(cut) });
        }
        let part = |from: usize, to: usize| &front[from..to];
        let len = u32::from_le_bytes(part(0, 4).try_into().expect("four bytes"));
        let length_is = u32::from_le_bytes(part(4, 8).try_into().expect("four bytes"));
        let length_gives = u32::from_le_bytes(sum_of_length(chain, len));
        if length_is != length_gives {
            let (expected, found) = (u64::from(length_is), u64::from(length_gives));
            return Err(FrameError::Damaged(Damage { frame, offset, body: None, expected, found }));
        }
        // Reads at most the bytes that the file has, so that a wrong length cannot allocate too much memory.
        self.input.by_ref().take(u64::from(len)).read_to_end(body)?;
        let (there, whole) = (body.len() as u64, u64::from(len));
        if there < whole {
            let front = FRONT as u64;
            return Ok(Next::Cut(Cut { frame, offset, there: front + there, whole: Some(front + whole) }));
        }
        let (is, gives): (Chain, Chain) = (part(8, 16).try_into().expect("eight bytes"), sum_of_body(chain, len, body));
        if is != gives {
            let (expected, found) = (u64::from_le_bytes(is), u64::from_le_bytes(gives));
            return Err(FrameError::Damaged(Damage { frame, offset, body: Some(whole), expected, found }));
        }
        self.at = self.at.after(whole, is);
        Ok(Next::Frame)
    }

    /// The position in the file after the last whole frame that was read.
    pub fn at(&self) -> At {
        self.at
    }
}

/// Fills `buffer` from `input`, completely or up to the end of `input`. Returns the number of bytes read.
fn fill(input: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match input.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(filled)
}

fn sum_of_length(chain: Chain, len: u32) -> [u8; 4] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&chain).update(&len.to_le_bytes());
    first(hasher.finalize())
}

fn sum_of_body(chain: Chain, len: u32, body: &[u8]) -> Chain {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&chain).update(&len.to_le_bytes()).update(body);
    first(hasher.finalize())
}

fn first<const N: usize>(hash: blake3::Hash) -> [u8; N] {
    hash.as_bytes()[..N].try_into().expect("a hash is longer")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KIND: Kind = Kind { name: b"FTKTEST", version: b'1' };

    fn written(bodies: &[Vec<u8>]) -> Vec<u8> {
        let mut writer = Writer::begin(Vec::new(), KIND).unwrap();
        bodies.iter().for_each(|body| writer.frame(body).unwrap());
        writer.into_inner()
    }

    /// Reads frames up to the first one that cannot be read. Returns the bodies of the frames before it, and the end of
    /// the file or the error that stopped the reading.
    fn read(bytes: &[u8]) -> (Vec<Vec<u8>>, Result<Next, FrameError>) {
        let mut reader = match Reader::begin(bytes, KIND) {
            Ok(Some(reader)) => reader,
            Ok(None) => return (vec![], Ok(Next::Cut(Cut { frame: 0, offset: 0, there: 0, whole: None }))),
            Err(e) => return (vec![], Err(e)),
        };
        let (mut all, mut body) = (Vec::new(), Vec::new());
        loop {
            match reader.next(&mut body) {
                Ok(Next::Frame) => all.push(body.clone()),
                end => return (all, end),
            }
        }
    }

    fn three() -> Vec<Vec<u8>> {
        vec![b"head".to_vec(), vec![], (0..40).collect()]
    }

    #[test]
    fn frames_are_read_back_and_a_file_can_be_continued() {
        let bytes = written(&three());
        let (bodies, end) = read(&bytes);
        assert_eq!((bodies, end.unwrap()), (three(), Next::End));
        let two = &bytes[..8 + 2 * FRONT + 4];
        let mut reader = Reader::begin(two, KIND).unwrap().unwrap();
        let mut body = Vec::new();
        while reader.next(&mut body).unwrap() == Next::Frame {}
        let at = reader.at();
        assert_eq!((at.frames, at.bytes), (2, two.len() as u64));
        let mut writer = Writer::go_on(two.to_vec(), at);
        writer.frame(&three()[2]).unwrap();
        assert_eq!(writer.into_inner(), bytes);
    }

    #[test]
    fn every_flipped_bit_is_damage_and_every_missing_byte_a_cut() {
        let bytes = written(&three());
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut other = bytes.clone();
                other[at] ^= 1 << bit;
                let (bodies, end) = read(&other);
                assert!(bodies.len() < 3 && bodies == three()[..bodies.len()], "byte {at}");
                match end {
                    Err(FrameError::Foreign) => assert!(at < 7),
                    Err(FrameError::Version { found }) => assert!(at == 7 && found != KIND.version),
                    Err(FrameError::Damaged(damage)) => {
                        let frame = damage.offset..damage.offset + FRONT as u64 + damage.body.unwrap_or(0);
                        assert!(frame.contains(&(at as u64)) && damage.expected != damage.found, "byte {at}: {damage}");
                    }
                    other => panic!("byte {at}, bit {bit}: {other:?}"),
                }
            }
            let (bodies, end) = read(&bytes[..at]);
            assert!(bodies == three()[..bodies.len()]);
            let whole = [8, 8 + FRONT + 4, 8 + 2 * FRONT + 4].contains(&at);
            match end.unwrap() {
                Next::End => assert!(whole, "{at}"),
                Next::Cut(cut) => assert!(!whole && (at < 8 || cut.offset + cut.there == at as u64), "{at}: {cut}"),
                Next::Frame => unreachable!(),
            }
        }
    }

    #[test]
    fn messages_of_damage_and_cuts_give_frame_and_bytes() {
        let mut bytes = written(&three());
        *bytes.last_mut().unwrap() ^= 1;
        let message = read(&bytes).1.unwrap_err().to_string();
        assert!(
            message.starts_with("frame 2, which begins at byte 44, is damaged: the checksum of its 40 bytes is "),
            "{message}"
        );
        let Ok(Next::Cut(cut)) = read(&bytes[..bytes.len() - 9]).1 else { panic!() };
        assert_eq!(cut.to_string(), "frame 2 begins at byte 44 and ends after 47 of its 56 bytes");
    }

    proptest! {
        /// If whole frames are left out, doubled or moved, the reader returns the frames before the first wrong frame,
        /// and fails at the wrong frame. If only frames at the end are left out, the reader reads to the end without an
        /// error.
        #[test]
        fn frames_stay_where_they_were_written(
            bodies in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 1..6),
            order in prop::collection::vec(0usize..6, 0..7),
        ) {
            let whole = written(&bodies);
            let mut from = 8;
            let frames: Vec<&[u8]> = bodies.iter().map(|body| {
                let frame = &whole[from..from + FRONT + body.len()];
                from += frame.len();
                frame
            }).collect();
            let order: Vec<usize> = order.into_iter().map(|n| n % frames.len()).collect();
            let mut other = whole[..8].to_vec();
            order.iter().for_each(|&n| other.extend(frames[n]));
            let right = order.iter().enumerate().take_while(|(at, n)| at == *n).count();
            let (back, end) = read(&other);
            prop_assert_eq!(&back[..], &bodies[..right]);
            prop_assert_eq!(end.is_ok(), right == order.len());
        }
    }
}
