//! Hostile or absurd input must be refused early, with short messages that are safe to print.

use crate::support::{EXPERIMENT, Place};
use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::Read;
use std::process::{Command, Output};

/// Runs `foretoken run x.toml -o out` with these settings. `gib` is the memory limit in GiB.
fn with_memory(place: &Place, gib: &str, sets: &[&str]) -> Output {
    let sets = sets.iter().flat_map(|set| ["--set", set]);
    let mut command = place.foretoken();
    command.env("FORETOKEN_MEMORY_GIB", gib).args(["run", "x.toml", "-o", "out", "--no-figures"]).args(sets);
    command.output().unwrap()
}

/// Asserts that the run is refused as bad input, with all these texts in the message, and leaves no files.
#[track_caller]
fn refused(sets: &[&str], words: &[&str]) {
    let place = Place::new();
    let output = with_memory(&place, "1", sets);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{sets:?}: {error}");
    words.iter().for_each(|word| assert!(error.contains(word), "{sets:?}: `{word}` is missing in\n{error}"));
    assert!(output.stdout.is_empty() && !place.path("out").exists(), "{sets:?} left something");
}

#[test]
fn impossible_distribution_parameters_are_refused() {
    refused(&["belief.noise_cv=1e308"], &["belief.noise_cv: 1e308 is too large", "from 0 to 1000", "--set belief"]);
    refused(&["hardware.noise_cv=1e100"], &["hardware.noise_cv: 1e100 is too large", "from 0 to 1000"]);
    let gamma = |cv: &str| format!("workload.arrivals={{ gamma = {{ rate = 5.0, cv = {cv} }} }}");
    refused(&[&gamma("1e308")], &["arrivals.gamma.cv: 1e308", "from 0.001 to 1000"]);
    refused(&[&gamma("1e-320")], &["arrivals.gamma.cv: 1e-320", "from 0.001 to 1000"]);
    let beta = "acceptance.source={ mixture = { all = { a = 1e308, b = 1e308 } } }";
    refused(&[beta], &["acceptance.source.mixture.all", "from 0.001 to 1000000"]);
    refused(&["workload.arrivals={ t1 = { tau_s = 1e-30 } }"], &["arrivals.t1.tau_s: 1e-30", "at least 1e-6"]);
}

#[test]
fn runs_of_zero_time_are_refused_with_their_cell() {
    let free = "{ linear = { alpha_s = 0.0, gamma_s = 0.0, delta_s = 0.0 } }";
    let (target, draft) = (format!("hardware.target={free}"), format!("hardware.draft={free}"));
    // The run takes no simulated time: pass costs are zero, and tokens are drafted at the start of a step. If tokens
    // were drafted at the end of a step, as in vLLM, the simulated host would sleep for a millisecond now and then.
    let sets = [target.as_str(), draft.as_str(), "seeds=[7]", "engine.draft_at=step-start"];
    refused(&sets, &["autoregressive, engine.max_num_seqs = ", ", seed 7: mean E2E is 0 s", "no speedup"]);
}

#[test]
fn sizes_beyond_memory_are_refused_before_allocation() {
    let poisson = "workload.arrivals={ poisson = { rate = 1e9 } }";
    let many = "workload.requests=4294967295";
    let raise = "FORETOKEN_MEMORY_GIB=N";
    refused(&[many, poisson], &["4294967295 requests takes 800 GiB", "this program may use 1.0 GiB", raise]);
    refused(&[many, "workload.arrivals={ closed-loop = 4294967295 }"], &["4294967295 requests takes 800 GiB", raise]);
    refused(
        &["engine.num_gpu_blocks=1000000000"],
        &["engine.num_gpu_blocks: 1000000000 KV blocks take 34 GiB", raise, "--threads 1"],
    );
    // In a session, each prompt contains the turns before it. So with 1000 turns a session has very long prompts and
    // very many shared blocks.
    let chats = "workload.sessions={ turns = 1000.0, gap_s = 1.0 }";
    refused(
        &[chats, "workload.requests=100000"],
        &["workload.sessions: ", " turns and 0 shared blocks take 1.0 GiB", raise],
    );
    refused(
        &[chats, "workload.requests=1000"],
        &["workload.sessions: ", " shared blocks take 1.0 GiB", "max_context", raise],
    );
    let endless = "workload.lengths={ fixed = { prompt = 1, output = 2147483646 } }";
    refused(
        &[endless, "engine.max_model_len=2147483648"],
        &["workload.lengths: outputs of up to 2147483646 tokens", raise],
    );
    // Without `requests`, the number of requests follows from rate and duration.
    let hour = r#"workload={ arrivals = { poisson = { rate = 1e9 } }, duration_s = 3600.0, lengths = { fixed = { prompt = 1, output = 1 } } }"#;
    refused(&[hour], &["requests takes 1.0 GiB", raise]);
}

