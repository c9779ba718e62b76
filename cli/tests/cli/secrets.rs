//! An API key or a password goes only to the server. No message, file or page contains it.

use crate::observe::{EXPERIMENT, speculating};
use crate::serve::Server;
use crate::support::Place;
use foretoken_tests::stub::{Reply, Request, Stub, aside};
use std::io::Write;
use std::path::Path;

const KEY: &str = "MARKED-KEY-7f3a";
const PASSWORD: &str = "MARKED-PASS-7f3a";

/// Panics if `bytes` contain a secret. The secret may be plain text, or base64 of `user:` and the password as in a
/// header.
fn free_of_secrets(what: &str, bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    for secret in [KEY, PASSWORD, "dXNlcjpNQVJLRUQtUEFTUy03ZjNh"] {
        let at = text.find(secret);
        assert!(at.is_none(), "{what} has the secret: {}", &text[at.unwrap_or_default().saturating_sub(200)..]);
    }
}

fn files_free_of_secrets(folder: &Path) -> usize {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries
        .map(|path| match path.is_dir() {
            true => files_free_of_secrets(&path),
            false => {
                free_of_secrets(&path.display().to_string(), &std::fs::read(&path).unwrap());
                1
            }
        })
        .sum()
}

/// An error answer of the server that quotes the whole request.
fn quoting(request: &Request) -> Reply {
    let said = serde_json::json!({ "error": { "message": format!("wrong: {:?}", request.headers) } });
    Reply::Text(401, vec!["content-type: application/json".into()], said.to_string())
}

fn is_sent(request: &Request) -> bool {
    request.headers.iter().any(|h| h.contains(KEY) || h.contains("dXNlcjpNQVJLRUQtUEFTUy03ZjNh"))
}

#[test]
fn what_observe_prints_and_writes_has_no_key() {
    let quotes = |path: &'static str, from: usize| {
        move |r: &Request| {
            assert!(is_sent(r), "the key is sent with {}", r.path);
            if r.path == path && r.nth >= from {
                return quoting(r);
            }
            aside(r, "").unwrap_or_else(|| speculating(r).reply(r))
        }
    };
    for (path, from, fine) in [
        ("/none", 0, true),
        ("/v1/models", 0, false),
        ("/version", 0, true),
        ("/metrics", 0, true),
        ("/v1/completions", 0, false),
        ("/v1/completions", 4, true),
    ] {
        for user in ["", &format!("user:{PASSWORD}@")] {
            let server = Stub::start(quotes(path, from));
            let url = server.url("127.0.0.1").replacen("http://", &format!("http://{user}"), 1);
            let place = Place::holding(EXPERIMENT);
            let mut observe = place.foretoken();
            observe.args(["observe", &url, "x.toml", "-o", "out", "--format", "json"]);
            if !url.contains(PASSWORD) {
                observe.env("FORETOKEN_API_KEY", KEY);
            }
            let out = observe.output().unwrap();
            let said = String::from_utf8_lossy(&out.stderr);
            assert_eq!(out.status.success(), fine, "{path} from {from}: {said}");
            free_of_secrets(&format!("{path} from {from}: stdout"), &out.stdout);
            free_of_secrets(&format!("{path} from {from}: stderr"), &out.stderr);
            let files = files_free_of_secrets(&place.path("."));
            assert!(!fine || files > 10, "only {files} files");
        }
    }
    // The message about a refused address leaves out the parts that may hold a secret.
    let place = Place::holding(EXPERIMENT);
    for url in ["http://user:{}@127.0.0.1:9", "user:{}@127.0.0.1:9", "http://127.0.0.1:9/v1?key={}", "http://user:{}@"]
    {
        let out =
            place.foretoken().args(["observe", &url.replace("{}", PASSWORD), "x.toml", "-o", "out"]).output().unwrap();
        assert!(!out.status.success());
        free_of_secrets(url, &out.stderr);
    }
}

/// `foretoken serve` gets valid and invalid requests with a key. It neither prints nor logs the key.
#[test]
fn what_serve_prints_and_logs_has_no_key() {
    let place = Place::holding(crate::serve::EXPERIMENT);
    let server = Server::start(&place, &["--step-log", "steps.log"]);
    let right = r#"{"model":"m","prompt":"abcd","max_tokens":3}"#;
    let wrong = format!("{{\"prompt\": \"{KEY}\", \"max_tokens\": \"{KEY}\"");
    for (method, path, body) in [
        ("POST", "/v1/completions", right),
        ("POST", "/v1/completions", wrong.as_str()),
        ("POST", "/v1/chat/completions", "{}"),
        ("GET", "/v1/models", ""),
        ("GET", "/metrics", ""),
        ("GET", &format!("/none?key={KEY}"), ""),
        ("PUT", "/v1/models", KEY),
    ] {
        let mut connection = std::net::TcpStream::connect(server.address).unwrap();
        let length = body.len();
        write!(
            connection,
            "{method} {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\nconnection: close\r\n\
             content-length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        let mut answer = Vec::new();
        let _ = std::io::Read::read_to_end(&mut connection, &mut answer);
        assert!(!answer.is_empty());
        if method == "GET" && !path.contains(KEY) {
            free_of_secrets(path, &answer);
        }
    }
    let said = server.end();
    free_of_secrets("what serve prints", said.as_bytes());
    assert!(files_free_of_secrets(&place.path(".")) >= 2);
}
