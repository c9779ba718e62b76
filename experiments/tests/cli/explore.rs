//! Drives the explorer's page in a browser. The numbers of the page must equal the library's.

use crate::browser::{Opened, attribute_of, open, text_of};
use crate::pages::calibrated;
use crate::support::Place;
use foretoken_hardware::LatencySpec;
use foretoken_hardware::gpus::gpus;
use foretoken_hardware::models::catalog;
use foretoken_policies::expected_tokens;
use foretoken_profiler::{CALIBRATED_VERSION, Calibrated, CalibratedModel, Range};
use foretoken_run::profiled::costs_of;
use foretoken_sim::{
    BatchView, Categories, ChunkTotals, Coefficients, ContextReads, Drafting, LatencyModel, PassShape, Time, shape,
};
use itertools::Itertools;
use serde_json::{Value, json};

/// Longest draft that the page considers.
const LONGEST: u32 = 16;
/// Largest batch that the page considers.
const MOST: u32 = 1024;

/// One state of the page: its URL hash, and the same settings for the library.
struct Point {
    hash: String,
    target: LatencySpec,
    draft: LatencySpec,
    draft_cost: f64,
    acceptance: f64,
    length: u32,
    batch: u32,
    context: u32,
    overhead_s: f64,
    reads: ContextReads,
    drafting: Drafting,
}

/// A source of random numbers in [0, 1) that gives the same numbers in every run (SplitMix64).
struct Draws(u64);

impl Draws {
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    fn below(&mut self, n: usize) -> usize {
        (self.unit() * n as f64) as usize
    }

    /// A random number between `least` and `most`, uniform in its logarithm.
    fn log(&mut self, least: f64, most: f64) -> f64 {
        least * (most / least).powf(self.unit())
    }
}

fn spec(value: Value) -> LatencySpec {
    serde_json::from_value(value).unwrap()
}

/// A random state of the page. Half of the states have rooflines of random presets, the other half have coefficients.
fn any_point(draws: &mut Draws) -> Point {
    let (target, draft, machine) = if draws.unit() < 0.5 {
        let gpu = &gpus()[draws.below(gpus().len())].name;
        let mut model = || &catalog()[draws.below(catalog().len())].name;
        let (target, draft) = (model(), model());
        let n = [1, 2, 4, 8][draws.below(4)];
        // As on the page: if the GPU cannot compute in the precision of the weights, weights are multiplied in bf16.
        let roofline = |model: &str, n: u32| {
            let with_weights = |weight_only: bool| {
                let settings = json!({ "gpu": gpu, "model": model, "tensor_parallel": n, "weight_only": weight_only });
                spec(json!({ "roofline": settings }))
            };
            if with_weights(false).check().is_ok() { with_weights(false) } else { with_weights(true) }
        };
        (roofline(target, n), roofline(draft, 1), format!("hw={gpu}&target={target}&draft={draft}&tp={n}"))
    } else {
        let c: Vec<f64> = [(1.0, 300.0), (1.0, 200.0), (0.5, 50.0), (0.01, 30.0), (0.1, 50.0), (0.05, 10.0)]
            .iter()
            .map(|&(least, most)| draws.log(least, most))
            .collect();
        let linear = |c: &[f64]| {
            spec(json!({ "linear": { "alpha_s": c[0] / 1e9, "gamma_s": c[1] / 1e6, "delta_s": c[2] / 1e3 } }))
        };
        let names = ["ta", "tg", "td", "da", "dg", "dd"];
        let said: Vec<String> = names.iter().zip_eq(&c).map(|(name, x)| format!("{name}={x}")).collect();
        (linear(&c[..3]), linear(&c[3..]), format!("hw=linear&{}", said.join("&")))
    };
    any_load(draws, target, draft, &machine)
}

