//! Repairs the checksums of fuzzed files of frames, so that readers get to the frames' contents. A frame is a block of
//! bytes with checksums.

use foretoken_traces::intact::frames::{Kind, Writer};

/// Makes a valid file of `kind` from the frames in `data`: with the eight bytes that begin a file of this kind, and
/// with right checksums. The first eight bytes of `data` and its checksums are ignored. A frame whose stated length
/// goes beyond the end of `data` ends at the end of `data`.
pub(crate) fn repaired(kind: Kind, data: &[u8]) -> Vec<u8> {
    let mut out = Writer::begin(Vec::new(), kind).expect("memory can be written");
    let mut rest = data.get(8..).unwrap_or_default();
    while let Some((front, body)) = rest.split_first_chunk::<16>() {
        let length = u32::from_le_bytes([front[0], front[1], front[2], front[3]]) as usize;
        let (body, behind) = body.split_at(length.min(body.len()));
        out.frame(body).expect("memory can be written");
        rest = behind;
    }
    out.into_inner()
}

#[cfg(test)]
mod tests {
    use super::*;
    use foretoken_traces::intact::frames::{Next, Reader};

    #[test]
    fn a_changed_file_is_whole_again() {
        let kind = Kind { name: b"FTKTEST", version: b'1' };
        let mut writer = Writer::begin(Vec::new(), kind).unwrap();
        writer.frame(b"head").unwrap();
        writer.frame(b"body").unwrap();
        let good = writer.into_inner();
        assert_eq!(repaired(kind, &good), good);
        let mut other = good.clone();
        *other.last_mut().unwrap() = b'!';
        let other = repaired(kind, &other);
        let mut reader = Reader::begin(other.as_slice(), kind).unwrap().unwrap();
        let mut body = Vec::new();
        assert_eq!(reader.next(&mut body).unwrap(), Next::Frame);
        assert_eq!((reader.next(&mut body).unwrap(), body.as_slice()), (Next::Frame, &b"bod!"[..]));
        assert_eq!(repaired(kind, &[0; 9]), kind.magic());
    }
}
