//! The server that SGLang's flags (0.5) start. `sglang_flags.rs` has the table of all flags.

use super::flags::{self, Given};
use super::line::{Line, Word};
use super::server::{Server, Speculation, kv_bits};
use super::sglang_flags::FLAGS;
use foretoken_policies::{PolicySpec, SglangGen3, from_sglang_json};
use foretoken_run::spec::problem::Result;
use foretoken_run::spec::text;
use foretoken_servers::calibrate::recommend::Engine;
use foretoken_sim::{DraftMethod, Version};
use toml::Value;

/// The orders of waiting requests that are simulated.
const ORDERS: [&str; 6] = ["fcfs", "lpm", "dfs-weight", "lof", "hrrn", "shortest-prefill-first"];
/// The ways of evicting cached prefixes, and of retracting requests, that are simulated.
const EVICTIONS: [&str; 8] = ["lru", "mru", "lfu", "slru", "tlru", "fifo", "filo", "priority"];
const RETRACTIONS: [&str; 2] = ["length", "priority"];

pub fn server(line: &Line, words: &[Word], skip_unknown: bool) -> Result<Server> {
    let flags = flags::read(line, words, &FLAGS, skip_unknown)?;
    let named = flags.given.iter().rev().find(|g| g.name == "model-path").and_then(|g| g.value.clone());
    let Some(model) = named.or_else(|| flags.others.first().cloned()) else {
        let at = line.words.last().map_or(0..0, |w| w.span.clone());
        return Err(line.wrong(&at, "the line names no model").help("give --model-path MODEL"));
    };
    let mut server = Server::of(Engine::Sglang, model);
    (server.no_matter, server.unknown, server.assumed) = (flags.no_matter, flags.unknown, flags.assumed);
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
    server.adaptive = adaptive(line, &mut server)?;
    Ok(server)
}

/// The value of a flag that is one of `known`.
fn one_of<'f>(line: &Line, flag: &'f Given, known: &[&str], what: &str) -> Result<&'f str> {
    match flag.text() {
        text if known.contains(&text) => Ok(text),
        text => Err(line
            .wrong(flag.place(), format!("the {what} {text} is not simulated"))
            .help(format!("{} are", known.join(", ")))),
    }
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
        "enable-ep-moe" => server.expert_parallel = flag.on,
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
        "schedule-policy" => server.set_sglang("schedule_policy", one_of(line, flag, &ORDERS, "order")?),
        "radix-eviction-policy" => {
            server.set_sglang("radix_eviction_policy", one_of(line, flag, &EVICTIONS, "eviction policy")?);
        }
        "retraction-policy" => {
            server.set_sglang("retraction_policy", one_of(line, flag, &RETRACTIONS, "retraction policy")?);
        }
        "enable-priority-scheduling" if flag.on => {
            server.assumed.push("all requests have the same priority, so they are served as they come".into());
        }
        "enable-priority-scheduling" => {}
        // Requests of one priority do not preempt each other.
        "disable-priority-preemption" => {}
        "prefill-max-requests" => server.set_sglang("prefill_max_requests", flag.count(line)?),
        "prefill-decode-interval" => server.set_sglang("prefill_decode_interval", flag.number::<u32>(line)?),
        "prefill-decode-interval-min-bs" => {
            server.set_sglang("prefill_decode_interval_min_bs", flag.number::<u32>(line)?);
        }
        "scheduler-recv-interval" => server.set_sglang("scheduler_recv_interval", flag.count(line)?),
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
        _ => {
            if flag.name == "speculative-draft-model-quantization" && flag.text() != "unquant" {
                server.draft_quantization = flag.value.clone();
            }
            server.speculative.push(flag.clone());
        }
    }
    Ok(())
}

/// SGLang's adaptive policy, if the line asks for it. The speculation's length becomes the longest one that it may
/// choose.
fn adaptive(line: &Line, server: &mut Server) -> Result<Option<PolicySpec>> {
    let of = |name: &str| server.speculative.iter().rfind(|g| g.name == name);
    let (Some(flag), Some(drafts)) = (of("speculative-adaptive").filter(|g| g.on), &mut server.speculation) else {
        return Ok(None);
    };
    if !matches!(drafts.method, DraftMethod::Eagle | DraftMethod::Eagle3 | DraftMethod::Mtp) {
        let help = "with EAGLE, EAGLE3 and NEXTN it does: leave the flag out, or take one of these";
        return Err(line.wrong(&flag.span, "SGLang does not change draft lengths with this algorithm").help(help));
    }
    let mut policy = match of("speculative-adaptive-config") {
        None => PolicySpec::SglangGen3(SglangGen3::default()),
        Some(config) => {
            let path = std::path::Path::new(config.text());
            let help = "give a path that is read here, or leave the flag out to ask about SGLang's own ranges";
            let bad = |what: String| line.wrong(config.place(), what).help(help);
            let file = text::read(path).map_err(|e| bad(format!("cannot read this file: {e}")))?;
            from_sglang_json(&file).map_err(|e| bad(format!("{}: {e}", path.display())))?
        }
    };
    let longest = match &mut policy {
        PolicySpec::SglangGen3(p) => {
            p.initial_steps = drafts.k;
            p.slots.iter().flat_map(|slot| &slot.candidates).copied().max()
        }
        PolicySpec::SglangThroughput(p) => p.slots.iter().flat_map(|slot| &slot.candidates).copied().max(),
        PolicySpec::SglangGen1(p) => p.candidates.iter().copied().max(),
        _ => None,
    };
    drafts.k = drafts.k.max(longest.unwrap_or(0));
    Ok(Some(policy))
}

