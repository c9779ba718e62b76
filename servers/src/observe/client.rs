//! The connection to a server: its address and key, and requests for its models, version and metrics.

use crate::observe::bounded::{self, chain, whole};
use crate::recordings::llama_cpp::{NAME as LLAMA_CPP, is_llama_cpp};
use crate::recordings::recording::{Sample, Server};
use crate::recordings::says::Says;
use base64::prelude::{BASE64_STANDARD, Engine};
use foretoken_run::spec::problem::{Problem, Result};
use foretoken_run::spec::shown::clip;
use reqwest::{Certificate, RequestBuilder, Response, StatusCode, Url};
use serde::Deserialize;
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

/// Time limit for making a connection to the server.
const CONNECT: Duration = Duration::from_secs(10);
/// Time limit for the server's answer to `/v1/models`, `/version` or `/metrics`.
const ASIDE: Duration = Duration::from_secs(10);

const CERTIFICATES: &str = "give a file of certificates in PEM: each begins with -----BEGIN CERTIFICATE-----";

/// A server's address, key and HTTP client.
#[derive(Clone, Debug)]
pub struct Client {
    http: reqwest::Client,
    base: Url,
    key: Option<String>,
    /// True if each request has a connection of its own.
    closes: bool,
}

/// Most characters of a server's version that are kept.
const VERSION: usize = 120;

/// What a server reported about itself.
pub struct Met {
    /// Its version, models and limits.
    pub server: Server,
    /// Why its metrics cannot be used. `None` if they can be used, or if the server has no `/metrics`.
    pub no_metrics: Option<String>,
    /// What it reports and cannot be true.
    pub doubt: Option<String>,
}

impl Client {
    /// A client for the server at `url`; `/v1` at the end of `url` is optional. `key` is sent as bearer token. `ca` is
    /// a PEM file of certificates that are trusted in addition to the system's certificates.
    pub fn new(url: &str, key: Option<String>, ca: Option<&Path>) -> Result<Client> {
        // Installing fails if another part of the process has already installed a TLS provider. That provider is then
        // used.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let base = base(url)?;
        let mut http = reqwest::Client::builder().connect_timeout(CONNECT).tcp_nodelay(true);
        if let Some(path) = ca {
            let bad = |what: String| Problem::bad_input(format!("--ca {}: {what}", path.display()));
            let pem = fs_err::read(path).map_err(|e| bad(e.to_string()))?;
            let certificates = Certificate::from_pem_bundle(&pem).map_err(|e| bad(chain(&e)))?;
            if certificates.is_empty() {
                return Err(bad("it holds no certificate".into()).help(CERTIFICATES));
            }
            for certificate in certificates {
                http = http.add_root_certificate(certificate);
            }
        }
        let http = http.build().map_err(|e| match ca {
            Some(path) => {
                let what = format!("--ca {}: no certificate that can be trusted: {}", path.display(), chain(&e));
                Problem::bad_input(what).help(CERTIFICATES)
            }
            None => Problem::failed(format!("no HTTP client: {}", chain(&e))),
        })?;
        Ok(Client { http, base, key, closes: false })
    }

    /// The client with which requests are sent to `server`. llama.cpp closes a connection that was idle for five
    /// seconds. A request that is sent on it at this moment is lost. Each request to llama.cpp therefore has a
    /// connection of its own.
    pub fn to(&self, server: &Server) -> Client {
        Client { closes: is_llama_cpp(server.version.as_deref()), ..self.clone() }
    }

    /// The server's URL without user name and password.
    pub fn url(&self) -> String {
        let mut url = self.base.clone();
        // Removing user name and password fails only for addresses that cannot have them.
        let _ = url.set_password(None).and_then(|()| url.set_username(""));
        url.to_string()
    }

    /// Removes the client's key and password from `text`, a text of the server. Some servers quote them in their
    /// errors.
    pub fn without_secrets(&self, text: String) -> String {
        // The password also stands in the authorization header, which has user name and password as one base64 word.
        let word =
            self.base.password().map(|password| BASE64_STANDARD.encode(format!("{}:{password}", self.base.username())));
        let secrets = [self.key.as_deref(), word.as_deref(), self.base.password()].into_iter().flatten();
        secrets.filter(|secret| !secret.is_empty()).fold(text, |text, secret| text.replace(secret, "***"))
    }

    /// The HTTP request for a completion with this JSON body, with the header `x-request-id: id`.
    pub fn completion(&self, body: String, id: &str) -> RequestBuilder {
        let post = self.http.post(self.at("v1/completions")).header("content-type", "application/json");
        self.with_key(post.header("x-request-id", id).body(body))
    }

