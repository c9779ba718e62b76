//! `foretoken report`: the page of complete, partial and compared results, and refused folders.

use crate::interrupted::{long, start};
use crate::support::{Place, bytes_of};

/// Runs `foretoken report` with the arguments `args`, which must succeed. Returns the page and stderr.
fn report(place: &Place, args: &[&str]) -> (String, String) {
    let output = place.foretoken().arg("report").args(args).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{stderr}");
    let path = String::from_utf8(output.stdout).unwrap();
    (std::fs::read_to_string(place.path(path.trim_end())).unwrap(), stderr)
}

#[test]
fn a_run_ends_in_a_page_that_can_be_made_again_from_the_folder_alone() {
    let place = Place::new();
    place.run_drawn("out", &[]);
    let first = std::fs::read_to_string(place.path("out/report/index.html")).unwrap();
    for part in [
        "<h1>small</h1>", "× [", "the oracle", "Student t over 2 seeds", "simulated",
        "<li>most running requests = 8\u{a0}requests: ",
    ] {
        assert!(first.contains(part), "{part} is missing");
    }
    assert!(std::fs::read_to_string(place.path("out/report/timing.js")).unwrap().contains("20 runs in"));
    std::fs::remove_dir_all(place.path("out/report")).unwrap();
    std::fs::remove_dir_all(place.path("out/figures")).unwrap();
    std::fs::remove_file(place.path("x.toml")).unwrap();
    assert!(report(&place, &["out"]).0 == first, "the page made again differs");
    assert!(report(&place, &["out", "-o", "elsewhere"]).0 == first);
    assert!(place.path("elsewhere/index.html").exists());
}

#[test]
fn the_page_has_notes_and_a_link_to_the_explorer() {
    let place = Place::new();
    let target = "hardware.target={ roofline = { gpu = 'a100-80g', model = 'vicuna-7b', floors = false } }";
    place.run_drawn("out", &["--set", target, "--set", "engine.max_num_seqs=8"]);
    let page = std::fs::read_to_string(place.path("out/report/index.html")).unwrap();
    assert!(
        page.contains("<li>adaspec: the policies&#x27; linear belief fits the target&#x27;s true cost badly"),
        "fixed lengths and oracles have no use for it: {page}"
    );
    // The explorer opens with the acceptance rate of policies that choose draft lengths without looking at the
    // requests. Here the rate is 0.7.
    let state = page.split("href=\"explore.html#a=").nth(1).unwrap().split('"').next().unwrap();
    let (acceptance, batch) = state.split_once("&amp;n=").unwrap();
    assert!((acceptance.parse::<f64>().unwrap() - 0.7).abs() < 0.02 && batch.parse::<u32>().unwrap() >= 1, "{state}");
    let explorer = std::fs::read_to_string(place.path("out/report/explore.html")).unwrap();
    assert!(explorer.contains("hardware of the run small") && explorer.contains("\"measured\":false"));
}

#[test]
fn the_traces_need_not_be_there_any_more() {
    let place = Place::new();
    std::fs::write(place.path("t.csv"), "t_s,input_tokens,output_tokens\n0.0,128,8\n1.0,40,8\n").unwrap();
    place.run("out", &["--set", "workload={ arrivals = { trace = { path = 't.csv' } } }", "--set", "seeds=[1]"]);
    std::fs::remove_file(place.path("t.csv")).unwrap();
    let (page, _) = report(&place, &["out"]);
    assert!(page.contains("input t.csv") && page.contains("One seed: no interval"), "{page}");
}

#[test]
fn without_figures_there_is_no_page_until_it_is_asked_for() {
    let place = Place::new();
    place.run_drawn("out", &["--no-figures"]);
    assert!(!place.path("out/report").exists());
    report(&place, &["out"]);
    // If a complete run has no page, it gets one when it is resumed.
    let before = bytes_of(&place.path("out"));
    std::fs::remove_dir_all(place.path("out/report")).unwrap();
    place.run_drawn("out", &["--resume"]);
    assert!(before == bytes_of(&place.path("out")));
}