/// A random load. `machine` is the part of the URL hash that describes the machine.
fn any_load(draws: &mut Draws, target: LatencySpec, draft: LatencySpec, machine: &str) -> Point {
    let mut point = Point {
        hash: String::new(),
        target,
        draft,
        draft_cost: if draws.unit() < 0.3 { 1.0 } else { draws.log(0.05, 20.0) },
        acceptance: draws.unit(),
        length: draws.below(LONGEST as usize + 1) as u32,
        batch: draws.log(1.0, f64::from(MOST)) as u32,
        context: draws.log(16.0, 131_072.0) as u32,
        overhead_s: 0.0,
        reads: [ContextReads::Once, ContextReads::PerPosition][draws.below(2)],
        drafting: [Drafting::Autoregressive, Drafting::Parallel][draws.below(2)],
    };
    let over_ms = draws.unit() * 3.0;
    point.overhead_s = over_ms / 1e3;
    let word = |value: Value| value.as_str().unwrap().to_owned();
    point.hash = format!(
        "{machine}&cost={}&a={}&k={}&n={}&c={}&over={over_ms}&reads={}&drafting={}",
        point.draft_cost,
        point.acceptance,
        point.length,
        point.batch,
        point.context,
        word(json!(point.reads)),
        word(json!(point.drafting)),
    );
    point
}

/// Computes the page's numbers for one state, with the library.
struct Library<'a> {
    point: &'a Point,
    target: Box<dyn LatencyModel>,
    draft: Box<dyn LatencyModel>,
}

impl Library<'_> {
    fn of(point: &Point) -> Library<'_> {
        Library { point, target: point.target.build(), draft: point.draft.build() }
    }

    fn draft_pass(&self, shape: PassShape) -> Time {
        let pass = self.draft.pass(shape);
        if self.point.draft_cost == 1.0 { pass } else { Time::from_s(pass.as_s() * self.point.draft_cost) }
    }

    /// The time of all draft passes of a step, and the time of its verify pass, as the simulator counts them.
    fn passes(&self, batch: u32, length: u32) -> (Time, Time) {
        let n = batch as usize;
        let (contexts, zeros, lengths) = (vec![self.point.context; n], vec![0; n], vec![length; n]);
        let view = BatchView {
            now: Time::ZERO,
            step: 0,
            ids: &zeros,
            context: &contexts,
            emitted: &zeros,
            limit: &lengths,
            draft_gap: &zeros,
            slo_tpot_s: &vec![f64::INFINITY; n],
            categories: Categories::default(),
            context_sum: u64::from(self.point.context) * n as u64,
            prefill: ChunkTotals::default(),
            draft_prefill: ChunkTotals::default(),
            always_extend: false,
            num_running: batch,
            num_waiting: 0,
        };
        let draft = match self.point.drafting {
            _ if length == 0 => Time::ZERO,
            Drafting::Parallel => self.draft_pass(shape::draft_block(&view, &lengths)),
            Drafting::Autoregressive => {
                (1..=length).map(|pass| self.draft_pass(shape::draft_pass(&view, &lengths, pass))).sum()
            }
        };
        (draft, self.target.pass(shape::verify_pass(&view, &lengths, self.point.reads)))
    }

    fn step_s(&self, batch: u32, length: u32) -> f64 {
        let (draft, verify) = self.passes(batch, length);
        (draft + verify + Time::from_s(self.point.overhead_s)).as_s()
    }

    fn speedup(&self, a: f64, batch: u32, length: u32) -> f64 {
        expected_tokens(a, length) * self.step_s(batch, 0) / self.step_s(batch, length)
    }
}

fn close(name: &str, page: &Value, library: f64, point: &Point) {
    let page = page.as_f64().unwrap_or_else(|| panic!("{name} is {page} at {}", point.hash));
    let off = (page - library).abs() / library.abs().max(1e-300);
    assert!(page == library || off <= 1e-9, "{name}: the page has {page}, the library {library} at {}", point.hash);
}

