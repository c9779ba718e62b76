//! Reads bodies of a server's HTTP answers up to a limit, because a server may send without end.

use reqwest::Response;

/// Most bytes that are read of a server's list of models, of its version, or of a refusal's message.
pub const PAGE: usize = 1 << 20;
/// Most bytes that are read of a server's `/metrics`. vLLM sends a few hundred thousand bytes.
pub const METRICS: usize = 4 << 20;
/// Most bytes that are read of a completion, in addition to [`ANSWER_TOKEN`] bytes for each requested token.
pub const ANSWER: usize = 1 << 20;
/// Most bytes that are read of a completion per requested token.
pub const ANSWER_TOKEN: usize = 4 << 10;

/// Reads the whole body of a server's HTTP answer.
pub async fn whole(mut response: Response, most: usize) -> Result<Vec<u8>, String> {
    match read(&mut response, most).await? {
        (_, true) => Err(too_long(most)),
        (bytes, false) => Ok(bytes),
    }
}

/// Reads the body of a server's HTTP answer, or its first `most` bytes if it is longer. Empty if reading fails.
pub async fn beginning(mut response: Response, most: usize) -> Vec<u8> {
    read(&mut response, most).await.map(|(bytes, _)| bytes).unwrap_or_default()
}

/// The message that a server's HTTP answer has a body of more than `most` bytes.
pub fn too_long(most: usize) -> String {
    format!("the answer has more than {:.1} MiB", most as f64 / f64::from(1 << 20))
}

/// Reads the body of a server's HTTP answer. Returns (the body, cut after `most` bytes; true if it was cut).
async fn read(response: &mut Response, most: usize) -> Result<(Vec<u8>, bool), String> {
    let mut bytes = Vec::new();
    while let Some(piece) = response.chunk().await.map_err(|e| chain(&e))? {
        let room = most - bytes.len();
        bytes.extend_from_slice(&piece[..piece.len().min(room)]);
        if piece.len() > room {
            return Ok((bytes, true));
        }
    }
    Ok((bytes, false))
}

/// The messages of an error and of all its causes, joined to one text.
pub fn chain(e: &dyn std::error::Error) -> String {
    let mut text = e.to_string();
    let mut cause = e.source();
    while let Some(inner) = cause {
        let said = inner.to_string();
        if !text.contains(&said) {
            text += &format!(": {said}");
        }
        cause = inner.source();
    }
    text
}