#[test]
fn a_partial_run_gets_a_partial_page_that_says_so() {
    let place = long();
    let mut child = start(&place);
    child.kill().unwrap();
    child.wait().unwrap();
    let before = bytes_of(&place.path("out/cells"));
    let (page, stderr) = report(&place, &["out"]);
    for text in [&page, &stderr] {
        assert!(text.contains("This run did not end: ") && text.contains(" of 100 runs"), "{text}");
    }
    assert!(page.contains("<table>"));
    assert!(before == bytes_of(&place.path("out/cells")), "the cells are what --resume goes on from");
    place.run_drawn("out", &["--resume"]);
    assert!(!std::fs::read_to_string(place.path("out/report/index.html")).unwrap().contains("did not end"));
}

#[test]
fn a_baseline_gives_paired_differences() {
    let place = Place::new();
    place.run_drawn("before", &["--no-figures"]);
    place.run_drawn("after", &["--no-figures", "--set", "engine.block_size=32", "--set", "seeds=[2, 3]"]);
    let (page, stderr) = report(&place, &["after", "--baseline", "before", "-o", "both"]);
    assert!(stderr.contains("engine.block_size is 32 here and was 16. "), "{stderr}");
    assert!(stderr.contains("No mean end-to-end latency changed."), "{stderr}");
    // The compared results and the baseline each have five policies at two swept values, and two seeds. One seed (2) is
    // in both.
    for part in [
        "10 pairs", "<td>engine.block_size</td><td>16</td><td>32</td>", "the seed 3 is only here",
        "the seed 1 is only there",
    ] {
        assert!(page.contains(part), "{part} is missing");
    }
    assert!(!page.contains("not their requests"), "the same workload");
    let (page, stderr) = report(&place, &["before", "--baseline", "before", "-o", "same"]);
    assert!(stderr.contains("the settings are the same. No mean end-to-end latency changed."), "{stderr}");
    assert!(page.contains("The settings of the two experiments are the same.") && page.contains(">0.0 [0.0, 0.0]<"));
    place.run_drawn("other", &["--no-figures", "--set", "workload.arrivals.poisson.rate=8.0"]);
    let (page, _) = report(&place, &["other", "--baseline", "before", "-o", "both"]);
    assert!(
        page.contains("not their requests or random draws: the experiments differ in workload.arrivals.poisson.rate"),
        "{page}"
    );
}

#[test]
fn folders_that_do_not_pair_say_why() {
    let place = Place::new();
    place.run_drawn("a", &["--no-figures"]);
    place.run_drawn("b", &["--no-figures", "--set", "seeds=[7]"]);
    place.run_drawn("c", &["--no-figures", "--set", "engine.max_num_seqs=8"]);
    let error = place.fails(&["report", "a", "--baseline", "b"], 2);
    assert!(error.contains("no run in common") && error.contains("the seed 7 is only there"), "{error}");
    let error = place.fails(&["report", "a", "--baseline", "c"], 2);
    assert!(error.contains("one sweeps engine.max_num_seqs and the other nothing"), "{error}");
    assert!(!place.path("a/report").exists(), "nothing is written");
}

#[test]
fn folders_without_results_are_refused() {
    let place = Place::new();
    let error = place.fails(&["report", "nowhere"], 2);
    assert!(error.contains("nowhere does not exist") && error.contains("manifest.json"), "{error}");
    assert!(place.fails(&["report", "x.toml"], 2).contains("x.toml is not a folder"));
    std::fs::create_dir(place.path("empty")).unwrap();
    assert!(place.fails(&["report", "empty"], 2).contains("empty is no results folder"));
    std::fs::write(place.path("empty/manifest.json"), "{ \"name\": 3 }").unwrap();
    assert!(place.fails(&["report", "empty"], 2).contains("is not a manifest"));
}

