//! Tests of the target and draft that ship with this crate: their sizes, their logits, the target's answers, and how
//! often the draft model's most likely token is the target's token.

use crate::common::pair::{HELD_OUT, Pair, Rounds, prompt};
use crate::common::widened::Widened;
use foretoken_kernels::cpu::Cpu;
use foretoken_kernels::device::Device;
use foretoken_kernels::forward::{Limits, Llama};
use foretoken_kernels::model::{SHIPPED, preset, read_config};
use foretoken_kernels::paged::{Batch, Logits};
use foretoken_kernels::weights::{Checkpoint, Dtype, TensorData, Weights, tensors};
use foretoken_traces::text::{Family, prompt_of_len};
use itertools::Itertools;
use safetensors::SafeTensors;
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("pair")
}

#[test]
fn sizes_are_as_promised_and_the_files_are_what_is_embedded() {
    let mut bytes = 0;
    for (name, parameters) in SHIPPED.into_iter().zip_eq([3_600_000..=4_200_000, 300_000..=500_000]) {
        let shape = preset(name).unwrap();
        let count: usize = tensors(&shape).iter().map(|t| t.len()).sum();
        assert!(parameters.contains(&count), "{name} has {count} parameters");
        let folder = folder().join(name.trim_start_matches("tiny-"));
        assert_eq!(read_config(&folder.join("config.json")).unwrap(), shape);
        bytes += std::fs::metadata(folder.join("model.safetensors")).unwrap().len();
        let (file, embedded) = (Checkpoint::open(&folder, &shape).unwrap(), Checkpoint::shipped(name).unwrap());
        assert_eq!(embedded.dtype(), Dtype::Bf16);
        for spec in tensors(&shape) {
            let (TensorData::Stored { bytes: a, .. }, TensorData::Stored { bytes: b, .. }) =
                (file.tensor(&spec.name), embedded.tensor(&spec.name))
            else {
                panic!("{} is not stored", spec.name)
            };
            assert!(a == b && b.as_ptr().addr().is_multiple_of(8), "{name} {}", spec.name);
        }
    }
    assert!(bytes <= 10_000_000, "{bytes} bytes together");
    assert!(Checkpoint::shipped("vicuna-7b").is_none());
}

