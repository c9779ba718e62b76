//! Builds the JSON body of a completion request.

use crate::observe::prompts::Prompt;
use crate::recordings::llama_cpp::is_llama_cpp;
use crate::recordings::recording::Server;
use foretoken_run::spec::observe::ObserveSpec;
use foretoken_run::spec::problem::{Problem, Result};
use serde_json::{Map, Value, json};

/// The JSON of a completion request for `output_len` output tokens. The fields of `observe.extra` are added and replace
/// fields of the same name. `return_token_ids` and `continuous_usage_stats` are fields of vLLM: with either of them, a
/// chunk says how many tokens it has. Other servers ignore these fields. Only requests to llama.cpp have two more
/// fields: with `timings_per_token` a chunk says how many tokens and draft tokens the answer has so far, and
/// `cache_prompt` says whether a slot may keep a prompt (`prefix_caching`).
pub fn body(
    spec: &ObserveSpec,
    server: &Server,
    model: &str,
    prompt: &Prompt,
    output_len: u32,
    prefix_caching: bool,
) -> Result<String> {
    let mut body = json!({
        "model": model,
        "prompt": prompt,
        "max_tokens": output_len,
        "temperature": spec.temperature,
        "stream": true,
        "stream_options": { "include_usage": true, "continuous_usage_stats": true },
        "return_token_ids": true,
    });
    let fields: &mut Map<String, Value> = body.as_object_mut().expect("it was written as an object");
    if is_llama_cpp(server.version.as_deref()) {
        fields.insert("timings_per_token".into(), true.into());
        fields.insert("cache_prompt".into(), prefix_caching.into());
    }
    if spec.ignore_eos {
        fields.insert("ignore_eos".into(), true.into());
    }
    for (key, value) in &spec.extra {
        let value = serde_json::to_value(value)
            .map_err(|e| Problem::bad_input(format!("observe.extra.{key} cannot be sent: {e}")))?;
        fields.insert(key.clone(), value);
    }
    Ok(body.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extra_fields_replace_the_usual_ones() {
        let extra = [("temperature".to_owned(), 0.7.into()), ("top_k".to_owned(), 5.into())];
        let spec = ObserveSpec { extra: extra.into_iter().collect(), ..ObserveSpec::default() };
        let other = Server::default();
        let text = body(&spec, &other, "m", &Prompt::Ids(vec![1, 2]), 9, true).unwrap();
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            (&value["temperature"], &value["top_k"], &value["prompt"]),
            (&json!(0.7), &json!(5), &json!([1, 2]))
        );
        assert_eq!((&value["max_tokens"], &value["ignore_eos"]), (&json!(9), &json!(true)));
        let spec = ObserveSpec { ignore_eos: false, ..spec };
        let text = body(&spec, &other, "m", &Prompt::Text("a\"b".into()), 1, true).unwrap();
        assert!(text.contains(r#""prompt":"a\"b""#) && !text.contains("ignore_eos"), "{text}");
        assert!(!text.contains("timings_per_token") && !text.contains("cache_prompt"), "{text}");
    }

    #[test]
    fn llama_cpp_is_asked_for_timings_of_each_token() {
        let server = Server { version: Some("llama.cpp b11434".into()), ..Server::default() };
        for caching in [false, true] {
            let text = body(&ObserveSpec::default(), &server, "m", &Prompt::Ids(vec![1]), 9, caching).unwrap();
            let value: Value = serde_json::from_str(&text).unwrap();
            assert_eq!((&value["timings_per_token"], &value["cache_prompt"]), (&json!(true), &json!(caching)));
        }
    }
}