#[test]
fn missing_or_changed_files_are_named() {
    let place = Place::new();
    place.run_drawn("out", &[]);
    let names =
        ["summary", "requests", "series", "lengths", "positions", "calibration"].map(|n| format!("{n}.parquet"));
    for name in names.iter().map(String::as_str).chain(["experiment.toml", "report.json"]) {
        let path = place.path("out").join(name);
        let bytes = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        // `report` and `run --resume` need each of these files: to make the page, to pair the results with a baseline,
        // or to resume. If a file is missing, the commands fail.
        for args in [&["report", "out"][..], &["run", "x.toml", "-o", "out", "--resume"]] {
            let error = place.fails(args, 2);
            assert!(error.contains(&format!("out: {name} is missing, and the manifest lists it")), "{error}");
            assert!(error.contains("--overwrite"), "{error}");
        }
        let mut flipped = bytes.clone();
        flipped[bytes.len() / 2] ^= 16;
        for damaged in [&flipped[..], &bytes[..bytes.len() / 2], b"", b"random"] {
            std::fs::write(&path, damaged).unwrap();
            for args in [&["report", "out"][..], &["run", "x.toml", "-o", "out", "--resume"]] {
                let error = place.fails(args, 2);
                assert!(error.contains(&format!("out is damaged or was changed: {name} (blake3 ")), "{error}");
            }
        }
        std::fs::write(&path, bytes).unwrap();
    }
    report(&place, &["out"]);
    // `report` does not need the figures of a run, so it works without one of them. `run --resume` needs them and
    // fails.
    std::fs::remove_file(place.path("out/figures/speedup.svg")).unwrap();
    report(&place, &["out"]);
    let error = place.fails(&["run", "x.toml", "-o", "out", "--resume"], 2);
    assert!(error.contains("figures/speedup.svg is missing"), "{error}");
}

/// Every command that reads a results folder's `manifest.json` refuses a manifest that is damaged or has another
/// version of the file format, and prints no table.
#[test]
fn manifests_of_another_schema_or_damaged_are_refused_by_every_reader() {
    let place = Place::new();
    place.run_drawn("out", &["--no-figures"]);
    let good = std::fs::read_to_string(place.path("out/manifest.json")).unwrap();
    let readers: [&[&str]; 4] = [
        &["run", "x.toml", "-o", "out", "--resume"],
        &["report", "out"],
        &["export", "perfetto", "out", "-o", "t.json"],
        &["report", "out", "--baseline", "out"],
    ];
    let says = |text: &str, parts: &[&str]| {
        std::fs::write(place.path("out/manifest.json"), text).unwrap();
        for args in readers {
            let error = place.fails(args, 2);
            parts.iter().for_each(|part| assert!(error.contains(part), "{part} is missing in {args:?}: {error}"));
        }
    };
    for schema in ["99", "1", "0"] {
        let other = good.replacen("\"schema\": 2", &format!("\"schema\": {schema}"), 1).replacen("0.1.0", "9.9.9", 1);
        says(&other, &[&format!("schema {schema}, and this version"), "Foretoken 9.9.9: use that", "--overwrite"]);
    }
    let newer = good.replacen("\"schema\": 2", "\"schema\": 99", 1);
    says(&newer, &["schema 99"]);
    says(&good.replacen("\"name\": \"small\"", "\"name\": \"smell\"", 1), &["is damaged or was changed", "checksum"]);
    says(&good[..good.len() / 2], &["is not a manifest"]);
    std::fs::write(place.path("out/manifest.json"), &good).unwrap();
    report(&place, &["out"]);
}

const LEFT_OUT: &str = "; this run is left out, and --resume repeats it";

