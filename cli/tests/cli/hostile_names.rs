//! Pages made from hostile names run no script: the names are escaped, and the page's Content-Security-Policy lets a
//! browser run the page's own scripts only.

use crate::browser::open;
use crate::observe::{EXPERIMENT, speculating};
use crate::support::Place;
use foretoken_tests::stub::{Reply, Stub, aside};
use std::path::Path;

/// Names that would change the page's title if a browser took them for markup. The markup is an element, an attribute,
/// text after the end of a script, or part of an SVG.
const NAMES: [&str; 5] = [
    "<script>document.title='ran'</script>",
    "\"onload=\"document.title='ran'\" x=\"",
    "]]><script>document.title='ran'</script><![CDATA[",
    "</script></style></svg><img src=x onerror=\"document.title='ran'\">",
    "'><svg onload=document.title='ran'>",
];

/// A run on a trace with hostile categories and a hostile file name.
fn hostile_run() -> Place {
    let quoted = toml_string;
    let of = |what: &dyn Fn(&str) -> String| NAMES.map(|name| format!("{} = {}", quoted(name), what(name))).join(", ");
    let [rates, lengths] = [of(&|_| "{ constant = { rate = 0.6 } }".into()), of(&|_| "2".into())];
    let file = "\"><img src=x onerror=document.title='ran'>.csv";
    let columns =
        "format = \"columns\", columns = { arrival = \"t\", prompt = \"in\", output = \"out\", category = \"c\" }";
    let place = Place::holding(&format!(
        "name = \"hostile\"\npolicies = [{{ autoregressive = {{}} }}, {{ by-category = {{ k = 1, lengths = {{ {lengths} }} }} }}]\n\
         [hardware]\ntarget = {{ linear = {{ alpha_s = 1e-7, gamma_s = 2e-4, delta_s = 0.02 }} }}\n\
         draft = {{ linear = {{ alpha_s = 1e-8, gamma_s = 1e-5, delta_s = 0.002 }} }}\n[engine]\nnum_gpu_blocks = 400\n\
         [workload]\narrivals = {{ trace = {{ path = {}, {columns} }} }}\n\
         [acceptance]\nsource = {{ by-category = {{ categories = {{ {rates} }} }} }}\n\
         [question]\nasks = {name}\nurl = \"https://example.org/\"\nthread = {name}\nassumed = [{name}]\n\
         decided_by = [{name}]\notherwise = {name}\nanswer = {name}\n\
         claims = [{{ id = {name}, says = {name}, measure = {{ value = {{ metric = \"speedup\", policy = \"autoregressive\" }} }} }}]\n",
        quoted(file),
        name = quoted(NAMES[0]),
    ));
    let row = |i: usize| format!("{}.0,40,8,\"{}\"\n", i, NAMES[i % NAMES.len()].replace('"', "\"\""));
    std::fs::write(place.path(file), "t,in,out,c\n".to_owned() + &(0..30).map(row).collect::<String>()).unwrap();
    place
}

fn toml_string(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Opens a page twice. In the page itself, names must not run as scripts, violate the Content-Security-Policy, or
/// appear as markup. Then opens a copy in which the names are inserted as markup: there the Content-Security-Policy
/// must keep the browser from running them.
fn runs_nothing(page: &Path) {
    let Some(opened) = open(page, "") else { return };
    assert!(opened.console.is_empty(), "{}: {:?}", page.display(), opened.console);
    let html = std::fs::read_to_string(page).unwrap();
    let broken = page.with_file_name("broken.html");
    let bodies = ["<body>", "</main>"];
    let within = bodies.iter().fold(html, |html, at| html.replacen(at, &format!("{at}{}", NAMES.join("\n")), 1));
    std::fs::write(&broken, within).unwrap();
    let forced = open(&broken, "").unwrap();
    for dom in [&opened.dom, &forced.dom] {
        let title = dom.split("<title>").nth(1).unwrap().split("</title>").next().unwrap();
        // A name that runs sets the title to this word. The title itself may contain the name as text.
        assert_ne!(title.trim(), "ran", "{}: a name ran", page.display());
    }
    let refused = forced.console.iter().filter(|line| line.contains("Content Security Policy")).count();
    assert!(refused >= NAMES.len(), "{}: {:?}", page.display(), forced.console);
    std::fs::remove_file(broken).unwrap();
}

#[test]
fn a_run_with_hostile_names_gives_pages_that_run_nothing() {
    let place = hostile_run();
    place.run_drawn("out", &[]);
    let page = std::fs::read_to_string(place.path("out/report/index.html")).unwrap();
    assert!(page.contains("&lt;script&gt;document.title"), "the names are on the page");
    runs_nothing(&place.path("out/report/index.html"));
    runs_nothing(&place.path("out/report/explore.html"));
}

#[test]
fn a_server_with_hostile_names_gives_pages_that_run_nothing() {
    let place = Place::holding(EXPERIMENT);
    let server = Stub::start(|r| match r.path.as_str() {
        "/v1/models" => Reply::Text(200, vec![], serde_json::json!({ "data": [{ "id": NAMES[3] }] }).to_string()),
        "/version" => Reply::Text(200, vec![], serde_json::json!({ "version": NAMES[0] }).to_string()),
        _ => aside(r, "").unwrap_or_else(|| speculating(r).reply(r)),
    });
    let out = place.foretoken().args(["observe", &server.url("127.0.0.1"), "x.toml", "-o", "out"]).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    runs_nothing(&place.path("out/report/index.html"));
    let out = place.foretoken().args(["calibrate", "out", "-o", "cal"]).output().unwrap();
    assert!([Some(0), Some(3)].contains(&out.status.code()), "{}", String::from_utf8_lossy(&out.stderr));
    runs_nothing(&place.path("cal/calibration.html"));
}

/// An experiment's name cannot be a path to another folder, so all results stay in the results folder.
#[test]
fn a_name_cannot_leave_the_folder() {
    let place = Place::new();
    for name in ["../out", "a/b", "/x", "..", ".hidden", "a\\b", ""] {
        let set = format!("name={}", toml_string(name));
        let said = place.fails(&["run", "x.toml", "--set", &set], 2);
        assert!(said.contains("cannot name a folder"), "{name}: {said}");
    }
    assert!(!place.path("results").exists() && !place.path("../out").exists());
}