/// Compares every number of the page with the library.
fn compare(page: &Value, point: &Point) {
    let library = Library::of(point);
    let (a, n, k) = (point.acceptance, point.batch, point.length);
    let (draft, verify) = library.passes(n, k);
    close("expected_tokens", &page["expected_tokens"], expected_tokens(a, k), point);
    close("draft_s", &page["draft_s"], draft.as_s(), point);
    close("verify_s", &page["verify_s"], verify.as_s(), point);
    close("step_s", &page["step_s"], library.step_s(n, k), point);
    close("plain_step_s", &page["plain_step_s"], library.step_s(n, 0), point);
    let goodput = f64::from(n) * expected_tokens(a, k) / library.step_s(n, k);
    close("token_goodput_tok_s", &page["token_goodput_tok_s"], goodput, point);
    close("speedup", &page["speedup"], library.speedup(a, n, k), point);
    let best = (1..=LONGEST).map(|k| library.speedup(a, n, k)).fold(1.0, f64::max);
    close("best_speedup", &page["best_speedup"], best, point);
    let best_length = page["best_length"].as_u64().unwrap() as u32;
    close("best_length's speedup", &json!(library.speedup(a, n, best_length)), best, point);
    let pays = (1..=LONGEST).rev().find(|&k| library.speedup(a, n, k) > 1.0).unwrap_or(0);
    assert_eq!(page["break_even_length"], json!(pays), "{}", point.hash);
    if k > 0 {
        // The page shows the largest batch at which speculation pays, plus one; nothing if speculation pays up to
        // `MOST`.
        let pays_last = (1..=MOST).rev().find(|&n| library.speedup(a, n, k) > 1.0).unwrap_or(0);
        let stops = (pays_last < MOST).then_some(pays_last + 1);
        assert_eq!(page["break_even_batch"], json!(stops), "{}", point.hash);
        match page["break_even_acceptance"].as_f64() {
            None => assert!(library.speedup(1.0, n, k) < 1.0, "{}", point.hash),
            Some(0.0) => assert!(library.speedup(0.0, n, k) >= 1.0, "{}", point.hash),
            Some(needed) => close("speedup at break-even", &json!(library.speedup(needed, n, k)), 1.0, point),
        }
    }
    match point.target.memory() {
        None => assert!(page["kv"].is_null()),
        Some(memory) => {
            close("kv_bytes", &page["kv"]["kv_bytes"], memory.kv_bytes, point);
            close("kv_bytes_token", &page["kv"]["kv_bytes_token"], memory.kv_bytes_token, point);
        }
    }
}

/// Percent-encodes text for a URL.
fn escaped(text: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    text.bytes().map(|b| if plain(b) { (b as char).to_string() } else { format!("%{b:02X}") }).collect()
}

fn explorer(more: &[&str]) -> (Place, std::path::PathBuf) {
    let place = Place::new();
    let output = place.foretoken().args(["explore", "-o", "pages"]).args(more).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "pages/explore.html\n");
    let page = place.path("pages/explore.html");
    (place, page)
}

fn silent(opened: &Opened) {
    assert!(opened.console.is_empty(), "the page complains: {:#?}", opened.console);
}

#[test]
fn the_explorers_numbers_equal_the_librarys() {
    let (_place, page) = explorer(&[]);
    let mut draws = Draws(6);
    compare_all(&page, &(0..100).map(|_| any_point(&mut draws)).collect::<Vec<_>>());
}

/// A profile with every feature of a measured model: a smallest size above 1, flat and bent curves, curves of pairs and
/// of context that begin above 0, and a draft with a single point. The test also reads values outside of all curves.
fn every_feature() -> String {
    let target = json!({ "measured": {
        "batched": [[4, 2e-3], [16, 2e-3], [17, 3.5e-3], [256, 9e-3], [512, 9e-3], [2048, 40e-3]],
        "pairs": [[100, 1e-5], [10_000, 3e-4], [1_000_000, 3e-4], [2_000_000, 2e-3]],
        "context": [[64, 1e-6], [4096, 5e-5], [50_000, 1e-3], [60_000, 5e-3]],
    } });
    let model = |cost: Value| CalibratedModel {
        cost: spec(cost),
        belief: Coefficients::FREE,
        range: Range { requests: 8, batched: 2048, context: 60_000, pairs: 0 },
    };
    let calibrated = Calibrated {
        calibrated_version: CALIBRATED_VERSION,
        foretoken: "0.1.0".into(),
        server: "a server of a test".into(),
        distrust: None,
        warnings: vec!["a warning of the calibration".into()],
        step_overhead_s: 4e-4,
        host: foretoken_sim::HostLaw::default(),
        noise_cv: 0.0,
        draft_lengths: vec![0, 3],
        separated: true,
        context_reads: ContextReads::PerPosition,
        probes: vec![],
        fitted_to: vec![],
        target: model(target),
        draft: model(json!({ "measured": { "batched": [[1, 3e-4]], "context": [[1, 0.0], [1000, 2e-4]] } })),
    };
    calibrated.to_toml()
}

