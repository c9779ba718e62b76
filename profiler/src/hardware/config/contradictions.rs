//! Refuses a file whose `architectures` names another family than its `model_type`.

use super::bad::BadConfig;
use super::families::{self, Family};
use super::fields::Fields;

/// Families whose files name a class of another family: `model_type` and the class before `For`.
const KIN: [(&str, &str); 3] = [("kimi_k2", "DeepseekV3"), ("kimi_k3", "KimiLinear"), ("mimo", "Qwen2")];

/// Compares `architectures` with the family of `model_type`. A class that names no known family is passed over, since
/// drafters have classes of their own.
pub fn check(whole: &Fields, family: &Family) -> Result<(), BadConfig> {
    for class in whole.texts("architectures")?.unwrap_or_default() {
        // `MixtralForCausalLM` is the class of `mixtral`, `Qwen3MoeForCausalLM` the class of `qwen3_moe`.
        let Some((name, _)) = class.split_once("For") else { continue };
        let Some(other) = families::of_class(name) else { continue };
        let model_type = whole.text("model_type")?.unwrap_or_default();
        if !std::ptr::eq(other, family) && !KIN.contains(&(model_type, name)) {
            let why = format!("`{class}` is not a class of model_type `{model_type}`; mend the one that is wrong");
            return Err(whole.bad("architectures", why));
        }
    }
    Ok(())
}
