//! vLLM's flags (0.33): which are used, which do not matter for the answer.

use super::flags::{self, Flag, Given, Kind};
use super::line::{Line, Word};
use super::server::{Server, Speculation, kv_bits};
use foretoken_policies::BatchRange;
use foretoken_run::spec::problem::{Result, nearest};
use foretoken_servers::calibrate::recommend::Engine;
use foretoken_sim::DraftMethod;
use foretoken_sim::MAX_SPEC_LEN;
use serde_json::Value;

const fn used(names: &'static [&'static str], kind: Kind) -> Flag {
    Flag { names, kind, used: true }
}

const fn other(names: &'static [&'static str], kind: Kind) -> Flag {
    Flag { names, kind, used: false }
}

use Kind::{Switch, Value as One, Words};

/// vLLM's flags. Those below the first block change no pass and no schedule of text requests, or are the default here.
const FLAGS: &[Flag] = &[
    used(&["model"], One),
    used(&["tensor-parallel-size", "tp"], One),
    used(&["pipeline-parallel-size", "pp"], One),
    used(&["data-parallel-size", "dp"], One),
    used(&["enable-expert-parallel", "ep"], Switch),
    used(&["max-num-seqs"], One),
    used(&["max-num-batched-tokens"], One),
    used(&["max-model-len"], One),
    used(&["gpu-memory-utilization"], One),
    used(&["num-gpu-blocks-override"], One),
    used(&["block-size"], One),
    used(&["disable-hybrid-kv-cache-manager"], Switch),
    used(&["kv-cache-dtype"], One),
    used(&["quantization", "q"], One),
    used(&["dtype"], One),
    used(&["enable-prefix-caching"], Switch),
    used(&["enable-chunked-prefill"], Switch),
    used(&["async-scheduling"], Switch),
    used(&["scheduling-policy"], One),
    used(&["long-prefill-token-threshold"], One),
    used(&["speculative-config", "sc"], One),
    used(&["spec-method"], One),
    used(&["spec-model"], One),
    used(&["spec-tokens"], One),
    used(&["speculative-model"], One),
    used(&["num-speculative-tokens"], One),
    // Names, addresses, logs.
    other(&["host"], One),
    other(&["port", "p"], One),
    other(&["uds"], One),
    other(&["root-path"], One),
    other(&["api-key"], Words),
    other(&["served-model-name"], Words),
    other(&["ssl-keyfile"], One),
    other(&["ssl-certfile"], One),
    other(&["allowed-origins"], One),
    other(&["disable-log-requests"], Switch),
    other(&["disable-log-stats"], Switch),
    other(&["disable-uvicorn-access-log"], Switch),
    other(&["enable-log-requests"], Switch),
    other(&["uvicorn-log-level"], One),
    other(&["max-log-len"], One),
    other(&["otlp-traces-endpoint"], One),
    other(&["api-server-count", "asc"], One),
    other(&["headless"], Switch),
    other(&["config"], One),
    other(&["disable-fastapi-docs"], Switch),
    other(&["enable-server-load-tracking"], Switch),
    other(&["enable-force-include-usage"], Switch),
    other(&["enable-prompt-tokens-details"], Switch),
    other(&["return-tokens-as-token-ids"], Switch),
    other(&["show-hidden-metrics-for-version"], One),
    other(&["kv-cache-metrics"], Switch),
    // Loading, tokenizers, templates, parsers.
    other(&["tokenizer"], One),
    other(&["tokenizer-mode"], One),
    other(&["trust-remote-code"], Switch),
    other(&["download-dir"], One),
    other(&["load-format"], One),
    other(&["safetensors-load-strategy"], One),
    other(&["model-loader-extra-config"], One),
    other(&["revision"], One),
    other(&["code-revision"], One),
    other(&["tokenizer-revision"], One),
    other(&["hf-token"], One),
    other(&["hf-config-path"], One),
    other(&["config-format"], One),
    other(&["generation-config"], One),
    other(&["override-generation-config"], One),
    other(&["chat-template"], One),
    other(&["chat-template-content-format"], One),
    other(&["default-chat-template-kwargs"], One),
    other(&["response-role"], One),
    other(&["enable-auto-tool-choice"], Switch),
    other(&["tool-call-parser"], One),
    other(&["tool-parser-plugin"], One),
    other(&["tool-server"], One),
    other(&["reasoning-parser"], One),
    other(&["enable-reasoning"], Switch),
    other(&["structured-outputs-config"], One),
    other(&["guided-decoding-backend"], One),
    other(&["seed"], One),
    other(&["task"], One),
    other(&["runner"], One),
    other(&["logprobs-mode"], One),
    other(&["max-logprobs"], One),
    other(&["skip-tokenizer-init"], Switch),
    other(&["model-impl"], One),
    other(&["limit-mm-per-prompt"], One),
    other(&["mm-processor-cache-gb"], One),
    other(&["mm-processor-kwargs"], One),
    other(&["mm-encoder-tp-mode"], One),
    other(&["media-io-kwargs"], One),
    other(&["allowed-local-media-path"], One),
    other(&["language-model-only"], Switch),
    other(&["skip-mm-profiling"], Switch),
    // Kernels and processes, which presets and measured shares stand for.
    other(&["attention-backend"], One),
    other(&["attention-config"], One),
    other(&["mamba-ssm-cache-dtype"], One),
    other(&["moe-backend"], One),
    other(&["enforce-eager"], Switch),
    other(&["compilation-config", "cc"], One),
    other(&["optimization-level"], One),
    other(&["cuda-graph-sizes"], Words),
    other(&["cudagraph-capture-sizes"], Words),
    other(&["max-cudagraph-capture-size"], One),
    other(&["distributed-executor-backend"], One),
    other(&["disable-custom-all-reduce"], Switch),
    other(&["max-parallel-loading-workers"], One),
    other(&["swap-space"], One),
    other(&["stream-interval"], One),
    other(&["enable-sleep-mode"], Switch),
    other(&["all2all-backend"], One),
    other(&["enable-eplb"], Switch),
    other(&["enable-dbo"], Switch),
    other(&["kv-events-config"], One),
    other(&["disable-cascade-attn"], Switch),
    other(&["prefix-caching-hash-algo"], One),
    other(&["calculate-kv-scales"], Switch),
    other(&["data-parallel-backend", "dpb"], One),
    other(&["data-parallel-size-local", "dpl"], One),
    other(&["data-parallel-address", "dpa"], One),
    other(&["data-parallel-rpc-port", "dpp"], One),
    other(&["data-parallel-start-rank", "dpr"], One),
    other(&["nnodes"], One),
    other(&["node-rank"], One),
    other(&["master-addr"], One),
    other(&["use-v2-block-manager"], Switch),
    other(&["max-seq-len-to-capture"], One),
    other(&["additional-config"], One),
    other(&["worker-extension-cls"], One),
];

