//! Runs the commands of docs/recipes.md as the page prints them, in a folder with the files that the page names.

use crate::support::Place;
use std::process::Command;

const BIN: &str = env!("CARGO_BIN_EXE_foretoken");

/// The code blocks of a page in one language, without the lines that fence them.
pub fn blocks<'p>(page: &'p str, language: &str) -> Vec<&'p str> {
    let fence = format!("```{language}\n");
    page.split(fence.as_str()).skip(1).map(|rest| rest.split("```").next().unwrap()).collect()
}

/// A `config.json` in Hugging Face's format, with the layers and sizes of Llama 3.1 8B.
const CONFIG: &str = r#"{
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256,
    "head_dim": 128, "hidden_act": "silu", "tie_word_embeddings": false, "torch_dtype": "bfloat16"
}"#;

#[test]
fn every_command_of_the_recipes_runs() {
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/recipes.md");
    let page = std::fs::read_to_string(page).unwrap();
    let place = Place::new();
    std::fs::write(place.path("my.toml"), blocks(&page, "toml")[0]).unwrap();
    std::fs::write(place.path("config.json"), CONFIG).unwrap();
    let rows: String = (0..40).map(|i| format!("{}.5,{},{}\n", i, 100 + i, 20 + i)).collect();
    std::fs::write(place.path("log.csv"), format!("t_s,input_tokens,output_tokens\n{rows}")).unwrap();
    let dated: String = (0..40).map(|i| format!("2026-11-24 09:30:{i:02}.5,{},{}\n", 100 + i, 20 + i)).collect();
    std::fs::write(place.path("gateway.csv"), format!("start,in,out\n{dated}")).unwrap();
    let mut ran = 0;
    for line in blocks(&page, "sh").iter().flat_map(|block| block.lines()) {
        // `foretoken policies new` needs a checkout of the source. Another test runs this command.
        if line.starts_with("foretoken policies new") {
            continue;
        }
        let shell = format!("foretoken() {{ '{BIN}' \"$@\"; }}\n{line}");
        let output = Command::new("bash").args(["-c", &shell]).current_dir(place.path(".")).output().unwrap();
        assert!(output.status.success(), "{line}\n{}", String::from_utf8_lossy(&output.stderr));
        assert!(!output.stdout.is_empty(), "{line} prints nothing");
        ran += 1;
    }
    assert!(ran >= 10, "only {ran} commands ran");
}
