//! Compares the logits of the whole forward pass with the logits of Hugging Face transformers (made by
//! `golden/make.py`).

use crate::common::widened::Widened;
use foretoken_kernels::cpu::Cpu;
use foretoken_kernels::forward::{Limits, Llama};
use foretoken_kernels::model::read_config;
use foretoken_kernels::paged::{Batch, Logits};
use foretoken_kernels::weights::{Checkpoint, Weights};
use itertools::Itertools;
use safetensors::SafeTensors;
use std::path::Path;

/// Largest allowed difference between our logits and the logits of Hugging Face transformers. Both compute in f32, but
/// add numbers in different orders. Some hundred roundings of 2⁻²⁴ relative each give differences of 1e-6 to 1e-5. The
/// logits have a standard deviation of 1.2 in both test models.
const TOLERANCE: f32 = 5e-5;

/// Largest allowed difference between our logits and the logits of Hugging Face transformers if our keys and values are
/// bf16. This rounds each number of the KV by up to 2⁻⁹ of its size; transformers does not round them.
const BF16_KV: f32 = 5e-2;

fn words(bytes: &[u8]) -> Vec<[u8; 4]> {
    bytes.as_chunks().0.to_vec()
}

#[test]
fn llama_has_the_logits_of_transformers() {
    compare("llama");
}

#[test]
fn qwen3_has_the_logits_of_transformers() {
    compare("qwen3");
}

fn compare(model: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(model);
    let shape = read_config(&folder.join("config.json")).unwrap();
    let weights = Checkpoint::open(&folder, &shape).unwrap();
    let file = std::fs::read(folder.join("logits.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&file).unwrap();
    let integers = |name: &str| -> Vec<u32> {
        words(file.tensor(name).unwrap().data()).into_iter().map(u32::from_le_bytes).collect()
    };
    let (tokens, rows) = (integers("tokens"), integers("rows"));
    let expected: Vec<f32> = words(file.tensor("logits").unwrap().data()).into_iter().map(f32::from_le_bytes).collect();

    assert_eq!(expected.len(), rows.len() * shape.vocab as usize);

    let worst = |weights: &dyn Weights| {
        let limits = Limits { kv_blocks: 8, max_rows: 70, max_logit_rows: 70 };
        let mut cpu = Cpu::new(2).unwrap();
        let mut llama = Llama::load(&mut cpu, &shape, &weights, limits).unwrap();
        let mut batch = Batch::default();
        batch.push_chain(&tokens, 0, &[6, 1, 0, 7, 3], Logits::All);
        llama.forward(&mut cpu, &batch).unwrap();
        let got = rows.iter().flat_map(|&row| llama.logits().row(row as usize));
        got.zip_eq(&expected).map(|(got, expected)| (got - expected).abs()).fold(0f32, f32::max)
    };
    let (exact, rounded) = (worst(&Widened(&weights)), worst(&weights));
    println!("{model}: largest difference {exact:e}, with bf16 KV {rounded:e}");
    assert!(exact < TOLERANCE, "{exact:e}");
    assert!(rounded > exact && rounded < BF16_KV, "{rounded:e}");
}
