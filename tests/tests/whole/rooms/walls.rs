//! Tests what ARCHITECTURE.md and file headers say that a part of the code must not use, as far as the compiler does
//! not enforce it.

use super::{Source, arrows, members, texts};
use std::collections::BTreeSet;

/// A crate's source by the name of its folder.
fn source(name: &str) -> Source {
    let (_, src) = members().into_iter().find(|(member, _)| member == name).expect("a crate of the workspace");
    Source::read(&texts(&src))
}

/// A text "from needs to for names" for each file below `from` that depends on a file below one of `to`.
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

/// A text "file mentions path" for each path for which `forbidden` is true and that a file below `from` mentions.
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

/// The header of `scheduler/mod.rs` says: the scheduler knows nothing of clocks, executors, policies and metrics.
#[test]
fn the_scheduler_knows_no_clock_executor_policy_or_metric() {
    let sim = source("sim");
    let strangers = [
        "event_clock.rs",
        "executor.rs",
        "around_executor.rs",
        "scripted.rs",
        "live/",
        "policy.rs",
        "around.rs",
        "oracle.rs",
        "metrics/",
        "patience.rs",
        "engine/collector.rs",
        "engine/drafter.rs",
        "engine/hooks.rs",
        "engine/state.rs",
    ];
    assert_eq!(needs(&sim, "engine/scheduler/", &strangers), Vec::<String>::new());
    assert!(
        !needs(&sim, "engine/drafter.rs", &strangers).is_empty(),
        "a drafter needs a policy: the check sees nothing"
    );
}

/// One engine loop serves runs with and without a drafter. Without a drafter, the methods of [`NoDraft`] do nothing. So
/// the loop must not ask whether there is a drafter.
///
/// [`NoDraft`]: foretoken_sim::engine::NoDraft
#[test]
fn the_loop_never_asks_whether_there_is_a_drafter() {
    let sim = source("sim");
    let asks = |path: &[&str]| path.contains(&"ACTIVE") || path.contains(&"NoDraft");
    let mut found = mentions(&sim, "engine/", asks);
    // The definition and the export of `NoDraft` are allowed.
    found.retain(|m| !m.starts_with("engine/drafter.rs") && m != "engine/mod.rs mentions drafter::NoDraft");
    assert_eq!(found, BTreeSet::new());
    assert!(!mentions(&sim, "serving.rs", asks).is_empty(), "a run makes `NoDraft`: the check sees nothing");
}

/// The header of `registry.rs` says: the table of policies has no policy's logic.
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

/// ARCHITECTURE.md: policies and the engine get time from the executor only.
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

/// ARCHITECTURE.md: `sim/` has no global random generator. From `rand` it uses only the trait that keyed draws
/// implement. The distributions of `rand_distr` get keyed draws.
#[test]
fn the_simulator_has_no_random_generator() {
    let generators = ["rand", "getrandom", "fastrand", "oorandom", "rand_core", "rand_chacha"];
    let from_rand = mentions(&source("sim"), "", |path| generators.contains(&path[0]));
    assert_eq!(from_rand, ["draws.rs mentions rand::TryRng".to_owned()].into());
}

/// ARCHITECTURE.md: the inner loop uses no hash map. Only the prefix cache has one, and decoding does not use it.
#[test]
fn the_engine_hashes_in_its_prefix_cache_alone() {
    let hashes =
        |path: &[&str]| path.iter().any(|p| ["HashMap", "HashSet", "Hasher", "BTreeMap", "BTreeSet"].contains(p));
    let mut engine = mentions(&source("sim"), "engine/", hashes);
    assert!(!engine.is_empty(), "the prefix cache has a hash map: the check sees nothing");
    engine.retain(|m| !m.starts_with("engine/kv_cache/block_pool.rs "));
    assert_eq!(engine, BTreeSet::new());
}

/// ARCHITECTURE.md: the command line only reads arguments and prints. It names nothing that runs a model, a step or a
/// policy, that makes threads, or that reads a clock for times. That work is in libraries, which other programs can
/// call.
#[test]
fn the_command_line_words_and_prints() {
    // Of the crates that do this work, the command line may name only results and limits.
    let words = [
        ("foretoken_kernels", &["DoctorReport", "doctor"][..]),
        ("foretoken_profiler", &["Profile", "Region", "Role"]),
        ("foretoken_sim", &["MAX_SPEC_LEN", "Pair", "Time"]),
        ("rayon", &["ThreadPool"]),
    ];
    let works = |path: &[&str]| {
        let more = |(krate, names): &(&str, &[&str])| path[0] == *krate && path.len() > 1 && !names.contains(&path[1]);
        words.iter().any(more) || path.contains(&"Instant") || path[0] == "indicatif"
    };
    assert_eq!(mentions(&source("experiments"), "", works), BTreeSet::new());
    for library in ["live", "run"] {
        assert!(!mentions(&source(library), "", works).is_empty(), "{library} works: the check sees nothing");
    }
}

/// ARCHITECTURE.md: only `kernels` may contain `unsafe`.
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
/// (`foretoken_run::work`). The list below has the exceptions, with their reasons. The program and the Python module
/// may have statics of their own.
#[test]
fn libraries_have_no_changing_statics() {
    // The exceptions, in this order: scratch memory of a thread; the memory that a thread's arrays share; policies that
    // a program adds; half-written files, which a signal removes; the memory limit, which is read once from the
    // environment; pipes, which are read once.
    let exceptions = [
        "kernels/cpu/attention.rs SCRATCH",
        "kernels/cpu/pages.rs OPEN",
        "policies/registered.rs ALL",
        "report/staged.rs PARTIAL",
        "traces/limits.rs LIMIT",
        "traces/pipe.rs PIPES",
    ];
    let changing = ["Atomic", "Mutex", "RwLock", "OnceLock", "OnceCell", "RefCell"];
    let mut found = BTreeSet::new();
    for (member, src) in
        members().into_iter().filter(|(m, _)| !["experiments", "python", "tests"].contains(&m.as_str()))
    {
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