/// The costs of `explore --profile` must equal the library's, number by number. The profiles are the shipped one, one
/// that `calibrate` wrote, and one with every feature of a measured model.
#[test]
fn measured_costs_are_the_librarys_on_every_kind_of_profile() {
    let Some(calibration) = calibrated() else { return };
    let place = Place::new();
    std::fs::write(place.path("every.toml"), every_feature()).unwrap();
    let shipped = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("profiles/tiny-cpu.toml");
    let profiles = [
        ("shipped", shipped, "profile tiny-target + tiny-draft on AMD EPYC"),
        ("calibrated", calibration.path("cal/profile.toml"), "calibrated to stub"),
        ("every feature", place.path("every.toml"), "calibrated to a server of a test"),
    ];
    for (name, file, called) in profiles {
        let given = file.display().to_string();
        let costs = costs_of(&given, &std::fs::read_to_string(&file).unwrap()).unwrap();
        let (_place, page) = explorer(&["--profile", &given]);
        let opened = open(&page, "").unwrap();
        silent(&opened);
        assert!(opened.dom.contains(called), "{name} is called otherwise");
        assert!(!opened.dom.contains("it was edited or damaged"), "{name}: its seal does not fit");
        let shown = |id: &str| attribute_of(&opened.dom, id, "data-value").parse::<f64>().unwrap();
        assert!(shown("step_s") > shown("plain_step_s") && shown("plain_step_s") > 0.0, "{name}");
        let [target, draft] = costs.models.map(|m| m.0);
        let mut draws = Draws(7);
        let any = |_| any_load(&mut draws, target.clone(), draft.clone(), "hw=profile");
        compare_all(&page, &(0..40).map(any).collect::<Vec<_>>());
    }
}

/// The page opens with the host time and the context setting of the profile.
#[test]
fn a_profile_gives_the_host_time_and_the_reading_of_context() {
    let place = Place::new();
    std::fs::write(place.path("every.toml"), every_feature()).unwrap();
    let (_place, page) = explorer(&["--profile", place.path("every.toml").to_str().unwrap()]);
    let point = |hash: &str| {
        let opened = open(&page, hash)?;
        silent(&opened);
        Some(attribute_of(&opened.dom, "step_s", "data-value"))
    };
    let Some(usual) = point("") else { return };
    assert_eq!(point("#over=0.4&reads=per-position"), Some(usual.clone()));
    assert_ne!(point("#over=0.5"), Some(usual.clone()));
    assert_ne!(point("#reads=once"), Some(usual));
    let text = std::fs::read_to_string(&page).unwrap();
    assert!(text.contains("a warning of the calibration"));
}

/// Compares every number of the page at these states with the library.
fn compare_all(page: &std::path::Path, points: &[Point]) {
    let hashes: Vec<&str> = points.iter().map(|p| p.hash.as_str()).collect();
    let Some(opened) = open(page, &format!("#check={}", escaped(&json!(hashes).to_string()))) else { return };
    silent(&opened);
    let all: Vec<Value> = serde_json::from_str(&text_of(&opened.dom, "checked")).unwrap();
    assert_eq!(all.len(), points.len());
    all.iter().zip(points).for_each(|(page, point)| compare(page, point));
}