/// Keys of `--speculative-config` that do not matter for the answer.
const NO_MATTER: &[&str] = &[
    "draft_tensor_parallel_size",
    "max_model_len",
    "quantization",
    "revision",
    "code_revision",
    "prompt_lookup_min",
    "prompt_lookup_max",
    "draft_load_config",
    "attention_backend",
    "moe_backend",
    "disable_padded_drafter_batch",
    "use_local_argmax_reduction",
    "enforce_eager",
    "parallel_drafting",
    "suffix_decoding_max_tree_depth",
    "suffix_decoding_max_cached_requests",
    "suffix_decoding_max_spec_factor",
    "suffix_decoding_min_token_prob",
    "draft_sample_method",
    "rejection_sample_method",
    "kv_cache_dtype",
    "target_model",
];

/// The server that vLLM starts with these words.
pub fn server(line: &Line, words: &[Word], skip_unknown: bool) -> Result<Server> {
    let flags = flags::read(line, words, FLAGS, skip_unknown)?;
    let named = flags.given.iter().rev().find(|g| g.name == "model").and_then(|g| g.value.clone());
    let Some(model) = named.or_else(|| flags.others.first().cloned()) else {
        let end = line.text.trim_end().len();
        let at = line.words.last().map_or(end..end, |w| w.span.clone());
        return Err(line.wrong(&at, "the line names no model").help("vllm serve MODEL …"));
    };
    let mut server = Server::of(Engine::Vllm, model);
    (server.no_matter, server.unknown) = (flags.no_matter, flags.unknown);
    for flag in &flags.given {
        apply(line, flag, &mut server)?;
        if !server.used.contains(&flag.written) {
            server.used.push(flag.written.clone());
        }
    }
    server.speculation = speculation(line, &mut server)?;
    Ok(server)
}

