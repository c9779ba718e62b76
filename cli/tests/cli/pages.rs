//! Opens every kind of page in a browser. A page must show no NaN, undefined or Infinity and must write nothing to the
//! console.

use crate::browser::open;
use crate::observe;
use crate::support::Place;
use foretoken_servers::calibrate::synthetic::LAW;
use std::path::Path;

/// A folder with recordings `k*-c*-s1.obs` of a simulated server with a known cost law, and with the folder `cal`.
/// `cal` is a calibration on the recordings with draft lengths 0 and 3. `None` if there is no browser.
pub fn calibrated() -> Option<Place> {
    let place = Place::new();
    let browser = place.path("empty.html");
    std::fs::write(&browser, "<p id=\"p\"></p>").unwrap();
    open(&browser, "")?;
    let files: Vec<String> = [(0, 1), (0, 4), (0, 8), (3, 1), (3, 4), (3, 8), (2, 4)]
        .into_iter()
        .map(|(k, clients)| LAW.write(&place.path(""), k, clients, 1).display().to_string())
        .collect();
    let mut calibrate = place.foretoken();
    let out = calibrate.arg("calibrate").args(&files[..6]).args(["-o", "cal"]).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    Some(place)
}

/// Panics if a page shows NaN, undefined or Infinity.
pub fn sound(name: &str, dom: &str) {
    let mut shown = String::new();
    let mut rest = dom;
    // Scripts and styles are removed first, because a reader of the page does not see them.
    while let Some(at) = ["<script", "<style"].iter().filter_map(|tag| rest.find(tag)).min() {
        shown += &rest[..at];
        let end = if rest[at..].starts_with("<script") { "</script>" } else { "</style>" };
        rest = rest[at..].split_once(end).map_or("", |(_, after)| after);
    }
    shown += rest;
    for word in ["NaN", "undefined", "Infinity", "\u{221e}"] {
        if let Some(at) = shown.find(word) {
            let around: String = shown[..at].chars().rev().take(200).collect::<Vec<_>>().into_iter().rev().collect();
            panic!("{name} says {word} behind: {around}");
        }
    }
}

/// Opens a page, with `after` appended to its URL. Checks what the page shows, and that it writes nothing to the
/// console.
fn check(place: &Place, path: &str, after: &str) -> String {
    let opened = open(&place.path(path), after).expect("there was a browser before");
    assert!(opened.console.is_empty(), "{path} complains: {:#?}", opened.console);
    sound(path, &opened.dom);
    opened.dom
}

/// Runs a command that must exit with one of `codes`.
fn does(place: &Place, args: &[&str], codes: &[i32]) {
    let out = place.foretoken().args(args).output().unwrap();
    let code = out.status.code().unwrap();
    assert!(codes.contains(&code), "{args:?} ends with {code}: {}", String::from_utf8_lossy(&out.stderr));
}

/// The URL hash with which the explorer opens, read from the link on a run's page.
fn link(dom: &str) -> String {
    let after = dom.split("href=\"explore.html").nth(1).expect("a link to the explorer");
    after.split('"').next().unwrap().replace("&amp;", "&")
}

#[test]
fn the_check_for_nan_in_pages_finds_one() {
    sound("scripts may", "<p>fine</p><script>NaN</script><style>/* undefined */</style><p>fine</p>");
    for page in ["<p>NaN ms</p>", "<script>x</script><path d=\"M0 NaN\"/>", "<p>undefined</p>"] {
        assert!(std::panic::catch_unwind(|| sound("a page", page)).is_err(), "{page}");
    }
}

#[test]
fn pages_of_a_calibrated_server_have_no_nan() {
    let Some(place) = calibrated() else { return };
    let calibration = check(&place, "cal/calibration.html", "");
    assert!(calibration.contains("Steps of runs that it has not seen are off by"), "the headline");
    does(&place, &["run", "cal/experiment.toml", "-o", "simulated", "--set", "seeds=[1, 2]"], &[0]);
    let page = check(&place, "simulated/report/index.html", "");
    let explorer = check(&place, "simulated/report/explore.html", &link(&page));
    assert!(explorer.contains("hardware of the run"));
    does(&place, &["recommend", "cal", "-o", "advice", "--longest", "3"], &[0]);
    check(&place, "advice/recommendation.html", "");
    let held_out = ["validate", "--calibrated", "cal", "--observed", "k2-c4-s1.obs", "-o", "against"];
    does(&place, &held_out, &[0, 3]);
    let page = check(&place, "against/validation.html", "");
    assert!(page.contains("held-out numbers are predicted within 5 %"), "the headline");
}

