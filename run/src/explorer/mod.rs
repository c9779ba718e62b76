//! The break-even explorer: an HTML page that computes in the browser the time of a decode step, and the number of
//! tokens that the step is expected to emit.
//!
//! The page has a copy of the simulator's formulas in JavaScript (`model.js`), and of the reader of common
//! `config.json` files (`config.js`). The tests `tests/cli/explore*.rs` run the page in a browser and compare every
//! number with the library's. The presets (GPUs, models, acceptance sources) come from the library, so a new preset
//! needs no change here.

mod acceptance;
mod at_load;
mod planned_machine;
mod profiled_machine;

pub use acceptance::Acceptance;
pub use planned_machine::{by_depth, planned_machine};
pub use profiled_machine::profiled_machine;

use crate::host_band;
use foretoken_profiler::hardware::config::HARMLESS_KEYS;
use foretoken_profiler::hardware::floors::{self, SMALL_KERNELS, floors};
use foretoken_profiler::hardware::gpus::{Gpu, GpuChoice, GpuPreset, gpus};
use foretoken_profiler::hardware::models::catalog;
use foretoken_profiler::hardware::{LatencySpec, RooflineSpec};
use foretoken_report::html::policy;
use foretoken_sim::{ContextReads, Drafting, HostLaw};
use serde::Serialize;
use serde_json::{Map, Value, json};

/// The file name of the break-even explorer's page in a results folder.
pub const PAGE: &str = "explore.html";

const TEMPLATE: &str = include_str!("page.html");
const STYLE: &str = include_str!("style.css");
const SCRIPTS: [&str; 6] = [
    include_str!("model.js"),
    include_str!("config.js"),
    include_str!("words.js"),
    include_str!("experiment.js"),
    include_str!("charts.js"),
    include_str!("app.js"),
];

/// A machine (target, draft and their costs) that the explorer's page offers in addition to its presets. It comes from
/// a profile, or is the hardware of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    pub name: String,
    pub target: LatencySpec,
    pub draft: LatencySpec,
    /// Does a verify pass read the context once per request, or once per verified position?
    pub context_reads: ContextReads,
    /// Does the draft model need one pass per draft token, or one pass for all draft tokens?
    pub drafting: Drafting,
    /// Time of a step that the host (scheduler, Python, kernel launches) takes outside the step's passes, seconds.
    pub step_overhead_s: f64,
    /// The part of a step's host time (scheduler, Python, kernel launches) that depends on the step's requests and
    /// tokens; `None` if no part depends on them.
    pub host: Option<HostLaw>,
    /// The acceptance source with which the page opens, with its drawn numbers of tokens per step. `None` if the page
    /// opens with a constant acceptance rate or with rates by depth, which are settings of the page.
    pub acceptance: Option<Acceptance>,
    /// The settings with which the page opens, in the form of its URL hash, such as `acc=by-depth&rates=0.8,0.7`; may
    /// be empty.
    pub opens: String,
    /// Were the machine's pass times measured? False for a roofline, which computes them from datasheets.
    pub measured: bool,
    /// A note on the machine: where it was measured, and how far to trust it.
    pub note: String,
}

/// The break-even explorer's page as HTML, with styles, scripts and presets inline. If `machine` is given, the page
/// opens with that machine.
pub fn page(machine: Option<&Machine>) -> String {
    // A name that contains `</script>` would end the script element with the presets, so `<` is escaped.
    let presets = presets(machine).to_string().replace('<', "\\u003c");
    let script = SCRIPTS.concat();
    let parts = [
        ("/*POLICY*/", policy([script.as_str()], false)),
        ("/*STYLE*/", STYLE.trim_end().to_owned()),
        ("/*SCRIPT*/", script),
        ("/*PRESETS*/", presets),
    ];
    parts.iter().fold(TEMPLATE.to_owned(), |page, (mark, part)| page.replacen(mark, part, 1))
}

