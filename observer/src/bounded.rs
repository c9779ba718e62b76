//! Bodies of answers, read up to a limit: a server may send without end.

use reqwest::Response;

/// Most bytes of a list of models, of a version, and of what a server says when it refuses.
pub const PAGE: usize = 1 << 20;
/// Most bytes of `/metrics`. vLLM's has some hundred thousand.
pub const METRICS: usize = 4 << 20;
/// Most bytes of an answer beside [`ANSWER_TOKEN`] for each token that was asked for.
pub const ANSWER: usize = 1 << 20;
/// Most bytes of an answer for each token that was asked for.
pub const ANSWER_TOKEN: usize = 4 << 10;

/// The whole body.
///
/// # Errors
/// It cannot be read, or has more than `most` bytes. In words.
pub async fn whole(mut response: Response, most: usize) -> Result<Vec<u8>, String> {
    match read(&mut response, most).await? {
        (_, true) => Err(too_long(most)),
        (bytes, false) => Ok(bytes),
    }
}

/// The body, or its first `most` bytes.
pub async fn beginning(mut response: Response, most: usize) -> Vec<u8> {
    read(&mut response, most).await.map(|(bytes, _)| bytes).unwrap_or_default()
}

/// What is said of a body that goes on behind `most` bytes.
pub fn too_long(most: usize) -> String {
    format!("the answer has more than {:.1} MiB", most as f64 / f64::from(1 << 20))
}

/// At most `most` bytes of a body, and whether there are more.
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

/// An error with what caused it.
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