/// A killed run leaves incomplete tables. The files of its finished cells (runs of one policy each) are read instead,
/// and damaged cells are reported.
#[test]
fn only_finished_cells_of_an_unfinished_run_are_read() {
    let place = long();
    let mut child = start(&place);
    child.kill().unwrap();
    child.wait().unwrap();
    std::fs::write(place.path("out/summary.parquet"), "half").unwrap();
    let cells = || std::fs::read_dir(place.path("out/cells")).unwrap().map(|e| e.unwrap().path());
    let cell = cells().filter(|p| p.extension().is_some_and(|x| x == "cell")).min().unwrap();
    let mut bytes = std::fs::read(&cell).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(&cell, bytes).unwrap();
    let name = cell.file_name().unwrap().to_str().unwrap();
    let (page, stderr) = report(&place, &["out"]);
    for text in [&page, &stderr] {
        assert!(text.contains(&format!("{name} is damaged: its checksum")) && text.contains(LEFT_OUT), "{text}");
    }
    let output = place.foretoken().args(["run", "x.toml", "-o", "out", "--resume"]).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{stderr}");
    assert!(stderr.contains(&format!("{name} is damaged: ")) && stderr.contains(": this run is repeated"), "{stderr}");
}

#[test]
fn pages_of_other_programs_are_not_replaced() {
    let place = Place::new();
    place.run_drawn("out", &["--no-figures"]);
    std::fs::create_dir(place.path("site")).unwrap();
    std::fs::write(place.path("site/index.html"), "mine").unwrap();
    let error = place.fails(&["report", "out", "-o", "site"], 2);
    assert!(error.contains("a page that Foretoken did not make") && error.contains("-o"), "{error}");
    assert_eq!(std::fs::read_to_string(place.path("site/index.html")).unwrap(), "mine");
}

/// `foretoken open` shows the newest page of a folder, or the page that the user names. A script stands in for the
/// desktop's opener and writes down the page that it gets.
#[cfg(target_os = "linux")]
#[test]
fn open_shows_the_newest_page_of_a_folder() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    place.run_drawn("out", &[]);
    std::fs::create_dir(place.path("bin")).unwrap();
    let (opener, shown) = (place.path("bin/xdg-open"), place.path("shown"));
    std::fs::write(&opener, format!("#!/bin/sh\necho \"$1\" > {0}.part && mv {0}.part {0}\n", shown.display()))
        .unwrap();
    std::fs::set_permissions(&opener, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", place.path("bin").display(), std::env::var("PATH").unwrap());
    let opened = |what: &str| {
        let output = place.foretoken().env("PATH", &path).args(["open", what]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let said = String::from_utf8(output.stdout).unwrap();
        let late = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while !shown.exists() && std::time::Instant::now() < late {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let asked = std::fs::read_to_string(&shown).unwrap();
        std::fs::remove_file(&shown).unwrap();
        assert_eq!(asked, said);
        said
    };
    assert_eq!(opened("out"), "out/report/index.html\n");
    std::fs::write(place.path("out/ladder.html"), "<p>newer").unwrap();
    assert_eq!(opened("out"), "out/ladder.html\n");
    assert_eq!(opened("out/report/explore.html"), "out/report/explore.html\n");
    for (what, says) in [
        ("nowhere", "there is no folder and no page nowhere"),
        ("x.toml", "x.toml is no page"),
        ("bin", "foretoken report bin"),
    ] {
        let error = place.fails(&["open", what], 2);
        assert!(error.contains(says), "{error}");
    }
}

/// Every text file below a folder, with its name.
fn texts_below(folder: &std::path::Path) -> Vec<(String, String)> {
    let mut texts = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => texts.extend(texts_below(&path)),
            false => texts.extend(std::fs::read_to_string(&path).ok().map(|text| (path.display().to_string(), text))),
        }
    }
    texts
}

