//! `foretoken ask` on the lines of public threads, and on lines in forms that no thread stands for.

use crate::ask::{SMALL, ask, json, refused, text};
use crate::support::Place;

/// What the program must say.
enum Says {
    /// An answer, in which this runs now and that is advised.
    Answer(&'static str, &'static str),
    /// It refuses the line with these words.
    Refusal(&'static str),
}

use Says::{Answer, Refusal};

/// A line: the thread that has it (or none), the line, the GPU, and what the program must say. Lines of threads are as
/// written there; if a thread tells its setup without a line, the line has this setup.
type Line = (&'static str, &'static str, &'static str, Says);

/// A Kubernetes container, as vLLM's documents write it.
const CONTAINER: &str = r#"apiVersion: apps/v1
kind: Deployment
spec:
  template:
    spec:
      containers:
      - name: vllm
        image: vllm/vllm-openai:v0.33.0
        args:
        - --model=Qwen/Qwen3-Next-80B-A3B-Instruct
        - --tensor-parallel-size=4
        - --speculative-config
        - '{"method": "qwen3_next_mtp", "num_speculative_tokens": 2}'
        - --no-enable-chunked-prefill
"#;

const LINES: [Line; 24] = [
    (
        "llm-d/llm-d#2074, its setup",
        r#"vllm serve Qwen/Qwen3-32B --tensor-parallel-size 2 --gpu-memory-utilization 0.9 --speculative-config '{"method": "eagle3", "model": "RedHatAI/Qwen3-32B-speculator.eagle3", "num_speculative_tokens": 3}'"#,
        "h200",
        Answer("K = 3", "K = 5"),
    ),
    (
        "snowflakedb/ArcticInference#47, its setup",
        r#"python -m vllm.entrypoints.openai.api_server --model Qwen/Qwen2.5-7B-Instruct --max-model-len 8192 --disable-log-requests --speculative-config '{"method": "suffix", "num_speculative_tokens": 5}'"#,
        "A100",
        Answer("K = 5", "K = 5"),
    ),
    (
        "sgl-project/sglang#29244, its setup",
        "python3 -m sglang.launch_server --model-path Qwen/Qwen3-8B --speculative-algorithm DFLASH --speculative-draft-model-path z-lab/Qwen3-8B-DFlash-b16 --speculative-num-draft-tokens 8 --attention-backend fa3 --mem-fraction-static 0.75",
        "A100",
        Answer("K = 7", "K = 7"),
    ),
    (
        "vllm-project/vllm#25125",
        r#"vllm serve /home/models/Qwen3-32B  --tensor-parallel-size 4   --speculative_config '{"method": "eagle3","model": "/home/models/Qwen3-32B_eagle3","num_speculative_tokens": 2}' --enforce-eager"#,
        "h100",
        Answer("K = 2", "K = 5"),
    ),
    (
        "vllm-project/vllm#29036",
        r#"vllm serve deepseek-ai/DeepSeek-R1 --speculative-config '{"method": "mtp", "num_speculative_tokens": 2}' -tp 8"#,
        "h200",
        Answer("K = 2", "K = 4"),
    ),
    (
        "sgl-project/sglang#11948",
        "python3 -m sglang.launch_server \\\n    --model Qwen3-8B \\\n    --speculative-algorithm EAGLE3 \\\n    --tensor-parallel-size 2 \\\n    --speculative-draft-model-path AngelSlim/Qwen3-8B_eagle3 \\\n    --speculative-num-steps 3 \\\n    --speculative-eagle-topk 1 \\\n    --speculative-num-draft-tokens 4 \\\n    --port 8000 \\\n    --host 0.0.0.0 \\\n    --cuda-graph-max-bs 128 \\\n    --log-level info",
        "a100",
        Answer("K = 3", "K = 5"),
    ),
    (
        // EAGLE3 with DeepSeek's own module is MTP.
        "sgl-project/sglang#5513",
        "python -m sglang.launch_server --served-model-name=ds-r1-671b --model-path=$models/DeepSeek-R1 \\\n--enable-p2p-check --reasoning-parser=deepseek-r1 --trust-remote-code --host=0.0.0.0 --port=38001 \\\n--mem-fraction-static=0.9 \\\n--tp=8 --max-total-tokens=65000 --max-running-requests=64 \\\n--enable-ep-moe \\\n--disable-radix-cache \\\n--speculative-algorithm EAGLE3 \\\n--speculative-draft-model-path $moddels/DeepSeek-R1-NextN \\\n--speculative-num-steps 3 \\\n--speculative-eagle-topk 1 \\\n--speculative-num-draft-tokens 4",
        "h20",
        Answer("K = 3", "K = 3"),
    ),
    (
        "sgl-project/sglang#23146",
        "SGLANG_USE_AITER_UNIFIED_ATTN=1 SGLANG_USE_AITER=1 \\\npython3 -m sglang.launch_server \\\n  --model-path /data2/Qwen/Qwen3.5-397B-A17B-FP8 --tp 8 \\\n  --attention-backend aiter --trust-remote-code \\\n  --model-loader-extra-config '{\"enable_multithread_load\": true}' \\\n  --watchdog-timeout 1200 --mem-fraction-static 0.9 \\\n  --host 0.0.0.0 --port 9000 --disable-radix-cache \\\n  --enable-aiter-allreduce-fusion --max-running-requests 128 \\\n  --page-size 16 \\\n  --speculative-algorithm EAGLE --speculative-num-steps 3 \\\n  --speculative-eagle-topk 1 --speculative-num-draft-tokens 4",
        "mi355x",
        Refusal("recurrent states and compressed attention are not simulated with SGLang's scheduler"),
    ),
    (
        // The JSON stands without quotes there.
        "vllm-project/vllm#31845",
        "vllm serve deepseek-ai/DeepSeek-V3.2 \\\n    --max-num-seqs 512 \\\n    --max-num-batched-tokens 4096 \\\n    --max-model-len 4096 \\\n    --host 0.0.0.0 \\\n    --port 8001 \\\n    --tensor-parallel-size 8 \\\n    --gpu-memory-utilization 0.9 \\\n    --async-scheduling \\\n    --no-enable-prefix-caching \\\n    --speculative-config {\"method\": \"deepseek_mtp\", \"num_speculative_tokens\": 3} \\\n    > $LOGDIR/out.log &",
        "h200",
        Refusal("the shell took the quotes out of this JSON"),
    ),
    (
        "vllm-project/vllm#31845, its JSON in quotes",
        "vllm serve deepseek-ai/DeepSeek-V3.2 \\\n    --max-num-seqs 512 \\\n    --max-num-batched-tokens 4096 \\\n    --max-model-len 4096 \\\n    --host 0.0.0.0 \\\n    --port 8001 \\\n    --tensor-parallel-size 8 \\\n    --gpu-memory-utilization 0.9 \\\n    --async-scheduling \\\n    --no-enable-prefix-caching \\\n    --speculative-config '{\"method\": \"deepseek_mtp\", \"num_speculative_tokens\": 3}' \\\n    > $LOGDIR/out.log &",
        "h200",
        Answer("K = 3", "K = 4"),
    ),
    (
        "vllm-project/vllm#7456",
        "vllm serve /models/Meta-Llama-3.1-405B-Instruct -tp 8 -pp 2 --speculative-model /models/Meta-Llama-3.1-8B-Instruct --use-v2-block-manager --num-speculative-tokens 5",
        "h100",
        Refusal("pipeline parallelism is not simulated"),
    ),
    (
        "vllm-project/vllm#14117",
        "vllm serve /vllm-workspace/DeepSeek-R1/ \\\n        --host 0.0.0.0 \\\n        --port 8081 \\\n        --tensor-parallel-size 8 \\\n        --pipeline-parallel-size 2 \\\n        --gpu-memory-utilization 0.8 \\\n        --max-num-seqs 16 \\\n        --max-model-len 32768 \\\n        --served-model-name deepseek_r1 \\\n        --device cuda \\\n        --quantization fp8 \\\n        --trust-remote-code \\\n        --num-speculative-tokens 1",
        "h20",
        Refusal("pipeline parallelism is not simulated"),
    ),
    (
        "SafeAILab/EAGLE#298",
        "python3 -m sglang.launch_server \\\n    --model /models/Qwen3-8B \\\n    --speculative-algorithm EAGLE3 \\\n    --speculative-draft-model-path engyunw/qwen3_8b_eagle3 \\\n    --speculative-num-steps 6 \\\n    --speculative-eagle-topk 10 \\\n    --speculative-num-draft-tokens 32 \\\n    --mem-fraction 0.9 --cuda-graph-max-bs 2 \\\n    --port 30000 ",
        "a100",
        Refusal("topk 10 drafts a tree"),
    ),
    (
        "sgl-project/sglang#5491",
        "python -m sglang.launch_server --model /mnt/data/open_source/QwQ-32B/Qwen__QwQ-32B/   --served-model-name Qwen-32B --speculative-algorithm EAGLE \\\n    --speculative-draft-model-path /mnt/train/eagle/EAGLE-1/ckpt_2/state_1/ --speculative-num-steps 3 \\\n    --speculative-eagle-topk 2 --speculative-num-draft-tokens 8 --cuda-graph-max-bs 8 --port 9123 --tensor-parallel-size 2 --mem-fraction-static 0.8 --attention-backend fa3 --enable-torch-compile --max-running-requests 100",
        "h100",
        Refusal("topk 2 drafts a tree"),
    ),
    (
        "SafeAILab/EAGLE#173",
        "python3 -m sglang.launch_server --model meta-llama/Llama-2-7b-chat-hf  --speculative-algo EAGLE --speculative-draft lmzheng/sglang-EAGLE-llama2-chat-7B --speculative-num-steps 5 --speculative-eagle-topk 8 --speculative-num-draft-tokens 64 --mem-fraction 0.7",
        "h100",
        Refusal("topk 8 drafts a tree"),
    ),
    (
        // SGLang counts the target's own token.
        "sgl-project/sglang#8228",
        "python3 -m sglang.launch_server --model-path Qwen2-72B --tensor-parallel-size 8 --dtype bfloat16 --served-model-name Qwen2  --speculative-algorithm EAGLE --speculative-draft-model-path EAGLE-Qwen2-72B --speculative-num-steps 2 --speculative-eagle-topk 1 --speculative-num-draft-tokens 2 --mem-fraction 0.7",
        "h100",
        Refusal("a chain of 2 steps has 3 draft tokens, not 2"),
    ),
    (
        "no thread: n-grams on a mixture of experts",
        r#"VLLM_USE_V1=1 vllm serve deepseek-ai/DeepSeek-V3 -tp 8 --trust-remote-code --speculative-config '{"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 4}'"#,
        "h200",
        Answer("K = 4", "K = 1"),
    ),
    (
        "no thread: docker run with EAGLE",
        r#"docker run --runtime nvidia --gpus all -v models:/models --env "HF_TOKEN=x" -p 8000:8000 --ipc=host vllm/vllm-openai:latest --model meta-llama/Llama-3.1-8B-Instruct --speculative-config '{"method": "eagle", "model": "yuhuili/EAGLE-LLaMA3.1-Instruct-8B", "num_speculative_tokens": 2, "draft_tensor_parallel_size": 1}'"#,
        "L40S",
        Answer("K = 2", "K = 5"),
    ),
    (
        "no thread: DeepSeek with its MTP module, short names",
        "vllm serve deepseek-ai/DeepSeek-V3.1 \\\n  --tensor-parallel 8 --enable-expert --kv-cache-dtype fp8 \\\n  --speculative-config '{\"method\": \"deepseek_mtp\", \"num_speculative_tokens\": 1}' > server.log 2>&1 &",
        "h200",
        Answer("K = 1", "K = 4"),
    ),
    ("no thread: a Kubernetes container", "deployment.yaml", "h100", Answer("K = 2", "K = 4")),
    (
        "no thread: a draft model on its own GPU count",
        r#"vllm serve RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic --tensor-parallel-size 4 --speculative-config.model meta-llama/Llama-3.2-1B-Instruct --speculative-config.num_speculative_tokens 5 --speculative-config.method draft_model --speculative-config.draft_tensor_parallel_size 1"#,
        "h100",
        Answer("K = 5", "K = 3"),
    ),
    (
        "no thread: SGLang's NEXTN",
        "python3 -m sglang.launch_server --model deepseek-ai/DeepSeek-R1-0528 --tp 8 --trust-remote-code --speculative-algo NEXTN --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --max-running-requests 64",
        "h200",
        Answer("K = 3", "K = 4"),
    ),
    (
        "no thread: SGLang's adaptive lengths",
        "sglang serve --model-path Qwen/Qwen3-8B --speculative-algorithm EAGLE3 --speculative-draft-model-path AngelSlim/Qwen3-8B_eagle3 --speculative-num-steps 3 --speculative-adaptive --enable-priority-scheduling --radix-eviction-policy lfu",
        "h100",
        Answer("its adaptive lengths", "K = 5"),
    ),
    (
        "no thread: Medusa heads",
        r#"vllm serve lmsys/vicuna-7b-v1.3 --speculative-config '{"method": "medusa", "model": "abhigoyal/vllm-medusa-vicuna-7b-v1.3", "num_speculative_tokens": 5}'"#,
        "a100",
        Refusal("the method medusa is not simulated"),
    ),
];

/// At two clients with short answers.
#[test]
fn the_lines_of_public_threads_are_answered_or_refused() {
    let place = Place::new();
    std::fs::write(place.path("deployment.yaml"), CONTAINER).unwrap();
    for (thread, line, gpu, says) in &LINES {
        let out = ask(&place, line, &[&SMALL[..], &["--gpu", gpu, "--format", "json"]].concat());
        match says {
            Refusal(words) => {
                let said = refused(&out);
                assert!(said.contains(words) && said.contains("-- here"), "{thread}: {said}");
            }
            Answer(now, advised) => {
                assert!(out.status.success(), "{thread}: {}", text(&out.stderr));
                let answer = json(&out);
                let rows = answer["at_load"].as_array().unwrap();
                assert!(rows.len() >= 3 && rows.iter().any(|row| row["now"] == true), "{thread}: {answer}");
                assert_eq!(answer["now"], *now, "{thread}");
                assert_eq!(answer["advised"], *advised, "{thread}");
            }
        }
    }
}

/// What threads measured at the load and the acceptance that they tell: the thread, the line, the options, and by how
/// much the drafts change the rate of tokens. Of the other lines of public threads no measurement was found. Ours has
/// the sign of each, and not the size: +125, -35 (with the drafter of a sibling), +60 and -3 %.
const MEASURED: [(&str, &str, &str, f64); 4] = [
    (
        "sgl-project/sglang#29244: 88 to 162 tokens/s, accept length 2.8",
        "python3 -m sglang.launch_server --model-path Qwen/Qwen3-8B --speculative-algorithm DFLASH --speculative-draft-model-path z-lab/Qwen3-8B-DFlash-b16 --speculative-num-draft-tokens 16",
        "--gpu a100 --clients 1 --input 200 --output 500 --accept mean-length=2.8@15",
        0.84,
    ),
    (
        "sgl-project/sglang#29244: 146 to 93 tokens/s, accept length 2",
        "python3 -m sglang.launch_server --model-path Qwen/Qwen3-30B-A3B --speculative-algorithm DFLASH --speculative-draft-model-path z-lab/Qwen3-30B-A3B-DFlash-b16 --speculative-num-draft-tokens 16",
        "--gpu a100 --clients 1 --input 200 --output 500 --accept mean-length=2.0@15 --draft dflash-qwen3.5-35b-a3b",
        -0.36,
    ),
    (
        "llm-d/llm-d#2074: 13.2 to 9.7 ms a token at 1 request/s",
        LINES[0].1,
        "--gpu h200 --rate 1 --input 2048 --output 256 --accept mean-length=1.75@3",
        0.36,
    ),
    (
        "llm-d/llm-d#2074: throughput at 16 requests/s",
        LINES[0].1,
        "--gpu h200 --rate 16 --input 2048 --output 256 --accept mean-length=1.75@3",
        -0.105,
    ),
];

#[test]
fn what_threads_measured_has_the_sign_of_the_answer() {
    let place = Place::new();
    for (thread, line, options, measured) in MEASURED {
        let options: Vec<&str> = options.split_whitespace().chain(["--batch-sizes", "1", "--format", "json"]).collect();
        let answer = json(&ask(&place, line, &options));
        let rows = answer["at_load"].as_array().unwrap();
        let rate = |which: &dyn Fn(&serde_json::Value) -> bool| {
            let row = rows.iter().find(|row| which(row)).unwrap();
            // At 1 request a second all requests are served in time, so that only the rate of one request differs.
            row[if thread.contains(" 16 ") { "tokens_s" } else { "tokens_s_user" }].as_f64().unwrap()
        };
        let (now, plain) = (rate(&|row| row["now"] == true), rate(&|row| row["policy"] == "autoregressive"));
        let ours = now / plain - 1.0;
        assert!(ours.signum() == measured.signum() && ours.abs() > 0.02, "{thread}: {ours}");
    }
}