#[test]
fn the_limit_is_stated_and_can_be_raised() {
    let blocks = &["engine.num_gpu_blocks=1000000"][..];
    let place = Place::new();
    let refused = with_memory(&place, "0.02", blocks);
    let error = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{error}");
    assert!(error.contains("1000000 KV blocks take 34 MiB") && error.contains("may use 20 MiB"), "{error}");
    let allowed = with_memory(&place, "4", blocks);
    assert!(allowed.status.success(), "{}", String::from_utf8_lossy(&allowed.stderr));
    for bad in ["much", "-1", "0", "nan"] {
        let output = with_memory(&place, bad, &[]);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(&format!("FORETOKEN_MEMORY_GIB={bad}: expected GiB")), "{error}");
    }
}

/// Runs `foretoken traces inspect` on a file, with a memory limit of a quarter of a GiB. The file must be refused with
/// these words.
fn inspect_refuses(place: &Place, file: &str, words: &[&str]) {
    let mut command = place.foretoken();
    let output = command.env("FORETOKEN_MEMORY_GIB", "0.25").args(["traces", "inspect", file]).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{file}: {error}");
    words.iter().for_each(|word| assert!(error.contains(word), "{file}: `{word}` is missing in\n{error}"));
}

#[test]
fn files_without_an_end_are_refused() {
    let place = Place::new();
    const HEADER: &[u8] = b"t_s,input_tokens,output_tokens\n";
    const JSON: &[u8] = b"{\"timestamp\":0,\"input_length\":5,\"output_length\":5,\"hash_ids\":[0]}\n";
    let endless = |head: &'static [u8], byte| head.chain(std::io::repeat(byte).take(1 << 28));
    let raise = "FORETOKEN_MEMORY_GIB=N";
    for (name, head, byte, words) in [
        ("line", HEADER, b'0', [":2: is longer than 1.0 MiB", raise]),
        ("first", b"" as &[u8], b'x', [":1: is longer than 1.0 MiB", raise]),
        ("blank", JSON, b'\n', ["unpacks to more than 256 MiB", raise]),
        ("field", b"t_s,input_tokens,output_tokens\n\"" as &[u8], b'\n', [": is longer than 1.0 MiB", raise]),
    ] {
        let mut gz =
            GzEncoder::new(std::fs::File::create(place.path(&format!("{name}.gz"))).unwrap(), Compression::fast());
        std::io::copy(&mut endless(head, byte), &mut gz).unwrap();
        gz.finish().unwrap();
        inspect_refuses(&place, &format!("{name}.gz"), &words);
    }
    let rows = "t_s,input_tokens,output_tokens\n".to_owned() + &"1,1,1\n".repeat(1_500_000);
    std::fs::write(place.path("rows.csv"), rows).unwrap();
    inspect_refuses(&place, "rows.csv", &["rows.csv:1342179: 1342177 requests are all that memory holds", raise]);
    let zst = zstd::encode_all(endless(HEADER, b'0'), 1).unwrap();
    std::fs::write(place.path("line.zst"), zst).unwrap();
    inspect_refuses(&place, "line.zst", &[":2: is longer than 1.0 MiB", raise]);

    std::fs::write(place.path("long.toml"), format!("{EXPERIMENT}#{}", "x".repeat(2 << 20))).unwrap();
    let mut command = place.foretoken();
    let output = command.env("FORETOKEN_MEMORY_GIB", "0.25").args(["run", "long.toml"]).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("long.toml: is longer than 1.0 MiB") && error.contains(raise), "{error}");
}

