//! The exports of fixed tables, which `tests/exports/check.py` gave to their readers' parsers.

use super::sweep::Swept;
use super::tensorrt_llm::Release;
use super::{dynamo, llm_d, sglang, tensorrt_llm};
use serde_json::Value;
use std::path::Path;

fn swept(method: &str, draft: Option<&str>, target: &str, ranges: &[(u32, u32, u32)]) -> Swept {
    Swept {
        method: Some(method.into()),
        draft: draft.map(str::to_owned),
        target: Some(target.into()),
        tensor_parallel: 2,
        max_num_seqs: 64,
        ranges: ranges.to_vec(),
    }
}

/// The exported files by name.
fn exports() -> Vec<(&'static str, String)> {
    const TABLE: &[(u32, u32, u32)] = &[(1, 4, 5), (5, 16, 2), (17, 32, 0)];
    let target = "openai/gpt-oss-120b";
    let eagle = swept("eagle3", Some("lmsys/EAGLE3-gpt-oss-120b-bf16"), target, TABLE);
    let mtp = swept("mtp", None, "deepseek-ai/DeepSeek-V3.1", &[(1, 64, 3)]);
    let model = swept("draft_model", Some("meta-llama/Llama-3.2-1B"), "meta-llama/Llama-3.1-8B", &[(1, 8, 4)]);
    let ngram = swept("ngram", None, target, TABLE);
    let (flags, file) = sglang::text(&eagle, Some(Path::new("spec.json"))).unwrap();
    let line = |text: String| text + "\n";
    let flags_of = |swept: &Swept| line(sglang::text(swept, None).unwrap().0);
    let trt = |swept: &Swept, release| tensorrt_llm::text(swept, release).unwrap();
    vec![
        ("vllm.json", line(eagle.speculative_config().unwrap())),
        ("vllm-mtp.json", line(mtp.speculative_config().unwrap())),
        ("sglang.txt", line(flags)),
        ("spec.json", file.unwrap()),
        ("sglang-mtp.txt", flags_of(&mtp)),
        ("sglang-draft-model.txt", flags_of(&model)),
        ("tensorrt-llm-1.3.yaml", trt(&eagle, Release::V1_3)),
        ("tensorrt-llm-1.3-mtp.yaml", trt(&mtp, Release::V1_3)),
        ("tensorrt-llm-1.2-mtp.yaml", trt(&mtp, Release::V1_2)),
        ("tensorrt-llm-1.2-ngram.yaml", trt(&ngram, Release::V1_2)),
        ("llm-d.yaml", llm_d::text(&eagle, target).unwrap()),
        ("dynamo.yaml", dynamo::text(&eagle, target).unwrap()),
    ]
}

#[test]
fn exports_are_those_that_were_checked() {
    if let Some(folder) = std::env::var_os("FORETOKEN_EXPORTS_TO") {
        let write = |(name, text): (&str, String)| std::fs::write(Path::new(&folder).join(name), text).unwrap();
        return exports().into_iter().for_each(write);
    }
    let checked = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/exports/checked.json");
    let checked: Value = serde_json::from_str(&std::fs::read_to_string(checked).unwrap()).unwrap();
    for (name, text) in exports() {
        assert_eq!(checked[name]["text"], text, "{name}: check it again with tests/exports/check.py");
    }
    // SGLang's parser and vLLM's own classes read what was meant.
    let flags = &checked["sglang.txt"]["read"];
    assert_eq!(
        (&flags["speculative_num_steps"], &flags["candidate_steps"]),
        (&5.into(), &serde_json::json!([0, 2, 5]))
    );
    // The table gives batches 1 to 4 five drafts, 5 to 16 two, all larger ones none.
    for name in ["vllm.json", "llm-d.yaml", "dynamo.yaml"] {
        let read = &checked[name]["read"];
        assert_eq!((&read["method"], &read["num_speculative_tokens"]), (&"eagle3".into(), &5.into()), "{name}");
        assert_eq!(read["batches_of_a_length"], serde_json::json!([[4, 5], [12, 2], [48, 0]]), "{name}");
    }
    let mtp = &checked["vllm-mtp.json"]["read"];
    assert_eq!(mtp["batches_of_a_length"], serde_json::json!([[64, 3]]));
    assert_eq!(mtp["draft"], serde_json::json!(["deepseek-ai/DeepSeek-V3.1", "DeepSeekMTPModel"]));
}

#[test]
fn what_a_reader_cannot_say_is_refused() {
    let table: &[(u32, u32, u32)] = &[(1, 4, 5), (5, 16, 2)];
    let of = |method: &str| swept(method, Some("d"), "t", table);
    let sglang = |method: &str, file: Option<&Path>| sglang::text(&of(method), file).unwrap_err();
    assert!(sglang("eagle3", None).help_text().contains("--adaptive-config"));
    assert!(sglang("draft_model", Some(Path::new("x"))).message().contains("EAGLE, EAGLE3 and NEXTN only"));
    assert!(sglang("suffix", None).message().contains("no flags of SGLang"));
    let trt = |method: &str| tensorrt_llm::text(&of(method), Release::V1_2).unwrap_err();
    assert!(trt("eagle3").help_text().contains("--release 1.3"));
    assert!(trt("dflash").message().contains("no settings of TensorRT-LLM"));
    let never = swept("eagle3", Some("d"), "t", &[(1, 4, 0)]);
    assert!(sglang::text(&never, None).unwrap_err().message().contains("no length pays"));
}