#[test]
fn the_hash_is_the_state_of_the_page() {
    let (_place, page) = explorer(&[]);
    let hash = "hw=a100-80g&target=vicuna-7b&draft=vicuna-68m&a=0.6&k=3&n=32&c=512";
    let Some(opened) = open(&page, &format!("#{hash}")) else { return };
    silent(&opened);
    let point = Point {
        hash: hash.into(),
        target: spec(json!({ "roofline": { "gpu": "a100-80g", "model": "vicuna-7b" } })),
        draft: spec(json!({ "roofline": { "gpu": "a100-80g", "model": "vicuna-68m" } })),
        draft_cost: 1.0,
        acceptance: 0.6,
        length: 3,
        batch: 32,
        context: 512,
        overhead_s: 0.0,
        reads: ContextReads::Once,
        drafting: Drafting::Autoregressive,
    };
    let shown = |id: &str| json!(attribute_of(&opened.dom, id, "data-value").parse::<f64>().unwrap());
    close("speedup", &shown("speedup"), Library::of(&point).speedup(0.6, 32, 3), &point);
    close("step_s", &shown("step_s"), Library::of(&point).step_s(32, 3), &point);
    assert!(text_of(&opened.dom, "headline").starts_with("Drafting 3 tokens pays: 1."), "{}", opened.dom);
    // The page drew curves, cells of the map and rows of the table.
    for (part, least) in [("<path", 3), ("class=\"cell\"", 16 * 30), ("<tr>", 30)] {
        assert!(opened.dom.matches(part).count() >= least, "{part}");
    }
}

#[test]
fn an_invalid_url_hash_is_ignored_and_reported() {
    let (_place, page) = explorer(&[]);
    let opened_at = |hash: &str| {
        let opened = open(&page, hash).inspect(silent)?;
        Some((attribute_of(&opened.dom, "speedup", "data-value"), text_of(&opened.dom, "link")))
    };
    let Some((usual, nothing)) = opened_at("") else { return };
    assert_eq!(nothing, "");
    let (speedup, said) = opened_at("#hw=a9000&a=x&k=&n=many&zzz=1&%").unwrap();
    assert_eq!(speedup, usual);
    for part in [
        "The link does not fit this page.",
        "hw = \"a9000\" is not known here: it stays h100. Known are ",
        "a = \"x\" is not a number: it stays 0.7.",
        "k = \"\" is not a number",
        "n = \"many\" is not a number",
        "There is no setting \"zzz\".",
        "There is no setting \"%\".",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let (_, said) = opened_at("#k=99&n=7.6").unwrap();
    assert!(said.contains("k = 99 becomes 16.") && said.contains("n = 7.6 becomes 8."), "{said}");
    let (other, said) = opened_at("#n=1024&k=16&a=0").unwrap();
    assert!(other != usual && said.is_empty(), "{said}");
}

/// If all costs were zero, every ratio would be 0 / 0.
#[test]
fn a_target_with_zero_cost_is_reported() {
    let (_place, page) = explorer(&[]);
    let Some(opened) = open(&page, "#hw=linear&ta=0&tg=0&td=0&da=0&dg=0&dd=0") else { return };
    silent(&opened);
    assert!(
        text_of(&opened.dom, "headline").contains("Give the target a cost"),
        "{}",
        text_of(&opened.dom, "headline")
    );
    crate::pages::sound("a target without a cost", &opened.dom);
}

#[test]
fn unwritable_pages_and_invalid_profiles_are_refused() {
    let place = Place::new();
    std::fs::write(place.path("file"), "").unwrap();
    assert!(place.fails(&["explore", "-o", "file/below"], 1).contains("choose another folder with -o"));
    assert!(place.fails(&["explore", "--profile", "none.toml"], 2).contains("cannot read the profile"));
    let error = place.fails(&["explore", "--profile", "x.toml"], 2);
    assert!(error.contains("x.toml") && error.contains("foretoken profile"), "{error}");
    let mut free: toml::Table = every_feature().parse().unwrap();
    let nothing = toml::toml! { linear = { alpha_s = 0.0, gamma_s = 0.0, delta_s = 0.0 } };
    free["target"]["cost"] = toml::Value::Table(nothing);
    std::fs::write(place.path("free.toml"), toml::to_string(&free).unwrap()).unwrap();
    let error = place.fails(&["explore", "--profile", "free.toml"], 2);
    assert!(error.contains("a target pass over one token takes no time"), "{error}");
}
