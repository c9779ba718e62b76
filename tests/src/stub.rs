//! A stub server whose answers a test chooses: HTTP/1.1 with server-sent events, as in OpenAI-compatible servers. It
//! runs no model.

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::Duration;

/// A request that the stub received.
#[derive(Debug)]
pub struct Request {
    /// The path of the request's URL, with its leading slash.
    pub path: String,
    /// The header lines of the request as received.
    pub headers: Vec<String>,
    /// The body of the request as JSON; null without a body.
    pub body: Value,
    /// Number of completion requests that came before this one; 0 if this is no completion request.
    pub nth: usize,
}

/// An answer of the stub.
#[derive(Clone, Debug)]
pub enum Reply {
    /// A whole answer: status, additional header lines, body.
    Text(u16, Vec<String>, String),
    /// A stream of events, as (wait before the event, text). If the last event is not `[DONE]`, the connection breaks
    /// off.
    Events(Vec<(Duration, String)>),
    /// A body that never ends: its content type, and the text that the stub repeats.
    Endless(&'static str, String),
    /// No answer is sent, and the connection stays open.
    Silent,
    /// No answer is sent, and the connection is closed.
    Close,
}

/// A streamed completion in vLLM's format.
#[derive(Clone, Debug)]
pub struct Completion {
    /// Number of tokens in each chunk of the answer; the last chunk ends the answer.
    pub chunks: Vec<usize>,
    /// Wait before the first chunk of the answer is sent.
    pub first: Duration,
    /// Wait between two chunks of the answer.
    pub gap: Duration,
    /// True if the chunks of the answer have token ids.
    pub ids: bool,
    /// True if the answer ends with the usage (numbers of prompt and output tokens).
    pub usage: bool,
    /// The `finish_reason` of the answer.
    pub reason: &'static str,
    /// The answer's `metrics` (per-request metrics as JSON), sent with the usage; `None` for no metrics.
    pub metrics: Option<Value>,
    /// Number of chunks after which the connection breaks off; `None` if the answer is sent to its end.
    pub cut_after: Option<usize>,
}

impl Completion {
    /// The usual completion: one token per chunk, up to the request's `max_tokens`, without waits.
    pub fn of(request: &Request) -> Completion {
        let tokens = request.body["max_tokens"].as_u64().unwrap_or(1) as usize;
        Completion {
            chunks: vec![1; tokens],
            first: Duration::ZERO,
            gap: Duration::ZERO,
            ids: true,
            usage: true,
            reason: "length",
            metrics: None,
            cut_after: None,
        }
    }

    /// The completion as a reply to `request`.
    pub fn reply(&self, request: &Request) -> Reply {
        let prompt = &request.body["prompt"];
        let prompt_tokens = prompt.as_array().map_or_else(|| prompt.as_str().map_or(0, str::len), Vec::len);
        let mut events = Vec::new();
        let mut so_far = 0;
        for (i, &n) in self.chunks.iter().enumerate() {
            if self.cut_after == Some(i) {
                return Reply::Events(events);
            }
            let ids: Vec<usize> = (so_far..so_far + n).map(|t| 97 + t % 26).collect();
            so_far += n;
            let text: String = ids.iter().map(|&id| char::from(id as u8)).collect();
            let mut choice = json!({ "index": 0, "text": text, "finish_reason": null });
            if self.ids {
                choice["token_ids"] = json!(ids);
            }
            if i + 1 == self.chunks.len() {
                choice["finish_reason"] = self.reason.into();
            }
            let wait = if i == 0 { self.first } else { self.gap };
            events.push((wait, json!({ "object": "text_completion", "choices": [choice] }).to_string()));
        }
        if self.usage {
            let mut last =
                json!({ "choices": [], "usage": { "prompt_tokens": prompt_tokens, "completion_tokens": so_far } });
            if let Some(metrics) = &self.metrics {
                last["metrics"] = metrics.clone();
            }
            events.push((Duration::ZERO, last.to_string()));
        }
        events.push((Duration::ZERO, "[DONE]".into()));
        Reply::Events(events)
    }
}

type Say = dyn Fn(&Request) -> Reply + Send + Sync;

/// A running stub server. It ends when the value is dropped, or when the flag of [`switch`](Stub::switch) is set.
pub struct Stub {
    address: SocketAddr,
    scheme: &'static str,
    closed: Arc<AtomicBool>,
    /// The stub server's certificate (PEM), if it uses TLS.
    pub certificate: Option<String>,
}

impl Stub {
    /// Starts a stub server. `say` answers requests for models, version, llama.cpp's `/props`, metrics and completions.
    /// Other requests get a 404.
    pub fn start(say: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Stub {
        Stub::listen(Arc::new(say), None)
    }

    /// Starts a stub like [`Stub::start`], but with TLS: its certificate, which it signed itself, is for `localhost`.
    ///
    /// # Panics
    /// If the certificate cannot be read, or the stub cannot listen on a port of this machine.
    pub fn start_tls(say: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Stub {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("certificate");
        let certificate = std::fs::read_to_string(folder.join("localhost.pem")).expect("a certificate");
        let key = std::fs::read(folder.join("key.der")).expect("a key");
        let chain = CertificateDer::from_pem_slice(certificate.as_bytes()).expect("a certificate");
        let key = PrivateKeyDer::try_from(key).expect("a key");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions of TLS")
            .with_no_client_auth()
            .with_single_cert(vec![chain], key)
            .expect("a certificate with its key");
        let mut stub = Stub::listen(Arc::new(say), Some(Arc::new(tls)));
        (stub.certificate, stub.scheme) = (Some(certificate), "https");
        stub
    }

    fn listen(say: Arc<Say>, tls: Option<Arc<ServerConfig>>) -> Stub {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let closed = Arc::new(AtomicBool::new(false));
        let (over, asked) = (closed.clone(), Arc::new(AtomicUsize::new(0)));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                let (say, over, asked, tls) = (say.clone(), over.clone(), asked.clone(), tls.clone());
                std::thread::spawn(move || {
                    let _ = stream.set_nodelay(true);
                    match tls.map(ServerConnection::new) {
                        Some(Ok(tls)) => {
                            serve(&mut BufReader::new(StreamOwned::new(tls, stream)), &*say, &over, &asked)
                        }
                        Some(Err(_)) => None,
                        None => serve(&mut BufReader::new(stream), &*say, &over, &asked),
                    }
                });
            }
        });
        Stub { address, scheme: "http", closed, certificate: None }
    }

