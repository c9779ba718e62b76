//! The server that vLLM's flags (0.33) start. `vllm_flags.rs` has the table of all flags.

use super::flags::{self, Given};
use super::line::{Line, Word};
use super::server::{Server, Speculation, kv_bits};
use super::vllm_flags::FLAGS;
use foretoken_policies::BatchRange;
use foretoken_run::spec::problem::{Result, nearest};
use foretoken_servers::calibrate::recommend::Engine;
use foretoken_sim::DraftMethod;
use foretoken_sim::MAX_SPEC_LEN;
use serde_json::Value;

/// Keys of `--speculative-config` that the answer uses.
const USED: &[&str] = &[
    "method", "model", "num_speculative_tokens", "num_speculative_tokens_per_batch_size", "draft_tensor_parallel_size",
    "max_model_len", "quantization", "parallel_drafting",
];

/// Keys of `--speculative-config` that do not matter for the answer.
const NO_MATTER: &[&str] = &[
    "revision", "code_revision", "prompt_lookup_min", "prompt_lookup_max", "draft_load_config", "attention_backend",
    "moe_backend", "disable_padded_drafter_batch", "use_local_argmax_reduction", "enforce_eager",
    "suffix_decoding_max_tree_depth", "suffix_decoding_max_cached_requests", "suffix_decoding_max_spec_factor",
    "suffix_decoding_min_token_prob", "draft_sample_method", "rejection_sample_method", "kv_cache_dtype",
    "target_model",
];

/// The server that vLLM starts with these words.
pub fn server(line: &Line, words: &[Word], skip_unknown: bool) -> Result<Server> {
    let flags = flags::read(line, words, &FLAGS, skip_unknown)?;
    let named = flags.given.iter().rev().find(|g| g.name == "model").and_then(|g| g.value.clone());
    let Some(model) = named.or_else(|| flags.others.first().cloned()) else {
        let end = line.text.trim_end().len();
        let at = line.words.last().map_or(end..end, |w| w.span.clone());
        return Err(line.wrong(&at, "the line names no model").help("vllm serve MODEL …"));
    };
    let mut server = Server::of(Engine::Vllm, model);
    (server.no_matter, server.unknown, server.assumed) = (flags.no_matter, flags.unknown, flags.assumed);
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
        "long-prefill-token-threshold-adaptive" => server.set("long_prefill_token_threshold_adaptive", flag.on),
        "max-num-active-seqs" => server.set("max_num_active_seqs", flag.count(line)?),
        "prefill-schedule-interval" => server.set("prefill_schedule_interval", flag.count(line)?),
        "scheduler-reserve-full-isl" => server.set("scheduler_reserve_full_isl", flag.on),
        "watermark" => server.set("watermark", flag.number::<f64>(line)?),
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
        if USED.contains(&key.as_str()) {
            continue;
        }
        if !NO_MATTER.contains(&key.as_str()) {
            let span = part_of(line, &at, key).unwrap_or(at.span.clone());
            let near = nearest(key, USED.iter().chain(NO_MATTER).copied());
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
    drafters_own(line, &at, &config, method, server)?;
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

/// What the keys of `--speculative-config` say of the drafter's own engine.
fn drafters_own(
    line: &Line,
    at: &Word,
    config: &serde_json::Map<String, Value>,
    method: DraftMethod,
    server: &mut Server,
) -> Result<()> {
    let span = |key: &str| part_of(line, at, key).unwrap_or(at.span.clone());
    let count = |key: &str| match config.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match value.as_u64().and_then(|n| u32::try_from(n).ok()).filter(|n| *n > 0) {
            Some(n) => Ok(Some(n)),
            None => Err(line.wrong(&span(key), format!("{key} is a whole number above 0"))),
        },
    };
    server.draft_tensor_parallel = count("draft_tensor_parallel_size")?;
    if let Some(longest) = count("max_model_len")? {
        server.set("draft_max_model_len", longest);
    }
    server.draft_quantization = config
        .get("quantization")
        .and_then(Value::as_str)
        .map(|name| Word { text: name.to_owned(), span: part_of(line, at, name).unwrap_or(at.span.clone()) });
    // Block drafters draft in parallel by themselves.
    let block = matches!(method, DraftMethod::Dflash | DraftMethod::Dspark);
    if config.get("parallel_drafting") == Some(&Value::Bool(true)) && !block {
        return Err(line
            .wrong(&span("parallel_drafting"), "drafts of one pass are not simulated for this method")
            .help("leave it out to ask about one pass for each token; dflash and dspark draft a block in a pass"));
    }
    Ok(())
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

    /// Flags that the documents tell people to add, and others that public lines have.
    #[test]
    fn what_is_left_out_has_its_word() {
        let s = of("vllm serve a --tensor-parallel 4 --enable-logging-iteration-details --enable-per-request-metrics \
                    --per-request-spec-decode-metrics detailed --scheduler-cls foretoken.vllm.Scheduler --enable-lora \
                    --lora-modules x=y z=w --cpu-offload-gb 0 --decode-context-parallel-size 1 --eplb-config '{}'")
        .unwrap();
        assert_eq!((s.tensor_parallel, s.used.as_slice()), (4, &["--tensor-parallel".to_owned()][..]));
        assert_eq!(s.no_matter.len(), 6, "{:?}", s.no_matter);
        assert_eq!(s.assumed.len(), 3, "{:?}", s.assumed);
        assert!(s.assumed[0].starts_with("--scheduler-cls: the class is taken"), "{:?}", s.assumed);
    }

    /// What the draft model is started with.
    #[test]
    fn the_drafters_own_settings_are_used() {
        let s = of(
            "vllm serve a -tp 4 -sc '{\"method\": \"draft_model\", \"model\": \"d\", \"num_speculative_tokens\": 3, \
                    \"draft_tensor_parallel_size\": 1, \"max_model_len\": 4096, \"quantization\": \"fp8\"}'",
        )
        .unwrap();
        assert_eq!((s.draft_tensor_parallel, s.settings["draft_max_model_len"].as_integer()), (Some(1), Some(4096)));
        assert_eq!(s.draft_quantization.unwrap().text, "fp8");
        assert!(s.no_matter.is_empty());
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
            ("vllm serve a --max-num 8", "--max-num", "several flags"),
            (
                "vllm serve a --kv-transfer-config '{\"kv_role\": \"kv_both\"}'",
                "--kv-transfer-config '{\"kv_role\": \"kv_both\"}'", "handing KV over",
            ),
            ("vllm serve a -dcp 2", "-dcp 2", "context parallelism"),
            (
                "vllm serve a -sc '{\"method\": \"eagle3\", \"num_speculative_tokens\": 3, \"parallel_drafting\": true}'",
                "parallel_drafting",
                "drafts of one pass",
            ),
            (
                "vllm serve a -sc '{\"method\": \"mtp\", \"num_speculative_tokens\": 3, \"max_model_len\": \"x\"}'",
                "max_model_len",
                "max_model_len is a whole number",
            ),
        ] {
            let wrong = of(line).map(drop).unwrap_err();
            assert_eq!(wrong.pointed_at(), Some(at), "{line}");
            assert!(wrong.message().contains(says), "{line}: {}", wrong.message());
        }
    }
}