#[test]
fn no_folder_of_this_machine_is_on_what_travels() {
    let place = Place::new();
    let folder = "sec ret & <b> 'x'";
    std::fs::create_dir_all(place.path(folder)).unwrap();
    let log = place.path(folder).join("t.csv");
    std::fs::write(&log, "t_s,input_tokens,output_tokens\n0.0,128,8\n0.1,9999,8\n1.0,40,8\n").unwrap();
    let trace = |more: &str| format!("{{ trace = {{ path = \"{}\"{more} }} }}", log.display());
    let arrivals =
        format!("workload={{ arrivals = {{ sweep = [{}, {}] }} }}", trace(""), trace(", max_prompt_len = 100"));
    place.run_drawn("out", &["--set", &arrivals, "--set", "seeds=[1, 2]"]);
    report(&place, &["out", "-o", "page"]);
    let paper = place.foretoken().args(["report", "out", "--paper", "paper"]).output().unwrap();
    assert!(paper.status.success(), "{}", String::from_utf8_lossy(&paper.stderr));
    let all =
        [texts_below(&place.path("page")), texts_below(&place.path("paper")), texts_below(&place.path("out/figures"))];
    assert!(all.iter().all(|texts| !texts.is_empty()));
    for (name, text) in all.into_iter().flatten() {
        let folder = place.path("").display().to_string();
        let found = ["sec ret", &folder].into_iter().find(|part| text.contains(part));
        assert!(found.is_none(), "{name} names a folder: {found:?}");
    }
}

#[test]
fn a_label_names_the_swept_setting() {
    let place = Place::new();
    place.run_drawn("out", &["--set", "engine.max_num_seqs={ sweep = [8, 64], label = \"seats\" }"]);
    let page = std::fs::read_to_string(place.path("out/report/index.html")).unwrap();
    assert!(page.contains("seats = 8") && !page.contains("most running requests"), "the label and not our words");
    let config = std::fs::read_to_string(place.path("out/experiment.toml")).unwrap();
    assert!(config.contains("seats"), "the resolved experiment keeps it: {config}");
    let error = place.fails(&["run", "x.toml", "--set", "engine.max_num_seqs={ sweep = [8, 64], label = 3 }"], 2);
    assert!(error.contains("the `label` of a sweep must be a text"), "{error}");
}

#[test]
fn a_paper_gets_columns_captions_and_numbers() {
    let place = Place::new();
    place.run_drawn("out", &[]);
    let output = place.foretoken().args(["report", "out", "--paper", "paper"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let read = |name: &str| std::fs::read_to_string(place.path("paper").join(name)).unwrap();
    assert!(read("speedup.svg").starts_with("<svg width=\"3.3in\""));
    // The test expects a PDF only on a machine with fonts, because a PDF embeds fonts. Without fonts, the command says
    // that it writes no PDF.
    let pdf = std::fs::read(place.path("paper/speedup.pdf"));
    match pdf {
        Ok(bytes) => {
            let text = String::from_utf8_lossy(&bytes);
            assert!(text.starts_with("%PDF-") && text.contains("/FontFile"), "the font is embedded");
            // The figure is 3.3 inches wide, and an inch has 72 points.
            let (_, size) = text.split_once("/MediaBox [0 0 ").expect("a page has a size");
            let width: f64 = size.split_once(' ').unwrap().0.parse().unwrap();
            assert!((width - 237.6).abs() < 0.01, "{width}");
        }
        Err(_) => assert!(String::from_utf8_lossy(&output.stderr).contains("no PDFs are written")),
    }
    let caption = read("speedup.txt");
    for part in ["Speedup over autoregressive", "simulated", "200 requests a run", "2 seeds"] {
        assert!(caption.contains(part), "{part}: {caption}");
    }
    let numbers = read("numbers.csv");
    assert!(numbers.starts_with("policy,engine.max_num_seqs,seed,speedup,"), "{numbers}");
    assert_eq!(numbers.lines().count(), 21, "a row for each of twenty runs");
}

#[test]
fn an_overview_links_to_the_pages_of_a_folder() {
    let place = Place::new();
    place.run_drawn("all/one", &[]);
    place.run_drawn("all/two", &["--set", "seeds=[1]"]);
    let (page, _) = report(&place, &["all", "--index"]);
    for part in ["one&#x2f;report&#x2f;index.html", "two (small)", "2 seeds", "Run "] {
        assert!(page.contains(part), "{part} is missing in {page}");
    }
}
