//! SGLang's flags (0.5): which are used, which do not matter for the answer.

use super::flags::{self, Flag, Given, Kind};
use super::line::{Line, Word};
use super::server::{Server, Speculation, kv_bits};
use foretoken_run::spec::problem::Result;
use foretoken_servers::calibrate::recommend::Engine;
use foretoken_sim::{DraftMethod, Version};
use toml::Value;

use Kind::{Switch, Value as One, Words};

const fn used(names: &'static [&'static str], kind: Kind) -> Flag {
    Flag { names, kind, used: true }
}

const fn other(names: &'static [&'static str], kind: Kind) -> Flag {
    Flag { names, kind, used: false }
}

const FLAGS: &[Flag] = &[
    used(&["model-path", "model"], One),
    used(&["tp-size", "tp", "tensor-parallel-size"], One),
    used(&["pp-size", "pp", "pipeline-parallel-size"], One),
    used(&["dp-size", "dp", "data-parallel-size"], One),
    used(&["ep-size", "ep", "expert-parallel-size"], One),
    used(&["enable-dp-attention"], Switch),
    used(&["max-running-requests"], One),
    used(&["chunked-prefill-size"], One),
    used(&["context-length"], One),
    used(&["mem-fraction-static"], One),
    used(&["max-total-tokens"], One),
    used(&["kv-cache-dtype"], One),
    used(&["page-size"], One),
    used(&["quantization"], One),
    used(&["dtype"], One),
    used(&["disable-radix-cache"], Switch),
    used(&["speculative-algorithm", "speculative-algo"], One),
    used(&["speculative-draft-model-path", "speculative-draft-model"], One),
    used(&["speculative-num-steps"], One),
    used(&["speculative-eagle-topk"], One),
    used(&["speculative-num-draft-tokens"], One),
    used(&["speculative-dflash-block-size"], One),
    used(&["max-prefill-tokens"], One),
    used(&["enable-mixed-chunk"], Switch),
    used(&["disable-overlap-schedule"], Switch),
    used(&["schedule-conservativeness"], One),
    used(&["schedule-policy"], One),
    // Names, addresses, logs.
    other(&["host"], One),
    other(&["port"], One),
    other(&["api-key"], One),
    other(&["served-model-name"], One),
    other(&["log-level"], One),
    other(&["log-level-http"], One),
    other(&["log-requests"], Switch),
    other(&["log-requests-level"], One),
    other(&["enable-metrics"], Switch),
    other(&["show-time-cost"], Switch),
    other(&["decode-log-interval"], One),
    other(&["enable-cache-report"], Switch),
    other(&["crash-dump-folder"], One),
    // Loading, tokenizers, templates, parsers.
    other(&["tokenizer-path"], One),
    other(&["tokenizer-mode"], One),
    other(&["tokenizer-worker-num"], One),
    other(&["skip-tokenizer-init"], Switch),
    other(&["skip-server-warmup"], Switch),
    other(&["trust-remote-code"], Switch),
    other(&["load-format"], One),
    other(&["model-loader-extra-config"], One),
    other(&["download-dir"], One),
    other(&["revision"], One),
    other(&["json-model-override-args"], One),
    other(&["chat-template"], One),
    other(&["tool-call-parser"], One),
    other(&["reasoning-parser"], One),
    other(&["grammar-backend"], One),
    other(&["random-seed"], One),
    other(&["enable-multimodal"], Switch),
    other(&["mm-attention-backend"], One),
    other(&["is-embedding"], Switch),
    // Kernels and processes, which presets and measured shares stand for.
    other(&["attention-backend"], One),
    other(&["prefill-attention-backend"], One),
    other(&["decode-attention-backend"], One),
    other(&["speculative-attention-mode"], One),
    other(&["speculative-draft-attention-backend"], One),
    other(&["speculative-token-map"], One),
    other(&["speculative-accept-threshold-single"], One),
    other(&["speculative-accept-threshold-acc"], One),
    other(&["speculative-draft-model-quantization"], One),
    other(&["sampling-backend"], One),
    other(&["mamba-scheduler-strategy"], One),
    other(&["mamba-ssm-dtype"], One),
    other(&["mamba-full-memory-ratio"], One),
    other(&["moe-runner-backend"], One),
    other(&["moe-a2a-backend"], One),
    other(&["moe-dense-tp-size"], One),
    other(&["deepep-mode"], One),
    other(&["enable-flashinfer-allreduce-fusion"], Switch),
    other(&["fp8-gemm-backend"], One),
    other(&["disable-cuda-graph"], Switch),
    other(&["cuda-graph-max-bs"], One),
    other(&["cuda-graph-bs"], Words),
    other(&["disable-cuda-graph-padding"], Switch),
    other(&["enable-torch-compile"], Switch),
    other(&["torch-compile-max-bs"], One),
    other(&["disable-custom-all-reduce"], Switch),
    other(&["enable-nccl-nvls"], Switch),
    other(&["enable-symm-mem"], Switch),
    other(&["num-continuous-decode-steps"], One),
    other(&["scheduler-recv-interval"], One),
    other(&["stream-interval"], One),
    other(&["max-queued-requests"], One),
    other(&["watchdog-timeout"], One),
    other(&["dist-timeout"], One),
    other(&["dist-init-addr"], One),
    other(&["nnodes"], One),
    other(&["node-rank"], One),
    other(&["base-gpu-id"], One),
    other(&["device"], One),
    other(&["load-balance-method"], One),
    other(&["enable-hierarchical-cache"], Switch),
    other(&["hicache-ratio"], One),
    other(&["hicache-size"], One),
    other(&["enable-memory-saver"], Switch),
    other(&["mem-fraction-draft"], One),
];

