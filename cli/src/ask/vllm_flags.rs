//! The table of vLLM's flags (0.33).

use super::flags::Kind::{Switch, Value as One, Words};
use super::flags::{Flag, assumed, refused, table, used};
use std::sync::LazyLock;

const MEASURE: &str = "leave it out to ask about a server without it, or measure the server (docs/your-server.md)";
const SPLIT: &str = "leave it out to ask about this server alone; `foretoken fleet` splits prompts from outputs \
                     (docs/fleet.md)";
const BLOCKS: &str = "give --num-gpu-blocks-override, the number of blocks that the server logs";

pub static FLAGS: LazyLock<Vec<Flag>> = LazyLock::new(|| table(MATTER, OTHERS));

const MATTER: &[Flag] = &[
    used("model", One),
    used("tensor-parallel-size|tp", One),
    used("pipeline-parallel-size|pp", One),
    used("data-parallel-size|dp", One),
    used("enable-expert-parallel|ep", Switch),
    used("max-num-seqs", One),
    used("max-num-batched-tokens", One),
    used("max-model-len", One),
    used("gpu-memory-utilization", One),
    used("num-gpu-blocks-override", One),
    used("block-size", One),
    used("disable-hybrid-kv-cache-manager", Switch),
    used("kv-cache-dtype", One),
    used("quantization|q", One),
    used("dtype", One),
    used("enable-prefix-caching", Switch),
    used("enable-chunked-prefill", Switch),
    used("async-scheduling", Switch),
    used("scheduling-policy", One),
    used("long-prefill-token-threshold", One),
    used("long-prefill-token-threshold-adaptive", Switch),
    used("max-num-active-seqs", One),
    used("prefill-schedule-interval", One),
    used("scheduler-reserve-full-isl", Switch),
    used("watermark", One),
    used("speculative-config|sc", One),
    used("spec-method", One),
    used("spec-model", One),
    used("spec-tokens", One),
    used("speculative-model", One),
    used("num-speculative-tokens", One),
    // What is left out with a word about it.
    assumed("scheduler-cls", One, "the class is taken to schedule as vLLM's own"),
    assumed("hf-overrides", One, "the model is taken as published"),
    assumed("enable-lora", Switch, "adapters are taken to cost no time and no memory"),
    assumed("lora-modules", Words, "adapters are taken to cost no time and no memory"),
    // What is not simulated.
    refused("kv-transfer-config", One, &[], "handing KV over is not simulated here", SPLIT),
    refused("cpu-offload-gb", One, &["0", "0.0"], "weights in the host's memory are not simulated", MEASURE),
    refused("kv-offloading-size", One, &["0", "0.0"], "KV in the host's memory is not simulated", MEASURE),
    refused("kv-cache-memory-bytes", One, &[], "a KV cache in bytes is not read", BLOCKS),
    refused("decode-context-parallel-size|dcp", One, &["1"], "context parallelism is not simulated", MEASURE),
    refused("prefill-context-parallel-size|pcp", One, &["1"], "context parallelism is not simulated", MEASURE),
    refused("disable-sliding-window", Switch, &[], "a model without its window is not simulated", MEASURE),
    refused("diffusion-config|dc", One, &[], "diffusion language models are not simulated", MEASURE),
];

/// These change no pass and no schedule of text requests, or are the default here.
const OTHERS: &[&str] = &[
    // Names, addresses, logs.
    "enable-logging-iteration-details enable-per-request-metrics per-request-spec-decode-metrics= enable-log-outputs \
     enable-log-deltas log-error-stack log-config-file= logging-config= aggregate-engine-logging \
     collect-detailed-traces+ cudagraph-metrics enable-mfu-metrics kv-cache-metrics-sample= \
     disable-access-log-for-endpoints= allow-credentials middleware= allowed-methods+ allowed-headers+ ssl-ca-certs= \
     grpc-port= sse-keep-alive-interval= shutdown-timeout= host= port|p= uds= root-path= api-key+ served-model-name+ \
     ssl-keyfile= ssl-certfile= allowed-origins= disable-log-requests disable-log-stats disable-uvicorn-access-log \
     enable-log-requests uvicorn-log-level= max-log-len= otlp-traces-endpoint= api-server-count|asc= headless \
     disable-fastapi-docs enable-server-load-tracking enable-force-include-usage enable-prompt-tokens-details \
     return-tokens-as-token-ids show-hidden-metrics-for-version= kv-cache-metrics",
    // Loading, tokenizers, templates, parsers.
    "trust-request-chat-template exclude-tools-when-tool-choice-none enable-tokenizer-info-endpoint \
     reasoning-parser-plugin= reasoning-config= renderer-num-workers= ignore-patterns+ pt-load-map-location= \
     use-tqdm-on-load convert= pooler-config= logits-processors+ io-processor-plugin= enable-prompt-embeds \
     enable-mm-embeds interleave-mm-strings allowed-media-domains+ mm-processor-cache-type= mm-encoder-attn-backend= \
     disable-chunked-mm-input max-loras= max-lora-rank= max-cpu-loras= lora-dtype= fully-sharded-loras \
     default-mm-loras= tokenizer= tokenizer-mode= trust-remote-code download-dir= load-format= \
     safetensors-load-strategy= model-loader-extra-config= revision= code-revision= tokenizer-revision= hf-token= \
     hf-config-path= config-format= generation-config= override-generation-config= chat-template= \
     chat-template-content-format= default-chat-template-kwargs= response-role= enable-auto-tool-choice \
     tool-call-parser= tool-parser-plugin= tool-server= reasoning-parser= enable-reasoning structured-outputs-config= \
     guided-decoding-backend= seed= task= runner= logprobs-mode= max-logprobs= skip-tokenizer-init model-impl= \
     limit-mm-per-prompt= mm-processor-cache-gb= mm-processor-kwargs= mm-encoder-tp-mode= media-io-kwargs= \
     allowed-local-media-path= language-model-only skip-mm-profiling",
    // Kernels and processes, which presets and measured shares stand for.
    "eplb-config= expert-placement-strategy= enable-ep-weight-filter enable-elastic-ep dbo-decode-token-threshold= \
     dbo-prefill-token-threshold= ubatch-size= linear-backend= kernel-config= enable-flashinfer-autotune \
     gdn-prefill-backend= mamba-backend= mamba-block-size= mamba-cache-dtype= mamba-cache-mode= kv-offloading-backend= \
     data-parallel-rank= data-parallel-hybrid-lb data-parallel-external-lb disable-nccl-for-dp-synchronization \
     distributed-timeout-seconds= master-port= numa-bind profiler-config= weight-transfer-config= worker-cls= \
     attention-backend= attention-config= mamba-ssm-cache-dtype= moe-backend= enforce-eager device= \
     compilation-config|cc= optimization-level= cuda-graph-sizes+ cudagraph-capture-sizes+ max-cudagraph-capture-size= \
     distributed-executor-backend= disable-custom-all-reduce max-parallel-loading-workers= swap-space= \
     stream-interval= enable-sleep-mode all2all-backend= enable-eplb enable-dbo kv-events-config= disable-cascade-attn \
     prefix-caching-hash-algo= calculate-kv-scales data-parallel-backend|dpb= data-parallel-size-local|dpl= \
     data-parallel-address|dpa= data-parallel-rpc-port|dpp= data-parallel-start-rank|dpr= nnodes= node-rank= \
     master-addr= use-v2-block-manager max-seq-len-to-capture= additional-config= worker-extension-cls=",
];