#[test]
fn pages_of_measured_hardware_and_of_a_sweep_have_no_nan() {
    let place = Place::new();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../experiments/profiled.toml");
    let small = ["--set", "seeds=[1, 2]", "--set", "workload.requests=40"];
    does(&place, &[&["run", file.to_str().unwrap(), "-o", "profiled"][..], &small].concat(), &[0]);
    if open(&place.path("profiled/report/index.html"), "").is_none() {
        return;
    }
    let page = check(&place, "profiled/report/index.html", "");
    check(&place, "profiled/report/explore.html", &link(&page));
    place.run_drawn("out", &[]);
    let page = check(&place, "out/report/index.html", "");
    assert!(page.contains("Setting by setting"), "the matrix of a sweep");
    check(&place, "out/report/explore.html", &link(&page));
}

#[test]
fn a_page_of_capacities_has_no_nan() {
    let place = Place::holding(
        &crate::support::EXPERIMENT
            .replace("max_num_seqs = { sweep = [8, 64] }", "max_num_seqs = 8")
            .replace("requests = 200\n", "")
            .replace(
                "adaspec-scale = 1.0",
                "ttft_s = 0.5\ntpot_s = 0.05\n\n[capacity]\nrequests = 200\ntolerance = 0.1",
            ),
    );
    does(&place, &["capacity", "x.toml", "-o", "carried"], &[0]);
    let page = place.path("carried/capacity.html");
    if let Some(opened) = open(&page, "") {
        assert!(opened.console.is_empty(), "{:?}", opened.console);
        sound("capacity.html", &opened.dom);
    }
}

/// Pages of fleets: of a fixed size, with prefill replicas, with many replicas, and scaled. Also the page of a search
/// for the fewest replicas.
#[test]
fn pages_of_fleets_have_no_nan() {
    let place =
        Place::holding(&crate::support::EXPERIMENT.replace("max_num_seqs = { sweep = [8, 64] }", "max_num_seqs = 8"));
    let split = "fleet.replicas=[{ count = 1, role = \"prefill\" }, { count = 2, role = \"decode\" }]";
    let link = "fleet.link={ bandwidth_gb_s = 1.0, kv_bytes_token = 1e5, draft_kv_bytes_token = 4e3 }";
    let scaling = "fleet.scaling={ rule = { llm-d = {} }, max_replicas = 4, boot_s = 2.0, interval_s = 1.0 }";
    for (out, sets, shown) in [
        ("three", &["fleet.replicas=3"][..], "each with 33."),
        ("split", &[split, link], "1 prefill replica"),
        ("many", &["fleet.replicas=130"], "replica 0–1"),
        ("scaled", &[scaling, "engine.num_gpu_blocks=60"], "serve at a time"),
    ] {
        let sets = sets.iter().flat_map(|set| ["--set", set]);
        does(&place, &["run", "x.toml", "-o", out].into_iter().chain(sets).collect::<Vec<_>>(), &[0]);
        let page = format!("{out}/report/index.html");
        let text = std::fs::read_to_string(place.path(&page)).unwrap();
        assert!(text.contains("id=\"fleet\"") && text.contains(shown), "{out}: {shown}");
        assert!(place.path(&format!("{out}/replica_series.parquet")).exists());
        if open(&place.path(&page), "").is_some() {
            check(&place, &page, "");
        }
    }
    let slo = ["--set", "slo={ ttft_s = 0.5, tpot_s = 0.05 }", "--set", "fleet.price_gpu_hour=2.0"];
    does(&place, &[&["fleet", "x.toml", "-o", "search"][..], &slo].concat(), &[0]);
    if open(&place.path("search/fleet.html"), "").is_some() {
        check(&place, "search/fleet.html", "");
    }
}

/// The page of an observed server without calibrated costs links no explorer, because the explorer would show costs of
/// zero.
#[test]
fn the_page_of_a_server_with_unknown_costs_has_no_explorer() {
    let place = Place::holding(observe::EXPERIMENT);
    let server = observe::stub(|r| observe::speculating(r).reply(r));
    let out = observe::observe(&place, &server.url("127.0.0.1"), &[]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let page = std::fs::read_to_string(place.path("out/report/index.html")).unwrap();
    assert!(!page.contains("href=\"explore.html"), "a link to an explorer of nothing");
    assert!(page.contains("The cost of a pass on this server is not known"));
    assert!(!place.path("out/report/explore.html").exists());
    if let Some(opened) = open(&place.path("out/report/index.html"), "") {
        sound("an observed run", &opened.dom);
    }
}