/// The orders of waiting requests that are simulated.
const ORDERS: [&str; 6] = ["fcfs", "lpm", "dfs-weight", "lof", "hrrn", "shortest-prefill-first"];

/// The server that SGLang starts with these words.
pub fn server(line: &Line, words: &[Word], skip_unknown: bool) -> Result<Server> {
    let flags = flags::read(line, words, FLAGS, skip_unknown)?;
    let named = flags.given.iter().rev().find(|g| g.name == "model-path").and_then(|g| g.value.clone());
    let Some(model) = named.or_else(|| flags.others.first().cloned()) else {
        let at = line.words.last().map_or(0..0, |w| w.span.clone());
        return Err(line.wrong(&at, "the line names no model").help("give --model-path MODEL"));
    };
    let mut server = Server::of(Engine::Sglang, model);
    (server.no_matter, server.unknown) = (flags.no_matter, flags.unknown);
    server.set("version", Version::Sglang0_5_23.name());
    server.set("block_size", 1);
    for flag in &flags.given {
        apply(line, flag, &mut server)?;
        if !server.used.contains(&flag.written) {
            server.used.push(flag.written.clone());
        }
    }
    let page = server.settings.get("block_size").and_then(Value::as_integer).unwrap_or(1);
    if let Some(tokens) = server.settings.get("num_gpu_blocks").and_then(Value::as_integer) {
        server.set("num_gpu_blocks", tokens / page);
    }
    server.speculation = speculation(line, &server)?;
    Ok(server)
}

fn apply(line: &Line, flag: &Given, server: &mut Server) -> Result<()> {
    match flag.name {
        "model-path" => {}
        "tp-size" => server.tensor_parallel = flag.count(line)?,
        "pp-size" if flag.count(line)? > 1 => {
            return Err(line
                .wrong(&flag.span, "pipeline parallelism is not simulated")
                .help("ask with --tp-size instead"));
        }
        "pp-size" => {}
        "dp-size" => server.replicas = flag.count(line)?,
        "ep-size" => server.expert_parallel = flag.count(line)? > 1,
        "enable-dp-attention" => {
            let help = "leave it out to ask about tensor parallelism, or measure the server (docs/your-server.md)";
            return Err(line.wrong(&flag.span, "data-parallel attention is not simulated").help(help));
        }
        "max-running-requests" => server.set("max_num_seqs", flag.count(line)?),
        "chunked-prefill-size" if flag.text() == "-1" => server.set_sglang("chunked_prefill_size", 0),
        "chunked-prefill-size" => server.set_sglang("chunked_prefill_size", flag.count(line)?),
        "max-prefill-tokens" => server.set_sglang("max_prefill_tokens", flag.count(line)?),
        "enable-mixed-chunk" => server.set_sglang("enable_mixed_chunk", flag.on),
        "disable-overlap-schedule" => server.set("async_scheduling", !flag.on),
        "schedule-conservativeness" => {
            let factor: f64 = flag.number(line)?;
            server.set_sglang("schedule_conservativeness", factor);
        }
        "schedule-policy" if ORDERS.contains(&flag.text()) => server.set_sglang("schedule_policy", flag.text()),
        "schedule-policy" => {
            return Err(line
                .wrong(flag.place(), format!("the order {} is not simulated", flag.text()))
                .help(format!("{} are", ORDERS.join(", "))));
        }
        "context-length" => {
            server.set("max_model_len", flag.count(line)?);
            server.longest_at = Some(flag.span.clone());
        }
        "mem-fraction-static" => server.memory_utilization = Some(flag.number(line)?),
        "max-total-tokens" => server.set("num_gpu_blocks", flag.count(line)?),
        "kv-cache-dtype" => server.kv_bits = kv_bits(line, flag)?,
        "page-size" => server.set("block_size", flag.count(line)?),
        "quantization" => server.quantization = flag.value.clone(),
        "dtype" => server.dtype = flag.value.clone(),
        "disable-radix-cache" => server.set("prefix_caching", !flag.on),
        _ => server.speculative.push(flag.clone()),
    }
    Ok(())
}

