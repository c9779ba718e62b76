//! `foretoken decide` on small server states (requests and costs as JSON) whose results are computed by hand, on the
//! test vectors of docs/model.md 10, and on invalid states.

use crate::support::Place;
use serde_json::{Value, json};

/// Runs `foretoken decide -` on a server state given as JSON, which must succeed. Returns the decisions, one per
/// policy.
fn decide(state: &Value, more: &[&str]) -> Vec<Value> {
    let place = Place::new();
    let output = place.reading(&[&["decide", "-"], more].concat(), &state.to_string());
    assert!(output.status.success(), "{state}\n{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The decision of `policy` on the server state `state`. The state gets `policy` as its only policy.
fn asked(mut state: Value, policy: Value) -> Value {
    state["policies"] = json!([policy]);
    decide(&state, &[]).remove(0)
}

/// The draft lengths and the verify lengths (tokens per request) that `policy` chooses on the server state.
fn lengths(state: &Value, policy: Value) -> (Value, Value) {
    let mut decision = asked(state.clone(), policy);
    (decision["draft_len"].take(), decision["verify_len"].take())
}

fn close(actual: &Value, expected: f64) {
    let actual = actual.as_f64().unwrap_or_else(|| panic!("{actual} is no number"));
    assert!((actual - expected).abs() <= 1e-9 * expected.abs().max(1.0), "{actual} for {expected}");
}

/// A server state with costs that do not depend on context: (γ, δ), the milliseconds per token and per pass, of draft
/// and target model; and each request's confidences (the draft model's probabilities of its tokens).
fn state(draft_ms: (f64, f64), target_ms: (f64, f64), confidences: &[&[f64]]) -> Value {
    let model = |(gamma, delta): (f64, f64)| json!({"alpha_s": 0.0, "gamma_s": gamma * 1e-3, "delta_s": delta * 1e-3});
    let request = |c: &&[f64]| json!({"context": 100, "confidences": c});
    json!({
        "draft": model(draft_ms),
        "target": model(target_ms),
        "context_reads": "once",
        "max_draft_len": confidences[0].len(),
        "acceptance_rate": 0.7,
        "prev_confidence": 0.6,
        "slo_tpot_s": null,
        "history": [],
        "requests": confidences.iter().map(request).collect::<Vec<Value>>(),
        "policies": [],
    })
}

/// A server state that has every field that docs/model.md 12 lists.
fn whole() -> Value {
    json!({
        "draft": {"alpha_s": 1e-6, "gamma_s": 1e-4, "delta_s": 1e-3},
        "target": {"alpha_s": 1e-5, "gamma_s": 1e-3, "delta_s": 1e-2},
        "context_reads": "once",
        "max_draft_len": 4,
        "acceptance_rate": 0.7,
        "prev_confidence": 0.6,
        "slo_tpot_s": null,
        "history": [[3, 1], [0, 2]],
        "requests": [
            {"context": 100, "confidences": [0.5, 0.5, 0.9, 0.9]},
            {"context": 50, "confidences": [0.8, 0.25, 0.9, 0.9, 0.9]},
        ],
        "policies": [{"fixed": {"k": 2}}, {"autoregressive": {}}, {"fixed": {"k": 9}}],
    })
}

/// The policy `random` draws by seed, step and request. `decide` must give the same draws as step 0 of a run.
#[test]
fn random_decides_as_in_step_0_of_a_run() {
    use foretoken_sim::{Luck, Stream};
    let cost = json!({"alpha_s": 0.0, "gamma_s": 1e-5, "delta_s": 1e-3});
    let request = json!({"context": 50, "confidences": [0.9, 0.8, 0.7, 0.6]});
    let mut seen = [0; 5];
    let mut differ = 0;
    for seed in 0..100 {
        let state = json!({
            "draft": cost, "target": cost, "max_draft_len": 4, "seed": seed, "requests": [request, request],
            "policies": [{"random": {}}, {"random": {"per_request": true}}],
        });
        let decided: Value = serde_json::from_str(&foretoken::decide("x", &state.to_string(), false).unwrap()).unwrap();
        let lengths = |i: usize| [0, 1].map(|r| decided[i]["draft_len"][r].as_u64().unwrap());
        let luck = Luck::new(seed, Stream::Policy, 0);
        let drawn = (luck.unit(0) * 5.0) as u64;
        assert_eq!(lengths(0), [drawn, drawn], "seed {seed}: one draw for the batch");
        let each = luck.narrow(0);
        assert_eq!(lengths(1), [0, 1].map(|id| (each.unit(id) * 5.0) as u64), "seed {seed}: a draw for each request");
        seen[drawn as usize] += 1;
        differ += usize::from(lengths(1)[0] != lengths(1)[1]);
    }
    assert!(seen.iter().all(|&n| n > 5) && differ > 50, "{seen:?}, {differ}");
}

#[test]
fn every_policy_gets_the_same_estimate_of_a_decision() {
    let once = decide(&whole(), &[]);
    assert_eq!(once.len(), 3);
    let two = &once[0];
    assert_eq!(
        (&two["policy"], &two["draft_len"], &two["verify_len"]),
        (&json!("fixed"), &json!([2, 2]), &json!([2, 2]))
    );
    assert_eq!((&two["draft_forwards"], &two["own_estimate"]), (&json!(2), &Value::Null));
    // Two draft passes over 150 and 152 tokens of context take 1.35 and 1.352 ms. A verify pass over 150 tokens of
    // context and 6 new tokens takes 1.5 + 6 + 10 ms.
    close(&two["estimated_step_s"], 20.202e-3);
    // Expected tokens of the step: the survival probabilities of the draft tokens, 0.5 + 0.25 and 0.8 + 0.2, and a
    // bonus token for each of the two requests.
    close(&two["estimated_token_goodput_tok_s"], 3.75 / 20.202e-3);
    assert_eq!((&once[1]["draft_len"], &once[1]["draft_forwards"]), (&json!([0, 0]), &json!(0)));
    // A pass of plain decoding over 150 tokens of context and 2 new tokens takes 1.5 + 2 + 10 ms.
    close(&once[1]["estimated_step_s"], 13.5e-3);
    close(&once[1]["estimated_token_goodput_tok_s"], 2.0 / 13.5e-3);
    assert_eq!(once[2]["draft_len"], json!([4, 4]), "max_draft_len caps every policy");

    let mut block = whole();
    block["drafting"] = json!("parallel");
    let block = decide(&block, &[]);
    assert_eq!((&block[0]["draft_forwards"], &block[1]["draft_forwards"]), (&json!(1), &json!(0)), "all in one pass");

    let mut state = whole();
    state["context_reads"] = json!("per-position");
    // Each of the 6 tokens reads its own context: 100 + 101 + 102 + 50 + 51 + 52 = 456 tokens. The verify pass takes
    // 4.56 + 6 + 10 ms.
    close(&decide(&state, &[])[0]["estimated_step_s"], 2.702e-3 + 20.56e-3);
}

#[test]
fn smartspec_is_the_best_by_enumeration() {
    let mut state = state((0.0, 1.0), (0.0, 10.0), &[&[0.5; 4]]);
    state["acceptance_rate"] = json!(0.5);
    // Expected tokens / step time with k = 0 to 4 draft tokens, in tokens per millisecond.
    let weighed = [1.0 / 10.0, 1.5 / 11.0, 1.75 / 12.0, 1.875 / 13.0, 1.9375 / 14.0];
    state["policies"] = json!([{"smartspec": {}}]);
    let decision = decide(&state, &["--explain"]).remove(0);
    assert_eq!(decision["draft_len"], json!([2]));
    close(&decision["own_estimate"], 1e3 * weighed[2]);
    let candidates = decision["candidates"].as_array().unwrap();
    assert_eq!(candidates.len(), 5);
    for (candidate, expected) in candidates.iter().zip(weighed) {
        close(&candidate["estimate"], 1e3 * expected);
        assert!(candidate["what"].is_string());
    }
    assert!(decide(&state, &[])[0].get("candidates").is_none());
    // SmartSpec uses the state's `acceptance_rate` and not its history of accepted tokens. So a history of steps that
    // accepted no draft token changes nothing.
    state["history"] = json!(vec![[0]; 30]);
    assert_eq!(decide(&state, &[])[0]["draft_len"], json!([2]));
}

/// The test vectors of Leviathan et al. in docs/model.md 10. Every step takes one second, so goodput in tokens per
/// second is E(a, k), the expected tokens that a step gives a request with acceptance rate a and k draft tokens.
#[test]
fn expected_tokens_are_leviathans() {
    for (rate, k, expected) in [(0.7, 3, 2.533), (0.8, 7, 4.161_139_2), (1.0, 5, 6.0)] {
        let mut state = state((0.0, 0.0), (0.0, 1000.0), &[&[0.5; 8]]);
        state["acceptance_rate"] = json!(rate);
        state["max_draft_len"] = json!(k);
        let decision = asked(state, json!({"smartspec": {}}));
        assert_eq!(decision["draft_len"], json!([k]));
        close(&decision["own_estimate"], expected);
    }
    let mut state = state((0.0, 0.0), (0.0, 1000.0), &[&[0.5; 8]]);
    state["acceptance_rate"] = json!(0.0);
    let decision = asked(state, json!({"smartspec": {}}));
    assert_eq!(decision["draft_len"], json!([0]), "the smallest k wins a tie");
    close(&decision["own_estimate"], 1.0);
}

#[test]
fn adaspec_follows_the_paper_with_its_errata() {
    // A step with k draft tokens, v of them verified, takes k + 10 + v milliseconds.
    let mut state = state((0.0, 1.0), (1.0, 9.0), &[&[0.9, 0.05, 0.9]]);
    // Goodput is in expected tokens per ms.
    //
    // Drafting: the policy predicts 1.6/12 for a step with one draft token. With this token's actual confidence, the
    // step gives 1.9/12. For two draft tokens the policy predicts 2.44/14, and the step gives 1.945/14. For three it
    // predicts 1.972/16, which is less, so two tokens are drafted.
    //
    // Verifying: without the second draft token the goodput is 1.9/13, which is more, so this token is dropped. Without
    // the first draft token too, the goodput would be 1/12, which is less, so the first token is kept.
    let full = asked(state.clone(), json!({"adaspec": {}}));
    assert_eq!((&full["draft_len"], &full["verify_len"]), (&json!([2]), &json!([1])));
    close(&full["own_estimate"], 1900.0 / 13.0);
    close(&full["estimated_token_goodput_tok_s"], 1900.0 / 13.0);
    let drafter = asked(state.clone(), json!({"adaspec-": {}}));
    assert_eq!(drafter["verify_len"], json!([2]));
    close(&drafter["own_estimate"], 1945.0 / 14.0);
    assert_eq!(lengths(&state, json!({"adaspec": {"verifier": false}})), (json!([2]), json!([2])));
    // AdaSpec predicts with `prev_confidence`. At 0.1, it predicts a goodput of 1.1/12 with one draft token; AdaSpec
    // drafts this token nevertheless. With two draft tokens it predicts 1.99/14, less than 1.9/12, so the second token
    // is not drafted.
    state["prev_confidence"] = json!(0.1);
    assert_eq!(lengths(&state, json!({"adaspec": {}})), (json!([1]), json!([1])));
    state["prev_confidence"] = json!(0.6);

    // A step with one draft token takes 12 ms, a step with two draft tokens 14 ms.
    for (slo_ms, expected) in [(14.5, (2, 1)), (13.0, (1, 1)), (11.0, (0, 0))] {
        state["slo_tpot_s"] = json!(slo_ms * 1e-3);
        let (d, v) = expected;
        assert_eq!(lengths(&state, json!({"adaspec": {}})), (json!([d]), json!([v])), "{slo_ms} ms");
        assert_eq!(lengths(&state, json!({"adaspec": {"slo": "off"}})), (json!([2]), json!([1])));
    }
    // `slo = "expected"` bounds step time / expected tokens. With one draft token this is 12 ms / 1.6 = 7.5 ms.
    for (slo_ms, expected) in [(7.6, (2, 1)), (7.4, (0, 0))] {
        state["slo_tpot_s"] = json!(slo_ms * 1e-3);
        let (d, v) = expected;
        assert_eq!(lengths(&state, json!({"adaspec": {"slo": "expected"}})), (json!([d]), json!([v])), "{slo_ms} ms");
    }
}

#[test]
fn thresholds_compare_strictly() {
    let state = state((0.0, 1.0), (0.0, 10.0), &[&[0.9, 0.3, 0.9, 0.9], &[0.4, 0.5, 0.1, 0.9]]);
    let ask = |settings: Value| lengths(&state, json!({"threshold": settings}));
    // Drafting stops at the first confidence below the policy's threshold `tau`; 0.4 is not below 0.4. By default, the
    // token with this confidence is verified too.
    assert_eq!(ask(json!({"tau": 0.4})), (json!([2, 3]), json!([2, 3])));
    assert_eq!(ask(json!({"tau": 0.4, "keep_last": false})), (json!([2, 3]), json!([1, 2])));
    // The means of the draft model's confidences over the batch's two requests, at draft positions 1 to 4, are 0.65,
    // 0.4, 0.5 and 0.9.
    assert_eq!(ask(json!({"tau": 0.4, "scope": "batch-mean"})), (json!([4, 4]), json!([4, 4])));
    assert_eq!(ask(json!({"tau": 0.45, "scope": "batch-mean"})), (json!([2, 2]), json!([2, 2])));
}

/// The two requests of the example of adaptive verification in docs/model.md 10. The survival probabilities of their
/// draft tokens, sorted, are .9, .72, .6, .36, .3, .12.
fn promising() -> Value {
    state((0.0, 1.0), (0.0, 10.0), &[&[0.9, 0.8, 0.5], &[0.6, 0.5, 0.4]])
}

#[test]
fn tetris_verifies_the_most_promising() {
    assert_eq!(lengths(&promising(), json!({"tetris": {"k": 1, "extra": 2}})), (json!([3, 3]), json!([2, 0])));
    assert_eq!(lengths(&promising(), json!({"tetris": {"k": 2, "extra": 1}})), (json!([3, 3]), json!([3, 1])));
    let alone = state((0.0, 1.0), (0.0, 10.0), &[&[0.9, 0.8, 0.5]]);
    assert_eq!(lengths(&alone, json!({"tetris": {"k": 1, "extra": 2}})), (json!([1]), json!([1])));
}

/// The example of adaptive verification in docs/model.md 10. Drafting takes 2 s. A verify pass takes 10 s for up to
/// four tokens. For up to eight tokens a verify pass takes 16 s with the first cost table and 14 s with the second.
#[test]
fn adaptive_verification_by_given_tables() {
    let rates = [0.1667, 0.2417, 0.3017, 0.2344, 0.2544, 0.2711, 0.2778];
    let cheaper = [0.1667, 0.2417, 0.3017, 0.2637, 0.2863, 0.3050, 0.3125];
    for (dear, rates, best, verify_len) in [(16.0, rates, 2, [2, 0]), (14.0, cheaper, 6, [3, 3])] {
        let mut state = promising();
        state["drafting"] = json!("parallel");
        state["tables"] = json!({"draft_s": [[8, 2.0]], "target_s": [[4, 10.0], [8, dear]]});
        state["policies"] = json!([{"vllm-adaptive": {}}]);
        let decision = decide(&state, &["--explain"]).remove(0);
        assert_eq!((&decision["draft_len"], &decision["verify_len"]), (&json!([3, 3]), &json!(verify_len)));
        let candidates = decision["candidates"].as_array().unwrap();
        assert_eq!(candidates.len(), rates.len());
        for (candidate, rate) in candidates.iter().zip(rates) {
            assert!((candidate["estimate"].as_f64().unwrap() - rate).abs() < 5.1e-5, "{candidate} for {rate}");
        }
        assert_eq!(decision["own_estimate"], candidates[best]["estimate"]);
    }
}

#[test]
fn cost_tables_are_of_the_states_own_batch() {
    let mut state = promising();
    // A target token costs 1 ms, a token of context 1 µs. Three draft passes take 1 ms each. The policies' cost tables
    // (pass times by number of tokens) must be made for the contexts of the state, 2 · 100 tokens, and not for 8192
    // tokens.
    state["target"] = json!({"alpha_s": 1e-6, "gamma_s": 1e-3, "delta_s": 1e-2});
    // Pass sizes are padded to 2, 4 or 8 tokens. With 0, 1, 2, 3, …, 6 verified draft tokens, the expected tokens per
    // ms are (2 + Σ survival) / (3 + 10.2 + padded size): 2/15.2, 2.9/17.2, 3.62/17.2, 4.22/21.2, …, 5/21.2.
    let adaptive = asked(state.clone(), json!({"vllm-adaptive": {}}));
    assert_eq!(adaptive["verify_len"], json!([3, 3]));
    close(&adaptive["own_estimate"], 5e3 / 21.2);
    // DSpark rounds pass sizes down: a pass of 4 to 7 tokens takes as long as a pass of 4. Five draft tokens give
    // 4.88/17.2 expected tokens per ms, six draft tokens give 5/21.2.
    let dspark = asked(state, json!({"dspark": {}}));
    assert_eq!(dspark["verify_len"], json!([3, 2]));
    close(&dspark["own_estimate"], 4.88e3 / 17.2);
}

/// The examples of docs/model.md 10: the draft length that SGLang's adaptive policies (generations 1 to 3) and
/// `ema-tier` choose after a history of accepted tokens per step.
#[test]
fn sglang_learns_from_the_history() {
    let steps = |policy: Value, history: Vec<Vec<u32>>| {
        let mut state = state((0.0, 1.0), (0.0, 10.0), &[&[0.5; 8]]);
        state["history"] = json!(history);
        asked(state, policy)["draft_len"][0].as_u64().unwrap()
    };
    // `times(n, accepted)` is a history of n equal verify batches. `accepted` has the number of accepted tokens of each
    // request. The name of each batch below says its mean number of accepted tokens.
    let times = |n: usize, accepted: &[u32]| vec![accepted.to_vec(); n];
    let (point_2, point_3, point_4, two_point_6) =
        ([1, 0, 0, 0, 0], [1, 1, 1, 0, 0, 0, 0, 0, 0, 0], [1, 1, 0, 0, 0], [3, 3, 3, 2, 2]);
    for name in ["ema-tier", "sglang-gen1"] {
        assert_eq!(steps(json!({name: {}}), Vec::new()), 3);
        assert_eq!(steps(json!({name: {}}), times(14, &[3])), 3);
        assert_eq!(steps(json!({name: {}}), times(15, &[3])), 7);
        assert_eq!(steps(json!({name: {}}), times(15, &[0])), 1);
        assert_eq!(steps(json!({name: {}}), times(40, &point_4)), 3);
        // Empty entries of the history, which are verify batches without a request, do not count.
        assert_eq!(steps(json!({name: {}}), [times(14, &[3]), times(9, &[])].concat()), 3);
    }
    let falls = |n| [times(20, &[7]), times(n, &point_3)].concat();
    for (n, expected) in [(5, 7), (9, 7), (10, 3), (30, 3)] {
        assert_eq!(steps(json!({"sglang-gen1": {"initial_steps": 7}}), falls(n)), expected, "20 + {n}");
    }
    let moves = [times(15, &[1]), times(20, &two_point_6), times(20, &point_2)].concat();
    for (n, expected) in [(14, 1), (15, 3), (25, 3), (30, 7), (40, 3), (54, 3), (55, 1)] {
        assert_eq!(steps(json!({"sglang-gen1": {"initial_steps": 1}}), moves[..n].to_vec()), expected, "{n}");
    }
    // If the initial draft length is not among the candidate lengths, SGLang's adaptive policy adds it to them in its
    // second version (`sglang-gen2`) and not in its first. The third version (`sglang-gen3`) keeps an average of
    // accepted tokens for each range of batch sizes.
    let off_list = json!({"candidates": [1, 7], "initial_steps": 3});
    assert_eq!(steps(json!({"sglang-gen1": off_list}), Vec::new()), 1);
    assert_eq!(steps(json!({"sglang-gen2": off_list}), Vec::new()), 3);
    assert_eq!(steps(json!({"sglang-gen3": {}}), times(15, &[0])), 1);
    assert_eq!(steps(json!({"sglang-gen3": {}}), times(15, &[0; 8])), 3, "another slot's");
}

/// SGLang's throughput strategy chooses a draft length only before some of the verify batches. If the last choice was
/// made within the state's history, it stays in force until the next choice.
#[test]
fn sglangs_throughput_strategy_decides_within_the_history() {
    let mut state = state((0.0, 1.0), (0.0, 10.0), &[&[0.5; 8]]);
    let mut ask = |n: usize| {
        state["history"] = json!(vec![[0]; n]);
        lengths(&state, json!({"sglang-throughput": {}})).0
    };
    // For each draft position the policy `sglang-throughput` keeps a window of the last 20 acceptance rates, so the
    // windows are full after 20 verify batches. No draft token was ever accepted, so from then on the shortest draft
    // length is chosen.
    assert_eq!([ask(19), ask(20), ask(23)], [json!([3]), json!([1]), json!([1])]);
}

#[test]
fn the_helps_example_is_a_state() {
    let place = Place::new();
    let help = String::from_utf8(place.foretoken().args(["decide", "--help"]).output().unwrap().stdout).unwrap();
    let start = help.find("{\"draft\"").unwrap();
    let example: Value = serde_json::Deserializer::from_str(&help[start..]).into_iter().next().unwrap().unwrap();
    let decisions = decide(&example, &["--explain"]);
    assert_eq!(decisions.len(), example["policies"].as_array().unwrap().len());
    // `decide` must give the same decisions for a state in a file as for the same state on stdin. Errors name the file.
    std::fs::write(place.path("state.json"), example.to_string()).unwrap();
    let output = place.foretoken().args(["decide", "state.json", "--explain"]).output().unwrap();
    assert_eq!(serde_json::from_slice::<Vec<Value>>(&output.stdout).unwrap(), decisions);
    std::fs::write(place.path("state.json"), "{").unwrap();
    assert!(place.fails(&["decide", "state.json"], 2).contains("state.json: EOF"));
    assert!(place.fails(&["decide", "."], 2).contains("cannot read the state"));
}

#[test]
fn a_bad_state_is_refused_at_its_field() {
    let place = Place::new();
    let refused = |text: &str, part: &str| {
        let output = place.reading(&["decide", "-"], text);
        // The message may be wrapped, so it is compared without line breaks.
        let error = String::from_utf8(output.stderr).unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(output.status.code(), Some(2), "{text}\n{error}");
        assert!(output.stdout.is_empty() && error.contains(part), "`{part}` is missing in\n{error}");
    };
    let set = |path: &str, value: Value, part: &str| {
        let mut state = whole();
        *state.pointer_mut(path).unwrap() = value;
        refused(&state.to_string(), part);
    };
    for field in ["draft", "target", "max_draft_len", "requests", "policies"] {
        let mut state = whole();
        state.as_object_mut().unwrap().remove(field);
        refused(&state.to_string(), &format!("missing field `{field}`"));
        set(&format!("/{field}"), json!("x"), field);
    }
    for (path, value, part) in [
        ("/draft/alpha_s", json!(-1e-9), "draft.alpha_s: -0.000000001 is not"),
        ("/target/delta_s", json!(1e300), "target.delta_s"),
        ("/target/gamma_s", json!(null), "target.gamma_s"),
        ("/target", json!({"alpha_s": 0, "gamma_s": 0, "delta_s": 0}), "target: a pass over 1 token after 50"),
        ("/context_reads", json!("twice"), "context_reads"),
        ("/max_draft_len", json!(33), "max_draft_len: 33 is not a draft length from 0 to 32"),
        ("/max_draft_len", json!(5), "requests[0].confidences: 4 values, and max_draft_len = 5 needs at least 5"),
        ("/acceptance_rate", json!(1.01), "acceptance_rate: 1.01"),
        ("/prev_confidence", json!(-0.5), "prev_confidence: -0.5"),
        ("/slo_tpot_s", json!(0), "slo_tpot_s: 0 is not a number of seconds above 0"),
        ("/history/1/0", json!(-1), "history[1][0]"),
        ("/history/1/1", json!(40), "history[1][1]: 40"),
        ("/requests", json!([]), "requests: needs at least one"),
        ("/requests/1/context", json!(-5), "requests[1].context"),
        ("/requests/1/confidences", json!([]), "requests[1].confidences: 0 values"),
        ("/requests/1/confidences/2", json!(0), "requests[1].confidences[2]: 0 is not in (0, 1]"),
        ("/requests/0/confidences/3", json!(1.5), "requests[0].confidences[3]: 1.5 is not in (0, 1]"),
        ("/policies", json!([]), "policies: the list is empty"),
        ("/policies/0", json!({"adaspek": {}}), "did you mean `adaspec`?"),
        ("/policies/0", json!({}), "policies[0]: not a policy"),
        ("/policies/0", json!("fixed"), "not a policy"),
        ("/policies/0", json!({"fixed": {"k": 1}, "smartspec": {}}), "policies[0]: not a policy"),
        ("/policies/0/fixed/k", json!(-1), "policies[0].fixed.k"),
        ("/policies/0/fixed", json!({"kk": 1}), "policies[0].fixed.kk"),
        ("/policies/1", json!({"threshold": {"tau": 2}}), "policies[1]: threshold.tau: 2"),
        ("/policies/0", json!({"oracle-goodput": {}}), "`oracle-goodput` needs the hidden truth"),
        ("/policies/0", json!({"oracle-length": {}}), "`oracle-length` needs the hidden truth"),
        ("/policies/0", json!({"clairvoyant-static": {}}), "`clairvoyant-static` needs the hidden truth"),
    ] {
        set(path, value, part);
    }
    let text = whole().to_string();
    refused(&text.replace("\"max_draft_len\"", "\"max_draft_lem\""), "did you mean `max_draft_len`?");
    refused(
        &text.replace("\"max_draft_len\":4", "\"max_draft_len\":4,\"max_draft_len\":3"),
        "duplicate field `max_draft_len`",
    );
    refused(&text.replace("\"acceptance_rate\":0.7", "\"acceptance_rate\":1e400"), "acceptance_rate");
    refused(&text.replace("\"acceptance_rate\":0.7", "\"acceptance_rate\":NaN"), "acceptance_rate");
    refused(&format!("{text} {{}}"), "something follows the state");
    for text in ["", "hello", "[]", "null"] {
        refused(text, "-:");
    }
}

#[test]
fn a_large_batch_is_no_trouble() {
    let one: &[f64] = &[0.9, 0.8, 0.7, 0.6];
    let mut state = state((0.0, 1.0), (0.01, 10.0), &vec![one; 3000]);
    state["policies"] =
        json!([{"adaspec": {}}, {"smartspec": {}}, {"vllm-adaptive": {}}, {"tetris": {}}, {"sglang-gen3": {}}]);
    for decision in decide(&state, &[]) {
        assert_eq!(decision["verify_len"].as_array().unwrap().len(), 3000);
        assert!(decision["estimated_token_goodput_tok_s"].as_f64().unwrap() > 0.0);
    }
}

/// Contexts of 2³² − 1 tokens, the longest that a state can have. The positions after them must not wrap around.
#[test]
fn the_longest_context_is_read_whole() {
    let mut state = whole();
    state["context_reads"] = json!("per-position");
    for request in state["requests"].as_array_mut().unwrap() {
        request["context"] = json!(u32::MAX);
    }
    state["policies"] = json!([
        {"specinfer": {}}, {"adaserve-like": {}}, {"adaspec": {}}, {"adaspec-code": {}}, {"smartspec-joint": {}}, {"turbospec-v1": {}}
    ]);
    let alpha = state["target"]["alpha_s"].as_f64().unwrap();
    for decision in decide(&state, &["--explain"]) {
        let total = |key: &str| decision[key].as_array().map(|n| n.iter().map(|n| n.as_f64().unwrap()).sum::<f64>());
        let verified = total("verify_nodes").or_else(|| total("verify_len")).unwrap();
        // The newest token of each request and every verified token read at least the context.
        let least = alpha * (2.0 + verified) * f64::from(u32::MAX);
        assert!(decision["estimated_step_s"].as_f64().unwrap() >= least, "{least} s at least: {decision}");
    }
    assert!(decide(&state, &[])[0]["verify_nodes"] != json!([0, 0]), "the tree reads positions");
}
