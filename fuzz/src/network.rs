//! Fuzzes the readers of what clients and servers send.

use crate::said;
use foretoken_run::spec::observe::Send;
use foretoken_servers::observe::{parse_jsonl, read_stream, samples};
use foretoken_servers::recordings::metrics::Metrics;
use foretoken_servers::recordings::recording::{Ended, Event, Head, Recording, Tokens};
use foretoken_servers::serve::{Form, Limits, Reading, read};
use foretoken_sim::Time;
use futures_util::stream;
use std::path::Path;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

/// Reads a file with the prompts of an observed run, one prompt a line. It is read twice: as prompts that are sent as
/// text, and as prompts that are sent as token ids.
pub fn prompts(data: &[u8]) {
    const FILE: &str = "prompts.jsonl";
    let Some(text) = said::text(data) else { return };
    for send in [Send::Text, Send::TokenIds] {
        match parse_jsonl(Path::new(FILE), text, send) {
            Err(problem) => said::problem(&problem, FILE),
            Ok(prompts) => assert!(!prompts.is_empty()),
        }
    }
}

/// Reads the stream of events that answers a request. The first byte of `data` is a size in bytes. The stream is read
/// once in one piece, and once in pieces of that size. Both reads must give the same tokens and the same end.
pub fn answer_stream(data: &[u8]) {
    let Some((&piece, stream)) = data.split_first() else { return };
    let (whole, ended) = answered(stream, stream.len().max(1));
    if let Ended::Failed { said, .. } = &ended {
        said::raw(said);
    }
    let (pieces, end) = answered(stream, usize::from(piece).max(1));
    assert_eq!(format!("{whole:?}"), format!("{pieces:?}"));
    assert_eq!(format!("{ended:?}"), format!("{end:?}"));
}

fn answered(bytes: &[u8], piece: usize) -> (Vec<Tokens>, Ended) {
    let mut all = Vec::new();
    let pieces = stream::iter(bytes.chunks(piece).map(Ok::<_, String>));
    let ended = pin!(read_stream(pieces, 16, |tokens| all.push(tokens))).poll(&mut Context::from_waker(Waker::noop()));
    match ended {
        Poll::Ready(ended) => (all, ended),
        Poll::Pending => panic!("it waits, and all bytes are there"),
    }
}

/// Reads the text of a server's `/metrics`, and computes a run's metrics from the counters. All samples must be finite.
pub fn metrics(data: &[u8]) {
    let Some(text) = said::text(data) else { return };
    match samples(text) {
        Err(error) => said::raw(&error),
        Ok(samples) => {
            said::finite(&samples);
            let reading = |samples| Event::Metrics { at: Time::ZERO, samples };
            let events = vec![reading(Vec::new()), reading(samples)];
            let metrics = Metrics::of(&Recording { head: Head::default(), events, ending: None });
            metrics.doubts.iter().for_each(|doubt| said::message(doubt));
            metrics.rounds_of_one_length();
        }
    }
}

/// Reads the body of a request to `foretoken serve`, once as a completion and once as a chat. An accepted request must
/// fit into `max_model_len`, prompt and output together. A refusal must name the parameter at fault.
pub fn request_body(data: &[u8]) {
    let reading = Reading { tokenizer: None, bytes_per_token: 4, block: Some(16) };
    let limits = Limits { model: "m".into(), max_model_len: 4096, reading };
    for form in [Form::Completion, Form::Chat] {
        match read(form, data, &limits) {
            Err(refusal) => {
                said::raw(&refusal.message);
                assert!(refusal.param.is_some());
            }
            Ok((ask, sending)) => {
                assert!(ask.prompt_len >= 1 && ask.max_tokens >= 1 && ask.min_tokens <= ask.max_tokens);
                assert!(ask.prompt_len + ask.max_tokens <= limits.max_model_len);
                assert!(ask.prefix.len() <= ask.prompt_len as usize / 16 && sending.prompt_len == ask.prompt_len);
            }
        }
    }
}
