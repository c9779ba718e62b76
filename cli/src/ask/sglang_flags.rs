//! The table of SGLang's flags (0.5).

use super::flags::Kind::{Switch, Value as One, Words};
use super::flags::{Flag, assumed, refused, table, used};
use std::sync::LazyLock;

const TENSOR: &str = "leave it out to ask about tensor parallelism, or measure the server (docs/your-server.md)";
const MEASURE: &str = "leave it out to ask about a server without it, or measure the server (docs/your-server.md)";
const SPLIT: &str = "leave it out to ask about a server that does both; `foretoken fleet` splits prompts from outputs \
                     (docs/fleet.md)";

pub static FLAGS: LazyLock<Vec<Flag>> = LazyLock::new(|| table(MATTER, OTHERS));

const MATTER: &[Flag] = &[
    used("model-path|model", One),
    used("tp-size|tp|tensor-parallel-size", One),
    used("pp-size|pp|pipeline-parallel-size", One),
    used("dp-size|dp|data-parallel-size", One),
    used("ep-size|ep|expert-parallel-size", One),
    used("max-running-requests", One),
    used("chunked-prefill-size", One),
    used("context-length", One),
    used("mem-fraction-static", One),
    used("max-total-tokens", One),
    used("kv-cache-dtype", One),
    used("page-size", One),
    used("quantization", One),
    used("dtype", One),
    used("disable-radix-cache", Switch),
    used("speculative-algorithm|speculative-algo", One),
    // Releases before 0.5 had one flag that begins with `speculative-draft`.
    used("speculative-draft-model-path|speculative-draft-model|speculative-draft", One),
    used("speculative-num-steps", One),
    used("speculative-eagle-topk", One),
    used("speculative-num-draft-tokens", One),
    used("speculative-dflash-block-size", One),
    used("max-prefill-tokens", One),
    used("enable-mixed-chunk", Switch),
    used("disable-overlap-schedule", Switch),
    used("schedule-conservativeness", One),
    used("schedule-policy", One),
    used("speculative-dspark-block-size", One),
    used("speculative-draft-model-quantization", One),
    used("speculative-adaptive", Switch),
    used("speculative-adaptive-config", One),
    used("enable-ep-moe", Switch),
    used("enable-priority-scheduling", Switch),
    used("disable-priority-preemption", Switch),
    used("radix-eviction-policy", One),
    used("retraction-policy", One),
    used("prefill-max-requests", One),
    used("prefill-decode-interval", One),
    used("prefill-decode-interval-min-bs", One),
    used("scheduler-recv-interval", One),
    // What is left out with a word about it.
    assumed("enable-lora", Switch, "adapters are taken to cost no time and no memory"),
    assumed("lora-paths", Words, "adapters are taken to cost no time and no memory"),
    assumed("json-model-override-args", One, "the model is taken as published"),
    assumed("speculative-draft-window-size", One, "the drafter is taken to read its whole context"),
    assumed("speculative-dspark-sps-table-path", One, "DSpark verifies as many drafts as by its default"),
    assumed("speculative-dspark-confidence-sts-path", One, "DSpark verifies as many drafts as by its default"),
    // What is not simulated.
    refused("enable-dp-attention", Switch, &[], "SGLang's data-parallel attention is not simulated", TENSOR),
    refused("moe-dp-size", One, &["1"], "data-parallel experts are not simulated", TENSOR),
    refused("attn-cp-size", One, &["1"], "context parallelism is not simulated", MEASURE),
    refused("dcp-size", One, &["1"], "context parallelism is not simulated", MEASURE),
    refused("enable-prefill-cp", Switch, &[], "context parallelism is not simulated", MEASURE),
    refused("disaggregation-mode", One, &["null", "none"], "handing KV over is not simulated here", SPLIT),
    refused("enable-pdmux", Switch, &[], "prompts and outputs on parts of a GPU are not simulated", MEASURE),
    refused("enable-prefill-delayer", Switch, &[], "a delayer of prompts is not simulated", MEASURE),
    refused("enable-hierarchical-cache", Switch, &[], "hierarchical caches are not simulated", MEASURE),
    refused("enable-lmcache", Switch, &[], "hierarchical caches are not simulated", MEASURE),
    refused("enable-flexkv", Switch, &[], "hierarchical caches are not simulated", MEASURE),
    refused("enable-hisparse", Switch, &[], "sparse hierarchical caches are not simulated", MEASURE),
    refused("cpu-offload-gb", One, &["0"], "weights in the host's memory are not simulated", MEASURE),
    refused("dllm-algorithm", One, &[], "diffusion language models are not simulated", MEASURE),
    refused("decoupled-spec-role", One, &["null"], "a drafter on a server of its own is not simulated", MEASURE),
];

