//! Tests rules that ARCHITECTURE.md and file headers state: what a part of the code must not use. Rules that the
//! compiler enforces are not tested.

use super::{Source, arrows, members, texts};
use std::collections::BTreeSet;

/// The source of a crate, found by the name of its folder.
fn source(name: &str) -> Source {
    let (_, src) = members().into_iter().find(|(member, _)| member == name).expect("a crate of the workspace");
    Source::read(&texts(&src))
}

/// The dependencies of files below `from` on files below one of `to`, each as a text "from needs to for names".
fn needs(source: &Source, from: &str, to: &[&str]) -> Vec<String> {
    let arrows = arrows(source);
    let below = |file: usize, folders: &[&str]| folders.iter().any(|f| source.files[file].name.starts_with(f));
    let mut found = Vec::new();
    for (file, needed) in arrows.iter().enumerate().filter(|(file, _)| below(*file, &[from])) {
        for (other, names) in needed.iter().filter(|(other, _)| below(**other, to)) {
            found.push(format!("{} needs {} for {names:?}", source.files[file].name, source.files[*other].name));
        }
    }
    found
}

/// The paths that files below `from` mention and for which `forbidden` is true, each as a text "file mentions path".
fn mentions(source: &Source, from: &str, forbidden: impl Fn(&[&str]) -> bool) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for module in &source.modules {
        let file = &source.files[module.file].name;
        for mention in module.mentions.iter().filter(|_| file.starts_with(from)) {
            let path: Vec<&str> = mention.path.iter().map(String::as_str).collect();
            if forbidden(&path) {
                found.insert(format!("{file} mentions {}", path.join("::")));
            }
        }
    }
    found
}

/// Tests the rule in the header of `scheduler/mod.rs`: the scheduler does not use clocks, executors, policies or
/// metrics.
#[test]
fn the_scheduler_knows_no_clock_executor_policy_or_metric() {
    let sim = source("sim");
    let strangers = [
        "event_clock.rs", "executor.rs", "around_executor.rs", "scripted.rs", "live/", "policy.rs", "around.rs",
        "oracle.rs", "metrics/", "patience.rs", "engine/collector.rs", "engine/drafter.rs", "engine/hooks.rs",
        "engine/state.rs",
    ];
    assert_eq!(needs(&sim, "engine/scheduler/", &strangers), Vec::<String>::new());
    assert!(
        !needs(&sim, "engine/drafter.rs", &strangers).is_empty(),
        "a drafter needs a policy: the check sees nothing"
    );
}

/// One engine loop serves runs with and without a drafter. Without a drafter, the methods of [`NoDraft`] are called,
/// and they do nothing. So the loop must not ask whether there is a drafter.
///
/// [`NoDraft`]: foretoken_sim::engine::NoDraft
#[test]
fn the_loop_never_asks_whether_there_is_a_drafter() {
    let sim = source("sim");
    let asks = |path: &[&str]| path.contains(&"ACTIVE") || path.contains(&"NoDraft");
    let mut found = mentions(&sim, "engine/", asks);
    // The files that define and export `NoDraft` may mention it.
    found.retain(|m| !m.starts_with("engine/drafter.rs") && m != "engine/mod.rs mentions drafter::NoDraft");
    assert_eq!(found, BTreeSet::new());
    assert!(!mentions(&sim, "serving.rs", asks).is_empty(), "a run makes `NoDraft`: the check sees nothing");
}

/// Tests the rule in the header of `registry.rs`: the table of policies contains no policy's logic.
#[test]
fn the_table_of_policies_knows_no_policy() {
    let policies = source("policies");
    let families =
        ["bandits/", "bounds/", "confidence/", "engines/", "foresight/", "goodput/", "local/", "plain/", "sglang/"];
    let families = [&families[..], &["slo/", "trees/", "vllm/"]].concat();
    assert_eq!(needs(&policies, "registry.rs", &families), Vec::<String>::new());
    let folders: BTreeSet<&str> =
        policies.files.iter().filter_map(|f| f.name.split_once('/')).map(|(folder, _)| folder).collect();
    let known = families.iter().map(|f| f.trim_end_matches('/')).chain(["shared"]);
    assert_eq!(folders, known.collect(), "a new family of policies belongs into the list above");
}