#[cfg(unix)]
#[test]
fn devices_and_pipes_without_an_end_are_refused() {
    let place = Place::new();
    let bin = env!("CARGO_BIN_EXE_foretoken");
    inspect_refuses(&place, "/dev/zero", &["/dev/zero: is a device"]);
    for command in [&["run", "/dev/zero"][..], &["decide", "/dev/zero"], &["explore", "--profile", "/dev/zero"]] {
        assert!(place.fails(command, 2).contains("is a device"), "{command:?}");
    }
    let set = ["run", "x.toml", "-o", "out", "--set", "workload={ arrivals = { trace = { path = \"/dev/zero\" } } }"];
    assert!(place.fails(&set, 2).contains("is a device"));
    for (command, words) in [
        ("run /dev/stdin", "is longer than 1.0 MiB"),
        ("decide -", "is longer than 1.0 MiB"),
        ("traces inspect /dev/stdin", "is longer than"),
    ] {
        let script = format!(
            "FORETOKEN_MEMORY_GIB=0.25; export FORETOKEN_MEMORY_GIB; yes xxxxxxx | tr -d '\\n' | {bin} {command}"
        );
        let output = Command::new("sh").arg("-c").arg(script).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(words), "{error}");
    }
}

/// If a trace comes from a pipe, `traces inspect` and `run` must give the same results as with the file.
#[cfg(unix)]
#[test]
fn a_pipe_is_read_like_the_file() {
    let arrivals = "arrivals = { poisson = { rate = 4.0 } }";
    let text = EXPERIMENT.replacen(arrivals, "arrivals = { trace = { path = \"t.csv\" } }", 1);
    let text = text.replacen("lengths = { fixed = { prompt = 128, output = 64 } }\nrequests = 200\n", "", 1);
    let place = Place::holding(&text);
    let rows: String = (0..300).map(|i| format!("{}.5,{},9\n", i / 4, i % 90 + 10)).collect();
    std::fs::write(place.path("t.csv"), format!("t_s,input_tokens,output_tokens\n{rows}")).unwrap();
    let bin = env!("CARGO_BIN_EXE_foretoken");
    let shell = |script: &str| {
        let output = Command::new("sh").arg("-c").arg(script).current_dir(place.path("")).output().unwrap();
        assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let from_file = shell(&format!("{bin} traces inspect t.csv"));
    assert!(from_file.contains("requests             300"), "{from_file}");
    assert_eq!(shell(&format!("cat t.csv | {bin} traces inspect /dev/stdin")), from_file);
    assert_eq!(shell(&format!("gzip -c t.csv | {bin} traces inspect /dev/stdin")), from_file);
    // The second line of the output names the trace's file. The name differs between pipe and file, so this line is not
    // compared.
    let without =
        |text: String| text.lines().enumerate().filter(|(i, _)| *i != 1).map(|(_, line)| format!("{line}\n")).collect();
    let file: String = without(place.run_drawn("out", &["--no-figures"]));
    let set = "--set 'workload.arrivals.trace.path=\"/dev/stdin\"'";
    assert_eq!(without(shell(&format!("cat t.csv | {bin} run x.toml -o piped --no-figures {set}"))), file);
    let set = format!("--set 'workload.arrivals.trace.path=\"{}\"'", place.path("t.csv").display());
    assert_eq!(without(shell(&format!("cat x.toml | {bin} run /dev/stdin -o again --no-figures {set}"))), file);
}

/// Characters that control a terminal: escape, bell, two C1 controls, and three characters that reverse or hide text.
const ACTING: &str = "\u{1b}[2J\u{7}\u{9b}\u{202e}\u{2066}\u{200b}\u{85}";

#[track_caller]
fn is_safe(what: &str, output: &Output) {
    for (stream, bytes) in [("stdout", &output.stdout), ("stderr", &output.stderr)] {
        let text = String::from_utf8(bytes.clone()).unwrap();
        let acting = |c: char| (c.is_control() && c != '\n') || (ACTING.contains(c) && !c.is_ascii());
        assert!(!text.contains(acting), "{what}: {stream} has {:?}", text.find(acting).map(|at| &text[at..]));
    }
}

#[test]
fn control_characters_are_never_printed() {
    let place = Place::new();
    let quoted: String = ACTING.chars().map(|c| format!("\\u{:04x}", u32::from(c))).collect();
    let file = |name: &str, text: &str| std::fs::write(place.path(name), text).unwrap();
    let experiment = |from: &str, to: &str| {
        assert!(EXPERIMENT.contains(from), "{from}");
        EXPERIMENT.replacen(from, to, 1)
    };
    let bad_name = format!("x{ACTING}.toml");
    let claims = format!(
        "\n[paper]\ntitle = \"{quoted}\"\nclaims = [{{ id = \"{quoted}\", says = \"{quoted}\", where = \"{quoted}\", measure = {{ value = {{ metric = \"speedup\", policy = \"{quoted}\" }} }} }}]\n"
    );
    let files = [
        ("key.toml", experiment("noise_cv", &format!("\"{quoted}\""))),
        ("name.toml", experiment("small", &quoted)),
        ("comment.toml", experiment("noise_cv = 0.05", &format!("noise_cv = -1 # {ACTING}"))),
        ("value.toml", experiment("noise_cv = 0.05", &format!("noise_cv = \"{quoted}\""))),
        ("policy.toml", experiment("adaspec = {}", &format!("\"{quoted}\" = {{}}"))),
        ("category.toml", experiment("constant = { rate = 0.7 }", &format!("\"{quoted}\" = {{ rate = 0.7 }}"))),
        ("claim.toml", EXPERIMENT.to_owned() + &claims),
        (
            "path.toml",
            experiment("poisson = { rate = 4.0 }", &format!("trace = {{ path = \"{quoted}.csv\" }}"))
                .replacen("requests = 200\n", "", 1),
        ),
        ("header.csv", format!("t_s,{ACTING},output_tokens\n0.0,5,5\n")),
        ("unknown.csv", format!("a{ACTING},b\n1,2\n")),
        ("cell.csv", format!("t_s,input_tokens,output_tokens\n0.0,{ACTING},5\n")),
        ("key.jsonl", format!("{{\"timestamp\": 0, \"{quoted}\": 1}}\n")),
        ("cut.jsonl", format!("{{\"timestamp\": 0, \"{ACTING}\": 1e400}}\n")),
        ("state.json", format!("{{\"{quoted}\": 1}}")),
        ("state2.json", format!("{{\"{ACTING}\": }}")),
        (bad_name.as_str(), "name = 1\n".to_owned()),
    ];
    for (name, text) in &files {
        file(name, text);
    }
    let odd = format!("category{ACTING}");
    file("good.csv", &format!("question_id,turn,category,input_tokens,output_tokens\n1,0,{odd},5,5\n2,0,other,5,5\n"));
    let set = format!("engine.{ACTING}=1");
    let set_value = format!("engine.max_num_seqs=\"{quoted}\"");
    let missing = format!("gone{ACTING}");
    let mut cases: Vec<Vec<&str>> = vec![
        vec!["policies", "show", ACTING],
        vec!["policies", "defaults", ACTING],
        vec!["traces", "inspect", &missing],
        vec!["traces", "inspect", "good.csv"],
        vec!["traces", "inspect", "good.csv", "--format", "json"],
        vec!["traces", "inspect", "good.csv", "--format-of", ACTING],
        vec!["traces", "text", "--family", ACTING],
        vec!["run", "x.toml", "--set", &set],
        vec!["run", "x.toml", "--set", &set_value],
        vec!["run", "x.toml", "--set", ACTING],
        vec!["run", "x.toml", "--threads", ACTING],
        vec![ACTING],
        vec!["report", &missing],
        vec!["export", "perfetto", &missing],
        vec!["export", "sglang", ACTING],
        vec!["doctor", "--need", ACTING],
        vec!["validate", &missing],
        vec!["explore", "--profile", &missing],
    ];
    for (name, _) in &files {
        cases.push(match name.rsplit_once('.').unwrap().1 {
            "toml" => vec!["run", name, "-o", "out"],
            "json" => vec!["decide", name],
            _ => vec!["traces", "inspect", name],
        });
    }
    let mut failed = 0;
    for args in &cases {
        let output = place.foretoken().args(args).output().unwrap();
        is_safe(&format!("{args:?}"), &output);
        assert!(matches!(output.status.code(), Some(0..=4)), "{args:?}: {:?}", output.status);
        failed += usize::from(!output.status.success());
    }
    assert_eq!(failed, cases.len() - 2, "all but the good trace are refused");
    // A successful run prints the names of its folder, its trace and parts of the trace. It must print the control
    // characters in these names escaped, too.
    let out = format!("out{ACTING}");
    let output = place.foretoken().args(["run", "x.toml", "--no-figures", "-o", &out]).output().unwrap();
    is_safe("a good run", &output);
    assert!(output.status.success() && String::from_utf8_lossy(&output.stderr).contains("out\\u001b[2J\\u0007"));
}

#[test]
fn messages_about_long_input_stay_short() {
    let place = Place::new();
    let long = "y".repeat(100_000);
    for (name, text) in [
        ("brackets.toml", "[".repeat(100_000)),
        ("tables.toml", "{a=".repeat(100_000)),
        ("name.toml", EXPERIMENT.replacen("small", &"!".repeat(10 << 20), 1)),
        ("key.toml", EXPERIMENT.replacen("noise_cv", &long, 1)),
        ("value.toml", EXPERIMENT.replacen("0.05", &format!("\"{long}\""), 1)),
        ("header.csv", format!("{long},{long}\n1,2\n")),
        ("cell.csv", format!("t_s,input_tokens,output_tokens\n0.0,{long},5\n")),
        ("key.jsonl", format!("{{\"{long}\": 1e400}}\n")),
    ] {
        std::fs::write(place.path(name), text).unwrap();
        let args = if name.ends_with("toml") { ["run", name].to_vec() } else { ["traces", "inspect", name].to_vec() };
        let error = place.fails(&args, 2);
        assert!(error.len() < 8000, "{name}: {} bytes", error.len());
    }
    for set in [format!("{long}=1"), format!("engine.max_num_seqs=\"{long}\""), long.clone()] {
        let error = place.fails(&["run", "x.toml", "--set", &set], 2);
        assert!(error.len() < 8000, "{} bytes", error.len());
    }
    let error = place.fails(&["run", "x.toml", "--set", "hardware.target.linear.delta_s=-1e308"], 2);
    assert!(error.contains("-1e308") && !error.contains("0000000000"), "{error}");
}

/// Without `MALLOC_ARENA_MAX`, glibc's arenas (64 MiB of addresses per thread) would leave no addresses for data. The
/// program sets this variable itself.
#[cfg(target_os = "linux")]
#[test]
fn a_small_address_space_suffices_and_gives_a_warning() {
    let place = Place::new();
    let printed = place.run_drawn("whole", &[]);
    for mib in [150, 200, 260] {
        let script = format!(
            "ulimit -v {}; exec {} run x.toml -o out-{mib} --threads 8",
            mib * 1024,
            env!("CARGO_BIN_EXE_foretoken")
        );
        let output =
            std::process::Command::new("sh").args(["-c", &script]).current_dir(place.path("")).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{mib} MiB: {said}");
        assert!(String::from_utf8_lossy(&output.stdout) == printed, "{mib} MiB: another table");
        let note = format!("note: memory is short: this process may have {mib} MiB of addresses (ulimit -v)");
        assert_eq!(said.contains(&note) && said.contains("--resume goes on"), mib < 256, "{mib} MiB: {said}");
    }
}

/// 65,535 threads would need 128 GiB of addresses. The experiment has 20 cells (runs of one policy each), so it needs
/// at most 20 threads.
#[test]
fn there_are_no_more_threads_than_cells() {
    let place = Place::new();
    let script = format!(
        "ulimit -v 8388608; exec {} run x.toml -o out --no-figures --threads 65535",
        env!("CARGO_BIN_EXE_foretoken")
    );
    let output = Command::new("sh").arg("-c").arg(script).current_dir(place.path("")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8(output.stdout).unwrap(), place.run_drawn("plain", &["--no-figures"]));
}
