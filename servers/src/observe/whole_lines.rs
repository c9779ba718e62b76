//! Regroups the bytes of a server's stream of events, so that each piece ends with a line end.

use futures_util::{Stream, StreamExt, future::ready};

/// The bytes of a server's stream, `pieces`, regrouped into pieces that end with a line end. At every piece, the parser
/// of events scans an unfinished line again from its beginning. Without the regrouping it would take hours for a long
/// line that comes byte by byte. Bytes after the last line end are dropped, because no event ends there.
pub fn whole_lines<B: AsRef<[u8]>, E>(
    pieces: impl Stream<Item = Result<B, E>> + Unpin,
) -> impl Stream<Item = Result<Vec<u8>, E>> + Unpin {
    let mut begun = Vec::new();
    pieces.filter_map(move |piece| ready(piece.map(|piece| add(&mut begun, piece.as_ref())).transpose()))
}

/// Appends `piece`, the next bytes of a server's stream, to the unfinished line in `begun`. Returns the whole lines and
/// leaves the unfinished line in `begun`.
fn add(begun: &mut Vec<u8>, piece: &[u8]) -> Option<Vec<u8>> {
    // A carriage return at the end of `begun` may be the first half of a line end, so the search begins with it.
    let from = begun.len().saturating_sub(1);
    begun.extend_from_slice(piece);
    let last = begun.len().saturating_sub(1);
    let ends = |at: &usize| begun[*at] == b'\n' || begun[*at] == b'\r' && *at < last;
    let end = (from..begun.len()).rev().find(ends)?;
    let rest = begun.split_off(end + 1);
    Some(std::mem::replace(begun, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_end_with_lines_however_they_come() {
        for (text, lines) in
            [("a\nb\r\nc", "a\nb\r\n"), ("a\rb\r\r", "a\rb\r"), ("a", ""), ("\n", "\n"), ("\r\n\r\n", "\r\n\r\n")]
        {
            for size in 1..=text.len() {
                let mut begun = Vec::new();
                let all: Vec<Vec<u8>> = text.as_bytes().chunks(size).filter_map(|p| add(&mut begun, p)).collect();
                assert_eq!(all.concat(), lines.as_bytes(), "{text:?} in pieces of {size}");
                assert!(all.iter().all(|p| p.ends_with(b"\n") || p.ends_with(b"\r")), "{all:?}");
                assert_eq!([lines.as_bytes(), &begun].concat(), text.as_bytes());
            }
        }
    }
}