/// `pair/logits.safetensors` has the logits that the training code computed in f32 from the stored weights. The largest
/// logits are about 10 to 100. Sums of a thousand products in another order change a logit by about 1e-5 of its size.
/// Keys and values stored as bf16 change it by about 2⁻⁹ of its size.
#[test]
fn logits_are_those_of_the_training() {
    const TOLERANCE: f32 = 2e-3;
    const BF16_KV: f32 = 0.1;
    let file = std::fs::read(folder().join("logits.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&file).unwrap();
    let words = |name: &str| -> Vec<[u8; 4]> { file.tensor(name).unwrap().data().as_chunks().0.to_vec() };
    let tokens: Vec<u32> = words("tokens").into_iter().map(u32::from_le_bytes).collect();
    let limits = Limits { kv_blocks: 8, max_rows: 128, max_logit_rows: 128 };
    for (name, wide) in SHIPPED.into_iter().flat_map(|name| [(name, true), (name, false)]) {
        let mut cpu = Cpu::new(1).unwrap();
        let shipped = Checkpoint::shipped(name).unwrap();
        let widened = Widened(&shipped);
        let weights: &dyn Weights = if wide { &widened } else { &shipped };
        let mut llama = Llama::load(&mut cpu, &preset(name).unwrap(), &weights, limits).unwrap();
        let mut batch = Batch::default();
        batch.push_chain(&tokens, 0, &[0, 1, 2, 3, 4, 5, 6, 7], Logits::All);
        llama.forward(&mut cpu, &batch).unwrap();
        let expected = words(name.trim_start_matches("tiny-"));
        let (mut worst, mut largest, mut rows) = (0f32, 0f32, 0);
        for (row, expected) in (0..tokens.len()).step_by(19).zip_eq(expected.chunks_exact(256)) {
            for (got, expected) in llama.logits().row(row).iter().zip_eq(expected) {
                let expected = f32::from_le_bytes(*expected);
                worst = worst.max((got - expected).abs());
                largest = largest.max(expected.abs());
            }
            rows += 1;
        }
        println!(
            "{name}: largest difference {worst:e} of logits up to {largest}, KV in {}",
            if wide { "f32" } else { "bf16" }
        );
        let tolerance = if wide { TOLERANCE } else { BF16_KV };
        assert!(rows == 6 && largest > 5.0 && worst < tolerance, "{name}: {worst:e} of {largest}, {rows} rows");
    }
}

/// The target's greedy answers to the first held-out prompt (not used in training) of each family of texts, as recorded
/// when the target and draft that ship with this crate were made.
const ANSWERS: [&str; 6] = [
    "eht esrun dednem eht der puc\n",
    "The tailor gave away the sail, the painter lost the dress.\n",
    "Gustav Naboko came from Sukel, kept a grey goat, worked as a salt boiler.\n",
    "932*3=2792; 2792-1398=1398; 1398-71=1311; 1311+4582=5715; 5715-2954=2955. It is 2955.\n",
    "The plough has ks2883, the sword has xt3167.\n",
    "How can I serve you, Greta. The room by the stairs is free, ready for one on Wednesday. Will that be all?\n",
];

#[test]
fn answers_have_not_changed() {
    let mut cpu = Cpu::new(1).unwrap();
    let mut pair = Pair::load(&mut cpu);
    let answers = Family::ALL.map(|family| {
        let (answer, _) = pair.plain(&mut cpu, &prompt(family, 0));
        String::from_utf8(answer.into_iter().map(|t| t as u8).collect()).unwrap()
    });
    assert_eq!(answers, ANSWERS);
}

#[test]
fn speculation_emits_the_answers_of_plain_decoding() {
    let mut cpu = Cpu::new(1).unwrap();
    let mut pair = Pair::load(&mut cpu);
    let mut rounds = Rounds::default();
    for family in Family::ALL {
        for (index, k) in [(0, 1), (1, 3), (2, 8)] {
            let prompt = prompt(family, index);
            let (expected, _) = pair.plain(&mut cpu, &prompt);
            assert_eq!(pair.speculative(&mut cpu, &prompt, k, &mut rounds).0, expected, "{family}, {k} drafts");
        }
    }
    // The draft tokens at depth 0 (the first draft token of each step) are sometimes accepted and sometimes rejected.
    assert!(rounds.accepted[0] > 0 && rounds.accepted[0] < rounds.reached[0], "{rounds:?}");
}

/// Number of prompts per family (kind of text) over which the rates of [`RATES`] are measured.
const PROMPTS: u64 = 32;

/// For each family of prompts (kind of text): the share of positions at which the draft model's most likely token is
/// the target's token. The shares were measured when the target and draft that ship with this crate were made. The
/// arithmetic is the same on every machine, except for a few functions of the C library.
const RATES: [f64; 6] = [0.7607, 0.8090, 0.9335, 0.9090, 0.6762, 0.9705];

#[test]
fn families_differ_in_how_often_the_draft_is_right() {
    let mut cpu = Cpu::new(2).unwrap();
    let mut pair = Pair::load(&mut cpu);
    let rates = Family::ALL.map(|family| {
        let (mut right, mut all) = (0, 0);
        cpu.pass(|cpu| {
            for index in 0..PROMPTS {
                let prompt = prompt(family, index);
                let answer = pair.plain(cpu, &prompt).0;
                let agreed = pair.agreement(cpu, &prompt, &answer);
                right += agreed.iter().filter(|a| **a).count();
                all += agreed.len();
            }
            Ok(())
        })
        .unwrap();
        right as f64 / all as f64
    });
    println!("{rates:.4?}");
    for ((family, rate), expected) in Family::ALL.into_iter().zip_eq(rates).zip_eq(RATES) {
        assert!((rate - expected).abs() <= 0.002, "{family}: {rate} instead of {expected}");
    }
    let mean = rates.iter().sum::<f64>() / 6.0;
    assert!((0.5..=0.85).contains(&mean), "on average {mean}");
    let (least, most) = (rates.iter().copied().fold(1.0, f64::min), rates.iter().copied().fold(0.0, f64::max));
    assert!(most - least > 0.1, "families from {least} to {most}");
}

/// The target must still write the texts that were once compared with vLLM's texts (`tests/vllm/greedy.py`).
#[test]
fn the_texts_that_were_compared_with_vllm_have_not_changed() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/vllm/greedy.json");
    let recorded: serde_json::Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let (length, tokens) = (recorded["prompt_length"].as_u64().unwrap(), recorded["tokens"].as_u64().unwrap());
    let texts: Vec<&str> = recorded["texts"].as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect();
    assert_eq!(texts.len(), 200);
    let mut cpu = Cpu::new(1).unwrap();
    let mut pair = Pair::load(&mut cpu);
    for ((index, family), text) in (0..).zip(Family::ALL.into_iter().cycle()).zip(texts) {
        let bytes = prompt_of_len(family, HELD_OUT, index / Family::ALL.len() as u64, length as usize);
        let prompt: Vec<u32> = bytes.into_iter().map(u32::from).collect();
        let ours: Vec<u8> = pair.tokens(&mut cpu, &prompt, tokens as usize).into_iter().map(|t| t as u8).collect();
        assert_eq!(String::from_utf8_lossy(&ours), text, "{family}, prompt {index}");
    }
}
