//! Builds the JSON body of a completion request.

use crate::prompts::Prompt;
use foretoken_spec::observe::ObserveSpec;
use foretoken_spec::problem::{Problem, Result};
use serde_json::{Map, Value, json};

/// The JSON of a completion request for `output_len` output tokens. The fields of `observe.extra` are added and replace
/// fields of the same name. `return_token_ids` and `continuous_usage_stats` are fields of vLLM: with either of them, a
/// chunk says how many tokens it has. Other servers ignore these fields.
pub fn body(spec: &ObserveSpec, model: &str, prompt: &Prompt, output_len: u32) -> Result<String> {
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
        let text = body(&spec, "m", &Prompt::Ids(vec![1, 2]), 9).unwrap();
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            (&value["temperature"], &value["top_k"], &value["prompt"]),
            (&json!(0.7), &json!(5), &json!([1, 2]))
        );
        assert_eq!((&value["max_tokens"], &value["ignore_eos"]), (&json!(9), &json!(true)));
        let text = body(&ObserveSpec { ignore_eos: false, ..spec }, "m", &Prompt::Text("a\"b".into()), 1).unwrap();
        assert!(text.contains(r#""prompt":"a\"b""#) && !text.contains("ignore_eos"), "{text}");
    }
}