/// The hardware that the page offers, as JSON: datasheets of GPUs, bytes and operations of models, the default settings
/// of a roofline, and `machine`.
fn presets(machine: Option<&Machine>) -> Value {
    let preset = |g: &GpuPreset| (g.name.clone(), gpu(&GpuChoice::preset(&g.name), &g.gpu, &g.source));
    let mut gpus: Map<String, Value> = gpus().iter().map(preset).collect();
    let mut models: Map<String, Value> = catalog().iter().map(|e| (e.name.clone(), json!(e.shape.work()))).collect();
    let mut shapes = Map::new();
    let mut profile = json!(machine);
    if let Some(machine) = machine {
        let specs = [("target", &machine.target), ("draft", &machine.draft)];
        for (role, spec) in specs {
            if let LatencySpec::Roofline(roofline) = spec {
                own_hardware(role, roofline, &mut profile, &mut gpus, (&mut models, &mut shapes));
            }
        }
    }
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "gpus": gpus,
        "models": models,
        "shapes": shapes,
        "acceptances": acceptance::usual().into_iter().map(|(name, drawn)| (name, json!(drawn))).collect::<Map<_, _>>(),
        "host": { "source": host_band::SOURCE, "law": host_band::measured() },
        "harmless": HARMLESS_KEYS,
        "roofline": defaults(),
        "assumed": RooflineSpec::assumed(),
        "floors": floors::measured().iter().map(|f| (f.gpu.clone(), json!(f))).collect::<Map<_, _>>(),
        "small_kernels": SMALL_KERNELS,
        "floors_pass_s": floors::PASS_S,
        "profile": profile,
    })
}

/// A GPU of the page: its datasheet, and the name of the measured GPU whose floors its kernels have.
fn gpu(choice: &GpuChoice, gpu: &Gpu, source: &str) -> Value {
    let mut value = json!(gpu);
    value["source"] = source.into();
    value["floors"] = floors(choice, gpu).gpu.as_str().into();
    value
}

/// Adds the GPU and the model of a run's roofline to the page's presets, and writes their names into `profile`, the
/// page's settings of the run's machine. `role` is target or draft. A model that is no preset is also added to
/// `shapes`, from which the page writes experiments. If the run's settings change a model of the presets, the changed
/// model is added under a new name, and the preset does not change.
fn own_hardware(
    role: &str,
    roofline: &RooflineSpec,
    profile: &mut Value,
    gpus: &mut Map<String, Value>,
    (models, shapes): (&mut Map<String, Value>, &mut Map<String, Value>),
) {
    let (Ok(datasheet), Ok(shape)) = (roofline.gpu.gpu(), roofline.shape()) else { return };
    let named = &mut profile[role]["roofline"];
    if !gpus.contains_key(&roofline.gpu.to_string()) {
        let mut own = gpu(&roofline.gpu, &datasheet, "the run's settings");
        own["own"] = true.into();
        gpus.insert(roofline.gpu.to_string(), own);
    }
    named["gpu"] = roofline.gpu.to_string().into();
    let own = json!(shape.work());
    let mut name = roofline.model.to_string();
    if models.get(&name).is_some_and(|preset| *preset != own) {
        name = format!("{name} as this run sets it");
    }
    if models.get(&name).is_none() {
        shapes.insert(name.clone(), json!(shape));
    }
    models.insert(name.clone(), own);
    named["model"] = name.into();
}

/// The default settings of a roofline, with the first GPU and the first model of the presets.
fn defaults() -> RooflineSpec {
    RooflineSpec::new(&gpus()[0].name, &catalog()[0].name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_whole_and_fetches_nothing() {
        let page = page(None);
        for mark in ["/*POLICY*/", "/*STYLE*/", "/*SCRIPT*/", "/*PRESETS*/"] {
            assert!(TEMPLATE.contains(mark) && !page.contains(mark), "{mark} is left");
        }
        for outside in ["http:", "https:", "src=", "@import", "url("] {
            let inside = page.replace("http://www.w3.org/2000/svg", "").replace("url(#", "");
            let found = inside.contains(outside);
            assert!(!found, "the page refers to something outside: {outside}");
        }
    }

    #[test]
    fn a_name_cannot_end_the_script() {
        let linear = LatencySpec::Linear(foretoken_sim::Coefficients::FREE);
        let machine = Machine {
            name: "</script><b>".into(),
            target: linear.clone(),
            draft: linear,
            context_reads: ContextReads::Once,
            drafting: Drafting::Autoregressive,
            step_overhead_s: 0.0,
            host: None,
            acceptance: None,
            opens: String::new(),
            measured: false,
            note: String::new(),
        };
        assert!(!page(Some(&machine)).contains("</script><b>"));
    }
}
