//! Looks at every kind of page in a browser: at the width of a desk and of a phone, light and dark, and on paper. A
//! page must show no NaN, cut no title, keep texts inside figures, fit into the window, and break no rule of axe-core.
//!
//! `FORETOKEN_AXE` names axe-core's script; without it, the rules for screen readers and contrast are skipped.
//! `FORETOKEN_PAGES` names more pages to look at, separated by colons. `FORETOKEN_PICTURES` names a folder for pictures
//! of all pages.

use crate::devtools::{Browser, Look};
use crate::support::{EXPERIMENT, Place};
use crate::{arena, fleet, observe, pages, papers, questions, validate};
use base64::Engine as _;
use foretoken_tests::{Part, skip};
use serde_json::Value;
use std::path::{Path, PathBuf};

const LOOKS: [Look; 5] = [
    Look { width: 1280, dark: false, paper: false },
    Look { width: 1280, dark: true, paper: false },
    Look { width: 390, dark: false, paper: false },
    Look { width: 390, dark: true, paper: false },
    // A4 paper at 96 pixels an inch, without the margins.
    Look { width: 718, dark: false, paper: true },
];

/// Looks at a page in all of `LOOKS` (widths of the window, light and dark, screen and paper), and appends a sentence
/// on each fault to `faults`.
fn look_at(browser: &mut Browser, name: &str, page: &Path, axe: Option<&str>, faults: &mut Vec<String>) {
    browser.look(LOOKS[0]);
    browser.open(page, "");
    faults.extend(browser.console().iter().map(|said| format!("{name}: console: {said}")));
    if let Some(axe) = axe {
        browser.evaluate(axe);
    }
    for look in LOOKS {
        browser.look(look);
        let how = format!(
            "{name}, {} px, {}",
            look.width,
            if look.paper {
                "paper"
            } else if look.dark {
                "dark"
            } else {
                "light"
            }
        );
        let found = browser.evaluate(include_str!("page_faults.js"));
        faults.extend(found.as_array().unwrap().iter().map(|fault| format!("{how}: {}", fault.as_str().unwrap())));
        if axe.is_some() && !look.paper {
            let broken = browser.evaluate(AXE);
            faults.extend(broken.as_array().unwrap().iter().map(|rule| format!("{how}: {}", rule.as_str().unwrap())));
        }
        if let Some(folder) = std::env::var_os("FORETOKEN_PICTURES") {
            let file = format!("{}.png", how.replace(", ", "-").replace([' ', '/'], "-"));
            let png = base64::engine::general_purpose::STANDARD.decode(browser.picture()).unwrap();
            std::fs::write(Path::new(&folder).join(file), png).unwrap();
        }
    }
}

/// A script that returns the rules of axe-core that the page breaks, each with the first three elements that break it.
const AXE: &str = "axe.run().then((found) => found.violations.map((rule) =>
    `axe ${rule.id}: ${rule.nodes.slice(0, 3).map((node) => node.html.slice(0, 160)).join(' | ')}`))";

/// Runs commands in the folder of `place`. They must exit with 0, or with 3 for a negative verdict.
fn does(place: &Place, commands: &[&[&str]]) {
    for args in commands {
        let out = place.foretoken().args(*args).output().unwrap();
        let code = out.status.code().unwrap();
        assert!([0, 3].contains(&code), "{args:?} ends with {code}: {}", String::from_utf8_lossy(&out.stderr));
    }
}

/// The setting `policies` with every policy preset.
fn all_presets(place: &Place) -> String {
    let listed = place.foretoken().args(["policies", "list"]).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let names = listed.lines().filter_map(|line| line.split_whitespace().next());
    format!("policies=[{}]", names.map(|name| format!("{{ {name} = {{}} }}")).collect::<Vec<_>>().join(", "))
}