fn speculation(line: &Line, server: &Server) -> Result<Option<Speculation>> {
    // The last of two flags counts.
    let of = |name: &str| server.speculative.iter().rfind(|g| g.name == name);
    let Some(algorithm) = of("speculative-algorithm") else {
        return match server.speculative.first() {
            Some(flag) => Err(line.wrong(&flag.span, format!("{} needs --speculative-algorithm", flag.written))),
            None => Ok(None),
        };
    };
    let at = algorithm.value.clone().expect("a flag with a value");
    let drafter = of("speculative-draft-model-path").and_then(|g| g.value.clone());
    // A draft model that is the target's own module is one for multi-token prediction.
    let own = drafter.as_ref().is_some_and(|d| d.text.to_lowercase().contains("nextn"));
    let method = match (at.text.to_uppercase().as_str(), &drafter) {
        ("EAGLE" | "EAGLE3", _) if own => DraftMethod::Mtp,
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
    // DSpark's block has no token of the target in it.
    let dspark = of("speculative-dspark-block-size").map(|g| g.count(line)).transpose()?.map(|n| n + 1);
    if let (Some(steps), Some(tokens), Some(flag)) = (steps, tokens, of("speculative-num-draft-tokens"))
        && tokens != steps + 1
    {
        return Err(line
            .wrong(&flag.span, format!("a chain of {steps} steps has {} draft tokens, not {tokens}", steps + 1))
            .help(format!("with topk 1: --speculative-num-draft-tokens {}", steps + 1)));
    }
    // SGLang counts the token that the target itself gives as a draft token; its default chain has 3 steps.
    let k = steps.or(tokens.or(block).or(dspark).map(|n| n.saturating_sub(1).max(1))).unwrap_or(3);
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
        let own = of("--speculative-algo EAGLE3 --speculative-draft x/DeepSeek-R1-NextN");
        assert_eq!(own.unwrap().speculation.unwrap().method, DraftMethod::Mtp);
        assert_eq!(of("--speculative-algo NEXTN").unwrap().speculation.unwrap().method, DraftMethod::Mtp);
    }

    /// What is simulated and what documents tell people to add.
    #[test]
    fn settings_of_the_scheduler_are_used() {
        let s = of(
            "--enable-priority-scheduling --radix-eviction-policy lfu --retraction-policy priority --enable-ep-moe \
                    --prefill-decode-interval 4 --mem-fraction 0.8 --disaggregation-mode null --hicache-ratio 2",
        )
        .unwrap();
        let sglang = s.settings["sglang"].as_table().unwrap();
        assert_eq!(sglang["radix_eviction_policy"].as_str(), Some("lfu"));
        assert_eq!(
            (sglang["retraction_policy"].as_str(), sglang["prefill_decode_interval"].as_integer()),
            (Some("priority"), Some(4))
        );
        // The load that is asked about has no priorities.
        assert_eq!((s.settings.get("scheduling_policy"), s.memory_utilization), (None, Some(0.8)));
        assert!(s.assumed.iter().any(|a| a.contains("the same priority")), "{:?}", s.assumed);
        assert!(s.expert_parallel && s.no_matter == ["--disaggregation-mode", "--hicache-ratio"], "{:?}", s.no_matter);
        let dspark = of("--speculative-algorithm DSPARK --speculative-draft d --speculative-dspark-block-size 7");
        assert_eq!(dspark.unwrap().speculation.unwrap().k, 7);
    }

    #[test]
    fn lengths_that_adapt_are_what_runs_now() {
        let drafts = "--speculative-algorithm EAGLE3 --speculative-draft-model-path d --speculative-num-steps 2 --speculative-adaptive";
        let s = of(drafts).unwrap();
        let Some(PolicySpec::SglangGen3(policy)) = s.adaptive else { panic!("{:?}", s.adaptive) };
        assert_eq!((policy.initial_steps, s.speculation.unwrap().k), (2, 7));
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), r#"{"1": {"candidate_steps": [1, 2, 4]}, "8": {"candidate_steps": [0]}}"#).unwrap();
        let s = of(&format!("{drafts} --speculative-adaptive-config {}", file.path().display())).unwrap();
        assert_eq!(s.speculation.unwrap().k, 4);
        let wrong = of(&format!("{drafts} --speculative-adaptive-config nowhere.json")).map(drop).unwrap_err();
        assert_eq!(wrong.pointed_at(), Some("nowhere.json"));
        let lookup = "--speculative-algorithm NGRAM --speculative-num-draft-tokens 8 --speculative-adaptive";
        assert_eq!(of(lookup).map(drop).unwrap_err().pointed_at(), Some("--speculative-adaptive"));
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
            ("--enable-hierarchical-cache", "--enable-hierarchical-cache"),
            ("--disaggregation-mode prefill", "--disaggregation-mode prefill"),
            ("--radix-eviction-policy clock", "clock"),
            ("--speculative-num 3", "--speculative-num"),
        ] {
            assert_eq!(of(flags).map(drop).unwrap_err().pointed_at(), Some(at), "{flags}");
        }
    }
}