/// These change no pass and no schedule of text requests, or are the default here.
const OTHERS: &[&str] = &[
    // Names, addresses, logs.
    "host= port= api-key= served-model-name= log-level= log-level-http= log-requests log-requests-level= \
     enable-metrics show-time-cost decode-log-interval= enable-cache-report crash-dump-folder= log-requests-format= \
     log-requests-target+ enable-metrics-for-all-schedulers enable-mfu-metrics enable-request-time-stats-logging \
     enable-forward-pass-metrics enable-trace otlp-traces-endpoint= export-metrics-to-file export-metrics-to-file-dir= \
     kv-events-config= uvicorn-access-log-exclude-prefixes+ admin-api-key= fastapi-root-path= file-storage-path= \
     ssl-keyfile= ssl-certfile= ssl-ca-certs= sidecar= warmups=",
    // Loading, tokenizers, templates, parsers.
    "tokenizer-path= tokenizer-mode= tokenizer-worker-num= skip-tokenizer-init skip-server-warmup trust-remote-code \
     load-format= model-loader-extra-config= download-dir= revision= chat-template= tool-call-parser= \
     reasoning-parser= grammar-backend= random-seed= enable-multimodal mm-attention-backend= is-embedding model-impl= \
     hf-chat-template-name= completion-template= default-chat-template-kwargs= tool-server= sampling-defaults= \
     preferred-sampling-params= enable-strict-thinking allow-auto-truncate enable-streaming-session \
     incremental-streaming-output enable-custom-logit-processor detokenizer-worker-num= weight-version= \
     weight-loader-disable-mmap weight-loader-prefetch-checkpoints delete-ckpt-after-loading mm-enable-dp-encoder \
     keep-mm-feature-on-device max-lora-rank= max-loras-per-batch= max-loaded-loras= lora-target-modules+ \
     lora-backend=",
    // Kernels and processes, which presets and measured shares stand for.
    "attention-backend= prefill-attention-backend= decode-attention-backend= speculative-attention-mode= \
     speculative-draft-attention-backend= speculative-token-map= speculative-draft-model-revision= \
     speculative-draft-load-format= speculative-draft-kv-cache-dtype= speculative-draft-sink-size= \
     speculative-dspark-align-verify-tokens-to-graph-tier speculative-dsa-topk-backend= \
     speculative-moe-runner-backend= speculative-moe-a2a-backend= speculative-use-rejection-sampling \
     speculative-use-block-verification",
    // A lookup is taken to draft a chain, whichever way it looks.
    "speculative-ngram-min-bfs-breadth= speculative-ngram-max-bfs-breadth= speculative-ngram-match-type= \
     speculative-ngram-min-match-window-size= speculative-ngram-max-match-window-size= \
     speculative-ngram-branch-length= speculative-ngram-max-trie-depth= speculative-ngram-capacity= \
     speculative-ngram-external-corpus-path= speculative-ngram-external-sam-budget= \
     speculative-ngram-external-corpus-max-tokens= speculative-accept-threshold-single= \
     speculative-accept-threshold-acc= sampling-backend= mamba-scheduler-strategy= mamba-ssm-dtype= \
     mamba-full-memory-ratio= moe-runner-backend= moe-a2a-backend= moe-dense-tp-size= ep-dispatch-algorithm= \
     ep-num-redundant-experts= enable-eplb eplb-algorithm= eplb-rebalance-num-iterations= init-expert-location= \
     enable-two-batch-overlap enable-single-batch-overlap tbo-token-distribution-threshold= deepep-config= \
     enable-dp-lm-head disable-shared-experts-fusion fp8-gemm-runner-backend= fp4-gemm-runner-backend= \
     linear-attn-backend= dsa-prefill-backend= dsa-decode-backend= enable-deterministic-inference \
     flashinfer-mla-disable-ragged disable-flashinfer-autotune disable-decode-cuda-graph disable-prefill-cuda-graph \
     disable-piecewise-cuda-graph cuda-graph-max-bs-decode= cuda-graph-bs-decode+ disable-chunked-prefix-cache \
     schedule-low-priority-values-first default-priority-value= priority-scheduling-preemption-threshold= \
     swa-full-tokens-ratio= nccl-port= gpu-id-step= sleep-on-idle numa-node+ enable-p2p-check deepep-mode= \
     enable-flashinfer-allreduce-fusion enable-aiter-allreduce-fusion enable-mm-global-cache fp8-gemm-backend= \
     disable-cuda-graph cuda-graph-max-bs= cuda-graph-bs+ disable-cuda-graph-padding enable-torch-compile \
     torch-compile-max-bs= disable-custom-all-reduce enable-nccl-nvls enable-symm-mem num-continuous-decode-steps= \
     stream-interval= max-queued-requests= watchdog-timeout= dist-timeout= dist-init-addr= nnodes= node-rank= \
     base-gpu-id= device= load-balance-method=",
    // These act where prompts and outputs have servers of their own.
    "disaggregation-transfer-backend= disaggregation-bootstrap-port= disaggregation-ib-device= \
     disaggregation-decode-enable-radix-cache disaggregation-decode-polling-interval= \
     disaggregation-decode-enable-offload-kvcache num-reserved-decode-tokens=",
    // These act with a hierarchical cache.
    "hicache-write-policy= hicache-io-backend= hicache-mem-layout= hicache-storage-backend= \
     hicache-storage-prefetch-policy= hicache-storage-backend-extra-config= hicache-ratio= hicache-size= \
     enable-memory-saver",
];