/// Makes a page of every kind. Returns the temporary folders that hold the files, and each page's name and path.
fn every_kind() -> (Vec<Place>, Vec<(String, PathBuf)>) {
    let mut places = Vec::new();
    let mut found = Vec::new();
    let mut made = |place: Place, pages: &[(&str, &str)]| {
        found.extend(pages.iter().map(|(name, path)| ((*name).to_owned(), place.path(path))));
        places.push(place);
    };

    let few = ["--set", "workload.requests=60"];
    let place = Place::new();
    std::fs::write(place.path("paper.toml"), papers::with_paper()).unwrap();
    std::fs::write(place.path("question.toml"), questions::with_question()).unwrap();
    let one_size = ["--set", "engine.max_num_seqs=64"];
    let presets = all_presets(&place);
    let all = ["--set", &presets, "--set", "seeds=[1]"];
    let alone = ["--set", "policies=[{ autoregressive = {} }]"];
    let long =
        ["--set", "policies=[{ autoregressive = {} }, { fixed = { k = { sweep = [1, 2, 3, 4, 5, 6, 7, 8] } } }]"];
    let overload = ["--set", "workload.arrivals.poisson.rate=400.0", "--set", "seeds=[1, 2, 3]"];
    let fleet_of = ["--set", "fleet={ replicas = 2, router = \"round-robin\" }", "--set", "output.steps=false"];
    does(
        &place,
        &[
            &["run", "x.toml", "-o", "all/sweep"],
            &[&["run", "x.toml", "-o", "all/one"][..], &few, &one_size].concat(),
            &[&["run", "x.toml", "-o", "all/presets"][..], &few, &one_size, &all].concat(),
            &[&["run", "x.toml", "-o", "all/alone"][..], &few, &one_size, &alone].concat(),
            &[&["run", "x.toml", "-o", "all/lengths"][..], &few, &one_size, &long].concat(),
            &[&["run", "x.toml", "-o", "all/overload"][..], &few, &one_size, &overload].concat(),
            &[&["run", "x.toml", "-o", "all/fleet"][..], &one_size, &fleet_of].concat(),
            &["run", "paper.toml", "-o", "all/paper"],
            &["run", "question.toml", "-o", "all/question"],
            &["report", "all/sweep", "--baseline", "all/paper", "-o", "against"],
            &["report", "all", "--index"],
            &[&["ladder", "x.toml", "-o", "ladder"][..], &few, &one_size].concat(),
            &["explore", "-o", "explore"],
        ],
    );
    made(
        place,
        &[
            ("a run of one setting", "all/one/report/index.html"),
            ("a sweep", "all/sweep/report/index.html"),
            ("a run of all presets", "all/presets/report/index.html"),
            ("a run of one policy", "all/alone/report/index.html"),
            ("a run of eight lengths", "all/lengths/report/index.html"),
            ("a run in overload", "all/overload/report/index.html"),
            ("a run of a fleet", "all/fleet/report/index.html"),
            ("a paper", "all/paper/report/index.html"),
            ("a question", "all/question/report/index.html"),
            ("a baseline", "against/index.html"),
            ("an index", "all/index.html"),
            ("a ladder", "ladder/ladder.html"),
            ("an explorer of presets", "explore/explore.html"),
            ("an explorer of a run", "all/one/report/explore.html"),
        ],
    );

    let place = arena::folder();
    arena::run(&place, &[]);
    made(place, &[("an arena", "out/arena.html")]);

    let bounded = EXPERIMENT
        .replace("requests = 200\n", "")
        .replace("adaspec-scale = 1.0", "ttft_s = 0.5\ntpot_s = 0.05\n\n[capacity]\nrequests = 200\ntolerance = 0.1");
    let place = Place::holding(&bounded);
    does(
        &place,
        &[
            &["capacity", "x.toml", "-o", "swept"],
            &["capacity", "x.toml", "-o", "single", "--set", "engine.max_num_seqs=8"],
            // No rate of requests keeps this bound.
            &["capacity", "x.toml", "-o", "none", "--set", "engine.max_num_seqs=8", "--set", "slo.tpot_s=1e-6"],
        ],
    );
    made(
        place,
        &[
            ("capacities of a sweep", "swept/capacity.html"),
            ("capacities", "single/capacity.html"),
            ("no capacity", "none/capacity.html"),
        ],
    );

    let place = Place::holding(fleet::EXPERIMENT);
    does(&place, &[&["fleet", "x.toml", "-o", "fewest", "--set", "fleet.price_gpu_hour=2.0"]]);
    made(place, &[("a search for a fleet", "fewest/fleet.html")]);

    if let Some(place) = pages::calibrated() {
        does(
            &place,
            &[
                &["run", "cal/experiment.toml", "-o", "simulated", "--set", "seeds=[1, 2]"],
                &["recommend", "cal", "-o", "advice", "--longest", "3"],
                &["validate", "--calibrated", "cal", "--observed", "k2-c4-s1.obs", "-o", "against"],
            ],
        );
        made(
            place,
            &[
                ("a calibration", "cal/calibration.html"),
                ("a run on a calibration", "simulated/report/index.html"),
                ("an explorer of a calibration", "simulated/report/explore.html"),
                ("a recommendation", "advice/recommendation.html"),
                ("a validation by observation", "against/validation.html"),
            ],
        );
    }

    let place = Place::holding(observe::EXPERIMENT);
    let server = observe::stub(|r| observe::speculating(r).reply(r));
    let out = observe::observe(&place, &server.url("127.0.0.1"), &[]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    made(place, &[("an observed run", "out/report/index.html")]);

    let place = Place::holding(&validate::experiment());
    does(
        &place,
        &[&["validate", "x.toml", "-o", "checked"], &["live", "x.toml", "-o", "live", "--set", "workload.requests=12"]],
    );
    made(place, &[("a validation on a device", "checked/validation.html"), ("a live run", "live/report/index.html")]);
    (places, found)
}

#[test]
fn every_kind_of_page_can_be_read_on_a_desk_a_phone_and_paper() {
    let Some(mut browser) = Browser::start() else { return };
    let axe = std::env::var("FORETOKEN_AXE").ok().map(|path| std::fs::read_to_string(path).unwrap());
    if axe.is_none() {
        skip(Part::Axe, "FORETOKEN_AXE does not name axe-core's script, so its rules are not checked");
    }
    let (_places, mut pages) = every_kind();
    let more = std::env::var("FORETOKEN_PAGES").unwrap_or_default();
    pages.extend(more.split(':').filter(|path| !path.is_empty()).map(|path| (path.to_owned(), PathBuf::from(path))));
    let mut faults = Vec::new();
    for (name, page) in &pages {
        look_at(&mut browser, name, page, axe.as_deref(), &mut faults);
    }
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

/// Some parts of a page are folded on the screen: the experiment, and tables with many rows. They must be open on
/// paper, and folded again afterwards.
#[test]
fn folded_parts_are_open_while_a_page_is_printed() {
    let Some(mut browser) = Browser::start() else { return };
    let place = Place::new();
    place.run_drawn("out", &[]);
    browser.open(&place.path("out/report/index.html"), "");
    let folded = "document.querySelectorAll('details:not([open])').length";
    let before = browser.evaluate(folded).as_u64().unwrap();
    assert!(before > 0, "nothing is folded");
    browser.evaluate(&format!("addEventListener('beforeprint', () => window.printed = {folded})"));
    browser.print();
    assert_eq!(browser.evaluate("window.printed"), 0);
    assert_eq!(browser.evaluate(folded), before);
}

/// Opens pages with one fault each. The script `page_faults.js` must find the fault: the sentence on the fault must
/// contain a given word.
#[test]
fn each_fault_of_a_page_is_found() {
    let Some(mut browser) = Browser::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let page = dir.path().join("page.html");
    let svg = |inside: &str| format!("<svg width=\"100\" height=\"50\">{inside}</svg>");
    for (body, word) in [
        ("<p>a length of NaN tokens</p>".to_owned(), "NaN"),
        ("<details><summary>more</summary><p>undefined</p></details>".to_owned(), "undefined"),
        (svg("<path d=\"M0 0 L NaN 4\"/>"), "NaN"),
        (svg("<text x=\"80\" y=\"20\">outside of it</text>"), "leaves its figure"),
        ("<figure><figcaption>The mean of …</figcaption></figure>".to_owned(), "cut"),
        ("<div style=\"width: 2000px\">wide</div>".to_owned(), "px"),
    ] {
        std::fs::write(&page, format!("<!doctype html><title>t</title><body>{body}")).unwrap();
        browser.look(LOOKS[0]);
        browser.open(&page, "");
        let faults: Value = browser.evaluate(include_str!("page_faults.js"));
        let named = faults.as_array().unwrap().iter().any(|fault| fault.as_str().unwrap().contains(word));
        assert!(named, "{word} in {faults} of {body}");
    }
    let wide = "<div style=\"overflow-x: auto\"><div style=\"width: 2000px\">scrolls</div></div>";
    std::fs::write(&page, format!("<!doctype html><title>t</title><body>{wide}{}", svg("<text y=\"20\">in</text>")))
        .unwrap();
    browser.open(&page, "");
    assert_eq!(browser.evaluate(include_str!("page_faults.js")), serde_json::json!([]));
}