/// Tests a rule of ARCHITECTURE.md: policies and the engine get the time from the executor only.
#[test]
fn the_engine_and_policies_read_no_clock() {
    let reads = |path: &[&str]| {
        path.windows(2).any(|p| p[0] == "std" && p[1] == "time")
            || path.iter().any(|p| ["Instant", "SystemTime"].contains(p))
    };
    for name in ["sim", "policies"] {
        assert_eq!(mentions(&source(name), "", reads), BTreeSet::new(), "{name}");
    }
    assert!(!mentions(&source("kernels"), "", reads).is_empty(), "a device has a clock: the check sees nothing");
}

/// Tests a rule of ARCHITECTURE.md: `sim/` has no random generator with a state. Its random numbers are hashes of a
/// key, such as (seed, stream, request, position). From the crate `rand`, `sim/` uses only the trait through which the
/// distributions of `rand_distr` read these numbers.
#[test]
fn the_simulator_has_no_random_generator() {
    let generators = ["rand", "getrandom", "fastrand", "oorandom", "rand_core", "rand_chacha"];
    let from_rand = mentions(&source("sim"), "", |path| generators.contains(&path[0]));
    assert_eq!(from_rand, ["draws.rs mentions rand::TryRng".to_owned()].into());
}

/// Tests a rule of ARCHITECTURE.md: the engine's inner loop uses no map. Only vLLM's and SGLang's prefix caches have
/// maps, and decoding does not look into a prefix cache.
#[test]
fn the_engine_hashes_in_its_prefix_cache_alone() {
    let hashes =
        |path: &[&str]| path.iter().any(|p| ["HashMap", "HashSet", "Hasher", "BTreeMap", "BTreeSet"].contains(p));
    let mut engine = mentions(&source("sim"), "engine/", hashes);
    assert!(!engine.is_empty(), "the prefix cache has a hash map: the check sees nothing");
    let caches = ["engine/kv_cache/block_pool.rs ", "engine/scheduler/sglang/radix_cache.rs "];
    engine.retain(|m| !caches.iter().any(|cache| m.starts_with(cache)));
    assert_eq!(engine, BTreeSet::new());
}

/// Tests a rule of ARCHITECTURE.md: the command line only reads arguments and prints. It names nothing that runs a
/// model, a step or a policy, makes threads, or reads a clock. This work is in libraries, so that other programs can
/// call it.
#[test]
fn the_command_line_words_and_prints() {
    // From these crates, which do the work, the command line may name only the items of this list, such as types of
    // results.
    let words = [
        ("foretoken_kernels", &["DoctorReport", "doctor"][..]),
        ("foretoken_profiler", &["Profile", "Region", "Role", "hardware"]),
        ("foretoken_sim", &["DraftMethod", "MAX_SPEC_LEN", "Pair", "Summary", "Time", "Version", "constant_rate"]),
        ("rayon", &["ThreadPool"]),
    ];
    let works = |path: &[&str]| {
        let more = |(krate, names): &(&str, &[&str])| path[0] == *krate && path.len() > 1 && !names.contains(&path[1]);
        words.iter().any(more) || path.contains(&"Instant") || path[0] == "indicatif"
    };
    assert_eq!(mentions(&source("cli"), "", works), BTreeSet::new());
    for library in ["live", "run"] {
        assert!(!mentions(&source(library), "", works).is_empty(), "{library} works: the check sees nothing");
    }
}

