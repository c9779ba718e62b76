//! Greedy speculation emits exactly the tokens of plain decoding, whatever the draft model is. This holds for chains of
//! any length and for trees.

use crate::common::{chosen, llama, prompt, run};
use foretoken_kernels::accept::{Accepted, Tree};
use foretoken_kernels::cpu::Cpu;
use foretoken_kernels::device::Device;
use foretoken_kernels::forward::Llama;
use foretoken_kernels::paged::{Batch, Logits, slot};
use foretoken_kernels::weights::Dtype;
use foretoken_sim::tree::ROOT;

const TABLE: [u32; 8] = [9, 2, 17, 4, 33, 6, 1, 50];
const OUTPUT: usize = 60;

fn autoregressive(target: &mut Llama<Cpu>, cpu: &mut Cpu, prompt: &[u32]) -> Vec<u32> {
    run(target, cpu, prompt, 0, &TABLE);
    let mut out = vec![chosen(target, cpu, prompt.len() - 1)];
    while out.len() < OUTPUT {
        run(target, cpu, &out[out.len() - 1..], prompt.len() + out.len() - 1, &TABLE);
        out.push(chosen(target, cpu, 0));
    }
    out
}

/// Decodes with drafted chains of `k` tokens. Returns the emitted tokens and the number of accepted draft tokens.
fn with_chains(
    (target, draft): (&mut Llama<Cpu>, &mut Llama<Cpu>),
    cpu: &mut Cpu,
    prompt: &[u32],
    k: usize,
) -> (Vec<u32>, usize) {
    let mut all = prompt.to_vec();
    run(target, cpu, prompt, 0, &TABLE);
    all.push(chosen(target, cpu, prompt.len() - 1));
    let (mut accepted, mut drafted_kv) = (0, 0);
    let mut out: Vec<Accepted> = Vec::new();
    while all.len() < prompt.len() + OUTPUT {
        let context = all.len() - 1;
        // Before the draft model drafts, it runs over the context tokens whose KV it does not have.
        run(draft, cpu, &all[drafted_kv..], drafted_kv, &TABLE);
        let mut tokens = vec![chosen(draft, cpu, all.len() - drafted_kv - 1)];
        while tokens.len() < k {
            run(draft, cpu, &tokens[tokens.len() - 1..], all.len() + tokens.len() - 1, &TABLE);
            tokens.push(chosen(draft, cpu, 0));
        }
        let verify: Vec<u32> = all[context..].iter().chain(&tokens).copied().collect();
        run(target, cpu, &verify, context, &TABLE);
        let parents: Vec<u32> = (0..k as u32).map(|i| i.wrapping_sub(1)).collect();
        cpu.accept_greedy(target.logits(), &[Tree { first: 0, tokens: &tokens, parents: &parents }], &mut out).unwrap();
        let kept = out[0].nodes.len();
        drafted_kv = all.len() + kept.min(k - 1);
        all.extend(&tokens[..kept]);
        all.push(out[0].next);
        accepted += kept;
    }
    (all[prompt.len()..][..OUTPUT].to_vec(), accepted)
}

#[test]
fn chains_emit_the_autoregressive_tokens() {
    let mut cpu = Cpu::new(2).unwrap();
    let mut target = llama(&mut cpu, 5, Dtype::F32);
    // The first draft model has the target's weights in bf16 and often agrees with the target. The second draft model
    // has other weights and agrees rarely.
    let mut drafts = [llama(&mut cpu, 5, Dtype::Bf16), llama(&mut cpu, 6, Dtype::Bf16)];
    for salt in 0..3 {
        let prompt = prompt(20 + salt as usize, salt);
        let expected = autoregressive(&mut target, &mut cpu, &prompt);
        for k in [1, 2, 3, 5, 8] {
            let [close, far] = drafts.each_mut().map(|draft| with_chains((&mut target, draft), &mut cpu, &prompt, k));
            assert_eq!(close.0, expected, "prompt {salt}, {k} drafts");
            assert_eq!(far.0, expected, "prompt {salt}, {k} drafts of another model");
            // With each of the two draft models, some draft tokens are accepted and some are rejected.
            assert!(close.1 >= OUTPUT / 3 && far.1 < OUTPUT / 3, "accepted {} and {}", close.1, far.1);
        }
    }
}

/// The test's draft trees have two levels: the root and each of its children have two children, the draft model's two
/// most likely tokens. The emitted tokens must be the tokens of plain decoding.
#[test]
fn trees_emit_the_autoregressive_tokens() {
    let mut cpu = Cpu::new(1).unwrap();
    let (mut target, mut draft) = (llama(&mut cpu, 5, Dtype::F32), llama(&mut cpu, 5, Dtype::Bf16));
    let prompt = prompt(21, 9);
    let expected = autoregressive(&mut target, &mut cpu, &prompt);
    let mut all = prompt.clone();
    run(&mut target, &mut cpu, &prompt, 0, &TABLE);
    all.push(chosen(&target, &mut cpu, prompt.len() - 1));
    let (mut batch, mut out, mut guesses) = (Batch::default(), Vec::new(), Vec::new());
    let mut off_the_first = 0;
    while all.len() < prompt.len() + OUTPUT {
        // The draft model's second-best guess is the first child of a node. The accepted node is therefore often not
        // the first child, and its KV must be moved.
        let context = all.len() - 1;
        run(&mut draft, &mut cpu, &all, 0, &TABLE);
        cpu.top_k(draft.logits(), 2, &mut guesses).unwrap();
        let first = [guesses[2 * context + 1].token, guesses[2 * context].token];
        let (mut tokens, mut parents) = (first.to_vec(), vec![ROOT, ROOT]);
        for (parent, token) in first.into_iter().enumerate() {
            run(&mut draft, &mut cpu, &[token], all.len(), &TABLE);
            cpu.top_k(draft.logits(), 2, &mut guesses).unwrap();
            tokens.extend([guesses[1].token, guesses[0].token]);
            parents.extend([parent as u32; 2]);
        }
        // In the target's pass the newest token is node 0, so the index of each node of the draft tree is higher by
        // one.
        let mut pass = vec![all[context]];
        pass.extend(&tokens);
        let below: Vec<u32> = std::iter::once(ROOT).chain(parents.iter().map(|p| p.wrapping_add(1))).collect();
        batch.clear();
        let row = batch.push_tree(&pass, &below, context, &TABLE, Logits::All);
        target.forward(&mut cpu, &batch).unwrap();
        cpu.accept_greedy(target.logits(), &[Tree { first: row, tokens: &tokens, parents: &parents }], &mut out)
            .unwrap();
        let to_slots = |(&n, to): (&u32, usize)| (slot(&TABLE, context + 1 + n as usize), slot(&TABLE, to));
        let moves: Vec<(u32, u32)> = out[0].nodes.iter().zip(context + 1..).map(to_slots).collect();
        target.move_kv(&mut cpu, &moves).unwrap();
        off_the_first += out[0].nodes.iter().filter(|n| [0, 2, 4].contains(*n)).count();
        all.extend(out[0].nodes.iter().map(|&n| tokens[n as usize]));
        all.push(out[0].next);
    }
    assert_eq!(all[prompt.len()..][..OUTPUT], expected);
    assert!(off_the_first > 0, "no second guess was ever right, so nothing of the tree was tried");
}