fn apply(line: &Line, flag: &Given, server: &mut Server) -> Result<()> {
    match flag.name {
        "tensor-parallel-size" => server.tensor_parallel = flag.count(line)?,
        "pipeline-parallel-size" => {
            if flag.count(line)? > 1 {
                return Err(line
                    .wrong(&flag.span, "pipeline parallelism is not simulated")
                    .help("ask with --tensor-parallel-size instead, or measure the server (docs/your-server.md)"));
            }
        }
        "data-parallel-size" => server.replicas = flag.count(line)?,
        "enable-expert-parallel" => server.expert_parallel = flag.on,
        "max-num-seqs" => server.set("max_num_seqs", flag.count(line)?),
        "max-num-batched-tokens" => server.set("max_num_batched_tokens", flag.count(line)?),
        "max-model-len" if ["-1", "auto"].contains(&flag.text()) => {}
        "max-model-len" => {
            server.set("max_model_len", flag.count(line)?);
            server.longest_at = Some(flag.span.clone());
        }
        "gpu-memory-utilization" => server.memory_utilization = Some(flag.number(line)?),
        "num-gpu-blocks-override" => server.set("num_gpu_blocks", flag.count(line)?),
        "block-size" => server.set("block_size", flag.count(line)?),
        // Layers with a window then keep every token.
        "disable-hybrid-kv-cache-manager" if flag.on => server.set("sliding_window", 0u32),
        "disable-hybrid-kv-cache-manager" => {}
        "kv-cache-dtype" => server.kv_bits = kv_bits(line, flag)?,
        "quantization" => server.quantization = flag.value.clone(),
        "dtype" => server.dtype = flag.value.clone(),
        "enable-prefix-caching" => server.set("prefix_caching", flag.on),
        "enable-chunked-prefill" => server.set("chunked_prefill", flag.on),
        "async-scheduling" => server.set("async_scheduling", flag.on),
        "scheduling-policy" if flag.text() == "fcfs" => {}
        "scheduling-policy" => {
            server.assumed.push("all requests have the same priority, so they are served as they come".into());
        }
        "long-prefill-token-threshold" => server.set("long_prefill_token_threshold", flag.number::<u32>(line)?),
        "model" => {}
        _ => server.speculative.push(flag.clone()),
    }
    Ok(())
}

pub fn method(line: &Line, at: &Word, name: &str) -> Result<DraftMethod> {
    Ok(match name {
        "draft_model" => DraftMethod::DraftModel,
        "eagle" => DraftMethod::Eagle,
        "eagle3" => DraftMethod::Eagle3,
        "ngram" | "ngram_gpu" | "[ngram]" => DraftMethod::Ngram,
        "suffix" => DraftMethod::Suffix,
        "dflash" => DraftMethod::Dflash,
        "dspark" => DraftMethod::Dspark,
        "mtp" => DraftMethod::Mtp,
        name if name.ends_with("_mtp") => DraftMethod::Mtp,
        "medusa" | "mlp_speculator" | "custom_class" | "extract_hidden_states" => {
            let help = "draft_model, eagle, eagle3, mtp, dflash, dspark, ngram and suffix are";
            return Err(line.wrong(&at.span, format!("the method {name} is not simulated")).help(help));
        }
        name => {
            let known = ["draft_model", "eagle", "eagle3", "mtp", "dflash", "dspark", "ngram", "suffix"];
            let near = nearest(name, known).map_or(String::new(), |near| format!("did you mean {near}? "));
            let help = format!("{near}vLLM has {}", known.join(", "));
            return Err(line.wrong(&at.span, format!("no method is called {name}")).help(help));
        }
    })
}

