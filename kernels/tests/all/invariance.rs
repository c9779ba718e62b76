//! The logits of a token have the same bits however the target runs over the token: alone or in any batch, in chunks of
//! any size, on any number of threads, in any KV blocks, in a chain or on a path of a tree.

use crate::common::{self, LIMITS, bits, llama, load, prompt, run, shape};
use foretoken_kernels::cpu::Cpu;
use foretoken_kernels::forward::Llama;
use foretoken_kernels::model::LlamaShape;
use foretoken_kernels::paged::{Batch, Logits, slot};
use foretoken_kernels::weights::{Dtype, RandomWeights};
use foretoken_sim::tree::ROOT;
use itertools::Itertools;
use proptest::prelude::*;

/// Runs a prompt one token per pass. Returns the bits of the logits of all its tokens. The tests run the same prompt in
/// other ways and compare the bits with this result.
fn one_by_one(llama: &mut Llama<Cpu>, cpu: &mut Cpu, tokens: &[u32]) -> Vec<Vec<u32>> {
    let table: Vec<u32> = (0..16).collect();
    tokens.iter().enumerate().flat_map(|(i, &t)| run(llama, cpu, &[t], i, &table)).collect()
}

#[test]
fn a_pass_over_many_tokens_equals_single_steps() {
    for (dtype, qk_norm) in [(Dtype::F32, false), (Dtype::Bf16, false), (Dtype::Bf16, true)] {
        let mut cpu = Cpu::new(1).unwrap();
        let mut llama = load(&mut cpu, &LlamaShape { qk_norm, ..shape() }, 1, dtype);
        let tokens = prompt(60, 0);
        let single = one_by_one(&mut llama, &mut cpu, &tokens);
        // First the whole prompt runs in one pass. Then, five times, the first `computed` tokens run in one pass, and
        // the next 1 + k tokens run in a second pass, like the verification of k draft tokens.
        assert_eq!(run(&mut llama, &mut cpu, &tokens, 0, &[20, 30, 21, 31]), single);
        for (computed, k) in [(1, 1), (15, 3), (16, 8), (31, 20), (40, 19)] {
            run(&mut llama, &mut cpu, &tokens[..computed], 0, &[50, 40, 51, 41]);
            let verified = run(&mut llama, &mut cpu, &tokens[computed..=computed + k], computed, &[50, 40, 51, 41]);
            assert_eq!(verified, single[computed..=computed + k], "{k} drafts after {computed} tokens");
        }
    }
}