    /// What the server reports about itself.
    pub async fn server(&self) -> Result<Met> {
        let models: Models = self.models().await?;
        let llama_cpp = models.data.iter().any(ModelCard::is_of_llama_cpp);
        let version = match llama_cpp {
            true => Some(self.build_of_llama_cpp().await),
            false => self.answered::<Version>("version").await.map(|v| v.version),
        };
        let version = version.map(|v| clip(&self.without_secrets(v), VERSION).into_owned());
        let metrics = self.metrics().await.map_err(|why| match llama_cpp {
            true => format!("{why} (llama-server has metrics if it is started with --metrics)"),
            false => why,
        });
        let stated = models.data.iter().find_map(ModelCard::max_model_len);
        let doubt = stated.as_ref().filter(|stated| tokens(stated).is_none()).map(|stated| {
            let stated = stated.to_string();
            format!(
                "{}v1/models: max_model_len is {}, no number of tokens: it is not used",
                self.url(),
                clip(&stated, 40)
            )
        });
        let server = Server {
            version,
            max_model_len: stated.as_ref().and_then(tokens),
            models: models.data.into_iter().map(|m| m.id).collect(),
            metrics: metrics.is_ok(),
        };
        // A server without `/metrics` (404) gets no message, because many servers have none.
        let none = format!("/metrics answers {}", StatusCode::NOT_FOUND);
        Ok(Met { server, no_metrics: metrics.err().filter(|why| *why != none), doubt })
    }

    /// Everything that the server says of itself without being sent a request.
    pub async fn says(&self) -> Result<Says> {
        let mut models: Value = self.models().await?;
        let info = match self.answered::<Value>("server_info?config_format=json").await {
            // SGLang's name before 0.5.
            None => self.answered::<Value>("get_server_info").await,
            info => info,
        };
        let version = self.answered::<Version>("version").await.map(|v| v.version);
        Ok(Says {
            version: version.map(|v| clip(&self.without_secrets(v), VERSION).into_owned()),
            model: models["data"].get_mut(0).map(Value::take).unwrap_or_default(),
            info,
            // A server may have none.
            samples: self.metrics().await.unwrap_or_default(),
        })
    }

    /// The answer to `/v1/models`.
    async fn models<T: for<'a> Deserialize<'a>>(&self) -> Result<T> {
        const HELP: &str = "give the address of an OpenAI-compatible server, such as http://127.0.0.1:8000";
        let models = self.get("v1/models").await.map_err(|e| self.unreachable(&e))?;
        let status = models.status();
        if !status.is_success() {
            let problem = Problem::failed(format!("{}v1/models answers {status}", self.url()));
            return Err(problem.help(match status.as_u16() {
                401 | 403 => "put the server's key into the environment variable FORETOKEN_API_KEY, or name another with --api-key-env",
                _ => HELP,
            }));
        }
        models
            .json_of()
            .await
            .map_err(|why| Problem::failed(format!("{}v1/models: no list of models: {why}", self.url())).help(HELP))
    }

    /// Reads the server's metrics about serving, without histograms.
    pub async fn metrics(&self) -> std::result::Result<Vec<Sample>, String> {
        let response = self.get("metrics").await.map_err(|e| chain(&e))?;
        if !response.status().is_success() {
            return Err(format!("/metrics answers {}", response.status()));
        }
        let bytes = whole(response, bounded::METRICS).await.map_err(|what| format!("/metrics: {what}"))?;
        crate::observe::scrape::samples(&String::from_utf8_lossy(&bytes))
    }

    /// The name of a llama.cpp server with its build, such as `llama.cpp b11434-0a1b2c3`. A build without git has
    /// neither number nor commit.
    async fn build_of_llama_cpp(&self) -> String {
        let props = self.answered::<Props>("props").await;
        props.map_or_else(|| LLAMA_CPP.to_owned(), |props| format!("{LLAMA_CPP} {}", props.build_info))
    }

    /// The JSON with which the server answers a GET request for this path; `None` if it refuses the request or answers
    /// something else.
    async fn answered<T: for<'a> Deserialize<'a>>(&self, path: &str) -> Option<T> {
        let response = self.get(path).await.ok().filter(|response| response.status().is_success())?;
        response.json_of().await.ok()
    }

    async fn get(&self, path: &str) -> reqwest::Result<Response> {
        self.with_key(self.http.get(self.at(path)).timeout(ASIDE)).send().await
    }

    fn with_key(&self, request: RequestBuilder) -> RequestBuilder {
        let request = if self.closes { request.header("connection", "close") } else { request };
        match &self.key {
            Some(key) => request.bearer_auth(key),
            None => request,
        }
    }