    /// Returns the stub server's URL with the given host name.
    pub fn url(&self, host: &str) -> String {
        format!("{}://{host}:{}", self.scheme, self.address.port())
    }

    /// Returns the flag that ends the stub server when it is set: connections break, and new ones get no answer.
    pub fn switch(&self) -> Arc<AtomicBool> {
        self.closed.clone()
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        self.closed.store(true, Ordering::Relaxed);
        // The stub's thread waits for a connection. This connection wakes the thread, which then sees that its flag is
        // set.
        let _ = TcpStream::connect(self.address);
    }
}

/// Answers the requests of one connection until the connection ends or `over` is set.
fn serve<S: Read + Write>(stream: &mut BufReader<S>, say: &Say, over: &AtomicBool, asked: &AtomicUsize) -> Option<()> {
    loop {
        let request = read(stream, asked)?;
        if over.load(Ordering::Relaxed) {
            return None;
        }
        let reply = match request.path.as_str() {
            "/v1/models" | "/version" | "/props" | "/metrics" | "/v1/completions" => say(&request),
            _ => Reply::Text(404, vec![], "{\"detail\":\"Not Found\"}".into()),
        };
        write(stream.get_mut(), &reply, over)?;
    }
}

fn read(stream: &mut impl BufRead, asked: &AtomicUsize) -> Option<Request> {
    let mut first = String::new();
    if stream.read_line(&mut first).ok()? == 0 {
        return None;
    }
    let path = first.split(' ').nth(1)?.to_owned();
    let mut headers = Vec::new();
    let mut length = 0;
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).ok()?;
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        if let Some(n) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = n.trim().parse().ok()?;
        }
        headers.push(line.to_owned());
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
    let nth = if path == "/v1/completions" { asked.fetch_add(1, Ordering::Relaxed) } else { 0 };
    Some(Request { path, headers, body, nth })
}

/// Writes a reply to the connection. Returns `None` if the connection must be closed.
fn write(stream: &mut impl Write, reply: &Reply, over: &AtomicBool) -> Option<()> {
    match reply {
        Reply::Close => None,
        Reply::Silent => {
            while !over.load(Ordering::Relaxed) {
                sleep(Duration::from_millis(20));
            }
            None
        }
        Reply::Endless(kind, piece) => {
            let head = format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ntransfer-encoding: chunked\r\n\r\n");
            stream.write_all(head.as_bytes()).ok()?;
            while !over.load(Ordering::Relaxed) {
                stream.write_all(format!("{:x}\r\n{piece}\r\n", piece.len()).as_bytes()).ok()?;
            }
            None
        }
        Reply::Text(status, headers, body) => {
            let headers: String = headers.iter().map(|h| format!("{h}\r\n")).collect();
            let text = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n{headers}\r\n{body}", body.len());
            stream.write_all(text.as_bytes()).and_then(|()| stream.flush()).ok()
        }
        Reply::Events(events) => {
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
            stream.write_all(head.as_bytes()).ok()?;
            let mut ended = false;
            for (wait, data) in events {
                if !wait.is_zero() {
                    stream.flush().ok()?;
                    sleep(*wait);
                }
                if over.load(Ordering::Relaxed) {
                    return None;
                }
                let event = format!("data: {data}\n\n");
                stream.write_all(format!("{:x}\r\n{event}\r\n", event.len()).as_bytes()).ok()?;
                ended = data == "[DONE]";
            }
            if ended {
                stream.write_all(b"0\r\n\r\n").ok()?;
            }
            stream.flush().ok()?;
            ended.then_some(())
        }
    }
}

/// The usual reply to a request for models (one model `stub` with up to 512 tokens), for the version, or for metrics
/// (the text `metrics`). `None` for other requests, such as completions.
pub fn aside(request: &Request, metrics: &str) -> Option<Reply> {
    let text = |body: String| Some(Reply::Text(200, vec![], body));
    match request.path.as_str() {
        "/v1/models" => text(json!({ "data": [{ "id": "stub", "max_model_len": 512 }] }).to_string()),
        "/version" => text(json!({ "version": "0.0.stub" }).to_string()),
        "/metrics" => text(metrics.to_owned()),
        _ => None,
    }
}
