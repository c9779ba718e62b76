//! Tests of the module `teacher`. `teacher::judge` must make the same predictions as a draft model that reads the
//! target's text token by token. `teacher::write` must have three properties: its outputs do not depend on batch and
//! chunks, they end with a stop token, and an interrupted call returns no outputs.

use crate::common::{Strong, prompt, run, shape};
use foretoken_kernels::cpu::Cpu;
use foretoken_kernels::forward::{Limits, Llama};
use foretoken_kernels::teacher::{judge, limits, write};
use foretoken_kernels::weights::{Dtype, RandomWeights};
use itertools::Itertools;

const OUTPUT: usize = 40;

fn load(cpu: &mut Cpu, dtype: Dtype, limits: Limits) -> Llama<Cpu> {
    Llama::load(cpu, &shape(), &Strong(RandomWeights { seed: 5, dtype }), limits).unwrap()
}

fn prompts() -> Vec<Vec<u32>> {
    [1, 17, 40, 33, 5].into_iter().zip(0..).map(|(length, salt)| prompt(length, salt)).collect()
}

fn outputs(cpu: &mut Cpu, rows: usize, stop: &[u32], together: usize) -> Vec<Vec<u32>> {
    let mut target = load(cpu, Dtype::F32, limits(together, 80, rows));
    let prompts = prompts();
    let groups = prompts.chunks(together).flat_map(|group| {
        let group: Vec<&[u32]> = group.iter().map(Vec::as_slice).collect();
        write(cpu, &mut target, &group, OUTPUT, stop, |_| true).unwrap().unwrap()
    });
    groups.collect()
}

/// Returns (all tokens in falling order of their logits, the probability of the first of these tokens). Of two equal
/// logits, the smaller token comes first.
fn guesses(logits: &[u32]) -> (Vec<u32>, f64) {
    let logit = |t: u32| f64::from(f32::from_bits(logits[t as usize]));
    let mut order: Vec<u32> = (0..logits.len() as u32).collect();
    order.sort_by(|&a, &b| logit(b).total_cmp(&logit(a)).then(a.cmp(&b)));
    let sum: f64 = (0..logits.len() as u32).map(|t| (logit(t) - logit(order[0])).exp()).sum();
    (order, 1.0 / sum)
}

#[test]
fn ranks_and_confidences_are_those_of_a_draft_that_reads_token_by_token() {
    let mut cpu = Cpu::new(2).unwrap();
    let mut outputs = outputs(&mut cpu, 256, &[], 5);
    // Every third token of the text is replaced. Without this the draft model would be right nearly everywhere.
    outputs.iter_mut().for_each(|o| o.iter_mut().step_by(3).for_each(|t| *t = (*t * 7 + 5) % shape().vocab));
    let mut draft = load(&mut cpu, Dtype::Bf16, limits(1, 80, 16));
    let blocks = [0, 1, 2, 3, 4];
    let mut wrong = 0;
    for (prompt, output) in prompts().iter().zip_eq(&outputs) {
        let verdicts = judge(&mut cpu, &mut draft, prompt, output).unwrap();
        assert_eq!((verdicts.ranks.len(), verdicts.confidences.len()), (OUTPUT, OUTPUT));
        let all: Vec<u32> = prompt.iter().chain(output).copied().collect();
        for read in 0..all.len() - 1 {
            let logits = run(&mut draft, &mut cpu, &all[read..=read], read, &blocks);
            let Some(position) = (read + 1).checked_sub(prompt.len()) else { continue };
            let (order, first) = guesses(&logits[0]);
            let rank = order.iter().position(|&t| t == output[position]).unwrap() + 1;
            assert_eq!(usize::from(verdicts.ranks[position]), rank, "position {position}");
            assert!((f64::from(verdicts.confidences[position]) - first).abs() < 1e-5, "position {position}");
            wrong += usize::from(rank > 1);
        }
    }
    assert!((10..5 * OUTPUT - 10).contains(&wrong), "{wrong} wrong: nothing would be tried");
}

#[test]
fn a_model_predicts_its_own_text_perfectly_whatever_the_batch_and_chunks() {
    let mut cpu = Cpu::new(2).unwrap();
    let alone = outputs(&mut cpu, 7, &[], 1);
    assert_eq!(alone, outputs(&mut cpu, 256, &[], 5), "together as alone, in chunks as at once");
    let mut same = load(&mut cpu, Dtype::F32, limits(1, 80, 64));
    for (prompt, output) in prompts().iter().zip_eq(&alone) {
        assert_eq!(judge(&mut cpu, &mut same, prompt, output).unwrap().ranks, [1; OUTPUT]);
    }
}

#[test]
fn outputs_end_with_a_stop_token_and_an_interrupt_gives_nothing() {
    let mut cpu = Cpu::new(1).unwrap();
    let whole = outputs(&mut cpu, 64, &[], 5);
    let stop = whole[1][9];
    for (output, whole) in outputs(&mut cpu, 64, &[stop], 5).iter().zip_eq(&whole) {
        let end = whole.iter().position(|&t| t == stop).map_or(OUTPUT, |at| at + 1);
        assert_eq!(output, &whole[..end]);
    }
    let mut target = load(&mut cpu, Dtype::F32, limits(5, 80, 64));
    let prompts = prompts();
    let prompts: Vec<&[u32]> = prompts.iter().map(Vec::as_slice).collect();
    let (mut passes, mut tokens) = (0, 0);
    let go_on = |written| {
        passes += 1;
        tokens += written;
        passes < 20
    };
    assert_eq!(write(&mut cpu, &mut target, &prompts, OUTPUT, &[], go_on).unwrap(), None);
    // The five prompts take one pass each, and each of these passes also generates an output's first token. Each
    // further pass generates five tokens. `go_on` returns false before the twentieth pass, which does not run: passes 6
    // to 19 add 14 · 5 tokens to the 5 first tokens.
    assert_eq!((passes, tokens), (20, 5 * 15));
}
