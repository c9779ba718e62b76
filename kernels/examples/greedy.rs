//! Prints the greedy output of the target model that ships with this crate, on the CPU, for comparison with another
//! engine (`tests/vllm/greedy.py`).
//!
//!     greedy prompts 200 88 > prompts.jsonl            # 200 held-out prompts of 88 bytes, six kinds of text in turn
//!     greedy decode 64 < prompts.jsonl > ours.jsonl    # 64 tokens each: bf16 weights and KV, f32 activations
//!     greedy decode 64 f32 < prompts.jsonl             # KV in f32 too, so that nothing at all is rounded to bf16

#[path = "../tests/all/common/widened.rs"]
mod widened;

use foretoken_kernels::cpu::Cpu;
use foretoken_kernels::forward::{Limits, Llama};
use foretoken_kernels::model::preset;
use foretoken_kernels::paged::{BLOCK_SIZE, Batch, Logits};
use foretoken_kernels::weights::{Checkpoint, Weights};
use foretoken_traces::text::{Family, prompt_of_len};
use serde::{Deserialize, Serialize};
use std::error::Error;
use std::io::{BufWriter, Write, stdin, stdout};
use std::process::ExitCode;
use widened::Widened;

const MODEL: &str = "tiny-target";

/// Seed of the generated documents from which the prompts come. The shipped target and draft were trained on documents
/// of other seeds.
const HELD_OUT: u64 = 2;

#[derive(Serialize, Deserialize)]
struct Prompt {
    family: Family,
    prompt_token_ids: Vec<u32>,
}

/// The generated tokens with their logits. For each generated token, `behind` has the seven tokens with the next lower
/// logits, and how far these logits are below the generated token's logit. These distances show whether two engines
/// differ only where two logits are nearly equal.
#[derive(Default, Serialize)]
struct Answer {
    token_ids: Vec<u32>,
    logits: Vec<f32>,
    behind: Vec<[(u32, f32); 7]>,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match arguments[..] {
        ["prompts", count, length] => prompts(count, length),
        ["decode", tokens] => decode(tokens, false),
        ["decode", tokens, "f32"] => decode(tokens, true),
        _ => Err("prompts COUNT LENGTH | decode TOKENS [f32]".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("greedy: {why}");
            ExitCode::from(2)
        }
    }
}

fn prompts(count: &str, length: &str) -> Result<(), Box<dyn Error>> {
    let (count, length) = (count.parse()?, length.parse()?);
    let mut out = BufWriter::new(stdout().lock());
    for (index, family) in (0..count).zip(Family::ALL.into_iter().cycle()) {
        let text = prompt_of_len(family, HELD_OUT, index / Family::ALL.len() as u64, length);
        let prompt = Prompt { family, prompt_token_ids: text.into_iter().map(u32::from).collect() };
        writeln!(out, "{}", serde_json::to_string(&prompt)?)?;
    }
    Ok(out.flush()?)
}

fn decode(tokens: &str, wide: bool) -> Result<(), Box<dyn Error>> {
    let tokens: usize = tokens.parse()?;
    let shape = preset(MODEL).ok_or("the target is not shipped")?;
    let shipped = Checkpoint::shipped(MODEL).ok_or("the target is not shipped")?;
    let widened = Widened(&shipped);
    let weights: &dyn Weights = if wide { &widened } else { &shipped };
    let context = shape.max_positions as usize;
    let blocks = context.div_ceil(BLOCK_SIZE) as u32;
    let mut cpu = Cpu::new(1)?;
    let limits = Limits { kv_blocks: blocks, max_rows: context, max_logit_rows: 1 };
    let mut llama = Llama::load(&mut cpu, &shape, &weights, limits)?;
    let table: Vec<u32> = (0..blocks).collect();
    let (mut batch, mut out) = (Batch::default(), BufWriter::new(stdout().lock()));
    for line in stdin().lines() {
        let prompt: Prompt = serde_json::from_str(&line?)?;
        let mut new = prompt.prompt_token_ids;
        let (mut computed, mut answer) = (0, Answer::default());
        for _ in 0..tokens {
            batch.clear();
            batch.push_chain(&new, computed, &table, Logits::Last);
            llama.forward(&mut cpu, &batch)?;
            let [(token, logit), others @ ..] = best(llama.logits().row(0));
            answer.token_ids.push(token);
            answer.logits.push(logit);
            answer.behind.push(others.map(|(other, less)| (other, logit - less)));
            computed += new.len();
            new = vec![token];
        }
        writeln!(out, "{}", serde_json::to_string(&answer)?)?;
    }
    Ok(out.flush()?)
}

/// Returns the tokens with the eight largest logits, each with its logit, the largest logit first. Of two equal logits,
/// the smaller token id comes first, as in decoding.
fn best(logits: &[f32]) -> [(u32, f32); 8] {
    let mut all: Vec<(u32, f32)> = (0..).zip(logits.iter().copied()).collect();
    all.sort_by(|a, b| b.1.total_cmp(&a.1));
    std::array::from_fn(|i| all[i])
}
