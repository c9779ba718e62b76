//! The thread that answers clients: the HTTP paths, how a request is passed to the engine, and how the answer is sent.

use crate::serve::answer::Answer;
use crate::serve::ask::{self, Form, Limits};
use crate::serve::calls::{Call, Piece};
use crate::serve::events::{AbortOnDrop, Events};
use crate::serve::late::Late;
use crate::serve::prompt::Reading;
use crate::serve::refusal::Refusal;
use crate::serve::settings::Settings;
use crate::serve::tokens::{detokenized, tokenized};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{Response, StatusCode, header};
use axum::routing::{get, post};
use axum::serve::ListenerExt;
use foretoken_sim::EngineConfig;
use serde_json::json;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};
use tokenizers::Tokenizer;
use tokio::sync::{mpsc, oneshot};

/// Largest allowed body of a client's request, in bytes: enough for a prompt of a million token ids.
const MOST: usize = 16 << 20;
/// How long open connections may still send data after the server was asked to shut down.
const GRACE: Duration = Duration::from_millis(100);

/// The state that all HTTP handlers share.
#[derive(Clone)]
pub struct HandlerState {
    limits: Arc<Limits>,
    number: &'static str,
    calls: Sender<Call>,
    late: Late,
    answers: Arc<AtomicU64>,
}

impl HandlerState {
    /// Makes the state of the HTTP handlers. The engine's thread receives the messages that are sent on `calls`.
    pub fn new(
        settings: &Settings,
        tokenizer: Option<Tokenizer>,
        config: &EngineConfig,
        calls: Sender<Call>,
        late: Late,
    ) -> HandlerState {
        let block = config.prefix_caching.then_some(config.block_size as usize);
        let tokenizer = tokenizer.map(Arc::new);
        let reading = Reading { tokenizer, bytes_per_token: settings.bytes_per_token, block };
        let limits = Limits { model: settings.model.clone(), max_model_len: config.max_model_len, reading };
        HandlerState { limits: Arc::new(limits), number: config.release().number, calls, late, answers: Arc::default() }
    }
}

/// Answers HTTP clients until a message arrives on `closed`, and for [`GRACE`] after this message.
pub fn answer(listener: TcpListener, state: HandlerState, closed: oneshot::Receiver<()>) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let app = Router::new()
        .route("/v1/completions", post(completions))
        .route("/v1/chat/completions", post(chat))
        .route("/v1/models", get(models))
        .route("/tokenize", post(tokenize))
        .route("/detokenize", post(detokenize))
        .route("/version", get(version))
        .route("/health", get(health))
        .route("/ping", get(health))
        .route("/metrics", get(metrics))
        .layer(DefaultBodyLimit::max(MOST))
        .with_state(state);
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        // Sends small packets at once (TCP_NODELAY), so that a token is not held back until later tokens follow.
        let listener = listener.tap_io(|connection| {
            let _ = connection.set_nodelay(true);
        });
        let served = async { axum::serve(listener, app).await };
        tokio::select! {
            served = served => served,
            // After the server was asked to shut down, open connections get the time `GRACE` to send the data in their
            // buffers.
            () = async { let _ = closed.await; tokio::time::sleep(GRACE).await } => Ok(()),
        }
    })?;
    runtime.shutdown_background();
    Ok(())
}

async fn completions(State(state): State<HandlerState>, body: Bytes) -> Response<Body> {
    asked(state, Form::Completion, &body).await.unwrap_or_else(|refusal| refusal.answer())
}

async fn chat(State(state): State<HandlerState>, body: Bytes) -> Response<Body> {
    asked(state, Form::Chat, &body).await.unwrap_or_else(|refusal| refusal.answer())
}

async fn asked(state: HandlerState, form: Form, body: &[u8]) -> Result<Response<Body>, Refusal> {
    let came = Instant::now();
    let (ask, sending) = ask::read(form, body, &state.limits)?;
    let stream = sending.stream;
    let (to, mut pieces) = mpsc::unbounded_channel();
    state.calls.send(Call::Ask(ask, came, to)).map_err(|_| ends())?;
    let id = match pieces.recv().await {
        Some(Piece::Begun(id)) => id,
        Some(Piece::Busy(waiting)) => {
            let message = format!("{waiting} requests wait already: ask again later");
            return Err(Refusal { status: StatusCode::TOO_MANY_REQUESTS, message, param: None });
        }
        Some(Piece::Rejected(why)) => return Err(Refusal::bad("prompt", why)),
        Some(Piece::Tokens(_)) | None => return Err(ends()),
    };
    let mut abort = AbortOnDrop { calls: state.calls.clone(), id, done: false, stopped: false };
    let mut answer = Answer::new(&state.limits.model, state.answers.fetch_add(1, Ordering::Relaxed), sending);
    if stream {
        let events = Events { answer, pieces, abort, late: state.late.clone() };
        return Ok(with_type("text/event-stream; charset=utf-8", Body::from_stream(events)));
    }
    while !answer.ended() {
        match pieces.recv().await {
            Some(Piece::Tokens(tokens)) => {
                answer.collect(&tokens);
                abort.done = tokens.end.is_some();
                abort.stopped = answer.ended();
            }
            Some(Piece::Rejected(why)) => {
                abort.done = true;
                return Err(Refusal::bad("prompt", why));
            }
            Some(Piece::Begun(_) | Piece::Busy(_)) => {}
            None => return Err(ends()),
        }
    }
    Ok(with_type("application/json", Body::from(answer.whole())))
}

fn ends() -> Refusal {
    Refusal { status: StatusCode::SERVICE_UNAVAILABLE, message: "the server ends".into(), param: None }
}

fn with_type(kind: &'static str, body: Body) -> Response<Body> {
    Response::builder().header(header::CONTENT_TYPE, kind).body(body).expect("the header is fixed")
}

async fn models(State(state): State<HandlerState>) -> Response<Body> {
    let Limits { model, max_model_len, .. } = &*state.limits;
    let card = json!({
        "id": model, "object": "model", "created": 0, "owned_by": "foretoken", "root": model, "parent": null,
        "max_model_len": max_model_len,
    });
    with_type("application/json", Body::from(json!({ "object": "list", "data": [card] }).to_string()))
}

async fn tokenize(State(state): State<HandlerState>, body: Bytes) -> Response<Body> {
    said(tokenized(&body, &state.limits))
}

async fn detokenize(State(state): State<HandlerState>, body: Bytes) -> Response<Body> {
    said(detokenized(&body, &state.limits))
}

fn said(answer: Result<serde_json::Value, Refusal>) -> Response<Body> {
    match answer {
        Ok(answer) => with_type("application/json", Body::from(answer.to_string())),
        Err(refusal) => refusal.answer(),
    }
}

async fn version(State(state): State<HandlerState>) -> Response<Body> {
    with_type("application/json", Body::from(json!({ "version": format!("{}+foretoken", state.number) }).to_string()))
}

async fn health() -> StatusCode {
    StatusCode::OK
}

async fn metrics(State(state): State<HandlerState>) -> Response<Body> {
    let (to, text) = oneshot::channel();
    let asked = state.calls.send(Call::Metrics(to)).is_ok();
    match text.await {
        Ok(text) if asked => with_type("text/plain; version=0.0.4; charset=utf-8", Body::from(text)),
        _ => ends().answer(),
    }
}
