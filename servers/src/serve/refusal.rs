//! The HTTP answers to requests that the server refuses, in vLLM's form.

use axum::body::Body;
use axum::http::{Response, StatusCode, header};
use foretoken_run::spec::shown::clip;
use serde_json::json;

/// Most characters of a refusal's message to the client; longer messages are cut.
const MESSAGE: usize = 2000;

/// A refusal of a client's request: the HTTP status, and why the request is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub status: StatusCode,
    /// The message for the client that says why its request is refused.
    pub message: String,
    /// The field of the request's JSON that is wrong; `None` if the refusal is not about a single field.
    pub param: Option<&'static str>,
}

impl Refusal {
    /// Makes a refusal with the status `status`, because the field `param` of the request is wrong. The message is cut
    /// to `MESSAGE` characters, because it may quote what the client sent.
    pub fn of(status: StatusCode, param: &'static str, message: impl AsRef<str>) -> Refusal {
        Refusal { status, message: clip(message.as_ref(), MESSAGE).into_owned(), param: Some(param) }
    }

    /// Makes a refusal with status 400, because the field `param` of the request is wrong.
    pub fn bad(param: &'static str, message: impl AsRef<str>) -> Refusal {
        Refusal::of(StatusCode::BAD_REQUEST, param, message)
    }

    /// Returns the HTTP answer to the refused request: vLLM's error object as JSON.
    pub fn answer(&self) -> Response<Body> {
        let kind = match self.status {
            StatusCode::NOT_FOUND => "NotFoundError",
            StatusCode::TOO_MANY_REQUESTS => "RateLimitError",
            StatusCode::SERVICE_UNAVAILABLE => "ServiceUnavailableError",
            _ => "BadRequestError",
        };
        let code = self.status.as_u16();
        let error = json!({ "message": self.message, "type": kind, "param": self.param, "code": code });
        let mut answer = Response::builder().status(self.status).header(header::CONTENT_TYPE, "application/json");
        if self.status == StatusCode::TOO_MANY_REQUESTS {
            answer = answer.header(header::RETRY_AFTER, "1");
        }
        answer.body(Body::from(json!({ "error": error }).to_string())).expect("the headers are fixed")
    }
}