/// The speculation that the flags in `server.speculative` ask for.
fn speculation(line: &Line, server: &mut Server) -> Result<Option<Speculation>> {
    let mut config = serde_json::Map::new();
    let mut at = None;
    for flag in &server.speculative {
        let value = flag.value.clone().expect("these flags have values");
        let key = match (flag.name, &flag.part) {
            (_, Some(part)) => part.as_str(),
            ("spec-method", None) => "method",
            ("spec-model" | "speculative-model", None) => "model",
            ("spec-tokens" | "num-speculative-tokens", None) => "num_speculative_tokens",
            _ => {
                config.extend(json(line, &value)?);
                at = Some(value);
                continue;
            }
        };
        let read = serde_json::from_str(&value.text).unwrap_or_else(|_| Value::String(value.text.clone()));
        config.insert(key.to_owned(), read);
        at.get_or_insert(value);
    }
    let Some(at) = at else { return Ok(None) };
    let wrong = |what: String| line.wrong(&part_of(line, &at, &what).unwrap_or(at.span.clone()), what.clone());
    let text = |key: &str| config.get(key).and_then(Value::as_str);
    for key in config.keys() {
        let known = ["method", "model", "num_speculative_tokens", "num_speculative_tokens_per_batch_size"];
        if known.contains(&key.as_str()) {
            continue;
        }
        if !NO_MATTER.contains(&key.as_str()) {
            let span = part_of(line, &at, key).unwrap_or(at.span.clone());
            let near = nearest(key, known.into_iter().chain(NO_MATTER.iter().copied()));
            let near = near.map_or(String::new(), |near| format!("did you mean {near}? "));
            return Err(line
                .wrong(&span, format!("{key} is no key of --speculative-config that is known"))
                .help(format!("{near}leave it out to go on")));
        }
        server.no_matter.push(format!("{key} of --speculative-config"));
    }
    let drafter = text("model")
        .map(|model| Word { text: model.to_owned(), span: part_of(line, &at, model).unwrap_or(at.span.clone()) });
    let method = match (text("method"), &drafter) {
        (Some(name), _) => {
            let span = part_of(line, &at, name).unwrap_or(at.span.clone());
            method(line, &Word { text: name.to_owned(), span }, name)?
        }
        // vLLM finds the method in the draft model's name.
        (None, Some(drafter)) => match drafter.text.to_lowercase() {
            name if name.contains("ngram") => DraftMethod::Ngram,
            name if name.contains("eagle3") => DraftMethod::Eagle3,
            name if name.contains("eagle") => DraftMethod::Eagle,
            name if name.contains("dflash") => DraftMethod::Dflash,
            name if name.contains("mtp") => DraftMethod::Mtp,
            _ => DraftMethod::DraftModel,
        },
        (None, None) => return Err(wrong("--speculative-config names neither a method nor a model".into())),
    };
    let table = match config.get("num_speculative_tokens_per_batch_size") {
        None => Vec::new(),
        Some(value) => serde_json::from_value::<Vec<BatchRange>>(value.clone())
            .map_err(|_| wrong("num_speculative_tokens_per_batch_size is a list of [first, last, tokens]".into()))?,
    };
    let stated = config.get("num_speculative_tokens").map(|v| v.as_u64().filter(|k| (1..=32).contains(k)));
    let k = match (stated, table.iter().map(|r| r.2).max()) {
        (Some(Some(k)), _) => k as u32,
        (Some(None), _) => {
            let span = part_of(line, &at, "num_speculative_tokens").unwrap_or(at.span.clone());
            return Err(line.wrong(&span, format!("num_speculative_tokens is a number from 1 to {MAX_SPEC_LEN}")));
        }
        (None, Some(k)) => k,
        (None, None) if method == DraftMethod::Mtp => 1,
        (None, None) if method == DraftMethod::Suffix => 32,
        (None, None) => {
            return Err(line
                .wrong(&at.span, "--speculative-config lacks num_speculative_tokens")
                .help("say how many tokens the server drafts now"));
        }
    };
    Ok(Some(Speculation { method, drafter, k, table, at }))
}