fn speculation(line: &Line, server: &Server) -> Result<Option<Speculation>> {
    let of = |name: &str| server.speculative.iter().find(|g| g.name == name);
    let Some(algorithm) = of("speculative-algorithm") else {
        return match server.speculative.first() {
            Some(flag) => Err(line.wrong(&flag.span, format!("{} needs --speculative-algorithm", flag.written))),
            None => Ok(None),
        };
    };
    let at = algorithm.value.clone().expect("a flag with a value");
    let drafter = of("speculative-draft-model-path").and_then(|g| g.value.clone());
    let method = match (at.text.to_uppercase().as_str(), &drafter) {
        ("NEXTN" | "MTP", _) | ("EAGLE", None) => DraftMethod::Mtp,
        ("EAGLE", Some(_)) => DraftMethod::Eagle,
        ("EAGLE3", _) => DraftMethod::Eagle3,
        ("STANDALONE", _) => DraftMethod::DraftModel,
        ("NGRAM", _) => DraftMethod::Ngram,
        ("DFLASH", _) => DraftMethod::Dflash,
        ("DSPARK", _) => DraftMethod::Dspark,
        (name, _) => {
            let help = "EAGLE, EAGLE3, NEXTN, STANDALONE, NGRAM, DFLASH and DSPARK are";
            return Err(line.wrong(&at.span, format!("the algorithm {name} is not simulated")).help(help));
        }
    };
    if let Some(topk) = of("speculative-eagle-topk")
        && topk.count(line)? > 1
    {
        let help = "a tree of drafts is not compared here: set topk 1, which asks about chains; `foretoken policies list` \
                    has policies with trees";
        return Err(line.wrong(&topk.span, format!("topk {} drafts a tree", topk.text())).help(help));
    }
    let steps = of("speculative-num-steps").map(|g| g.count(line)).transpose()?;
    let tokens = of("speculative-num-draft-tokens").map(|g| g.count(line)).transpose()?;
    let block = of("speculative-dflash-block-size").map(|g| g.count(line)).transpose()?;
    if let (Some(steps), Some(tokens), Some(flag)) = (steps, tokens, of("speculative-num-draft-tokens"))
        && tokens != steps + 1
    {
        return Err(line
            .wrong(&flag.span, format!("a chain of {steps} steps has {} draft tokens, not {tokens}", steps + 1))
            .help(format!("with topk 1: --speculative-num-draft-tokens {}", steps + 1)));
    }
    // SGLang counts the token that the target itself gives as a draft token; its default chain has 3 steps.
    let k = steps.or(tokens.or(block).map(|n| n.saturating_sub(1).max(1))).unwrap_or(3);
    if k > foretoken_sim::MAX_SPEC_LEN {
        let at = of("speculative-num-steps").or(of("speculative-num-draft-tokens")).map_or(&at.span, |g| &g.span);
        return Err(line.wrong(at, format!("drafts of at most {} tokens are simulated", foretoken_sim::MAX_SPEC_LEN)));
    }
    Ok(Some(Speculation { method, drafter, k, table: Vec::new(), at }))
}

#[cfg(test)]
mod tests {
    use super::super::line;
    use super::*;

    fn of(flags: &str) -> Result<Server> {
        let line = line::read(&format!("python -m sglang.launch_server --model-path a {flags}")).unwrap();
        let (_, words) = line::program(&line)?;
        server(&line, &words, false)
    }

    #[test]
    fn a_chain_is_read() {
        let s = of("--tp 4 --speculative-algorithm EAGLE3 --speculative-draft-model-path d --speculative-num-steps 3 \
                    --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --mem-fraction-static 0.8 --disable-radix-cache")
            .unwrap();
        let drafts = s.speculation.unwrap();
        assert_eq!((drafts.k, drafts.method, s.tensor_parallel), (3, DraftMethod::Eagle3, 4));
        assert_eq!((s.memory_utilization, s.settings["prefix_caching"].as_bool()), (Some(0.8), Some(false)));
        assert_eq!(of("--speculative-algo NEXTN").unwrap().speculation.unwrap().method, DraftMethod::Mtp);
    }

    #[test]
    fn trees_and_contradictions_are_shown_in_the_line() {
        for (flags, at) in [
            ("--speculative-algorithm EAGLE --speculative-eagle-topk 8", "--speculative-eagle-topk 8"),
            (
                "--speculative-algorithm EAGLE3 --speculative-num-steps 3 --speculative-num-draft-tokens 8",
                "--speculative-num-draft-tokens 8",
            ),
            ("--speculative-num-steps 3", "--speculative-num-steps 3"),
            ("--speculative-algorithm MEDUSA", "MEDUSA"),
            ("--enable-dp-attention", "--enable-dp-attention"),
        ] {
            assert_eq!(of(flags).map(drop).unwrap_err().pointed_at(), Some(at), "{flags}");
        }
    }
}
