//! Fuzzes the reader of the policy settings of SGLang, another serving engine.

use crate::said;
use foretoken_policies::{from_sglang_json, to_sglang_json};

/// Reads SGLang's `adaptive_spec.json` as a policy. The policy must have finite numbers, and must be equal after it is
/// written and read again.
pub fn sglang_json(data: &[u8]) {
    let Some(text) = said::text(data) else { return };
    match from_sglang_json(text) {
        Err(error) => said::names(&error.to_string(), &error.key),
        Ok(policy) => {
            said::finite(&policy);
            let written = to_sglang_json(&policy).unwrap_or_else(|e| panic!("it cannot be written: {e}"));
            assert_eq!(from_sglang_json(&written).as_ref(), Ok(&policy), "{written}");
        }
    }
}