/// The JSON of a flag's value.
fn json(line: &Line, value: &Word) -> Result<serde_json::Map<String, Value>> {
    match serde_json::from_str(&value.text) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(_) => Err(line.wrong(&value.span, "this is no JSON object").help("{\"method\": …, \"model\": …, …}")),
        Err(e) => {
            let quotes = value.text.contains('{') && !value.text.contains('"');
            let what = match quotes {
                true => "the shell took the quotes out of this JSON".to_owned(),
                false => format!("this is no JSON: {e}"),
            };
            let help = "put the JSON in single quotes: --speculative-config '{\"method\": \"eagle3\", …}'";
            // Within a word without escapes, the place of the fault itself is known.
            let start = line.text[value.span.clone()].find(value.text.as_str()).map(|at| value.span.start + at);
            let at = start.filter(|_| !quotes && e.line() == 1).map(|start| start + e.column().saturating_sub(1));
            let span = at.map_or(value.span.clone(), |at| at.min(value.span.end)..value.span.end);
            Err(line.wrong(&span, what).help(help))
        }
    }
}

/// The place of `part` within a word of the line.
fn part_of(line: &Line, at: &Word, part: &str) -> Option<std::ops::Range<usize>> {
    let found = line.text.get(at.span.clone())?.find(part)? + at.span.start;
    Some(found..found + part.len())
}

#[cfg(test)]
mod tests {
    use super::super::line;
    use super::*;

    fn of(text: &str) -> Result<Server> {
        let line = line::read(text).unwrap();
        let (_, words) = line::program(&line)?;
        server(&line, &words, false)
    }

    #[test]
    fn flags_become_settings() {
        let s = of("vllm serve a/b -tp 2 --max-model-len 32k --kv-cache-dtype fp8_e4m3 --no-enable-prefix-caching \
                    --async-scheduling --port 1 -sc '{\"method\": \"eagle3\", \"model\": \"d\", \"num_speculative_tokens\": 3}'")
            .unwrap();
        assert_eq!((s.tensor_parallel, s.kv_bits, s.no_matter), (2, Some(8.0), vec!["--port".to_owned()]));
        assert_eq!(s.settings["max_model_len"].as_integer(), Some(32_000));
        assert_eq!(s.settings["prefix_caching"].as_bool(), Some(false));
        let drafts = s.speculation.unwrap();
        assert_eq!((drafts.k, drafts.method, drafts.drafter.unwrap().text), (3, DraftMethod::Eagle3, "d".into()));
        let dotted = of("vllm serve a --speculative-config.method ngram --speculative-config.num_speculative_tokens 4");
        let dotted = dotted.unwrap().speculation.unwrap();
        assert_eq!((dotted.k, dotted.method), (4, DraftMethod::Ngram));
        let table =
            of("vllm serve a -sc '{\"method\":\"mtp\",\"num_speculative_tokens_per_batch_size\":[[1,4,3],[5,9,0]]}'");
        assert_eq!(table.unwrap().speculation.unwrap().k, 3);
    }

    #[test]
    fn wrong_values_are_shown_in_the_line() {
        for (line, at, says) in [
            ("vllm serve a -sc '{\"method\": \"eagel3\", \"num_speculative_tokens\": 3}'", "eagel3", "no method"),
            ("vllm serve a -sc {\"method\":\"mtp\"}", "{\"method\":\"mtp\"}", "the shell took the quotes"),
            ("vllm serve a -sc '{\"method\": \"mtp\",}'", "}'", "no JSON"),
            ("vllm serve a -sc '{\"method\": \"eagle3\", \"tokens\": 3}'", "tokens", "no key of"),
            ("vllm serve a -sc '{\"method\": \"ngram\"}'", "'{\"method\": \"ngram\"}'", "lacks num_speculative_tokens"),
            ("vllm serve a --max-num-seqs many", "many", "no whole number"),
            ("vllm serve a -pp 2", "-pp 2", "pipeline"),
            ("vllm serve a -sc '{\"method\": \"medusa\", \"num_speculative_tokens\": 3}'", "medusa", "not simulated"),
            ("vllm serve a --kv-cache-dtype fp9", "fp9", "no type of the KV cache"),
            ("vllm serve", "serve", "names no model"),
        ] {
            let wrong = of(line).map(drop).unwrap_err();
            assert_eq!(wrong.pointed_at(), Some(at), "{line}");
            assert!(wrong.message().contains(says), "{line}: {}", wrong.message());
        }
    }

    #[test]
    fn no_two_flags_have_one_name() {
        let mut names: Vec<&str> = FLAGS.iter().flat_map(|f| f.names.iter().copied()).collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