/// Tests which rooms of a crate must not use which other rooms of the same crate. Each row has the crate, the room, and
/// the folders that the room may use beside itself. `lib.rs` counts as no room.
#[test]
fn rooms_of_a_crate_use_only_the_rooms_below() {
    let rows: [(&str, &str, &[&str]); 8] = [
        ("profiler", "hardware/", &[]),
        ("traces", "intact/", &[]),
        ("run", "spec/", &[]),
        ("servers", "recordings/", &[]),
        ("servers", "compare/", &[]),
        ("servers", "observe/", &["recordings/"]),
        ("servers", "serve/", &[]),
        ("servers", "calibrate/", &["recordings/", "compare/"]),
    ];
    for (name, room, below) in rows {
        let source = source(name);
        assert!(source.files.iter().any(|f| f.name.starts_with(room)), "{name}/src/{room} is not there");
        let others: Vec<&str> = source.files.iter().map(|f| f.name.as_str()).collect();
        let others: Vec<&str> = others
            .into_iter()
            .filter(|f| *f != "lib.rs" && !f.starts_with(room) && !below.iter().any(|b| f.starts_with(b)))
            .collect();
        assert_eq!(needs(&source, room, &others), Vec::<String>::new(), "{name}");
    }
    // Only what waits for a person or a server may use a network.
    let network = |path: &[&str]| ["axum", "reqwest", "rustls", "tokio"].contains(&path[0]);
    let servers = source("servers");
    for room in ["recordings/", "compare/", "calibrate/"] {
        assert_eq!(mentions(&servers, room, network), BTreeSet::new());
    }
    assert!(!mentions(&servers, "observe/", network).is_empty(), "it uses a network: the check sees nothing");
}

/// Tests a rule of ARCHITECTURE.md: only the crate `kernels` may contain `unsafe`.
#[test]
fn only_kernels_are_unsafe() {
    let mut with_unsafe = BTreeSet::new();
    for (name, src) in members() {
        let found = texts(&src).iter().any(|(_, text)| {
            let file = syn::parse_file(text).expect("a source file");
            says_unsafe(quote::ToTokens::to_token_stream(&file))
        });
        if found {
            with_unsafe.insert(name.clone());
        }
        let manifest = std::fs::read_to_string(src.with_file_name("Cargo.toml")).unwrap();
        assert!(manifest.contains("[lints]\nworkspace = true"), "{name} does not take the workspace's lints");
    }
    assert_eq!(with_unsafe, ["kernels".to_owned()].into());
}

fn says_unsafe(tokens: proc_macro2::TokenStream) -> bool {
    tokens.into_iter().any(|token| match token {
        proc_macro2::TokenTree::Ident(ident) => ident == "unsafe",
        proc_macro2::TokenTree::Group(group) => says_unsafe(group.stream()),
        _ => false,
    })
}

/// Libraries have no static that can change. What a caller shares with a library is passed as an argument
/// (`foretoken_run::work`). The list in this test has the exceptions. The program and the Python module may have
/// statics of their own.
#[test]
fn libraries_have_no_changing_statics() {
    // The reasons for the exceptions, in the order of the list: scratch memory of a thread; the memory that a thread's
    // arrays share; policies that a program adds; tables of kernels, which are read once; half-written files, which a
    // signal removes; the memory limit, which is read once from the environment; pipes, which are read once.
    let exceptions = [
        "kernels/cpu/attention.rs SCRATCH", "kernels/cpu/pages.rs OPEN", "policies/registered.rs ALL",
        "profiler/hardware/kernel_tables/settings.rs BUILT", "report/staged.rs PARTIAL", "traces/limits.rs LIMIT",
        "traces/pipe.rs PIPES",
    ];
    let changing = ["Atomic", "Mutex", "RwLock", "OnceLock", "OnceCell", "RefCell"];
    let mut found = BTreeSet::new();
    for (member, src) in members().into_iter().filter(|(m, _)| !["cli", "python", "tests"].contains(&m.as_str())) {
        for (file, text) in texts(&src) {
            let code = text.split("#[cfg(test)]").next().unwrap_or_default();
            for line in code.lines().map(str::trim_start).filter(|_| !file.contains("tests")) {
                let line = line.strip_prefix("pub ").unwrap_or(line);
                let Some((name, kind)) = line.strip_prefix("static ").and_then(|l| l.split_once(": ")) else {
                    continue;
                };
                if changing.iter().any(|c| kind.split(" = ").next().unwrap_or(kind).contains(c)) {
                    found.insert(format!("{member}/{file} {name}"));
                }
            }
        }
    }
    assert_eq!(found.into_iter().collect::<Vec<_>>(), exceptions);
}