    fn at(&self, path: &str) -> Url {
        self.base.join(path).expect("a path below an address that ends in a slash")
    }

    fn unreachable(&self, e: &reqwest::Error) -> Box<Problem> {
        let help = match e {
            e if e.is_timeout() => "is it still loading its model? It must answer /v1/models first",
            e if chain(e).contains("certificate") => {
                "give the address by the name that its certificate has, and its authority with --ca FILE"
            }
            _ => {
                "is the server running, and is this its address? vLLM says \"Application startup complete\" when it can be asked"
            }
        };
        Problem::failed(format!("{} cannot be reached: {}", self.url(), chain(e))).help(help)
    }
}

/// Parses the URL of a server. Removes a `/v1` at its end and makes the path end in `/`, so that paths can be joined to
/// it.
fn base(url: &str) -> Result<Url> {
    let bad = |what: &str| {
        Problem::bad_input(format!("`{}` {what}", shown(url))).help("give an address such as http://127.0.0.1:8000")
    };
    let mut base = Url::parse(url).map_err(|e| bad(&format!("is no address: {e}")))?;
    if !matches!(base.scheme(), "http" | "https") || base.host().is_none() {
        return Err(bad("is no address of a server: it must begin with http:// or https://"));
    }
    if base.query().is_some() || base.fragment().is_some() {
        return Err(bad("has more than the place of a server"));
    }
    let path = base.path().trim_end_matches('/');
    let path = format!("{}/", path.strip_suffix("/v1").unwrap_or(path));
    base.set_path(&path);
    Ok(base)
}

/// The part of a URL that may be shown: without user name, password and query, which may hold a key.
fn shown(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").map_or(("", url), |(scheme, rest)| (scheme, rest));
    let rest = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    if scheme.is_empty() { rest.to_owned() } else { format!("{scheme}://{rest}") }
}

trait Json {
    /// Reads the body of a server's HTTP answer as JSON. The body may have at most [`bounded::PAGE`] bytes.
    async fn json_of<T: for<'a> Deserialize<'a>>(self) -> std::result::Result<T, String>;
}

impl Json for Response {
    async fn json_of<T: for<'a> Deserialize<'a>>(self) -> std::result::Result<T, String> {
        let bytes = whole(self, bounded::PAGE).await?;
        serde_json::from_slice(&bytes).map_err(|e| e.to_string())
    }
}

#[derive(Deserialize)]
struct Models {
    data: Vec<ModelCard>,
}

#[derive(Deserialize)]
struct ModelCard {
    id: String,
    max_model_len: Option<Value>,
    owned_by: Option<String>,
    meta: Option<Value>,
}

impl ModelCard {
    /// The model's limit on prompt plus output tokens, from the server's list of models. Of llama.cpp it is the context
    /// of a slot. `None` if the field is missing or null.
    fn max_model_len(&self) -> Option<Value> {
        let of_a_slot = self.meta.as_ref().filter(|_| self.is_of_llama_cpp()).and_then(|meta| meta.get("n_ctx"));
        self.max_model_len.as_ref().or(of_a_slot).filter(|value| !value.is_null()).cloned()
    }

    fn is_of_llama_cpp(&self) -> bool {
        self.owned_by.as_deref() == Some("llamacpp")
    }
}

/// A number of tokens, at least 1. `None` if the value is something else.
fn tokens(value: &Value) -> Option<u32> {
    value.as_u64().and_then(|n| u32::try_from(n).ok()).filter(|&n| n > 0)
}

#[derive(Deserialize)]
struct Version {
    version: String,
}

/// What llama.cpp's server says about itself.
#[derive(Deserialize)]
struct Props {
    build_info: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_taken_with_and_without_v1() {
        for (given, base_is) in [
            ("http://h:8000", "http://h:8000/"),
            ("http://h:8000/v1", "http://h:8000/"),
            ("https://u:secret@h/gateway/v1/", "https://h/gateway/"),
        ] {
            assert_eq!(Client::new(given, None, None).unwrap().url(), base_is);
        }
        for (given, said) in [
            ("localhost:8000", "must begin with http"),
            ("8000", "is no address: relative URL"),
            ("ftp://h", "must begin with http"),
            ("http://h/v1?x=1", "`http://h/v1` has more than the place"),
            ("http://u:secret@h/v1?key=secret", "`http://h/v1` has more than the place"),
            ("u:secret@h:8000", "`h:8000` is no address"),
            ("http://u:secret@", "`http://` is no address"),
        ] {
            let problem = Client::new(given, None, None).unwrap_err();
            assert!(problem.message().contains(said), "{}", problem.message());
            assert!(!problem.message().contains("secret"), "{}", problem.message());
        }
    }
}