#[test]
fn threads_do_not_change_a_bit() {
    // The model is so wide that the device shares the work of an operation among its threads.
    let wide = LlamaShape { hidden: 400, intermediate: 1000, vocab: 1000, ..shape() };
    let weights = common::Strong(RandomWeights { seed: 3, dtype: Dtype::Bf16 });
    let mut results = [1, 2, 3, 8].map(|threads| {
        let mut cpu = Cpu::new(threads).unwrap();
        let mut llama = Llama::load(&mut cpu, &wide, &weights, LIMITS).unwrap();
        let tokens = prompt(60, 1);
        [run(&mut llama, &mut cpu, &tokens, 0, &[3, 1, 2, 0]), run(&mut llama, &mut cpu, &[5], 60, &[3, 1, 2, 0])]
    });
    let first = std::mem::take(&mut results[0]);
    assert!(results[1..].iter().all(|r| *r == first));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Cuts the prompts of several requests into random chunks. Each pass runs the next chunks of a random set of
    /// requests. The logits must have the same bits as in passes of one token.
    #[test]
    fn any_schedule_gives_the_same_bits(
        lengths in prop::collection::vec(1usize..60, 1..5),
        cuts in prop::collection::vec((0usize..5, 1usize..25), 1..40),
        shift in 0u32..64,
        threads in 1usize..4,
    ) {
        let mut cpu = Cpu::new(threads).unwrap();
        let mut llama = llama(&mut cpu, 2, Dtype::Bf16);
        let prompts: Vec<Vec<u32>> = lengths.iter().enumerate().map(|(i, &n)| prompt(n, i as u32)).collect();
        let alone: Vec<_> = prompts.iter().map(|p| one_by_one(&mut llama, &mut cpu, p)).collect();
        // Request i owns the KV blocks i, i + 5, i + 10, …; `shift` rotates the order of these blocks in its block
        // table.
        let tables: Vec<Vec<u32>> =
            (0..5).map(|i| (0..4).map(|b| (b * 5 + i + shift) % LIMITS.kv_blocks).collect()).collect();

        let mut computed = vec![0; prompts.len()];
        let mut got = vec![Vec::new(); prompts.len()];
        let mut cuts = cuts.into_iter().cycle();
        let mut batch = Batch::default();
        while computed.iter().zip_eq(&lengths).any(|(c, n)| c < n) {
            batch.clear();
            let (skipped, _) = cuts.next().unwrap();
            let mut taken = Vec::new();
            let mut rows = 0;
            for i in 0..prompts.len() {
                let chunk = cuts.next().unwrap().1.min(lengths[i] - computed[i]).min(LIMITS.max_logit_rows - rows);
                // Request `skipped` does not take part in this pass, unless no other request has tokens left.
                let others = (0..prompts.len()).any(|j| j != i && computed[j] < lengths[j]);
                if chunk > 0 && !(i == skipped && others) {
                    let tokens = &prompts[i][computed[i]..computed[i] + chunk];
                    batch.push_chain(tokens, computed[i], &tables[i], Logits::All);
                    taken.push((i, chunk));
                    rows += chunk;
                }
            }
            llama.forward(&mut cpu, &batch).unwrap();
            let mut rows = bits(&llama).into_iter();
            for (i, chunk) in taken {
                got[i].extend(rows.by_ref().take(chunk));
                computed[i] += chunk;
            }
        }
        prop_assert!(got == alone);
    }

    /// Each node of a random tree must have the same logits as the last token of a chain of the tokens on the node's
    /// path. When the KV of a path has been moved to its place in the context, decoding must continue as if only this
    /// path had run.
    #[test]
    fn a_tree_equals_the_chains_of_its_paths(
        context in 1usize..50,
        parents in prop::collection::vec(any::<prop::sample::Index>(), 1..24),
        leaf in any::<prop::sample::Index>(),
    ) {
        let mut cpu = Cpu::new(1).unwrap();
        let mut llama = llama(&mut cpu, 4, Dtype::Bf16);
        let (table, other) = ([7, 3, 9, 1, 5], [10, 11, 12, 13, 14]);
        let history = prompt(context, 7);
        // Node 0 of the tree is the newest token. Every other node has a parent among the nodes before it.
        let parents: Vec<u32> =
            std::iter::once(ROOT).chain(parents.iter().enumerate().map(|(i, p)| p.index(i + 1) as u32)).collect();
        let tokens = prompt(parents.len(), 11);
        run(&mut llama, &mut cpu, &history, 0, &table);
        let mut batch = Batch::default();
        batch.push_tree(&tokens, &parents, context, &table, Logits::All);
        llama.forward(&mut cpu, &batch).unwrap();
        let tree = bits(&llama);

        let path_to = |mut node: u32| {
            let mut path = vec![];
            while node != ROOT {
                path.insert(0, node as usize);
                node = parents[node as usize];
            }
            path
        };
        run(&mut llama, &mut cpu, &history, 0, &other);
        for (node, logits) in tree.iter().enumerate() {
            let path = path_to(node as u32);
            let chain: Vec<u32> = path.iter().map(|&n| tokens[n]).collect();
            let alone = run(&mut llama, &mut cpu, &chain, context, &other);
            prop_assert!(alone.last() == Some(logits), "node {}", node);
        }

        let path = path_to(leaf.index(tokens.len()) as u32);
        let chain: Vec<u32> = path.iter().map(|&n| tokens[n]).collect();
        let moves: Vec<(u32, u32)> =
            path.iter().enumerate().map(|(i, &n)| (slot(&table, context + n), slot(&table, context + i))).collect();
        llama.move_kv(&mut cpu, &moves).unwrap();
        let after = run(&mut llama, &mut cpu, &[42], context + chain.len(), &table);
        run(&mut llama, &mut cpu, &chain, context, &other);
        prop_assert!(after == run(&mut llama, &mut cpu, &[42], context + chain.len(), &other));
    }
}
